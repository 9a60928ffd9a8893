/*
 * Comparing text, numbers, UTF-8, edit distance. Pure.
 */
#include "base/str.h"

#include <string.h>

#include "base/utf8.h"

#define DISTANCE_BYTES_MAX 64
#define DISTANCE_FAR 99

struct td_str tdi_str(const char *cstr)
{
    return (struct td_str){.data = cstr, .len = cstr != NULL ? strlen(cstr) : 0};
}

bool tdi_str_eq(struct td_str a, struct td_str b)
{
    if (a.data == NULL || b.data == NULL) {
        return a.data == b.data;
    }
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

bool tdi_str_is(struct td_str a, const char *cstr)
{
    return tdi_str_eq(a, tdi_str(cstr));
}

bool tdi_str_starts(struct td_str s, const char *prefix)
{
    size_t len = strlen(prefix);
    return s.data != NULL && s.len >= len && memcmp(s.data, prefix, len) == 0;
}

int tdi_str_cmp(struct td_str a, struct td_str b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common > 0 ? memcmp(a.data, b.data, common) : 0;
    if (order != 0) {
        return order < 0 ? -1 : 1;
    }
    return (a.len > b.len) - (a.len < b.len);
}

bool tdi_str_empty(struct td_str s)
{
    return s.data == NULL || s.len == 0;
}

bool tdi_str_to_i64(struct td_str s, int64_t *ret)
{
    if (tdi_str_empty(s)) {
        return false;
    }
    bool negative = s.data[0] == '-';
    size_t i = negative ? 1 : 0;
    if (i == s.len) {
        return false;
    }
    /* Counted downwards, for INT64_MIN has no positive twin. */
    int64_t v = 0;
    for (; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9') {
            return false;
        }
        int digit = s.data[i] - '0';
        if (v < INT64_MIN / 10 || v * 10 < INT64_MIN + digit) {
            return false;
        }
        v = v * 10 - digit;
    }
    if (!negative) {
        if (v == INT64_MIN) {
            return false;
        }
        v = -v;
    }
    *ret = v;
    return true;
}

bool tdi_utf8_valid(struct td_str s)
{
    const unsigned char *p = (const unsigned char *)s.data;
    size_t i = 0;
    while (i < s.len) {
        while (s.len - i >= 8 && (tdi_load64(p + i) & TDI_SWAR_HIGHS) == 0) {
            i += 8;
        }
        while (i < s.len && p[i] < 0x80) {
            i++;
        }
        while (i < s.len && p[i] >= 0x80) {
            size_t n = tdi_utf8_sequence(p + i, s.len - i);
            if (n == 0) {
                return false;
            }
            i += n;
        }
    }
    return true;
}

bool tdi_str_is_id(struct td_str s, size_t max)
{
    if (tdi_str_empty(s) || s.len > max) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < 0x21 || s.data[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

unsigned tdi_str_distance(struct td_str a, struct td_str b)
{
    if (a.len > DISTANCE_BYTES_MAX || b.len > DISTANCE_BYTES_MAX) {
        return DISTANCE_FAR;
    }
    /* Levenshtein, one row: row[j] is the distance of a's first i bytes and b's first j. */
    unsigned row[DISTANCE_BYTES_MAX + 1];
    for (size_t j = 0; j <= b.len; j++) {
        row[j] = (unsigned)j;
    }
    for (size_t i = 1; i <= a.len; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b.len; j++) {
            unsigned change = diagonal + (a.data[i - 1] == b.data[j - 1] ? 0 : 1);
            unsigned best = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < best ? change : best;
        }
    }
    return row[b.len];
}
