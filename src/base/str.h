/*
 * Text and numbers: comparing, parsing, UTF-8, durations, sizes, RFC 3339 times, hex, base64.
 * Pure functions.
 */
#ifndef TDI_BASE_STR_H
#define TDI_BASE_STR_H

#include "tidings/types.h"

struct tdi_buf;

struct td_str tdi_str(const char *cstr);           /* NULL gives absent */
bool tdi_str_eq(struct td_str a, struct td_str b); /* absent equals only absent */
bool tdi_str_is(struct td_str a, const char *cstr);
bool tdi_str_starts(struct td_str s, const char *prefix);
int tdi_str_cmp(struct td_str a, struct td_str b);
bool tdi_str_empty(struct td_str s); /* absent or of length 0 */
/* Whole text must be a number. */
bool tdi_str_to_i64(struct td_str s, int64_t *ret);
bool tdi_utf8_valid(struct td_str s);
/* Printable ASCII (0x21..0x7e), 1..max bytes: an id. */
bool tdi_str_is_id(struct td_str s, size_t max);
/* Smallest number of single-byte edits, for "did you mean"; both at most 64 bytes, else 99. */
unsigned tdi_str_distance(struct td_str a, struct td_str b);

/* "250ms", "10s", "1m", "2h", "7d", "1h 30m". *ret_why: a static sentence on failure. */
bool tdi_duration_parse(struct td_str s, td_time_us *ret, const char **ret_why);
/* The shortest exact form: "1h 30m", "250ms". buf holds 48 bytes. */
const char *tdi_duration_format(td_time_us us, char buf[48]);
/* "1MiB", "64KiB", "10MB", "512B", "1024". */
bool tdi_size_parse(struct td_str s, uint64_t *ret, const char **ret_why);

#define TDI_TIME_BYTES 32
/* 2026-11-29T22:24:48.123456Z, always UTC and six digits. */
const char *tdi_time_format(td_time_us t, char buf[TDI_TIME_BYTES]);
/* RFC 3339, any offset, 0 to 9 digits of fraction (cut to microseconds). */
bool tdi_time_parse(struct td_str s, td_time_us *ret);

void tdi_hex_add(struct tdi_buf *b, const void *data, size_t len);
void tdi_base64_add(struct tdi_buf *b, const void *data, size_t len);
/* Standard alphabet with padding; out holds len / 4 * 3 bytes. */
bool tdi_base64_decode(struct td_str s, unsigned char *out, size_t *ret_len);

#endif
