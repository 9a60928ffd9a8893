/* The JSON reader takes the grammar of RFC 8259, UTF-8 included, and nothing else. */
#include "base/json.h"

#include "base/str.h"
#include "unit.h"

#define TEXT(s)                                                                                    \
    {                                                                                              \
        (s), sizeof(s) - 1                                                                         \
    }

static bool valid(struct td_str s, const char **ret_why, size_t *ret_offset)
{
    char *p = exact_copy(s.data, s.len);
    bool ok = tdi_json_valid((struct td_str){p, s.len}, ret_why, ret_offset);
    free(p);
    return ok;
}

static const struct td_str accepted[] = {
    /* Values alone, white space around them. */
    TEXT("null"),
    TEXT("true"),
    TEXT("false"),
    TEXT("0"),
    TEXT("\"\""),
    TEXT("[]"),
    TEXT("{}"),
    TEXT(" \t\r\n[ \t\r\n] \t\r\n"),
    TEXT("{ }"),
    TEXT("[null ]"),
    TEXT("[1\n]"),
    TEXT("{\"a\" : \"b\" , \"c\":\r\n{ } }"),
    /* Arrays and objects. */
    TEXT("[1,null,null,null,2]"),
    TEXT("[[]   ]"),
    TEXT("[\"\"]"),
    TEXT("[[[[[]]]],{},[{}]]"),
    TEXT("{\"a\":\"b\",\"a\":\"c\"}"),
    TEXT("{\"a\":\"b\",\"a\":\"b\"}"),
    TEXT("{\"\":0}"),
    TEXT("{\"foo\\u0000bar\":42}"),
    TEXT("{\"min\":-1.0e+28,\"max\":1.0e+28}"),
    TEXT("{\"x\":[{\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}],\"id\":\"y\"}"),
    TEXT("{\"a\":[]}"),
    TEXT("{\"title\":\"\\u041f\\u043e\\u043b\\u0442\\u043e\\u0440\\u0430\"}"),
    /* Numbers. */
    TEXT("[123e65]"),
    TEXT("[0e+1]"),
    TEXT("[0e1]"),
    TEXT("[ 4]"),
    TEXT("[-0.000000000000000000000000000000000000000000000000000000000000000000000000001]"),
    TEXT("[20e1]"),
    TEXT("[-0]"),
    TEXT("[-123]"),
    TEXT("[-1]"),
    TEXT("[1E22]"),
    TEXT("[1E-2]"),
    TEXT("[1E+2]"),
    TEXT("[123e45]"),
    TEXT("[123.456e78]"),
    TEXT("[1e-2]"),
    TEXT("[1e+2]"),
    TEXT("[123.456789]"),
    TEXT("[1e9999]"),
    TEXT("[-1e-9999]"),
    TEXT("123456789012345678901234567890123456789012345678901234567890"),
    TEXT("1"),
    TEXT("-0"),
    TEXT("0.5"),
    TEXT("1e005"),
    TEXT("0.00"),
    /* Strings. */
    TEXT("[\"\\u0060\\u012a\\u12AB\"]"),
    TEXT("[\"\\uD801\\udc37\"]"),
    TEXT("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]"),
    TEXT("[\"\\\\u0000\"]"),
    TEXT("[\"\\\"\"]"),
    TEXT("[\"a/*b*/c/*d//e\"]"),
    TEXT("[\"\\\\a\"]"),
    TEXT("[\"\\\\n\"]"),
    TEXT("[\"\\u0012\"]"),
    TEXT("[\"\\uFFFF\"]"),
    TEXT("[\"\xf4\x8f\xbf\xbf\"]"),
    TEXT("[\"\xef\xbf\xbf\"]"),
    TEXT("[\"\x7f\"]"),
    TEXT("[\"\\u0000\"]"),
    TEXT("[\"\xcf\x80\"]"),
    TEXT("[\"\xe2\x80\xa8\xe2\x80\xa9\"]"),
    TEXT("\" \""),
    TEXT("[\"\xe2\x82\xac\xf0\x9d\x84\x9e\"]"),
    TEXT("[\"new\\u000Aline\"]"),
    TEXT("[\"asd \"]"),
    /* Lone surrogates are grammar; that they have no UTF-8 shows when they are decoded. */
    TEXT("[\"\\uD800\"]"),
    TEXT("[\"\\uDd1ea\"]"),
    TEXT("[\"\\uD888\\u1234\"]"),
};

static const struct td_str refused[] = {
    TEXT(""),
    TEXT(" "),
    TEXT("\n\n"),
    TEXT("\0"),
    TEXT("[]\0"),
    TEXT("\xef\xbb\xbf"),
    TEXT("\xef\xbb\xbf{}"),
    TEXT("\xff\xfe[\0]\0"),
    /* Arrays. */
    TEXT("[1 true]"),
    TEXT("[a\xe5]"),
    TEXT("[\"\": 1]"),
    TEXT("[\"\"],"),
    TEXT("[,1]"),
    TEXT("[1,,2]"),
    TEXT("[\"x\",,]"),
    TEXT("[\"x\"]]"),
    TEXT("[\"\",]"),
    TEXT("[\"x\""),
    TEXT("[x"),
    TEXT("[3[4]]"),
    TEXT("[\xff]"),
    TEXT("[1:2]"),
    TEXT("[,]"),
    TEXT("[-]"),
    TEXT("[   , \"\"]"),
    TEXT("[\"a\",\n4\n,1,"),
    TEXT("[1,]"),
    TEXT("[\"\va\"\\f]"),
    TEXT("[*]"),
    TEXT("[\"\""),
    TEXT("[1,"),
    TEXT("[1,\n1\n,1"),
    TEXT("[{}"),
    TEXT("["),
    TEXT("]"),
    TEXT("[[]"),
    TEXT("[}"),
    TEXT("{]"),
    TEXT("[1}"),
    TEXT("{\"a\":1]"),
    TEXT("[1\f]"),
    TEXT("[\xc2\xa0]"),
    TEXT("[\xe2\x81\xa0]"),
    /* Objects. */
    TEXT("{"),
    TEXT("}"),
    TEXT("{\"a\""),
    TEXT("{\"a\":"),
    TEXT("{\"a\":1"),
    TEXT("{\"a\":1,"),
    TEXT("[\"x\", truth]"),
    TEXT("{[: \"x\"}\n"),
    TEXT("{\"x\", null}"),
    TEXT("{\"x\"::\"b\"}"),
    TEXT("{\"a\":\"a\" 123}"),
    TEXT("{key: 'value'}"),
    TEXT("{\"\xb9\":\"0\",}"),
    TEXT("{\"a\" b}"),
    TEXT("{:\"b\"}"),
    TEXT("{\"a\" \"b\"}"),
    TEXT("{1:1}"),
    TEXT("{9999E9999:1}"),
    TEXT("{null:null,null:null}"),
    TEXT("{\"id\":0,,,,,}"),
    TEXT("{'a':0}"),
    TEXT("{\"id\":0,}"),
    TEXT("{\"a\":\"b\"}/**/"),
    TEXT("{\"a\":\"b\"}//"),
    TEXT("{\"a\":/*c*/\"b\"}"),
    TEXT("{\"a\":\"b\",,\"c\":\"d\"}"),
    TEXT("{a: \"b\"}"),
    TEXT("{\"a\":\"a"),
    TEXT("{ \"foo\" : \"bar\", \"a\" }"),
    TEXT("{\"a\":\"b\"}#"),
    TEXT("{,}"),
    TEXT("{\"a\":}"),
    TEXT("{\"a\":1 \"b\":2}"),
    /* Literals. */
    TEXT("nul"),
    TEXT("[fals]"),
    TEXT("[nul]"),
    TEXT("[tru]"),
    TEXT("[True]"),
    TEXT("[NULL]"),
    TEXT("nulll"),
    TEXT("truefalse"),
    TEXT("[undefined]"),
    TEXT("t"),
    /* Numbers. */
    TEXT("[++1234]"),
    TEXT("[+1]"),
    TEXT("[+Inf]"),
    TEXT("[-01]"),
    TEXT("[-1.0.]"),
    TEXT("[-2.]"),
    TEXT("[-NaN]"),
    TEXT("[.-1]"),
    TEXT("[.2e-3]"),
    TEXT("[0.1.2]"),
    TEXT("[0.3e+]"),
    TEXT("[0.3e]"),
    TEXT("[0.e1]"),
    TEXT("[0E+]"),
    TEXT("[0E]"),
    TEXT("[0e+-1]"),
    TEXT("[1.0e+]"),
    TEXT("[1.0e-]"),
    TEXT("[1.0e]"),
    TEXT("[1 000.0]"),
    TEXT("[1eE2]"),
    TEXT("[2.e+3]"),
    TEXT("[2.e-3]"),
    TEXT("[2.e3]"),
    TEXT("[9.e+]"),
    TEXT("[Inf]"),
    TEXT("[NaN]"),
    TEXT("[\xef\xbc\x91]"),
    TEXT("[1+2]"),
    TEXT("[0x1]"),
    TEXT("[0x42]"),
    TEXT("[Infinity]"),
    TEXT("[0e+"),
    TEXT("[-123.123foo]"),
    TEXT("[123\xe5]"),
    TEXT("[1e1\xe5]"),
    TEXT("[0\xe5]"),
    TEXT("[-Infinity]"),
    TEXT("[-foo]"),
    TEXT("[- 1]"),
    TEXT("[-012]"),
    TEXT("[-.123]"),
    TEXT("[1ea]"),
    TEXT("[1.]"),
    TEXT("[.123]"),
    TEXT("[1.2a-3]"),
    TEXT("[1.8011670033376514H-308]"),
    TEXT("[012]"),
    TEXT("-"),
    TEXT("01"),
    TEXT("1."),
    TEXT("1e"),
    TEXT("1e+"),
    TEXT("00"),
    TEXT("1 2"),
    /* Strings. */
    TEXT("\""),
    TEXT("[\"\\uD800\\\"]"),
    TEXT("[\"\\uD800\\u\"]"),
    TEXT("[\"\\uD800\\u1\"]"),
    TEXT("[\"\\uD800\\u1x\"]"),
    TEXT("[\xc3\xa9]"),
    TEXT("[\"\\\0\"]"),
    TEXT("[\"\\\\\\\"]"),
    TEXT("[\"\\\t\"]"),
    TEXT("[\"\\\xf0\x9f\x8c\x80\"]"),
    TEXT("[\"\\\"]"),
    TEXT("[\"\\u00A\"]"),
    TEXT("[\"\\uD834\\uDd\"]"),
    TEXT("[\"\\uD800\\uD800\\x\"]"),
    TEXT("[\"\\u\xe5\"]"),
    TEXT("[\"\\a\"]"),
    TEXT("[\"\\uqqqq\"]"),
    TEXT("[\"\\\xe5\"]"),
    TEXT("[\\u0020\"asd\"]"),
    TEXT("[\\n]"),
    TEXT("['single quote']"),
    TEXT("abc"),
    TEXT("[\"\\"),
    TEXT("[\"\\u"),
    TEXT("[\"\\u12"),
    TEXT("[\"a\0a\"]"),
    TEXT("[\"new\nline\"]"),
    TEXT("[\"\t\"]"),
    TEXT("[\"\x1f\"]"),
    TEXT("[\"\x01xxxxxxxxxxxxxxxx\"]"),
    TEXT("[\"\\UA66D\"]"),
    TEXT("\"\"x"),
    TEXT("[\"\xe5\"]"),
    TEXT("[\"\xed\xa0\x80\"]"),
    TEXT("[\"\xc0\xaf\"]"),
    TEXT("[\"\xfc\x80\x80\x80\x80\x80\"]"),
    TEXT("[\"\x81\"]"),
    TEXT("[\"\xf4\xbf\xbf\xbf\"]"),
    TEXT("[\"\xff\"]"),
    TEXT("[\"\xe0\xff\"]"),
    TEXT("{\"\xff\":1}"),
    /* Structure. */
    TEXT("<.>"),
    TEXT("[<null>]"),
    TEXT("[1]x"),
    TEXT("[1]]"),
    TEXT("[\"asd]"),
    TEXT("a\xc3\xa5"),
    TEXT("[true"),
    TEXT("{\"asd\":\"asd\""),
    TEXT("{}}"),
    TEXT("{\"\":"),
    TEXT("[][]"),
    TEXT("{\"a\":/*comment*/\"b\"}"),
    TEXT("{\"a\": true} \"x\""),
    TEXT("['"),
    TEXT("[,"),
    TEXT("[{"),
    TEXT("[\"a"),
    TEXT("{,"),
    TEXT("{["),
    TEXT("{\"a"),
    TEXT("{'a'"),
    TEXT("[\"\\{[\"\\{[\"\\{[\"\\{"),
    TEXT("*"),
    TEXT("#{\"a\":1}"),
    TEXT("[\\u000A\"\"]"),
    TEXT("[1"),
    TEXT("[ false, nul"),
    TEXT("[ true, tru"),
    TEXT("\v1"),
    TEXT("\xc2\x85"
         "1"),
};

static void good_texts_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(accepted); i++) {
        const char *why = NULL;
        if (!valid(accepted[i], &why, NULL)) {
            fail_msg("refused: '%s': %s", accepted[i].data, why);
        }
    }
}

static void bad_texts_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++) {
        const char *why = NULL;
        size_t offset = SIZE_MAX;
        if (valid(refused[i], &why, &offset)) {
            fail_msg("taken: '%s'", refused[i].data);
        }
        assert_non_null(why);
        assert_in_range(offset, 0, refused[i].len);
        assert_false(valid(refused[i], NULL, NULL));
    }
    assert_false(tdi_json_valid(TD_STR_NONE, NULL, NULL));
}

/* No proper beginning of a text that is an array or object or string is a text. */
static void cut_texts_are_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"k\\u00e4y\":[1.5e+3,-0,\"\xe4\xb8\xad\xf0\x9f\x98\x80\\n\","
                               "true,false,null,{}],\"second\":\"12345678901234567890\"}";
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        assert_false(valid((struct td_str){text, len}, NULL, NULL));
    }
    assert_true(valid((struct td_str){text, sizeof(text) - 1}, NULL, NULL));
}

static void error_says_where_and_why(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t offset;
        const char *why;
    } cases[] = {
        {"", 0, "the text is empty"},
        {"{\"a\":1,}", 7, "a key is expected"},
        {"{\"a\" 1}", 5, "a colon is expected"},
        {"[1 2]", 3, "a comma or ] is expected"},
        {"{\"a\":1 2}", 7, "a comma or } is expected"},
        {"[1,]", 3, "a value is expected"},
        {"[\"ab\\x\"]", 4, "not an escape of JSON"},
        {"[\"ab\n\"]", 4, "a control character within a string must be escaped"},
        {"[\"ab\xff\"]", 4, "not UTF-8"},
        {"[\"ab", 4, "the text ends within a string"},
        {"[1", 2, "the text ends too early"},
        {"1 x", 2, "something follows the value"},
        {"[01]", 3, "not a number of JSON"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *why = NULL;
        size_t offset = SIZE_MAX;
        assert_false(valid(tdi_str(cases[i].text), &why, &offset));
        assert_string_equal(why, cases[i].why);
        assert_int_equal(offset, cases[i].offset);
    }
}

static void nesting_is_limited(void **state)
{
    (void)state;
    char text[4 * TDI_JSON_DEPTH_MAX + 8];
    for (size_t depth = TDI_JSON_DEPTH_MAX - 1; depth <= TDI_JSON_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        const char *why = NULL;
        bool ok = valid((struct td_str){text, 2 * depth}, &why, NULL);
        assert_true(ok == (depth <= TDI_JSON_DEPTH_MAX));
        if (!ok) {
            assert_string_equal(why, "nested too deeply");
        }
    }
    size_t huge = 1000000; /* hostile: must neither recurse nor crash */
    char *p = malloc(huge);
    memset(p, '[', huge);
    assert_false(tdi_json_valid((struct td_str){p, huge}, NULL, NULL));
    for (size_t i = 0; i + 5 <= huge; i += 5) {
        memcpy(p + i, "{\"\":[", 5);
    }
    assert_false(tdi_json_valid((struct td_str){p, huge}, NULL, NULL));
    free(p);
}

/* A special byte at every distance from the start and end of a string: each path of the scan. */
static void scan_finds_specials_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        bool ok;
    } specials[] = {
        {"\\n", 2, true},
        {"\\u00e4", 6, true},
        {"\xc3\xa4", 2, true},
        {"\xe4\xb8\xad", 3, true},
        {"\xf0\x9f\x98\x80", 4, true},
        {"\x7f", 1, true},
        {" ", 1, true},
        {"!", 1, true},
        {"#", 1, true},
        {"[", 1, true},
        {"]", 1, true},
        {"\x1f", 1, false},
        {"\0", 1, false},
        {"\x80", 1, false},
        {"\xc3", 1, false},
        {"\xff", 1, false},
        {"\\x", 2, false},
        {"\"", 1, false},
        {"\xe4\xb8", 2, false},
    };
    for (size_t i = 0; i < COUNT(specials); i++) {
        for (size_t before = 0; before < 20; before++) {
            for (size_t after = 0; after < 20; after++) {
                char text[64];
                memset(text, 'x', sizeof(text));
                text[0] = '"';
                memcpy(text + 1 + before, specials[i].bytes, specials[i].len);
                size_t len = 1 + before + specials[i].len + after;
                text[len++] = '"';
                assert_true(valid((struct td_str){text, len}, NULL, NULL) == specials[i].ok);
                if (specials[i].ok) { /* without the closing quote */
                    assert_false(valid((struct td_str){text, len - 1}, NULL, NULL));
                }
            }
        }
    }
}

static void every_byte_in_a_string(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        for (size_t at = 0; at < 17; at++) {
            char text[19];
            memset(text, 'x', sizeof(text));
            text[0] = '"';
            text[18] = '"';
            text[1 + at] = (char)c;
            bool want = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
            if (c == '\\') {
                continue; /* depends on what follows */
            }
            assert_true(valid((struct td_str){text, sizeof(text)}, NULL, NULL) == want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_are_taken),   cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(cut_texts_are_refused),  cmocka_unit_test(error_says_where_and_why),
        cmocka_unit_test(nesting_is_limited),     cmocka_unit_test(scan_finds_specials_everywhere),
        cmocka_unit_test(every_byte_in_a_string),
    };
    return cmocka_run_group_tests_name("base/json_grammar", tests, NULL, NULL);
}
