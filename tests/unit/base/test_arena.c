/* Arena: alignment, zeroes, limits, reset, large blocks. */
#include "base/arena.h"

#include <stdalign.h>

#include "unit.h"

static void alloc_is_zeroed_and_aligned(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    for (size_t size = 0; size < 300; size++) {
        unsigned char *p = tdi_arena_alloc(&a, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(p[i], 0);
        }
        memset(p, 0xff, size);
    }
    tdi_arena_release(&a);
}

static void allocations_do_not_overlap(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    enum {
        N = 200
    };
    unsigned char *p[N];
    size_t size[N];
    for (size_t i = 0; i < N; i++) {
        size[i] = i % 10 == 0 ? 20000 : i * 7 % 500 + 1;
        p[i] = tdi_arena_alloc(&a, size[i]);
        assert_non_null(p[i]);
        memset(p[i], (int)i, size[i]);
    }
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < size[i]; k++) {
            assert_int_equal(p[i][k], (unsigned char)i);
        }
    }
    tdi_arena_release(&a);
}

static void limit_is_kept(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 100000);
    assert_null(tdi_arena_alloc(&a, 100001));
    size_t got = 0;
    while (tdi_arena_alloc(&a, 1000) != NULL) {
        got++;
        assert_true(a.bytes <= 100000);
    }
    assert_in_range(got, 90, 100);
    tdi_arena_release(&a);
    assert_int_equal(a.bytes, 0);
    /* Smaller than one ordinary block is possible too. */
    tdi_arena_init(&a, 1000);
    assert_non_null(tdi_arena_alloc(&a, 500));
    assert_null(tdi_arena_alloc(&a, 1000));
    assert_non_null(tdi_arena_alloc(&a, 100));
    tdi_arena_release(&a);
    tdi_arena_init(&a, 1);
    assert_null(tdi_arena_alloc(&a, 0));
    tdi_arena_release(&a);
}

static void no_limit_is_256_mib(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    assert_int_equal(a.bytes_max, 256u << 20);
    assert_null(tdi_arena_alloc(&a, (size_t)256 << 20));
    tdi_arena_release(&a);
}

static void overflow_is_refused(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, SIZE_MAX);
    assert_null(tdi_arena_alloc(&a, SIZE_MAX));
    assert_null(tdi_arena_alloc(&a, SIZE_MAX - 8));
    assert_null(tdi_arena_array(&a, SIZE_MAX / 2 + 1, 2));
    assert_null(tdi_arena_array(&a, 3, SIZE_MAX / 2));
    struct td_str s;
    assert_false(tdi_arena_str(&a, (struct td_str){"x", SIZE_MAX}, &s));
    tdi_arena_release(&a);
}

static void array_counts_zero_and_zeroes(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    assert_non_null(tdi_arena_array(&a, 0, 8));
    assert_non_null(tdi_arena_array(&a, 8, 0));
    uint64_t *v = tdi_arena_array(&a, 1000, sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(v[i], 0);
    }
    tdi_arena_release(&a);
}

static void reset_keeps_one_ordinary_block(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    tdi_arena_reset(&a);
    assert_int_equal(a.bytes, 0);
    tdi_arena_alloc(&a, 100000); /* large and first: is the head */
    tdi_arena_alloc(&a, 10);
    tdi_arena_alloc(&a, 100000);
    for (int i = 0; i < 100; i++) {
        memset(tdi_arena_alloc(&a, 1000), 0xff, 1000);
    }
    tdi_arena_reset(&a);
    assert_int_equal(a.bytes, TDI_ARENA_BLOCK_BYTES);
    unsigned char *p = tdi_arena_alloc(&a, 1000);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(p[i], 0);
    }
    assert_int_equal(a.bytes, TDI_ARENA_BLOCK_BYTES);
    tdi_arena_reset(&a);
    tdi_arena_reset(&a);
    assert_int_equal(a.bytes, TDI_ARENA_BLOCK_BYTES);
    tdi_arena_release(&a);
    assert_null(a.head);
    tdi_arena_release(&a);
}

static void large_block_does_not_waste_the_head(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    char *first = tdi_arena_alloc(&a, 16);
    tdi_arena_alloc(&a, 1 << 20);
    char *second = tdi_arena_alloc(&a, 16);
    assert_ptr_equal(second, first + 16);
    tdi_arena_release(&a);
}

static void str_copies_and_terminates(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    char text[] = "hello";
    struct td_str s = TD_STR_NONE;
    assert_true(tdi_arena_str(&a, (struct td_str){text, 4}, &s));
    text[0] = 'j';
    assert_int_equal(s.len, 4);
    assert_string_equal(s.data, "hell");
    assert_true(tdi_arena_str(&a, TD_STR_NONE, &s));
    assert_null(s.data);
    assert_true(tdi_arena_str(&a, TD_STR_LIT(""), &s));
    assert_non_null(s.data);
    assert_int_equal(s.len, 0);
    assert_string_equal(s.data, "");
    tdi_arena_release(&a);
}

static void bytes_keep_null_and_empty_apart(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    struct td_bytes b = {"x", 1};
    assert_true(tdi_arena_bytes(&a, TD_BYTES_NONE, &b));
    assert_null(b.data);
    assert_true(tdi_arena_bytes(&a, (struct td_bytes){"", 0}, &b));
    assert_non_null(b.data);
    assert_int_equal(b.len, 0);
    assert_true(tdi_arena_bytes(&a, (struct td_bytes){"a\0b", 3}, &b));
    assert_memory_equal(b.data, "a\0b", 4);
    tdi_arena_release(&a);
}

static void exhausted_leaves_outputs(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 200);
    char big[300] = {0};
    struct td_str s = TD_STR_LIT("before");
    struct td_bytes b = {"before", 6};
    assert_false(tdi_arena_str(&a, (struct td_str){big, sizeof(big)}, &s));
    assert_false(tdi_arena_bytes(&a, (struct td_bytes){big, sizeof(big)}, &b));
    assert_str(s, "before");
    assert_int_equal(b.len, 6);
    assert_null(tdi_arena_printf(&a, "%0300d", 1).data);
    tdi_arena_release(&a);
}

static void printf_formats(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    struct td_str s = tdi_arena_printf(&a, "%s-%d", "part", 42);
    assert_str(s, "part-42");
    assert_int_equal(s.data[s.len], '\0');
    s = tdi_arena_printf(&a, "%s", "");
    assert_non_null(s.data);
    assert_int_equal(s.len, 0);
    s = tdi_arena_printf(&a, "%05000d", 7);
    assert_int_equal(s.len, 5000);
    assert_int_equal(s.data[4999], '7');
    tdi_arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_is_zeroed_and_aligned),
        cmocka_unit_test(allocations_do_not_overlap),
        cmocka_unit_test(limit_is_kept),
        cmocka_unit_test(no_limit_is_256_mib),
        cmocka_unit_test(overflow_is_refused),
        cmocka_unit_test(array_counts_zero_and_zeroes),
        cmocka_unit_test(reset_keeps_one_ordinary_block),
        cmocka_unit_test(large_block_does_not_waste_the_head),
        cmocka_unit_test(str_copies_and_terminates),
        cmocka_unit_test(bytes_keep_null_and_empty_apart),
        cmocka_unit_test(exhausted_leaves_outputs),
        cmocka_unit_test(printf_formats),
    };
    return cmocka_run_group_tests_name("base/arena", tests, NULL, NULL);
}
