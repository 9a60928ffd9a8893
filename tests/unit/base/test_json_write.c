/* The JSON writer: escapes, hostile bytes, members, one-line copies. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "unit.h"

static void assert_written(struct td_str s, const char *want)
{
    struct tdi_buf b;
    tdi_buf_init(&b, 10000);
    char *p = s.data != NULL ? exact_copy(s.data, s.len) : NULL;
    tdi_json_add_string(&b, (struct td_str){p, s.len});
    assert_false(b.failed);
    assert_str(tdi_buf_str(&b), want);
    free(p);
    tdi_buf_release(&b);
}

#define WRITTEN(s, want) assert_written(TD_STR_LIT(s), (want))

static void strings_are_escaped(void **state)
{
    (void)state;
    assert_written(TD_STR_NONE, "null");
    WRITTEN("", "\"\"");
    WRITTEN("plain text", "\"plain text\"");
    WRITTEN("\"\\/", "\"\\\"\\\\/\"");
    WRITTEN("\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\"");
    WRITTEN("a\0b", "\"a\\u0000b\"");
    WRITTEN("\x01\x1f", "\"\\u0001\\u001f\"");
    WRITTEN("\x1b[31m", "\"\\u001b[31m\"");
    WRITTEN("\x7f", "\"\\u007f\"");
    WRITTEN("\xc2\x80\xc2\x9b\xc2\x9f", "\"\\u0080\\u009b\\u009f\"");
    WRITTEN("\xc2\xa0\xc3\x84", "\"\xc2\xa0\xc3\x84\"");
    WRITTEN("\xe4\xb8\xad\xc3\xa4\xf0\x9f\x98\x80", "\"\xe4\xb8\xad\xc3\xa4\xf0\x9f\x98\x80\"");
}

static void invalid_utf8_is_replaced(void **state)
{
    (void)state;
    WRITTEN("a\xff"
            "b",
            "\"a\xef\xbf\xbd"
            "b\"");
    WRITTEN("\x80", "\"\xef\xbf\xbd\"");
    WRITTEN("\xc3", "\"\xef\xbf\xbd\"");
    WRITTEN("\xc2", "\"\xef\xbf\xbd\"");
    WRITTEN("\xc2\n", "\"\xef\xbf\xbd\\n\"");
    WRITTEN("\xe4\xb8", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    WRITTEN("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    WRITTEN("\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

/* Whatever goes in, the reader takes what comes out; valid text comes back as it was. */
static void reader_takes_everything(void **state)
{
    (void)state;
    struct tdi_random r;
    tdi_random_seed(&r, 1);
    for (int i = 0; i < 5000; i++) {
        char bytes[40];
        size_t len = (size_t)tdi_random_below(&r, sizeof(bytes) + 1);
        for (size_t k = 0; k < len; k++) {
            uint64_t x = tdi_random_u64(&r);
            bytes[k] = (char)(i % 2 == 0 ? x : x & 0x7f);
        }
        struct td_str s = {bytes, len};
        struct tdi_buf b;
        struct tdi_arena a;
        tdi_buf_init(&b, 1000);
        tdi_arena_init(&a, 0);
        tdi_json_add_string(&b, s);
        struct tdi_json j;
        struct tdi_json_token t;
        tdi_json_init(&j, tdi_buf_str(&b));
        assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_STRING);
        struct td_str back;
        assert_true(tdi_json_text(&t, &a, &back));
        assert_int_equal(tdi_json_next(&j, &t), TDI_JSON_END);
        if (tdi_utf8_valid(s)) {
            assert_true(tdi_str_eq(back, s));
        }
        for (size_t k = 0; k < b.len; k++) {
            assert_true((unsigned char)b.data[k] >= 0x20 && b.data[k] != 0x7f);
        }
        tdi_arena_release(&a);
        tdi_buf_release(&b);
    }
}

static void members_and_commas(void **state)
{
    (void)state;
    struct tdi_buf b;
    bool first = true;
    tdi_buf_init(&b, 1000);
    tdi_buf_add_char(&b, '{');
    tdi_json_add_member(&b, &first, "id", TD_STR_LIT("a\"b"));
    tdi_json_add_member(&b, &first, "none", TD_STR_NONE);
    tdi_json_add_member_int(&b, &first, "min", INT64_MIN);
    tdi_json_add_member_int(&b, &first, "max", INT64_MAX);
    tdi_json_add_key(&b, &first, "q\"k");
    tdi_buf_add_cstr(&b, "[]}");
    assert_str(tdi_buf_str(&b), "{\"id\":\"a\\\"b\",\"none\":null,\"min\":-9223372036854775808,"
                                "\"max\":9223372036854775807,\"q\\\"k\":[]}");
    assert_false(first);
    assert_true(tdi_json_valid(tdi_buf_str(&b), NULL, NULL));
    tdi_buf_release(&b);
}

static void line_has_no_line_feeds(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 1000);
    tdi_buf_add_cstr(&b, "before\n");
    tdi_json_add_line(&b, TD_STR_LIT("{\n\t\"a\" :\r\n 1.50,\"a\":\"x\\ny\"\n}\n"));
    assert_str(tdi_buf_str(&b), "before\n{ \t\"a\" :   1.50,\"a\":\"x\\ny\" } ");
    tdi_buf_release(&b);
}

static void full_buffer_is_noticed(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 10);
    tdi_json_add_line(&b, TD_STR_LIT("\n\n\n\n\n\n\n\n\n\n\n"));
    assert_true(b.failed);
    assert_int_equal(b.len, 0);
    tdi_buf_clear(&b);
    tdi_json_add_string(&b, TD_STR_LIT("123456789"));
    assert_true(b.failed);
    tdi_buf_clear(&b);
    tdi_json_add_string(&b, TD_STR_LIT("12345678"));
    assert_false(b.failed);
    assert_str(tdi_buf_str(&b), "\"12345678\"");
    tdi_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),     cmocka_unit_test(invalid_utf8_is_replaced),
        cmocka_unit_test(reader_takes_everything), cmocka_unit_test(members_and_commas),
        cmocka_unit_test(line_has_no_line_feeds),  cmocka_unit_test(full_buffer_is_noticed),
    };
    return cmocka_run_group_tests_name("base/json_write", tests, NULL, NULL);
}
