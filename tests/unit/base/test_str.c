/* Comparing, numbers, UTF-8, ids, edit distance. */
#include "base/str.h"

#include "unit.h"

static void str_of_null_is_absent(void **state)
{
    (void)state;
    assert_null(tdi_str(NULL).data);
    assert_int_equal(tdi_str(NULL).len, 0);
    assert_str(tdi_str("abc"), "abc");
    assert_str(tdi_str(""), "");
}

static void equality_keeps_absent_and_empty_apart(void **state)
{
    (void)state;
    assert_true(tdi_str_eq(TD_STR_LIT("a"), TD_STR_LIT("a")));
    assert_false(tdi_str_eq(TD_STR_LIT("a"), TD_STR_LIT("b")));
    assert_false(tdi_str_eq(TD_STR_LIT("a"), TD_STR_LIT("ab")));
    assert_true(tdi_str_eq(TD_STR_LIT("a\0b"), TD_STR_LIT("a\0b")));
    assert_false(tdi_str_eq(TD_STR_LIT("a\0b"), TD_STR_LIT("a\0c")));
    assert_true(tdi_str_eq(TD_STR_NONE, TD_STR_NONE));
    assert_true(tdi_str_eq(TD_STR_LIT(""), TD_STR_LIT("")));
    assert_false(tdi_str_eq(TD_STR_NONE, TD_STR_LIT("")));
    assert_false(tdi_str_eq(TD_STR_LIT(""), TD_STR_NONE));
    assert_true(tdi_str_is(TD_STR_LIT("run"), "run"));
    assert_false(tdi_str_is(TD_STR_LIT("run"), "runs"));
    assert_true(tdi_str_is(TD_STR_NONE, NULL));
    assert_false(tdi_str_is(TD_STR_NONE, ""));
}

static void starts_and_empty(void **state)
{
    (void)state;
    assert_true(tdi_str_starts(TD_STR_LIT("relay:x"), "relay:"));
    assert_true(tdi_str_starts(TD_STR_LIT("relay:"), "relay:"));
    assert_false(tdi_str_starts(TD_STR_LIT("relay"), "relay:"));
    assert_true(tdi_str_starts(TD_STR_LIT(""), ""));
    assert_false(tdi_str_starts(TD_STR_NONE, ""));
    assert_true(tdi_str_empty(TD_STR_NONE));
    assert_true(tdi_str_empty(TD_STR_LIT("")));
    assert_false(tdi_str_empty(TD_STR_LIT(" ")));
}

static void order_is_of_bytes(void **state)
{
    (void)state;
    assert_int_equal(tdi_str_cmp(TD_STR_LIT("a"), TD_STR_LIT("b")), -1);
    assert_int_equal(tdi_str_cmp(TD_STR_LIT("b"), TD_STR_LIT("a")), 1);
    assert_int_equal(tdi_str_cmp(TD_STR_LIT("a"), TD_STR_LIT("a")), 0);
    assert_int_equal(tdi_str_cmp(TD_STR_LIT("a"), TD_STR_LIT("aa")), -1);
    assert_int_equal(tdi_str_cmp(TD_STR_LIT("aa"), TD_STR_LIT("a")), 1);
    assert_int_equal(tdi_str_cmp(TD_STR_LIT("a"), TD_STR_LIT("\xc3\xa4")), -1);
    assert_int_equal(tdi_str_cmp(TD_STR_NONE, TD_STR_LIT("")), 0);
    assert_int_equal(tdi_str_cmp(TD_STR_NONE, TD_STR_LIT("a")), -1);
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"7", 7},
        {"-7", -7},
        {"007", 7},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807", -INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"000000000000000000000000000001", 1},
    };
    static const char *const bad[] = {
        "",
        "-",
        "+1",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "--1",
        "0x10",
        "a",
        "1a",
        "1_000",
        "9223372036854775808",
        "-9223372036854775809",
        "9223372036854775810",
        "18446744073709551616",
        "-18446744073709551616",
        "99999999999999999999999999",
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        int64_t v = 99;
        size_t len = strlen(good[i].text);
        char *p = exact_copy(good[i].text, len);
        assert_true(tdi_str_to_i64((struct td_str){p, len}, &v));
        assert_int_equal(v, good[i].value);
        free(p);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t v = 99;
        size_t len = strlen(bad[i]);
        char *p = exact_copy(bad[i], len);
        assert_false(tdi_str_to_i64((struct td_str){p, len}, &v));
        assert_int_equal(v, 99);
        free(p);
    }
    int64_t v = 99;
    assert_false(tdi_str_to_i64(TD_STR_NONE, &v));
    assert_false(tdi_str_to_i64(TD_STR_LIT("1\0"), &v));
}

/* With 0 to 20 plain bytes before and some behind, so that every path of the scan meets it. */
static void check_utf8(const char *bytes, size_t len, bool valid)
{
    for (size_t before = 0; before <= 20; before++) {
        for (size_t after = 0; after <= 9; after += 3) {
            char text[64];
            memset(text, 'x', sizeof(text));
            memcpy(text + before, bytes, len);
            size_t all = before + len + after;
            char *p = exact_copy(text, all);
            assert_true(tdi_utf8_valid((struct td_str){p, all}) == valid);
            free(p);
        }
    }
}

#define GOOD(s) check_utf8((s), sizeof(s) - 1, true)
#define BAD(s) check_utf8((s), sizeof(s) - 1, false)

static void utf8_good(void **state)
{
    (void)state;
    assert_true(tdi_utf8_valid(TD_STR_NONE));
    GOOD("");
    GOOD("\0");
    GOOD("\x7f");
    GOOD("\xc2\x80");
    GOOD("\xdf\xbf");
    GOOD("\xe0\xa0\x80");
    GOOD("\xe2\x82\xac");
    GOOD("\xed\x9f\xbf");
    GOOD("\xee\x80\x80");
    GOOD("\xef\xbf\xbf");
    GOOD("\xf0\x90\x80\x80");
    GOOD("\xf4\x8f\xbf\xbf");
    GOOD("\xe4\xb8\xad\xe6\x96\x87\xc3\xa4\xf0\x9f\x98\x80");
}

static void utf8_bad(void **state)
{
    (void)state;
    BAD("\x80"); /* continuation alone */
    BAD("\xbf");
    BAD("\xc0\x80"); /* overlong */
    BAD("\xc1\xbf");
    BAD("\xe0\x80\x80");
    BAD("\xe0\x9f\xbf");
    BAD("\xf0\x80\x80\x80");
    BAD("\xf0\x8f\xbf\xbf");
    BAD("\xed\xa0\x80"); /* surrogates */
    BAD("\xed\xbf\xbf");
    BAD("\xf4\x90\x80\x80"); /* beyond U+10FFFF */
    BAD("\xf5\x80\x80\x80");
    BAD("\xff");
    BAD("\xfe");
    BAD("\xc2"); /* cut */
    BAD("\xe2\x82");
    BAD("\xf0\x9f\x98");
    BAD("\xc2\xc2\x80");
    BAD("\xe2\x28\xa1");
    BAD("\xe2\x82\x28");
    BAD("\xf0\x28\x8c\xbc");
    BAD("\xf0\x90\x28\xbc");
    BAD("\xf0\x90\x8c\x28");
}

/* Every sequence of two and of three bytes, against the definition by code points. */
static void utf8_exhaustive(void **state)
{
    (void)state;
    for (unsigned a = 0x80; a < 0x100; a++) {
        for (unsigned b = 0; b < 0x100; b++) {
            char two[2] = {(char)a, (char)b};
            bool tail = (b & 0xc0) == 0x80;
            assert_true(tdi_utf8_valid((struct td_str){two, 2}) ==
                        (tail && a >= 0xc2 && a <= 0xdf));
            for (unsigned c = 0x70; c < 0xd0; c++) {
                char three[3] = {(char)a, (char)b, (char)c};
                unsigned code = (a & 15) << 12 | (b & 63) << 6 | (c & 63);
                bool valid = (a & 0xf0) == 0xe0 && tail && (c & 0xc0) == 0x80 && code >= 0x800 &&
                             (code < 0xd800 || code > 0xdfff);
                valid = valid || (a >= 0xc2 && a <= 0xdf && tail && c < 0x80);
                assert_true(tdi_utf8_valid((struct td_str){three, 3}) == valid);
            }
        }
    }
}

static void ids(void **state)
{
    (void)state;
    assert_true(tdi_str_is_id(TD_STR_LIT("!aZ09~"), 255));
    assert_false(tdi_str_is_id(TD_STR_LIT(""), 255));
    assert_false(tdi_str_is_id(TD_STR_NONE, 255));
    assert_false(tdi_str_is_id(TD_STR_LIT("a b"), 255));
    assert_false(tdi_str_is_id(TD_STR_LIT("a\n"), 255));
    assert_false(tdi_str_is_id(TD_STR_LIT("a\x7f"), 255));
    assert_false(tdi_str_is_id(TD_STR_LIT("\xc3\xa4"), 255));
    assert_false(tdi_str_is_id(TD_STR_LIT("a\0"), 255));
    assert_true(tdi_str_is_id(TD_STR_LIT("abc"), 3));
    assert_false(tdi_str_is_id(TD_STR_LIT("abcd"), 3));
}

static void distance(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        unsigned want;
    } cases[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"same", "same", 0},
        {"kitten", "sitting", 3},
        {"status", "satus", 1},
        {"stauts", "status", 2},
        {"flaw", "lawn", 2},
        {"a", "b", 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(tdi_str_distance(tdi_str(cases[i].a), tdi_str(cases[i].b)), cases[i].want);
        assert_int_equal(tdi_str_distance(tdi_str(cases[i].b), tdi_str(cases[i].a)), cases[i].want);
    }
    char longest[65];
    memset(longest, 'x', sizeof(longest));
    assert_int_equal(tdi_str_distance((struct td_str){longest, 64}, TD_STR_LIT("")), 64);
    assert_int_equal(tdi_str_distance((struct td_str){longest, 65}, TD_STR_LIT("x")), 99);
    assert_int_equal(tdi_str_distance(TD_STR_LIT("x"), (struct td_str){longest, 65}), 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(str_of_null_is_absent),
        cmocka_unit_test(equality_keeps_absent_and_empty_apart),
        cmocka_unit_test(starts_and_empty),
        cmocka_unit_test(order_is_of_bytes),
        cmocka_unit_test(integers),
        cmocka_unit_test(utf8_good),
        cmocka_unit_test(utf8_bad),
        cmocka_unit_test(utf8_exhaustive),
        cmocka_unit_test(ids),
        cmocka_unit_test(distance),
    };
    return cmocka_run_group_tests_name("base/str", tests, NULL, NULL);
}
