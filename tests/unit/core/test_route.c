/* Routing patterns: validity, matching, overlap; matching also against a naive model. */
#include "base/clock.h"
#include "base/str.h"
#include "core/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void valid_patterns(void **state)
{
    (void)state;
    const char *good[] = {"a",       "order.paid", "order.*", "#",         "*",
                          "order.#", "#.paid",     "a.*.b.#", "größe.neu", "A_b-c.1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        const char *why = NULL;
        assert_true(tdi_pattern_valid(tdi_str(good[i]), &why));
        assert_null(why);
    }
    const char *bad[] = {"",   ".",    "a.",  ".a",   "a..b",  "order*", "*order",
                         "##", "a.#b", "a b", "a\tb", "a\x7f", "a.\xff"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *why = NULL;
        assert_false(tdi_pattern_valid(tdi_str(bad[i]), &why));
        assert_non_null(why);
        assert_false(tdi_pattern_valid(tdi_str(bad[i]), NULL));
    }
    char text[257];
    memset(text, 'x', sizeof(text));
    assert_true(tdi_pattern_valid((struct td_str){.data = text, .len = 255}, NULL));
    assert_false(tdi_pattern_valid((struct td_str){.data = text, .len = 256}, NULL));
    assert_false(tdi_pattern_valid(TD_STR_NONE, NULL));
}

static bool match(const char *pattern, const char *type)
{
    return tdi_pattern_match(tdi_str(pattern), tdi_str(type));
}

static void literal_words(void **state)
{
    (void)state;
    assert_true(match("order.paid", "order.paid"));
    assert_false(match("order.paid", "order.pai"));
    assert_false(match("order.paid", "order.paidx"));
    assert_false(match("order.paid", "Order.paid"));
    assert_false(match("order", "order.paid"));
    assert_false(match("order.paid", "order"));
    assert_false(match("order.paid", "order.paid.late"));
}

static void star_is_one_word(void **state)
{
    (void)state;
    assert_true(match("order.*", "order.paid"));
    assert_false(match("order.*", "order"));
    assert_false(match("order.*", "order.paid.late"));
    assert_true(match("*.paid", "order.paid"));
    assert_true(match("*", "order"));
    assert_false(match("*", "order.paid"));
    assert_false(match("*", ""));
    assert_true(match("a.*.c", "a..c")); /* an empty word is a word */
    assert_true(match("order.*", "order.*"));
}

static void hash_is_any_number(void **state)
{
    (void)state;
    assert_true(match("#", "order"));
    assert_true(match("#", "a.b.c.d"));
    assert_true(match("#", ""));
    assert_true(match("order.#", "order"));
    assert_true(match("order.#", "order.paid.late"));
    assert_false(match("order.#", "orders"));
    assert_true(match("#.late", "late"));
    assert_true(match("#.late", "order.late.late"));
    assert_false(match("#.late", "late.order"));
    assert_true(match("a.#.b.#.c", "a.b.c"));
    assert_true(match("a.#.b.#.c", "a.x.b.y.b.z.c"));
    assert_false(match("a.#.b.#.c", "a.x.y.c"));
    assert_true(match("#.*", "a"));
    assert_false(match("#.*", ""));
    assert_true(match("#.a.*", "a.a.b"));
    assert_true(match("#.#", "a"));
    assert_false(match("#.a.b", "a.b.a"));
}

static void many_hashes_stay_fast(void **state)
{
    (void)state;
    char pattern[256] = "";
    char type[256] = "";
    for (size_t i = 0; i < 60; i++) {
        memcpy(pattern + i * 4, "#.a.", 4);
        memcpy(type + i * 4, "a.a.", 4);
    }
    memcpy(pattern + 240, "b", 2);
    memcpy(type + 240, "c", 2);
    assert_false(match(pattern, type)); /* ends at all: 2^60 steps in a naive matcher */
}

static void lists(void **state)
{
    (void)state;
    struct td_str patterns[] = {TD_STR_LIT("order.paid"), TD_STR_LIT("user.#")};
    assert_true(tdi_patterns_match(patterns, 2, TD_STR_LIT("user.new")));
    assert_true(tdi_patterns_match(patterns, 2, TD_STR_LIT("order.paid")));
    assert_false(tdi_patterns_match(patterns, 2, TD_STR_LIT("order.new")));
    assert_true(tdi_patterns_match(NULL, 0, TD_STR_LIT("order.new")));
}

static bool overlap(const char *a, const char *b)
{
    bool there = tdi_patterns_overlap(tdi_str(a), tdi_str(b));
    assert_int_equal(there, tdi_patterns_overlap(tdi_str(b), tdi_str(a)));
    return there;
}

static void overlaps(void **state)
{
    (void)state;
    assert_true(overlap("order.paid", "order.paid"));
    assert_false(overlap("order.paid", "order.new"));
    assert_true(overlap("order.*", "*.paid"));
    assert_false(overlap("order.*", "order"));
    assert_false(overlap("order.*", "user.*"));
    assert_true(overlap("order.#", "order"));
    assert_true(overlap("#", "a.b"));
    assert_true(overlap("#", "#"));
    assert_true(overlap("a.#", "#.b"));
    assert_false(overlap("a.#", "b.#"));
    assert_false(overlap("#.a", "#.b"));
    assert_true(overlap("a.#.c", "a.b.*"));
    assert_false(overlap("a.*", "a.*.#.c"));
    assert_true(overlap("*.*", "#"));
    assert_false(overlap("*.*.*", "*.*"));
    char text[300];
    memset(text, 'x', sizeof(text));
    assert_true(tdi_patterns_overlap((struct td_str){.data = text, .len = 300}, TD_STR_LIT("a")));
}

/* ---- against a naive model: all types of up to 4 words over {a, b} ---- */

#define MODEL_TYPES 31 /* 1 + 2 + 4 + 8 + 16 */

static void model_type(unsigned n, char out[16])
{
    unsigned words = 0;
    while (n >= (1U << words)) {
        n -= 1U << words;
        words++;
    }
    size_t at = 0;
    for (unsigned i = 0; i < words; i++) {
        out[at++] = (n >> i) & 1 ? 'b' : 'a';
        out[at++] = '.';
    }
    out[at > 0 ? at - 1 : 0] = '\0';
}

/* Positions of the type that the pattern can have reached, as bits. */
static bool model_match(const char *pattern, const char *type)
{
    size_t words = (strlen(type) + 1) / 2;
    unsigned reached = 1;
    for (const char *p = pattern; *p; p += p[1] ? 2 : 1) {
        unsigned next = 0;
        for (size_t at = 0; at <= words; at++) {
            if (!(reached & (1U << at))) {
                continue;
            }
            if (*p == '#') {
                next |= ~0U << at;
            } else if (at < words && (*p == '*' || *p == type[at * 2])) {
                next |= 1U << (at + 1);
            }
        }
        reached = next;
    }
    return reached & (1U << words);
}

static void random_pattern(struct tdi_random *r, char out[16])
{
    size_t words = 1 + (size_t)tdi_random_below(r, 4);
    for (size_t i = 0; i < words; i++) {
        out[i * 2] = "ab*#"[tdi_random_below(r, 4)];
        out[i * 2 + 1] = '.';
    }
    out[words * 2 - 1] = '\0';
}

static void random_against_model(void **state)
{
    (void)state;
    struct tdi_random r;
    tdi_random_seed(&r, 42);
    for (int round = 0; round < 3000; round++) {
        char a[16];
        char b[16];
        random_pattern(&r, a);
        random_pattern(&r, b);
        bool met = false;
        for (unsigned n = 0; n < MODEL_TYPES; n++) {
            char type[16];
            model_type(n, type);
            bool in_a = model_match(a, type);
            assert_int_equal(match(a, type), in_a);
            met = met || (in_a && model_match(b, type));
        }
        if (met) {
            assert_true(overlap(a, b));
        } else if (!strchr(a, '#') || !strchr(b, '#')) {
            /* One of them without #: a common type has at most 4 words, so the model saw all. */
            assert_false(overlap(a, b));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_patterns),
        cmocka_unit_test(literal_words),
        cmocka_unit_test(star_is_one_word),
        cmocka_unit_test(hash_is_any_number),
        cmocka_unit_test(many_hashes_stay_fast),
        cmocka_unit_test(lists),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(random_against_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
