/*
 * The few types that every part of Tidings and every driver shares: text, bytes, time, values, and
 * the clock that is handed in.
 *
 * Must not know: messages, stores, brokers.
 */
#ifndef TIDINGS_TYPES_H
#define TIDINGS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define TD_NODISCARD __attribute__((warn_unused_result))
#define TD_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TD_NODISCARD
#define TD_PRINTF(fmt, args)
#endif

/* Microseconds since 1970-01-01T00:00:00Z; also used for durations. */
typedef int64_t td_time_us;

#define TD_MILLISECOND_US INT64_C(1000)
#define TD_SECOND_US INT64_C(1000000)
#define TD_TIME_NONE INT64_MIN /* "no time": an absent attribute, "never" as a deadline */

/* Borrowed UTF-8 text, not terminated. data == NULL is "absent", which differs from empty. */
struct td_str {
    const char *data;
    size_t len;
};

/* Borrowed bytes. data == NULL is SQL NULL (a tombstone as a body), which differs from 0 bytes. */
struct td_bytes {
    const void *data;
    size_t len;
};

#define TD_STR_LIT(literal) ((struct td_str){.data = (literal), .len = sizeof(literal) - 1})
#define TD_STR_NONE ((struct td_str){.data = NULL, .len = 0})
#define TD_BYTES_NONE ((struct td_bytes){.data = NULL, .len = 0})

/* A value on its way to a statement. Decimals travel as the text that the body had. */
enum td_value_type {
    TD_VALUE_NULL,
    TD_VALUE_INT,     /* i */
    TD_VALUE_BOOL,    /* i: 0 or 1 */
    TD_VALUE_DECIMAL, /* text: an RFC 8259 number with fraction or exponent, or beyond 64 bits */
    TD_VALUE_TEXT,    /* text */
    TD_VALUE_BLOB,    /* blob */
};

struct td_value {
    enum td_value_type type;
    int64_t i;
    struct td_str text;
    struct td_bytes blob;
};

/*
 * Time as a dependency. wall() is civil time and may jump; mono() only grows and is what deadlines
 * are made of. Both may be called from any thread.
 */
struct td_clock {
    td_time_us (*wall)(void *ctx);
    td_time_us (*mono)(void *ctx);
    void *ctx;
};

#ifdef __cplusplus
}
#endif

#endif
