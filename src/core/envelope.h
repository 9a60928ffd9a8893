/*
 * The envelope as JSON text: the attributes of CloudEvents 1.0 in their JSON names, own headers in
 * an object `headers`, and no data. It is what the embedded broker and parked rows store, and what
 * an exec worker gets with the body spliced in. Pure.
 *
 * Source: CloudEvents 1.0.2 JSON event format; extension attributes as contract section 1 names them.
 */
#ifndef TDI_CORE_ENVELOPE_H
#define TDI_CORE_ENVELOPE_H

#include "tidings/message.h"

struct tdi_arena;
struct tdi_buf;

/* Is this a valid message to publish? reason: one sentence of *err. INVALID or LIMIT. */
enum td_err tdi_message_check(const struct td_message *m, struct td_error *err);

/* A full copy in the arena. false: exhausted. */
bool tdi_message_copy(struct tdi_arena *a, const struct td_message *m, struct td_message *ret);

/* Append {"specversion":"1.0","id":...}; published_at as `tidingspublishedat`, deliver_at as
 * `tidingsdeliverat`. The topic is not written. What is invalid in the message does not make the JSON invalid. */
void tdi_envelope_write(struct tdi_buf *b, const struct td_message *m);
/* The same, open: without the closing brace, so that data can follow. */
void tdi_envelope_write_open(struct tdi_buf *b, const struct td_message *m);

/*
 * Parse; fields point into `text` or the arena. Unknown members become headers if they are strings,
 * numbers or booleans; names of headers become lower-case. A member that is missing or null leaves
 * its attribute absent, id and specversion too.
 * body is not touched, unless with_data (structured CloudEvents, an emitted event): then `data` or
 * `data_base64` gives the body (none or null: a tombstone), and `topic` the topic. JSON data is the
 * text as it was written.
 * INVALID: not such an object; LIMIT: more than TD_HEADERS_MAX headers; NOMEM. Other limits are
 * tdi_message_check()'s.
 */
enum td_err tdi_envelope_read(struct td_str text, bool with_data, struct tdi_arena *a,
                              struct td_message *ret, struct td_error *err);

/* {"name":"value",...} as in the outbox column `headers`. INVALID: not an object of strings; LIMIT,
 * NOMEM as above. */
enum td_err tdi_headers_read(struct td_str json, struct tdi_arena *a, struct td_header **ret,
                             size_t *ret_count, struct td_error *err);
void tdi_headers_write(struct tdi_buf *b, const struct td_header *headers, size_t count);

/* A JSON media type (application/json, text/json, +json), or absent, for JSON is the default. */
bool tdi_content_is_json(struct td_str content_type);

/* The first of that name, absent if none. */
struct td_str tdi_message_header(const struct td_message *m, struct td_str name);

/* An attribute by its CloudEvents name ("id", "type", "partitionkey", ...), or "key" or "topic".
 * Times are text as in RFC 3339, absent ones NULL. false: no such attribute, or arena exhausted. */
bool tdi_message_attribute(const struct td_message *m, struct td_str name, struct tdi_arena *a,
                           struct td_value *ret);

#endif
