/* Durations and sizes. */
#include "base/str.h"

#include "unit.h"

#define US INT64_C(1)
#define MS INT64_C(1000)
#define S (1000 * MS)
#define M (60 * S)
#define H (60 * M)
#define D (24 * H)

static bool parse(const char *text, td_time_us *ret, const char **ret_why)
{
    size_t len = strlen(text);
    char *p = exact_copy(text, len);
    bool ok = tdi_duration_parse((struct td_str){p, len}, ret, ret_why);
    free(p);
    return ok;
}

static void durations_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        td_time_us want;
    } cases[] = {
        {"250ms", 250 * MS},
        {"10s", 10 * S},
        {"1m", M},
        {"2h", 2 * H},
        {"7d", 7 * D},
        {"1h 30m", H + 30 * M},
        {"1h30m", H + 30 * M},
        {"1d 2h 3m 4s 5ms 6us", D + 2 * H + 3 * M + 4 * S + 5 * MS + 6 * US},
        {"90m", 90 * M},
        {"0s", 0},
        {"0d", 0},
        {"007s", 7 * S},
        {"1us", 1},
        {"9223372036854775807us", INT64_MAX},
        {"106751991d", 106751991 * D},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        td_time_us t = -1;
        assert_true(parse(cases[i].text, &t, NULL));
        assert_int_equal(t, cases[i].want);
    }
}

static void wrong_durations_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *why; /* part of it */
    } cases[] = {
        {"", "number"},
        {" ", "number"},
        {"s", "number"},
        {"-1s", "number"},
        {"+1s", "number"},
        {" 1s", "number"},
        {"10", "unit"},
        {"0", "unit"},
        {"10 s", "unit"},
        {"10S", "unit"},
        {"10sec", "unit"},
        {"10min", "unit"},
        {"1w", "unit"},
        {"1s ", "number"},
        {"1h  30m", "number"},
        {"1h, 30m", "number"},
        {"1h\t30m", "number"},
        {"1.5s", "fraction"},
        {"1h 1.5m", "fraction"},
        {"30m 1h", "large to small"},
        {"1m 1m", "large to small"},
        {"1ms 1s", "large to small"},
        {"106751992d", "too long"},
        {"9223372036854775808us", "too long"},
        {"106751991d 5h", "too long"},
        {"18446744073709551616s", "too large"},
        {"99999999999999999999999d", "too large"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        td_time_us t = -1;
        const char *why = NULL;
        if (parse(cases[i].text, &t, &why)) {
            fail_msg("taken: '%s'", cases[i].text);
        }
        assert_int_equal(t, -1);
        assert_non_null(why);
        if (strstr(why, cases[i].why) == NULL) {
            fail_msg("'%s': %s", cases[i].text, why);
        }
        assert_false(parse(cases[i].text, &t, NULL));
    }
    td_time_us t = -1;
    assert_false(tdi_duration_parse(TD_STR_NONE, &t, NULL));
    assert_false(tdi_duration_parse(TD_STR_LIT("1s\0"), &t, NULL));
}

static void durations_are_written(void **state)
{
    (void)state;
    static const struct {
        td_time_us us;
        const char *want;
    } cases[] = {
        {0, "0s"},
        {1, "1us"},
        {999, "999us"},
        {250 * MS, "250ms"},
        {1500 * MS, "1s 500ms"},
        {60 * S, "1m"},
        {90 * M, "1h 30m"},
        {24 * H, "1d"},
        {7 * D, "7d"},
        {D + 1, "1d 1us"},
        {-90 * S, "-1m 30s"},
        {INT64_MAX, "106751991d 4h 54s 775ms 807us"},
        {INT64_MIN, "-106751991d 4h 54s 775ms 808us"},
        {106751990 * D + 23 * H + 59 * M + 59 * S + 999 * MS + 999,
         "106751990d 23h 59m 59s 999ms 999us"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char buf[48];
        assert_string_equal(tdi_duration_format(cases[i].us, buf), cases[i].want);
        td_time_us back = 0;
        if (cases[i].us >= 0) {
            assert_true(parse(buf, &back, NULL));
            assert_int_equal(back, cases[i].us);
        }
    }
}

static bool size(const char *text, uint64_t *ret, const char **ret_why)
{
    size_t len = strlen(text);
    char *p = exact_copy(text, len);
    bool ok = tdi_size_parse((struct td_str){p, len}, ret, ret_why);
    free(p);
    return ok;
}

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {
        {"0", 0},
        {"1024", 1024},
        {"512B", 512},
        {"64KiB", 65536},
        {"1MiB", 1048576},
        {"2GiB", UINT64_C(2147483648)},
        {"1TiB", UINT64_C(1099511627776)},
        {"1kB", 1000},
        {"1KB", 1000},
        {"10MB", 10000000},
        {"1GB", 1000000000},
        {"3TB", UINT64_C(3000000000000)},
        {"1 MiB", 1048576},
        {"18446744073709551615", UINT64_MAX},
        {"16777215TiB", UINT64_C(16777215) << 40},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t n = 1;
        assert_true(size(cases[i].text, &n, NULL));
        assert_int_equal(n, cases[i].want);
    }
}

static void wrong_sizes_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {"", "number"},
        {"MiB", "number"},
        {"-1", "number"},
        {" 1", "number"},
        {"1K", "unit"},
        {"1M", "unit"},
        {"1mib", "unit"},
        {"1MIB", "unit"},
        {"1.5MiB", "unit"},
        {"1 ", "unit"},
        {"1  B", "unit"},
        {"1MiB ", "unit"},
        {"1MiB2", "unit"},
        {"1b", "unit"},
        {"18446744073709551616", "large"},
        {"16777216TiB", "large"},
        {"18446744073709552kB", "large"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t n = 1;
        const char *why = NULL;
        if (size(cases[i].text, &n, &why)) {
            fail_msg("taken: '%s'", cases[i].text);
        }
        assert_int_equal(n, 1);
        assert_non_null(strstr(why, cases[i].why));
        assert_false(size(cases[i].text, &n, NULL));
    }
    uint64_t n = 1;
    assert_false(tdi_size_parse(TD_STR_NONE, &n, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_read),
        cmocka_unit_test(wrong_durations_are_refused_with_a_reason),
        cmocka_unit_test(durations_are_written),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(wrong_sizes_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests_name("base/units", tests, NULL, NULL);
}
