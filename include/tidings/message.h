/*
 * The message: an envelope in the terms of CloudEvents 1.0 and an opaque body of bytes.
 *
 * Identity is the pair (source, id). Everything in a message is borrowed from whoever made it,
 * usually an arena. An absent attribute has data == NULL, or TD_TIME_NONE, or TD_NUMBER_NONE.
 */
#ifndef TIDINGS_MESSAGE_H
#define TIDINGS_MESSAGE_H

#include "tidings/error.h"
#include "tidings/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TD_NUMBER_NONE INT64_MIN

#define TD_ID_BYTES_MAX 128         /* printable ASCII */
#define TD_KEY_BYTES_MAX 256        /* partition key */
#define TD_TYPE_BYTES_MAX 255       /* also source and topic */
#define TD_ATTRIBUTE_BYTES_MAX 8192 /* any other text attribute */
#define TD_HEADERS_MAX 128
#define TD_HEADERS_BYTES_MAX 65536 /* names and values together */
#define TD_BODY_BYTES_MAX (64 * 1024 * 1024)

/* An own header: a lower-case name and a string value; order and repetition are kept. */
struct td_header {
    struct td_str name;
    struct td_str value;
};

struct td_message {
    struct td_str id;     /* 1..128 bytes of printable ASCII */
    struct td_str source; /* who published: `service:` of the publisher */
    struct td_str type;   /* e.g. order.paid; words divided by dots */
    struct td_str topic;  /* of the catalogue; not part of the wire envelope */
    struct td_str key;    /* partition and ordering key; absent: unordered */
    td_time_us time;      /* when it happened */
    int64_t sequence;     /* outbox sequence number, or TD_NUMBER_NONE */
    struct td_str content_type;
    struct td_str data_schema;
    struct td_str traceparent;
    struct td_str tracestate;
    struct td_str baggage;
    struct td_str correlation_id;
    struct td_str causation_id;
    struct td_str aggregate_type;
    int64_t aggregate_version; /* or TD_NUMBER_NONE */
    struct td_str tenant;
    td_time_us deliver_at; /* outbox only: not before; TD_TIME_NONE: at once */
    td_time_us expires_at;
    struct td_str data_ref;
    td_time_us published_at; /* set by the relay or the broker; "stale" counts from here */
    const struct td_header *headers;
    size_t headers_count;
    struct td_bytes body; /* data == NULL: tombstone */
};

#ifdef __cplusplus
}
#endif

#endif
