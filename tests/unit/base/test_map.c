/* Hash map: growth, deletes, the maximum, keys of every length; against a plain model. */
#include "base/map.h"

#include <stdio.h>

#include "base/clock.h"
#include "unit.h"

static const uint64_t seed[2] = {1, 2};

static struct td_str text(const char *s)
{
    return (struct td_str){.data = s, .len = strlen(s)};
}

static void empty_map_has_nothing(void **state)
{
    (void)state;
    struct tdi_map m;
    tdi_map_init(&m, seed, 0);
    size_t cursor = 0;
    struct td_str key;
    void *value;
    assert_null(tdi_map_get(&m, text("a")));
    assert_null(tdi_map_del(&m, text("a")));
    assert_false(tdi_map_next(&m, &cursor, &key, &value));
    tdi_map_release(&m);
    tdi_map_release(&m);
}

static void put_get_replace_del(void **state)
{
    (void)state;
    struct tdi_map m;
    int a, b;
    tdi_map_init(&m, seed, 0);
    char key[] = "key";
    assert_true(tdi_map_put(&m, text(key), &a));
    key[0] = 'K'; /* the map has a copy */
    assert_ptr_equal(tdi_map_get(&m, text("key")), &a);
    assert_null(tdi_map_get(&m, text("Key")));
    assert_true(tdi_map_put(&m, text("key"), &b));
    assert_int_equal(m.count, 1);
    assert_ptr_equal(tdi_map_get(&m, text("key")), &b);
    assert_ptr_equal(tdi_map_del(&m, text("key")), &b);
    assert_null(tdi_map_del(&m, text("key")));
    assert_null(tdi_map_get(&m, text("key")));
    assert_int_equal(m.count, 0);
    tdi_map_release(&m);
}

static void keys_of_every_length(void **state)
{
    (void)state;
    enum {
        LEN = 130
    };
    struct tdi_map m;
    char bytes[LEN];
    int values[LEN];
    memset(bytes, 0, sizeof(bytes));
    tdi_map_init(&m, seed, 0);
    for (size_t len = 0; len < LEN; len++) { /* the same NUL bytes, only more of them */
        char *key = exact_copy(bytes, len);
        assert_true(tdi_map_put(&m, (struct td_str){key, len}, &values[len]));
        free(key);
    }
    assert_int_equal(m.count, LEN);
    for (size_t len = 0; len < LEN; len++) {
        assert_ptr_equal(tdi_map_get(&m, (struct td_str){bytes, len}), &values[len]);
    }
    assert_ptr_equal(tdi_map_get(&m, TD_STR_NONE), &values[0]);
    for (size_t len = 0; len < LEN; len += 2) {
        assert_ptr_equal(tdi_map_del(&m, (struct td_str){bytes, len}), &values[len]);
    }
    for (size_t len = 1; len < LEN; len += 2) {
        assert_ptr_equal(tdi_map_get(&m, (struct td_str){bytes, len}), &values[len]);
    }
    assert_int_equal(m.count, LEN / 2);
    tdi_map_release(&m);
}

static void maximum_is_kept(void **state)
{
    (void)state;
    struct tdi_map m;
    int v, w;
    tdi_map_init(&m, seed, 3);
    assert_true(tdi_map_put(&m, text("a"), &v));
    assert_true(tdi_map_put(&m, text("b"), &v));
    assert_true(tdi_map_put(&m, text("c"), &v));
    assert_false(tdi_map_put(&m, text("d"), &v));
    assert_null(tdi_map_get(&m, text("d")));
    assert_true(tdi_map_put(&m, text("a"), &w)); /* replacing is no new entry */
    assert_ptr_equal(tdi_map_get(&m, text("a")), &w);
    tdi_map_del(&m, text("b"));
    assert_true(tdi_map_put(&m, text("d"), &v));
    assert_false(tdi_map_put(&m, text("b"), &v));
    assert_int_equal(m.count, 3);
    tdi_map_release(&m);
}

static void sliding_window_does_not_grow(void **state)
{
    (void)state;
    struct tdi_map m;
    int v;
    char key[64];
    tdi_map_init(&m, seed, 0);
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof(key), "%08d-and-so-on-to-36-characters-00000", i);
        assert_true(tdi_map_put(&m, text(key), &v));
        if (i >= 100) {
            snprintf(key, sizeof(key), "%08d-and-so-on-to-36-characters-00000", i - 100);
            assert_ptr_equal(tdi_map_del(&m, text(key)), &v);
        }
    }
    assert_int_equal(m.count, 100);
    assert_true(m.cap <= 256);
    tdi_map_release(&m);
}

static void iterating_sees_each_once(void **state)
{
    (void)state;
    enum {
        N = 1000
    };
    struct tdi_map m;
    char seen[N] = {0};
    int values[N];
    char key[16];
    tdi_map_init(&m, seed, 0);
    for (int i = 0; i < N; i++) {
        values[i] = i;
        snprintf(key, sizeof(key), "%d", i);
        assert_true(tdi_map_put(&m, text(key), &values[i]));
    }
    size_t cursor = 0;
    struct td_str k;
    void *v;
    size_t count = 0;
    while (tdi_map_next(&m, &cursor, &k, &v)) {
        int i = *(int *)v;
        snprintf(key, sizeof(key), "%d", i);
        assert_str(k, key);
        assert_int_equal(seen[i], 0);
        seen[i] = 1;
        count++;
    }
    assert_int_equal(count, N);
    assert_false(tdi_map_next(&m, &cursor, &k, &v));
    tdi_map_release(&m);
}

/* Random puts and deletes; `model` says what must be there. Small maps wrap around often. */
static void model_run(uint64_t run, size_t keys, size_t steps)
{
    struct tdi_map m;
    struct tdi_random r;
    static int values[2][500];
    int *model[500] = {NULL};
    size_t count = 0;
    char key[80];
    tdi_random_seed(&r, run);
    const uint64_t own_seed[2] = {tdi_random_u64(&r), tdi_random_u64(&r)};
    tdi_map_init(&m, own_seed, 0);
    for (size_t i = 0; i < steps; i++) {
        size_t k = (size_t)tdi_random_below(&r, keys);
        int len = snprintf(key, sizeof(key), k % 5 == 0 ? "%050zu" : "%zu", k);
        struct td_str ks = {key, (size_t)len};
        uint64_t what = tdi_random_below(&r, 4);
        assert_ptr_equal(tdi_map_get(&m, ks), model[k]);
        if (what < 2) {
            int *v = &values[what][k];
            assert_true(tdi_map_put(&m, ks, v));
            count += model[k] == NULL ? 1 : 0;
            model[k] = v;
        } else if (what == 2) {
            assert_ptr_equal(tdi_map_del(&m, ks), model[k]);
            count -= model[k] != NULL ? 1 : 0;
            model[k] = NULL;
        }
        assert_int_equal(m.count, count);
    }
    for (size_t k = 0; k < keys; k++) {
        int len = snprintf(key, sizeof(key), k % 5 == 0 ? "%050zu" : "%zu", k);
        assert_ptr_equal(tdi_map_get(&m, (struct td_str){key, (size_t)len}), model[k]);
    }
    tdi_map_release(&m);
}

static void agrees_with_a_model(void **state)
{
    (void)state;
    for (uint64_t run = 0; run < 300; run++) {
        model_run(run, run % 18 + 1, 300);
    }
    model_run(1000, 500, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_map_has_nothing),        cmocka_unit_test(put_get_replace_del),
        cmocka_unit_test(keys_of_every_length),         cmocka_unit_test(maximum_is_kept),
        cmocka_unit_test(sliding_window_does_not_grow), cmocka_unit_test(iterating_sees_each_once),
        cmocka_unit_test(agrees_with_a_model),
    };
    return cmocka_run_group_tests_name("base/map", tests, NULL, NULL);
}
