/*
 * RFC 3339 times, proleptic Gregorian, without libc's calendar (which knows locales and zones).
 * Days and civil dates: Howard Hinnant, "chrono-compatible low-level date algorithms". Pure.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/str.h"

#define SECONDS_A_DAY INT64_C(86400)

struct civil {
    int64_t year;
    int month;
    int day;
};

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0 ? 1 : 0);
}

/* Days since 1970-01-01. Years are counted from March, so that the leap day ends one. */
static int64_t days_from_civil(struct civil c)
{
    int64_t y = c.year - (c.month <= 2 ? 1 : 0);
    int64_t era = floor_div(y, 400);
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (c.month + (c.month > 2 ? -3 : 9)) + 2) / 5 + c.day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static struct civil civil_from_days(int64_t days)
{
    days += 719468;
    int64_t era = floor_div(days, 146097);
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t m = (5 * day_of_year + 2) / 153;
    struct civil c = {
        .year = year_of_era + era * 400,
        .month = (int)(m < 10 ? m + 3 : m - 9),
        .day = (int)(day_of_year - (153 * m + 2) / 5 + 1),
    };
    c.year += c.month <= 2 ? 1 : 0;
    return c;
}

/* count decimal digits, and what follows them. */
static char *put(char *p, int64_t v, int count, char follow)
{
    for (int i = count - 1; i >= 0; i--) {
        p[i] = (char)('0' + v % 10);
        v /= 10;
    }
    p[count] = follow;
    return p + count + 1;
}

const char *tdi_time_format(td_time_us t, char buf[TDI_TIME_BYTES])
{
    int64_t seconds = floor_div(t, TD_SECOND_US);
    int64_t us = t % TD_SECOND_US; /* not t - seconds * ...: that overflows at INT64_MIN */
    us += us < 0 ? TD_SECOND_US : 0;
    int64_t days = floor_div(seconds, SECONDS_A_DAY);
    int64_t of_day = seconds - days * SECONDS_A_DAY;
    struct civil c = civil_from_days(days);
    char *p = buf;
    if (c.year < 0 || c.year > 9999) { /* no RFC 3339 time, but still readable in a log */
        p += snprintf(buf, TDI_TIME_BYTES, "%" PRId64 "-", c.year);
    } else {
        p = put(p, c.year, 4, '-');
    }
    p = put(p, c.month, 2, '-');
    p = put(p, c.day, 2, 'T');
    p = put(p, of_day / 3600, 2, ':');
    p = put(p, of_day / 60 % 60, 2, ':');
    p = put(p, of_day % 60, 2, '.');
    p = put(p, us, 6, 'Z');
    *p = '\0';
    return buf;
}

/* Text that is read from the left; once something was not as expected, ok stays false. */
struct scan {
    struct td_str s;
    size_t at;
    bool ok;
};

static char peek(const struct scan *in)
{
    return in->at < in->s.len ? in->s.data[in->at] : '\0';
}

/* One byte out of a set. */
static char take(struct scan *in, const char *set)
{
    char c = peek(in);
    for (const char *p = set; *p != '\0'; p++) {
        if (c == *p) {
            in->at++;
            return c;
        }
    }
    in->ok = false;
    return '\0';
}

static int number(struct scan *in, int count)
{
    int v = 0;
    for (int i = 0; i < count && in->ok; i++) {
        v = v * 10 + (take(in, "0123456789") - '0');
    }
    return in->ok ? v : 0;
}

/* ".123": microseconds, further digits are cut. */
static int64_t fraction(struct scan *in)
{
    int64_t us = 0;
    int64_t unit = 100000;
    int digits = 0;
    while (peek(in) >= '0' && peek(in) <= '9') {
        us += (take(in, "0123456789") - '0') * unit;
        unit /= 10;
        digits++;
    }
    in->ok = in->ok && digits >= 1 && digits <= 9;
    return us;
}

static int days_in_month(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return month == 2 && leap ? 29 : days[month - 1];
}

/* Seconds to subtract. */
static int64_t offset(struct scan *in)
{
    char sign = take(in, "Zz+-");
    if (sign != '+' && sign != '-') {
        return 0;
    }
    int hours = number(in, 2);
    take(in, ":");
    int minutes = number(in, 2);
    in->ok = in->ok && hours <= 23 && minutes <= 59;
    int64_t seconds = hours * INT64_C(3600) + minutes * INT64_C(60);
    return sign == '-' ? -seconds : seconds;
}

bool tdi_time_parse(struct td_str s, td_time_us *ret)
{
    struct scan in = {.s = s, .ok = true};
    struct civil c = {.year = number(&in, 4)};
    take(&in, "-");
    c.month = number(&in, 2);
    take(&in, "-");
    c.day = number(&in, 2);
    take(&in, "Tt ");
    int hour = number(&in, 2);
    take(&in, ":");
    int minute = number(&in, 2);
    take(&in, ":");
    int second = number(&in, 2);
    int64_t us = 0;
    if (in.ok && peek(&in) == '.') {
        in.at++;
        us = fraction(&in);
    }
    int64_t shift = offset(&in);
    if (!in.ok || in.at != s.len || c.month < 1 || c.month > 12 || c.day < 1 ||
        c.day > days_in_month(c.year, c.month) || hour > 23 || minute > 59 || second > 60) {
        return false;
    }
    int64_t seconds =
        days_from_civil(c) * SECONDS_A_DAY + hour * INT64_C(3600) + minute * INT64_C(60) + second;
    seconds -= shift;
    /* A leap second ends a UTC day; it counts as the first second of the next. */
    if (second == 60 && seconds % SECONDS_A_DAY != 0) {
        return false;
    }
    *ret = seconds * TD_SECOND_US + us;
    return true;
}
