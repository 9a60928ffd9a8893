/*
 * A row of tidings_outbox as a message, and positions in the table.
 *
 * Must not know: who reads.
 * Invariant: whatever an application wrote, the row becomes a message or a message with a defect,
 * never an error; only what is missing in memory is one.
 */
#include "store/sqlite/internal.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "core/envelope.h"

/* Text columns, by their place in TDD_OUTBOX_COLUMNS. */
struct text_column {
    int at;
    const char *name;
    size_t field;
    size_t bytes_max;
};

#define FIELD(member) offsetof(struct td_message, member)

static const struct text_column text_columns[] = {
    {1, "id", FIELD(id), TD_ID_BYTES_MAX},
    {2, "topic", FIELD(topic), TD_TYPE_BYTES_MAX},
    {3, "type", FIELD(type), TD_TYPE_BYTES_MAX},
    {4, "partition_key", FIELD(key), TD_KEY_BYTES_MAX},
    {7, "content_type", FIELD(content_type), TD_ATTRIBUTE_BYTES_MAX},
    {8, "data_schema", FIELD(data_schema), TD_ATTRIBUTE_BYTES_MAX},
    {9, "aggregate_type", FIELD(aggregate_type), TD_ATTRIBUTE_BYTES_MAX},
    {11, "correlation_id", FIELD(correlation_id), TD_ATTRIBUTE_BYTES_MAX},
    {12, "causation_id", FIELD(causation_id), TD_ATTRIBUTE_BYTES_MAX},
    {13, "traceparent", FIELD(traceparent), TD_ATTRIBUTE_BYTES_MAX},
    {14, "tracestate", FIELD(tracestate), TD_ATTRIBUTE_BYTES_MAX},
    {15, "baggage", FIELD(baggage), TD_ATTRIBUTE_BYTES_MAX},
    {16, "tenant", FIELD(tenant), TD_ATTRIBUTE_BYTES_MAX},
    {20, "data_ref", FIELD(data_ref), TD_ATTRIBUTE_BYTES_MAX},
};

static const struct {
    int at;
    const char *name;
    size_t field;
} number_columns[] = {
    {10, "aggregate_version", FIELD(aggregate_version)},
    {17, "created_at", FIELD(time)},
    {18, "deliver_at", FIELD(deliver_at)},
    {19, "expires_at", FIELD(expires_at)},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define COLUMN_BODY 5
#define COLUMN_HEADERS 6

struct decode {
    sqlite3_stmt *stmt;
    struct tdi_arena *a;
    struct td_outbox_row *row;
    bool exhausted;
};

/* The first defect is the one that is told. */
static void defect(struct decode *d, const char *column, const char *why)
{
    if (d->row->defect.data == NULL) {
        d->row->defect = tdi_arena_printf(d->a, "%s %s", column, why);
        d->exhausted = d->exhausted || d->row->defect.data == NULL;
    }
}

/* Text of a column if it is usable, absent otherwise. */
static struct td_str text_of(struct decode *d, int at, const char *name, size_t bytes_max)
{
    struct td_str copy = TD_STR_NONE;
    int type = sqlite3_column_type(d->stmt, at);
    if (type == SQLITE_NULL) {
        return copy;
    }
    if (type == SQLITE_BLOB) {
        defect(d, name, "is a blob where text is needed");
        return copy;
    }
    struct td_str text = tdi_column_str(d->stmt, at);
    if (text.len > bytes_max) {
        defect(d, name, "is too long");
    } else if (!tdi_utf8_valid(text)) {
        defect(d, name, "is not valid UTF-8");
    } else if (!tdi_arena_str(d->a, text, &copy)) {
        d->exhausted = true;
    }
    return copy;
}

static void take_texts(struct decode *d)
{
    for (size_t i = 0; i < COUNT(text_columns); i++) {
        const struct text_column *c = &text_columns[i];
        struct td_str value = text_of(d, c->at, c->name, c->bytes_max);
        memcpy((char *)&d->row->message + c->field, &value, sizeof(value));
    }
}

static void take_numbers(struct decode *d)
{
    for (size_t i = 0; i < COUNT(number_columns); i++) {
        int64_t value = TD_NUMBER_NONE;
        int type = sqlite3_column_type(d->stmt, number_columns[i].at);
        if (type == SQLITE_INTEGER) {
            value = sqlite3_column_int64(d->stmt, number_columns[i].at);
        } else if (type != SQLITE_NULL) {
            defect(d, number_columns[i].name, "is not a whole number");
        }
        memcpy((char *)&d->row->message + number_columns[i].field, &value, sizeof(value));
    }
}

static void take_headers(struct decode *d)
{
    struct td_message *m = &d->row->message;
    struct td_str json = text_of(d, COLUMN_HEADERS, "headers", 2 * TD_HEADERS_BYTES_MAX);
    struct td_header *headers = NULL;
    if (tdi_str_empty(json)) {
        return;
    }
    enum td_err rc = tdi_headers_read(json, d->a, &headers, &m->headers_count, NULL);
    if (rc == TD_OK) {
        m->headers = headers;
    } else if (rc == TD_ERR_NOMEM) {
        d->exhausted = true;
    } else {
        defect(d, "headers",
               rc == TD_ERR_LIMIT ? "has too many members" : "is not a JSON object of strings");
    }
}

static void take_body(struct decode *d)
{
    struct td_bytes body = tdi_column_bytes(d->stmt, COLUMN_BODY);
    int type = sqlite3_column_type(d->stmt, COLUMN_BODY);
    if (body.len > TD_BODY_BYTES_MAX) {
        defect(d, "body", "is larger than 64 MiB");
        return;
    }
    if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
        defect(d, "body", "is a number where text or a blob is needed");
    }
    if (!tdi_arena_bytes(d->a, body, &d->row->message.body)) {
        d->exhausted = true;
    }
}

/* A dead letter needs an id; one that no message can have stands in for the row's. */
static void substitute_id(struct decode *d, int64_t seq)
{
    struct td_message *m = &d->row->message;
    if (tdi_str_is_id(m->id, TD_ID_BYTES_MAX)) {
        return;
    }
    defect(d, "id", "is not 1 to 128 bytes of printable ASCII");
    m->id = tdi_arena_printf(d->a, "seq-%lld-%llx", (long long)seq,
                             m->time == TD_TIME_NONE ? 0ULL : (unsigned long long)m->time);
    d->exhausted = d->exhausted || m->id.data == NULL;
}

enum td_err tdd_outbox_decode(struct tdd_sqlite *s, sqlite3_stmt *stmt, struct tdi_arena *a,
                              struct td_outbox_row *ret, struct td_error *err)
{
    struct td_outbox_row row = {.defect = TD_STR_NONE};
    struct decode d = {.stmt = stmt, .a = a, .row = &row};
    int64_t seq = sqlite3_column_int64(stmt, 0);
    row.position.order = seq;
    row.message.sequence = seq;
    row.message.published_at = TD_TIME_NONE;
    d.exhausted = !tdi_arena_str(a, tdi_str(s->service), &row.message.source);
    take_texts(&d);
    take_numbers(&d);
    take_headers(&d);
    take_body(&d);
    substitute_id(&d, seq);
    struct td_error why;
    if (!d.exhausted && row.defect.data == NULL && tdi_message_check(&row.message, &why) != TD_OK) {
        d.exhausted = !tdi_arena_str(a, tdi_str(why.text), &row.defect);
    }
    if (d.exhausted) {
        return tdd_nomem("outbox_read", err);
    }
    *ret = row;
    return TD_OK;
}

/* ---- positions: data is the identity of the table, order the sequence number -------------- */

enum td_err tdd_position_seq(const struct tdd_sqlite *s, const struct td_position *p,
                             const char *op, int64_t *ret_seq, struct td_error *err)
{
    struct td_str identity = {p->data.data, p->data.len};
    if (identity.len == 0) {
        *ret_seq = 0;
        return TD_OK;
    }
    if (p->order < 0) {
        return tdd_fail(TD_ERR_INVALID, op, err, "the position is not one of SQLite");
    }
    if (!tdi_str_is(identity, s->identity)) {
        return tdd_fail(TD_ERR_REBUILT, op, err,
                        "%s: the position of the relay belongs to another database; see tidings "
                        "outbox rebase",
                        s->db.path);
    }
    *ret_seq = p->order;
    return TD_OK;
}
