/* The JSON reader: tokens, decoding, skipping, integers, damaged texts. */
#include "base/json.h"

#include "base/arena.h"
#include "base/clock.h"
#include "unit.h"

#define TEXT(s)                                                                                    \
    {                                                                                              \
        (s), sizeof(s) - 1                                                                         \
    }

static void tokens_come_in_order(void **state)
{
    (void)state;
    static const char text[] = " {\"a\" : [1, -2.5e3 ,\"s\\n\",true,false,null,{}], \"\":\"\"} ";
    static const struct {
        enum tdi_json_kind kind;
        const char *raw;
        size_t offset;
        size_t end;
    } want[] = {
        {TDI_JSON_OBJECT_BEGIN, "{", 1, 2},  {TDI_JSON_KEY, "a", 2, 5},
        {TDI_JSON_ARRAY_BEGIN, "[", 8, 9},   {TDI_JSON_NUMBER, "1", 9, 10},
        {TDI_JSON_NUMBER, "-2.5e3", 12, 18}, {TDI_JSON_STRING, "s\\n", 20, 25},
        {TDI_JSON_TRUE, "true", 26, 30},     {TDI_JSON_FALSE, "false", 31, 36},
        {TDI_JSON_NULL, "null", 37, 41},     {TDI_JSON_OBJECT_BEGIN, "{", 42, 43},
        {TDI_JSON_OBJECT_END, "}", 43, 44},  {TDI_JSON_ARRAY_END, "]", 44, 45},
        {TDI_JSON_KEY, "", 47, 49},          {TDI_JSON_STRING, "", 50, 52},
        {TDI_JSON_OBJECT_END, "}", 52, 53},  {TDI_JSON_END, "", 54, 54},
        {TDI_JSON_END, "", 54, 54},
    };
    struct tdi_json j;
    tdi_json_init(&j, (struct td_str){text, sizeof(text) - 1});
    for (size_t i = 0; i < COUNT(want); i++) {
        struct tdi_json_token t;
        assert_int_equal(tdi_json_next(&j, &t), want[i].kind);
        assert_int_equal(t.kind, want[i].kind);
        assert_str(t.raw, want[i].raw);
        assert_int_equal(t.offset, want[i].offset);
        assert_int_equal(t.end, want[i].end);
        assert_true(t.escaped == (i == 5));
    }
}

static void error_stays(void **state)
{
    (void)state;
    struct tdi_json j;
    struct tdi_json_token t;
    tdi_json_init(&j, TD_STR_LIT("[1,]"));
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_ARRAY_BEGIN);
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_NUMBER);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_ERROR);
        assert_int_equal(t.kind, TDI_JSON_ERROR);
        assert_int_equal(t.offset, 3);
        assert_string_equal(j.why, "a value is expected");
    }
}

static void skip_goes_behind_the_end(void **state)
{
    (void)state;
    struct tdi_json j;
    struct tdi_json_token t;
    tdi_json_init(&j, TD_STR_LIT("[[1,[{}],{\"]\":\"}\"}],\"x\",{}]"));
    tdi_json_next(&j, &t);
    tdi_json_next(&j, &t);
    assert_true(tdi_json_skip(&j, &t));
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_STRING);
    assert_true(tdi_json_skip(&j, &t)); /* nothing to skip */
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_OBJECT_BEGIN);
    assert_true(tdi_json_skip(&j, &t));
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_ARRAY_END);
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_END);

    tdi_json_init(&j, TD_STR_LIT("[[1,}"));
    tdi_json_next(&j, &t);
    tdi_json_next(&j, &t);
    assert_false(tdi_json_skip(&j, &t));
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_ERROR);
    assert_false(tdi_json_skip(&j, &t));
}

/* The one string in a text, decoded. */
static bool decode(struct td_str text, struct tdi_arena *a, struct td_str *ret)
{
    struct tdi_json j;
    struct tdi_json_token t;
    tdi_json_init(&j, text);
    assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_STRING);
    return tdi_json_text(&t, a, ret);
}

static void strings_are_decoded(void **state)
{
    (void)state;
    static const struct {
        struct td_str text;
        struct td_str want;
    } cases[] = {
        {TEXT("\"\""), TEXT("")},
        {TEXT("\"plain\""), TEXT("plain")},
        {TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), TEXT("\"\\/\b\f\n\r\t")},
        {TEXT("\"a\\u0041b\""), TEXT("aAb")},
        {TEXT("\"\\u0000x\""), TEXT("\0x")},
        {TEXT("\"\\u007f\\u0080\\u07ff\""), TEXT("\x7f\xc2\x80\xdf\xbf")},
        {TEXT("\"\\u0800\\uffff\\uFFFF\""), TEXT("\xe0\xa0\x80\xef\xbf\xbf\xef\xbf\xbf")},
        {TEXT("\"\\ud800\\udc00\""), TEXT("\xf0\x90\x80\x80")},
        {TEXT("\"\\uDBFF\\uDFFF\""), TEXT("\xf4\x8f\xbf\xbf")},
        {TEXT("\"x\\uD83D\\uDE00y\""), TEXT("x\xf0\x9f\x98\x80y")},
        {TEXT("\"\xe4\xb8\xad\\n\xe6\x96\x87\""), TEXT("\xe4\xb8\xad\n\xe6\x96\x87")},
        {TEXT("\"\\ud7ff\\ue000\""), TEXT("\xed\x9f\xbf\xee\x80\x80")},
    };
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *p = exact_copy(cases[i].text.data, cases[i].text.len);
        struct td_str got = TD_STR_NONE;
        assert_true(decode((struct td_str){p, cases[i].text.len}, &a, &got));
        assert_int_equal(got.len, cases[i].want.len);
        assert_memory_equal(got.data, cases[i].want.data, got.len);
        free(p);
    }
    tdi_arena_release(&a);
}

static void lone_surrogates_have_no_text(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "\"\\ud800\"",        "\"\\udc00\"",        "\"\\ud800x\"",        "\"\\ud800\\n\"",
        "\"\\ud800\\u0041\"", "\"\\ud800\\ud800\"", "\"\\udc00\\ud800\"",  "\"\\udc00\\udc00\"",
        "\"a\\udfff\"",       "\"\\ud800xxxxxx\"",  "\"\\ud800\\\\dc00\"",
    };
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct td_str got = TD_STR_LIT("before");
        size_t len = strlen(cases[i]);
        char *p = exact_copy(cases[i], len);
        assert_false(decode((struct td_str){p, len}, &a, &got));
        assert_str(got, "before");
        free(p);
    }
    tdi_arena_release(&a);
}

static void plain_text_needs_no_memory(void **state)
{
    (void)state;
    struct tdi_arena a;
    struct td_str got;
    tdi_arena_init(&a, 1);
    struct td_str text = TD_STR_LIT("\"plain\"");
    assert_true(decode(text, &a, &got));
    assert_ptr_equal(got.data, text.data + 1);
    assert_false(decode(TD_STR_LIT("\"\\n\""), &a, &got)); /* exhausted */
    tdi_arena_release(&a);
}

static void text_is_compared_without_decoding(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *with;
        bool want;
    } cases[] = {
        {"\"type\"", "type", true},         {"\"type\"", "typ", false},
        {"\"type\"", "types", false},       {"\"\"", "", true},
        {"\"t\\u0079pe\"", "type", true},   {"\"t\\u0079pe\"", "typ", false},
        {"\"t\\u0079pe\"", "types", false}, {"\"t\\u0079pe\"", "t", false},
        {"\"t\\u0079pe\"", "", false},      {"\"\\u00e4\\n\"", "\xc3\xa4\n", true},
        {"\"\\u00e4\\n\"", "\xc3", false},  {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", true},
        {"\"a\\ud83d\"", "a", false},       {"\"\\u0000\"", "", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tdi_json j;
        struct tdi_json_token t;
        size_t len = strlen(cases[i].text);
        char *p = exact_copy(cases[i].text, len);
        tdi_json_init(&j, (struct td_str){p, len});
        assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_STRING);
        assert_true(tdi_json_text_is(&t, cases[i].with) == cases[i].want);
        free(p);
    }
    struct tdi_json j;
    struct tdi_json_token t;
    tdi_json_init(&j, TD_STR_LIT("\"\\u0000x\""));
    tdi_json_next(&j, &t);
    assert_true(tdi_json_text_eq(&t, TD_STR_LIT("\0x")));
    assert_false(tdi_json_text_eq(&t, TD_STR_LIT("\0y")));
}

static void integers(void **state)
{
    (void)state;
    int64_t v = 5;
    assert_true(tdi_json_int(TD_STR_LIT("0"), &v));
    assert_int_equal(v, 0);
    assert_true(tdi_json_int(TD_STR_LIT("-0"), &v));
    assert_int_equal(v, 0);
    assert_true(tdi_json_int(TD_STR_LIT("9223372036854775807"), &v));
    assert_true(v == INT64_MAX);
    assert_true(tdi_json_int(TD_STR_LIT("-9223372036854775808"), &v));
    assert_true(v == INT64_MIN);
    v = 5;
    assert_false(tdi_json_int(TD_STR_LIT("9223372036854775808"), &v));
    assert_false(tdi_json_int(TD_STR_LIT("1.0"), &v));
    assert_false(tdi_json_int(TD_STR_LIT("1e2"), &v));
    assert_false(tdi_json_int(TD_STR_LIT("1E2"), &v));
    assert_int_equal(v, 5);
}

/* Damaged texts: the reader ends, stays inside (ASan), and its depth stays in bounds. */
static void survives_damage(void **state)
{
    (void)state;
    static const char good[] =
        "{\"id\":\"a\\u00e4\",\"list\":[1,2.5,-3e9,{\"x\":null},[true,false]]"
        ",\"text\":\"\xe4\xb8\xad\xe6\x96\x87 plain text behind it\"}";
    struct tdi_random r;
    tdi_random_seed(&r, 1);
    size_t taken = 0;
    for (int i = 0; i < 20000; i++) {
        size_t len = sizeof(good) - 1;
        char *p = exact_copy(good, len);
        for (uint64_t n = tdi_random_below(&r, 3) + 1; n > 0; n--) {
            p[tdi_random_below(&r, len)] =
                i % 2 == 0 ? good[tdi_random_below(&r, len)] : (char)tdi_random_u64(&r);
        }
        struct tdi_json j;
        struct tdi_json_token t;
        tdi_json_init(&j, (struct td_str){p, len});
        size_t tokens = 0;
        enum tdi_json_kind kind;
        do {
            kind = tdi_json_next(&j, &t);
            assert_in_range(j.depth, 0, TDI_JSON_DEPTH_MAX);
            assert_in_range(t.end, t.offset, len);
            tokens++;
        } while (kind != TDI_JSON_END && kind != TDI_JSON_ERROR);
        assert_in_range(tokens, 1, len + 1);
        taken += kind == TDI_JSON_END ? 1 : 0;
        free(p);
    }
    assert_in_range(taken, 1, 19999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_in_order),
        cmocka_unit_test(error_stays),
        cmocka_unit_test(skip_goes_behind_the_end),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(lone_surrogates_have_no_text),
        cmocka_unit_test(plain_text_needs_no_memory),
        cmocka_unit_test(text_is_compared_without_decoding),
        cmocka_unit_test(integers),
        cmocka_unit_test(survives_damage),
    };
    return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
