/* RFC 3339 times, against literal values and against libc's calendar. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "unit.h"

static bool parse(const char *text, td_time_us *ret)
{
    size_t len = strlen(text);
    char *p = exact_copy(text, len);
    bool ok = tdi_time_parse((struct td_str){p, len}, ret);
    free(p);
    return ok;
}

static void times_are_written(void **state)
{
    (void)state;
    static const struct {
        td_time_us t;
        const char *want;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000000Z"},
        {1, "1970-01-01T00:00:00.000001Z"},
        {-1, "1969-12-31T23:59:59.999999Z"},
        {-1000000, "1969-12-31T23:59:59.000000Z"},
        {INT64_C(951827696789012), "2000-02-29T12:34:56.789012Z"},
        {INT64_C(1709251199999999), "2024-02-29T23:59:59.999999Z"},
        {INT64_C(4107542400000000), "2100-03-01T00:00:00.000000Z"},
        {INT64_C(4107542399000000), "2100-02-28T23:59:59.000000Z"},
        {INT64_C(253402300799999999), "9999-12-31T23:59:59.999999Z"},
        {INT64_C(-62167219200000000), "0000-01-01T00:00:00.000000Z"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char buf[TDI_TIME_BYTES];
        td_time_us back = 0;
        assert_string_equal(tdi_time_format(cases[i].t, buf), cases[i].want);
        assert_true(parse(buf, &back));
        assert_int_equal(back, cases[i].t);
    }
}

static void extreme_times_stay_inside_the_buffer(void **state)
{
    (void)state;
    static const td_time_us cases[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX,
                                       INT64_C(253402300800000000), INT64_C(-62167219200000001)};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *buf = exact_copy("................................", TDI_TIME_BYTES);
        td_time_us t = 7;
        tdi_time_format(cases[i], buf);
        assert_in_range(strnlen(buf, TDI_TIME_BYTES), 25, TDI_TIME_BYTES - 1);
        assert_false(parse(buf, &t));
        assert_int_equal(t, 7);
        free(buf);
    }
    char buf[TDI_TIME_BYTES];
    assert_string_equal(tdi_time_format(INT64_MAX, buf), "294247-01-10T04:00:54.775807Z");
    assert_string_equal(tdi_time_format(INT64_MIN, buf), "-290308-12-21T19:59:05.224192Z");
}

static void agrees_with_libc(void **state)
{
    (void)state;
    struct tdi_random r;
    tdi_random_seed(&r, 1);
    for (int i = 0; i < 20000; i++) {
        /* 0000 to 9999 */
        time_t s = (time_t)tdi_random_below(&r, UINT64_C(315569520000)) - INT64_C(62167219200);
        struct tm tm;
        assert_non_null(gmtime_r(&s, &tm));
        char want[80];
        snprintf(want, sizeof(want), "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year + 1900,
                 tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, i);
        char buf[TDI_TIME_BYTES];
        td_time_us t = s * TD_SECOND_US + i;
        td_time_us back = 0;
        assert_string_equal(tdi_time_format(t, buf), want);
        assert_true(parse(buf, &back));
        assert_int_equal(back, t);
    }
}

static void times_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        td_time_us want;
    } cases[] = {
        /* The examples of RFC 3339, section 5.8. */
        {"1985-04-12T23:20:50.52Z", INT64_C(482196050520000)},
        {"1996-12-19T16:39:57-08:00", INT64_C(851042397000000)},
        {"1990-12-31T23:59:60Z", INT64_C(662688000000000)},
        {"1990-12-31T15:59:60-08:00", INT64_C(662688000000000)},
        {"1937-01-01T12:00:27.87+00:20", INT64_C(-1041337172130000)},
        /* Offsets. */
        {"2000-01-01T00:00:00+00:00", INT64_C(946684800000000)},
        {"2000-01-01T00:00:00-00:00", INT64_C(946684800000000)},
        {"2000-01-01T05:30:00+05:30", INT64_C(946684800000000)},
        {"2000-01-01T23:59:00+23:59", INT64_C(946684800000000)},
        {"1999-12-31T00:01:00-23:59", INT64_C(946684800000000)},
        {"2024-02-28T23:30:00-01:00", INT64_C(1709166600000000)},
        /* Letters in lower case, a space for the T. */
        {"2000-01-01t00:00:00z", INT64_C(946684800000000)},
        {"2000-01-01 00:00:00Z", INT64_C(946684800000000)},
        /* Fractions. */
        {"1970-01-01T00:00:00.1Z", 100000},
        {"1970-01-01T00:00:00.000001Z", 1},
        {"1970-01-01T00:00:00.0000019Z", 1},
        {"1970-01-01T00:00:00.123456789Z", 123456},
        {"1970-01-01T00:00:00.999999999Z", 999999},
        {"1969-12-31T23:59:59.9999999Z", -1},
        /* Leap days. */
        {"2000-02-29T00:00:00Z", INT64_C(951782400000000)},
        {"2024-02-29T00:00:00Z", INT64_C(1709164800000000)},
        {"0000-02-29T00:00:00Z", INT64_C(-62162121600000000)},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        td_time_us t = 7;
        if (!parse(cases[i].text, &t)) {
            fail_msg("refused: '%s'", cases[i].text);
        }
        assert_int_equal(t, cases[i].want);
    }
}

static void wrong_times_are_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "2000",
        "2000-01-01",
        "2000-01-01T00:00:00",
        "2000-01-01T00:00Z",
        "2000-01-01T00:00:00Z ",
        " 2000-01-01T00:00:00Z",
        "2000-01-01T00:00:00ZZ",
        "2000-01-01T00:00:00.Z",
        "2000-01-01T00:00:00,5Z",
        "2000-01-01T00:00:00.1234567890Z",
        "2000-01-01T00:00:00+0000",
        "2000-01-01T00:00:00+00",
        "2000-01-01T00:00:00+0:00",
        "2000-01-01T00:00:00+24:00",
        "2000-01-01T00:00:00+00:60",
        "2000-01-01T00:00:00+00:00Z",
        "2000-00-01T00:00:00Z",
        "2000-13-01T00:00:00Z",
        "2000-01-00T00:00:00Z",
        "2000-01-32T00:00:00Z",
        "2000-04-31T00:00:00Z",
        "2000-06-31T00:00:00Z",
        "2000-09-31T00:00:00Z",
        "2000-11-31T00:00:00Z",
        "2001-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2000-02-30T00:00:00Z",
        "2000-01-01T24:00:00Z",
        "2000-01-01T00:60:00Z",
        "2000-01-01T00:00:61Z",
        "2000-01-01T12:00:60Z",
        "2000-01-01T23:59:60-08:00",
        "20000-01-01T00:00:00Z",
        "-200-01-01T00:00:00Z",
        "+200-01-01T00:00:00Z",
        "200a-01-01T00:00:00Z",
        "2000/01/01T00:00:00Z",
        "2000-1-01T00:00:00Z",
        "2000-01-01X00:00:00Z",
        "2000-01-01T00-00-00Z",
        "2000-W01-1T00:00:00Z",
        "Sat, 01 Jan 2000 00:00:00 GMT",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        td_time_us t = 7;
        if (parse(cases[i], &t)) {
            fail_msg("taken: '%s'", cases[i]);
        }
        assert_int_equal(t, 7);
    }
    td_time_us t = 7;
    assert_false(tdi_time_parse(TD_STR_NONE, &t));
    assert_false(tdi_time_parse(TD_STR_LIT("2000-01-01T00:00:00Z\0"), &t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_written),
        cmocka_unit_test(extreme_times_stay_inside_the_buffer),
        cmocka_unit_test(agrees_with_libc),
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(wrong_times_are_refused),
    };
    return cmocka_run_group_tests_name("base/time", tests, NULL, NULL);
}
