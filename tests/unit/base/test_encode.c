/* Hexadecimal and base64. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "unit.h"

static void hex(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 100000);
    tdi_hex_add(&b, "\x00\x01\x0f\xa0\xff", 5);
    assert_str(tdi_buf_str(&b), "00010fa0ff");
    tdi_buf_clear(&b);
    tdi_hex_add(&b, NULL, 0);
    assert_int_equal(b.len, 0);
    unsigned char many[1000];
    for (size_t i = 0; i < sizeof(many); i++) {
        many[i] = (unsigned char)(i * 7);
    }
    char *data = exact_copy(many, sizeof(many));
    tdi_hex_add(&b, data, sizeof(many));
    assert_int_equal(b.len, 2000);
    for (size_t i = 0; i < sizeof(many); i++) {
        char pair[3] = {b.data[2 * i], b.data[2 * i + 1], '\0'};
        assert_int_equal(strtoul(pair, NULL, 16), many[i]);
    }
    free(data);
    tdi_buf_release(&b);
}

/* RFC 4648, section 10, and bytes beyond ASCII. */
static const struct {
    const char *bytes;
    size_t len;
    const char *text;
} vectors[] = {
    {"", 0, ""},
    {"f", 1, "Zg=="},
    {"fo", 2, "Zm8="},
    {"foo", 3, "Zm9v"},
    {"foob", 4, "Zm9vYg=="},
    {"fooba", 5, "Zm9vYmE="},
    {"foobar", 6, "Zm9vYmFy"},
    {"\x00", 1, "AA=="},
    {"\xff\xff\xff", 3, "////"},
    {"\xfb\xef\xbe", 3, "++++"},
};

static void base64_is_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        struct tdi_buf b;
        tdi_buf_init(&b, 100);
        tdi_base64_add(&b, vectors[i].bytes, vectors[i].len);
        assert_str(tdi_buf_str(&b), vectors[i].text);
        tdi_buf_release(&b);
    }
}

static void base64_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        size_t text_len = strlen(vectors[i].text);
        char *text = exact_copy(vectors[i].text, text_len);
        unsigned char *out = (unsigned char *)exact_copy("............", text_len / 4 * 3);
        size_t len = 99;
        assert_true(tdi_base64_decode((struct td_str){text, text_len}, out, &len));
        assert_int_equal(len, vectors[i].len);
        assert_memory_equal(out, vectors[i].bytes, len);
        free(text);
        free(out);
    }
}

static void base64_round_trip(void **state)
{
    (void)state;
    struct tdi_random r;
    tdi_random_seed(&r, 1);
    unsigned char bytes[1500];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)tdi_random_u64(&r);
    }
    for (size_t len = 0; len < sizeof(bytes); len += len < 20 ? 1 : 37) {
        struct tdi_buf b;
        tdi_buf_init(&b, 10000);
        char *data = exact_copy(bytes, len);
        tdi_base64_add(&b, data, len);
        assert_int_equal(b.len, (len + 2) / 3 * 4);
        unsigned char out[1600];
        size_t got = 0;
        assert_true(tdi_base64_decode(tdi_buf_str(&b), out, &got));
        assert_int_equal(got, len);
        assert_memory_equal(out, bytes, len);
        free(data);
        tdi_buf_release(&b);
    }
}

static void wrong_base64_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "Z",        "Zg",
        "Zg=",      "Zm9vY",
        "=",        "==",
        "====",     "Z===",
        "=AAA",     "A=AA",
        "AA=A",     "Zg==Zg==",
        "Zm8=Zm8=", "Zm9v====",
        "Zm 9",     "Zm9\n",
        " Zm9",     "Zm9-",
        "Zm9_",     "Zm9.",
        "Zm9\x80",  "Zh==",
        "Zm9=",     "AB==",
        "AAB=",     "\xff\xff\xff\xff",
        "AA\n=",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned char out[12];
        size_t len = 99;
        size_t text_len = strlen(cases[i]);
        char *text = exact_copy(cases[i], text_len);
        if (tdi_base64_decode((struct td_str){text, text_len}, out, &len)) {
            fail_msg("taken: '%s'", cases[i]);
        }
        assert_int_equal(len, 99);
        free(text);
    }
}

static void base64_refuses_every_foreign_byte(void **state)
{
    (void)state;
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int c = 0; c < 256; c++) {
        for (size_t at = 0; at < 4; at++) {
            char text[4] = {'A', 'A', 'A', 'A'};
            text[at] = (char)c;
            unsigned char out[3];
            size_t len;
            bool want = (c != 0 && strchr(alphabet, c) != NULL) || (c == '=' && at == 3);
            assert_true(tdi_base64_decode((struct td_str){text, 4}, out, &len) == want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hex),
        cmocka_unit_test(base64_is_written),
        cmocka_unit_test(base64_is_read),
        cmocka_unit_test(base64_round_trip),
        cmocka_unit_test(wrong_base64_is_refused),
        cmocka_unit_test(base64_refuses_every_foreign_byte),
    };
    return cmocka_run_group_tests_name("base/encode", tests, NULL, NULL);
}
