/* UUIDs of versions 7 and 5. */
#include "base/uuid.h"

#include "base/clock.h"
#include "unit.h"

static void version_5_vectors(void **state)
{
    (void)state;
    static const unsigned char dns[16] = {0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1,
                                          0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8};
    char out[TDI_UUID_TEXT_LEN + 1];
    tdi_uuid5_in(dns, TD_STR_LIT("www.example.com"), out); /* RFC 9562, appendix A.4 */
    assert_string_equal(out, "2ed6657d-e927-568b-95e1-2665a8aea6a2");
    tdi_uuid5_in(dns, TD_STR_LIT("python.org"), out); /* the Python manual */
    assert_string_equal(out, "886313e1-3b8a-5372-9b90-0c9aee199e5d");
}

/* These must never change: replay and emitted events rely on ids that follow from others. */
static void namespace_and_prefixes_are_fixed(void **state)
{
    (void)state;
    char out[TDI_UUID_TEXT_LEN + 1];
    const struct td_str emitted[] = {TD_STR_LIT("shop.points"), TD_STR_LIT("/shop"),
                                     TD_STR_LIT("42"), TD_STR_LIT("0")};
    tdi_uuid5(emitted, 4, out);
    assert_string_equal(out, "a37f2344-7250-502e-80ee-4bfd43fdedbd");
    tdi_uuid5(emitted, 0, out);
    assert_string_equal(out, "3814abbc-64e2-56d2-bf39-d878f14a7e5f");
    const struct td_str empty[] = {TD_STR_LIT("")};
    tdi_uuid5(empty, 1, out);
    assert_string_equal(out, "56c9a06b-cd5c-5424-aac8-c96386fec3ec");
    const struct td_str none[] = {TD_STR_NONE};
    tdi_uuid5(none, 1, out);
    assert_string_equal(out, "56c9a06b-cd5c-5424-aac8-c96386fec3ec");
}

static void parts_do_not_run_together(void **state)
{
    (void)state;
    char out[TDI_UUID_TEXT_LEN + 1];
    const struct td_str one[] = {TD_STR_LIT("ab"), TD_STR_LIT("c")};
    const struct td_str two[] = {TD_STR_LIT("a"), TD_STR_LIT("bc")};
    tdi_uuid5(one, 2, out);
    assert_string_equal(out, "92f9086c-b458-5ba7-8d70-8cd46154e2f0");
    tdi_uuid5(two, 2, out);
    assert_string_equal(out, "9c1a69c5-64ea-5525-985a-86fca400be11");
}

static void version_7_has_the_time_in_front(void **state)
{
    (void)state;
    struct tdi_random r;
    char out[TDI_UUID_TEXT_LEN + 1];
    tdi_random_seed(&r, 1);
    /* RFC 9562, appendix A.6: 2022-02-22T14:22:22.00-05:00 */
    tdi_uuid7(&r, INT64_C(1645557742000) * 1000, out);
    assert_memory_equal(out, "017f22e2-79b0-7000-", 19);
    assert_true(strchr("89ab", out[19]) != NULL);
    assert_int_equal(out[23], '-');
    assert_int_equal(strlen(out), TDI_UUID_TEXT_LEN);
    for (size_t i = 24; i < 36; i++) {
        assert_non_null(strchr("0123456789abcdef", out[i]));
    }
}

static void version_7_sorts_by_microseconds(void **state)
{
    (void)state;
    struct tdi_random r;
    char before[TDI_UUID_TEXT_LEN + 1];
    char out[TDI_UUID_TEXT_LEN + 1];
    tdi_random_seed(&r, 2);
    tdi_uuid7(&r, INT64_C(1700000000000000), before);
    for (td_time_us t = INT64_C(1700000000000001); t < INT64_C(1700000000003000); t++) {
        tdi_uuid7(&r, t, out);
        assert_true(strcmp(before, out) < 0);
        assert_int_equal(out[14], '7');
        memcpy(before, out, sizeof(out));
    }
}

static void version_7_differs_within_a_microsecond(void **state)
{
    (void)state;
    struct tdi_random r;
    char a[TDI_UUID_TEXT_LEN + 1];
    char b[TDI_UUID_TEXT_LEN + 1];
    tdi_random_seed(&r, 3);
    tdi_uuid7(&r, 5000, a);
    tdi_uuid7(&r, 5000, b);
    assert_memory_equal(a, b, 19);
    assert_string_not_equal(a, b);
}

static void version_7_survives_times_before_1970(void **state)
{
    (void)state;
    struct tdi_random r;
    char out[TDI_UUID_TEXT_LEN + 1];
    tdi_random_seed(&r, 4);
    tdi_uuid7(&r, -1, out);
    assert_memory_equal(out, "00000000-0000-7000-", 19);
    tdi_uuid7(&r, TD_TIME_NONE, out);
    assert_memory_equal(out, "00000000-0000-7000-", 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_5_vectors),
        cmocka_unit_test(namespace_and_prefixes_are_fixed),
        cmocka_unit_test(parts_do_not_run_together),
        cmocka_unit_test(version_7_has_the_time_in_front),
        cmocka_unit_test(version_7_sorts_by_microseconds),
        cmocka_unit_test(version_7_differs_within_a_microsecond),
        cmocka_unit_test(version_7_survives_times_before_1970),
    };
    return cmocka_run_group_tests_name("base/uuid", tests, NULL, NULL);
}
