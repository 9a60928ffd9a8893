/*
 * Durations and sizes as people write them in a configuration file. Pure.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Longest first; a part of a duration must be smaller than the part before it. */
static const struct unit duration_units[] = {
    {"d", UINT64_C(86400000000)}, {"h", UINT64_C(3600000000)}, {"m", UINT64_C(60000000)},
    {"s", UINT64_C(1000000)},     {"ms", UINT64_C(1000)},      {"us", UINT64_C(1)},
};
#define DURATION_UNITS (sizeof(duration_units) / sizeof(duration_units[0]))

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"kB", UINT64_C(1000)},
    {"KB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
};
#define SIZE_UNITS (sizeof(size_units) / sizeof(size_units[0]))

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Which of units is named at *at? count: none. Moves *at behind the letters. */
static size_t take_unit(struct td_str s, size_t *at, const struct unit *units, size_t count)
{
    size_t start = *at;
    while (*at < s.len && is_letter(s.data[*at])) {
        ++*at;
    }
    struct td_str name = {.data = s.data + start, .len = *at - start};
    for (size_t i = 0; i < count; i++) {
        if (tdi_str_is(name, units[i].name)) {
            return i;
        }
    }
    return count;
}

/* Digits at *at; false: none, or *ret_why is set for more than 64 bits. */
static bool take_number(struct td_str s, size_t *at, uint64_t *ret, const char **ret_why)
{
    size_t start = *at;
    uint64_t v = 0;
    for (; *at < s.len && is_digit(s.data[*at]); ++*at) {
        uint64_t digit = (uint64_t)(s.data[*at] - '0');
        if (v > (UINT64_MAX - digit) / 10) {
            *ret_why = "the number is too large";
            return false;
        }
        v = v * 10 + digit;
    }
    if (*at == start) {
        *ret_why = "a number is expected";
        return false;
    }
    *ret = v;
    return true;
}

bool tdi_duration_parse(struct td_str s, td_time_us *ret, const char **ret_why)
{
    const char *ignored;
    const char **why = ret_why != NULL ? ret_why : &ignored;
    uint64_t sum = 0;
    size_t next = 0; /* first unit that may come */
    size_t at = 0;
    do {
        uint64_t number;
        if (!take_number(s, &at, &number, why)) {
            return false;
        }
        if (at < s.len && s.data[at] == '.') {
            *why = "fractions are not possible; use a smaller unit, such as 1500ms";
            return false;
        }
        size_t unit = take_unit(s, &at, duration_units, DURATION_UNITS);
        if (unit == DURATION_UNITS) {
            *why = "a unit is expected behind the number: d, h, m, s, ms or us";
            return false;
        }
        if (unit < next) {
            *why = "units must go from large to small, each once, as in 1h 30m";
            return false;
        }
        next = unit + 1;
        uint64_t factor = duration_units[unit].factor;
        if (number > (uint64_t)INT64_MAX / factor || number * factor > (uint64_t)INT64_MAX - sum) {
            *why = "the duration is too long";
            return false;
        }
        sum += number * factor;
        if (at + 1 < s.len && s.data[at] == ' ') {
            at++;
        }
    } while (at < s.len);
    *ret = (td_time_us)sum;
    return true;
}

const char *tdi_duration_format(td_time_us us, char buf[48])
{
    if (us == 0) {
        memcpy(buf, "0s", sizeof("0s"));
        return buf;
    }
    size_t len = 0;
    uint64_t rest = (uint64_t)us;
    if (us < 0) {
        rest = 0 - rest;
        buf[len++] = '-';
    }
    const char *gap = "";
    for (size_t i = 0; i < DURATION_UNITS; i++) {
        uint64_t n = rest / duration_units[i].factor;
        rest %= duration_units[i].factor;
        if (n > 0) {
            /* At most "-106751991d 4h 0m 54s 775ms 808us" in shape: always fits. */
            len += (size_t)snprintf(buf + len, 48 - len, "%s%" PRIu64 "%s", gap, n,
                                    duration_units[i].name);
            gap = " ";
        }
    }
    return buf;
}

bool tdi_size_parse(struct td_str s, uint64_t *ret, const char **ret_why)
{
    const char *ignored;
    const char **why = ret_why != NULL ? ret_why : &ignored;
    uint64_t number;
    size_t at = 0;
    if (!take_number(s, &at, &number, why)) {
        return false;
    }
    if (at + 1 < s.len && s.data[at] == ' ') {
        at++;
    }
    size_t unit = take_unit(s, &at, size_units, SIZE_UNITS);
    if (unit == SIZE_UNITS || at < s.len) {
        *why = "the unit must be B, KiB, MiB, GiB, TiB, kB, MB, GB or TB";
        return false;
    }
    if (number > UINT64_MAX / size_units[unit].factor) {
        *why = "the size is too large";
        return false;
    }
    *ret = number * size_units[unit].factor;
    return true;
}
