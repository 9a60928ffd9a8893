/*
 * Writing and reading the worker protocol. Workers are strangers: every line is checked, unknown
 * members are stepped over, and nothing a worker writes can be more than a stray line.
 */
#include "handler/exec/protocol.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"
#include "base/uuid.h"
#include "core/envelope.h"

#define AFTER_SECONDS_MAX (365.0 * 24 * 3600)

void tdd_exec_write_hello(struct tdi_buf *b, struct td_str consumer, td_time_us timeout_us)
{
    bool first = true;
    tdi_buf_add_cstr(b, "{\"hello\":{");
    tdi_json_add_member_int(b, &first, "protocol", TDD_EXEC_PROTOCOL_VERSION);
    tdi_json_add_member(b, &first, "consumer", consumer);
    tdi_json_add_key(b, &first, "timeout_seconds");
    tdi_buf_printf(b, "%.3f", (double)timeout_us / (double)TD_SECOND_US);
    tdi_buf_add_cstr(b, "}}\n");
}

void tdd_exec_write_ping(struct tdi_buf *b, int64_t number)
{
    tdi_buf_printf(b, "{\"ping\":%" PRId64 "}\n", number);
}

void tdd_exec_write_shutdown(struct tdi_buf *b)
{
    tdi_buf_add_cstr(b, "{\"shutdown\":true}\n");
}

/* application/json and anything that ends in +json, parameters aside. */
static bool is_json_type(struct td_str type)
{
    size_t len = 0;
    if (tdi_str_empty(type)) {
        return true; /* the envelope's default */
    }
    while (len < type.len && type.data[len] != ';' && type.data[len] != ' ') {
        len++;
    }
    struct td_str bare = {type.data, len};
    struct td_str tail = {type.data + (len > 5 ? len - 5 : 0), len > 5 ? 5 : len};
    return tdi_str_is(bare, "application/json") || tdi_str_is(bare, "text/json") ||
           tdi_str_is(tail, "+json");
}

static void write_data(struct tdi_buf *b, const struct td_message *m)
{
    struct td_str text = {m->body.data, m->body.len};
    if (m->body.data == NULL) {
        return; /* a tombstone has no data */
    }
    if (is_json_type(m->content_type) && tdi_json_valid(text, NULL, NULL)) {
        tdi_buf_add_cstr(b, ",\"data\":");
        tdi_json_add_line(b, text);
        return;
    }
    tdi_buf_add_cstr(b, ",\"data_base64\":\"");
    tdi_base64_add(b, m->body.data, m->body.len);
    tdi_buf_add_char(b, '"');
}

void tdd_exec_write_delivery(struct tdi_buf *b, int64_t delivery, const struct td_run *run,
                             td_time_us remaining_us)
{
    tdi_buf_printf(b, "{\"delivery\":%" PRId64 ",\"attempt\":%" PRId32 ",\"deadline_seconds\":%.3f",
                   delivery, run->attempt, (double)remaining_us / (double)TD_SECOND_US);
    if (run->fence != 0) {
        tdi_buf_printf(b, ",\"fence\":%" PRId64, run->fence);
    }
    tdi_buf_add_cstr(b, ",\"event\":");
    tdi_envelope_write_open(b, run->message);
    write_data(b, run->message);
    tdi_buf_add_cstr(b, "}}\n");
}

/* ---- reading ---- */

static bool number_of(const struct tdi_json_token *t, int64_t min, int64_t max, int64_t *ret)
{
    int64_t n;
    if (t->kind != TDI_JSON_NUMBER || !tdi_json_int(t->raw, &n) || n < min || n > max) {
        return false;
    }
    *ret = n;
    return true;
}

static bool seconds_of(const struct tdi_json_token *t, td_time_us *ret)
{
    char text[64];
    double seconds;
    if (t->kind != TDI_JSON_NUMBER || t->raw.len >= sizeof(text)) {
        return false;
    }
    snprintf(text, sizeof(text), "%.*s", (int)t->raw.len, t->raw.data);
    if (sscanf(text, "%lf", &seconds) != 1 || !(seconds >= 0) || seconds > AFTER_SECONDS_MAX) {
        return false;
    }
    *ret = (td_time_us)(seconds * (double)TD_SECOND_US);
    return true;
}

static bool read_hello(struct tdi_json *j, const struct tdi_json_token *value,
                       struct tdd_exec_line *ret)
{
    struct tdi_json_token t;
    ret->kind = TDD_EXEC_HELLO;
    ret->window = 1;
    if (value->kind != TDI_JSON_OBJECT_BEGIN) {
        return false;
    }
    while (tdi_json_next(j, &t) == TDI_JSON_KEY) {
        struct tdi_json_token v;
        tdi_json_next(j, &v);
        if (tdi_json_text_is(&t, "protocol") && !number_of(&v, 0, INT32_MAX, &ret->protocol)) {
            return false;
        }
        if (tdi_json_text_is(&t, "window") &&
            !number_of(&v, 1, TDD_EXEC_WINDOW_MAX, &ret->window)) {
            return false;
        }
        if (!tdi_json_skip(j, &v)) {
            return false;
        }
    }
    return t.kind == TDI_JSON_OBJECT_END;
}

static bool read_result(const struct tdi_json_token *v, struct tdd_exec_line *ret)
{
    static const struct {
        const char *word;
        enum td_verdict_kind kind;
    } words[] = {
        {"ok", TD_VERDICT_OK},
        {"retry", TD_VERDICT_RETRY},
        {"dead", TD_VERDICT_DEAD},
        {"drop", TD_VERDICT_DROP},
    };
    for (size_t i = 0; v->kind == TDI_JSON_STRING && i < sizeof(words) / sizeof(words[0]); i++) {
        if (tdi_json_text_is(v, words[i].word)) {
            ret->result = words[i].kind;
            ret->result_valid = true;
            return true;
        }
    }
    return false;
}

/* One member of a line. false: it has a form that the protocol does not know. */
static bool read_member(struct tdi_json *j, const struct tdi_json_token *key,
                        const struct tdi_json_token *v, struct tdi_arena *a,
                        struct tdd_exec_line *ret)
{
    if (tdi_json_text_is(key, "hello")) {
        return read_hello(j, v, ret);
    }
    if (tdi_json_text_is(key, "pong")) {
        ret->kind = TDD_EXEC_PONG;
        return number_of(v, 0, INT64_MAX, &ret->number);
    }
    if (tdi_json_text_is(key, "delivery")) {
        ret->kind = TDD_EXEC_ANSWER;
        return number_of(v, 0, INT64_MAX, &ret->number);
    }
    if (tdi_json_text_is(key, "result")) {
        read_result(v, ret); /* a wrong word is judged with the delivery */
        return tdi_json_skip(j, v);
    }
    if (tdi_json_text_is(key, "after_seconds")) {
        return v->kind == TDI_JSON_NULL || seconds_of(v, &ret->after_us);
    }
    if (tdi_json_text_is(key, "reason") && v->kind == TDI_JSON_STRING) {
        return tdi_json_text(v, a, &ret->reason);
    }
    if (tdi_json_text_is(key, "emit") && v->kind == TDI_JSON_ARRAY_BEGIN) {
        size_t begin = v->offset;
        if (!tdi_json_skip(j, v)) {
            return false;
        }
        ret->emit = (struct td_str){j->text.data + begin, j->at - begin};
        return true;
    }
    return tdi_json_skip(j, v);
}

static void stray(struct tdd_exec_line *ret, const char *why)
{
    *ret = (struct tdd_exec_line){.kind = TDD_EXEC_STRAY, .why = why};
}

void tdd_exec_read_line(struct td_str line, struct tdi_arena *a, struct tdd_exec_line *ret)
{
    struct tdi_json j;
    struct tdi_json_token key, value;
    *ret = (struct tdd_exec_line){.kind = TDD_EXEC_STRAY, .why = "it is not of the protocol"};
    if (!tdi_json_valid(line, NULL, NULL)) {
        stray(ret, "it is not JSON");
        return;
    }
    tdi_json_init(&j, line);
    if (tdi_json_next(&j, &key) != TDI_JSON_OBJECT_BEGIN) {
        stray(ret, "it is not a JSON object");
        return;
    }
    while (tdi_json_next(&j, &key) == TDI_JSON_KEY) {
        tdi_json_next(&j, &value);
        if (!read_member(&j, &key, &value, a, ret)) {
            stray(ret, "a member has a wrong form");
            return;
        }
    }
}

/* ---- emitted events ---- */

struct emit_reader {
    struct tdi_json *json;
    struct tdi_arena *arena;
    struct td_error *err;
    size_t index;
};

static enum td_err wrong(const struct emit_reader *r, const char *what)
{
    return td_error_set(r->err, TD_ERR_INVALID, "emit[%zu]: %s", r->index, what);
}

static enum td_err read_text(const struct emit_reader *r, const struct tdi_json_token *v,
                             const char *what, struct td_str *ret)
{
    if (v->kind != TDI_JSON_STRING || !tdi_json_text(v, r->arena, ret)) {
        return wrong(r, what);
    }
    return TD_OK;
}

static enum td_err read_base64(const struct emit_reader *r, const struct tdi_json_token *v,
                               struct td_message *m)
{
    struct td_str text;
    enum td_err rc = read_text(r, v, "data_base64 is not a string", &text);
    if (rc != TD_OK) {
        return rc;
    }
    unsigned char *bytes = tdi_arena_alloc(r->arena, text.len / 4 * 3 + 1);
    if (bytes == NULL || !tdi_base64_decode(text, bytes, &m->body.len)) {
        return wrong(r, "data_base64 is not base64");
    }
    m->body.data = bytes;
    return TD_OK;
}

static struct td_str value_text(const struct emit_reader *r, const struct tdi_json_token *v)
{
    size_t begin = v->offset;
    size_t end = tdi_json_skip(r->json, v) && r->json->at > v->end ? r->json->at : v->end;
    return (struct td_str){r->json->text.data + begin, end - begin};
}

static enum td_err read_emit_member(const struct emit_reader *r, const struct tdi_json_token *key,
                                    const struct tdi_json_token *v, struct td_message *m)
{
    if (tdi_json_text_is(key, "type")) {
        return read_text(r, v, "type is not a string", &m->type);
    }
    if (tdi_json_text_is(key, "partitionkey")) {
        return v->kind == TDI_JSON_NULL
                   ? TD_OK
                   : read_text(r, v, "partitionkey is not a string", &m->key);
    }
    if (tdi_json_text_is(key, "topic")) {
        return read_text(r, v, "topic is not a string", &m->topic);
    }
    if (tdi_json_text_is(key, "data_base64")) {
        return read_base64(r, v, m);
    }
    struct td_str text = value_text(r, v);
    if (tdi_json_text_is(key, "data")) {
        m->body = (struct td_bytes){text.data, text.len};
        return TD_OK;
    }
    if (tdi_json_text_is(key, "headers")) {
        struct td_header *headers;
        enum td_err rc =
            tdi_headers_read(text, r->arena, &headers, &m->headers_count, r->err);
        m->headers = rc == TD_OK ? headers : NULL;
        return rc;
    }
    return wrong(r, "it has a member that is none of type, partitionkey, topic, data, "
                    "data_base64, headers");
}

static enum td_err finish_emit(const struct emit_reader *r, const struct td_run *run,
                               struct td_message *m)
{
    char number[24], id[TDI_UUID_TEXT_LEN + 1];
    const struct td_message *cause = run->message;
    if (tdi_str_empty(m->type)) {
        return wrong(r, "type is missing");
    }
    snprintf(number, sizeof(number), "%zu", r->index);
    const struct td_str parts[] = {run->consumer, cause->source, cause->id, tdi_str(number)};
    tdi_uuid5(parts, sizeof(parts) / sizeof(parts[0]), id);
    if (!tdi_arena_str(r->arena, tdi_str(id), &m->id)) {
        return td_error_set(r->err, TD_ERR_NOMEM, "no memory for emitted events");
    }
    m->causation_id = cause->id;
    m->correlation_id =
        tdi_str_empty(cause->correlation_id) ? cause->id : cause->correlation_id;
    m->traceparent = cause->traceparent;
    m->tracestate = cause->tracestate;
    m->baggage = cause->baggage;
    m->tenant = cause->tenant;
    return TD_OK;
}

static enum td_err read_event(const struct emit_reader *r, const struct td_run *run,
                              struct td_message *ret)
{
    struct tdi_json_token key, value;
    *ret = (struct td_message){
        .time = TD_TIME_NONE,
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
    };
    while (tdi_json_next(r->json, &key) == TDI_JSON_KEY) {
        tdi_json_next(r->json, &value);
        enum td_err rc = read_emit_member(r, &key, &value, ret);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return finish_emit(r, run, ret);
}

enum td_err tdd_exec_read_emit(struct td_str json, const struct td_run *run, struct tdi_arena *a,
                               struct td_message **ret, size_t *ret_count, struct td_error *err)
{
    struct tdi_json j;
    struct tdi_json_token t;
    struct emit_reader r = {.json = &j, .arena = a, .err = err};
    struct td_message *events = tdi_arena_array(a, TDD_EXEC_EMIT_MAX, sizeof(*events));
    if (events == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for emitted events");
    }
    tdi_json_init(&j, json);
    if (tdi_json_next(&j, &t) != TDI_JSON_ARRAY_BEGIN) {
        return td_error_set(err, TD_ERR_INVALID, "emit is not an array");
    }
    while (tdi_json_next(&j, &t) == TDI_JSON_OBJECT_BEGIN) {
        if (r.index == TDD_EXEC_EMIT_MAX) {
            return td_error_set(err, TD_ERR_LIMIT, "emit has more than %d events",
                                TDD_EXEC_EMIT_MAX);
        }
        enum td_err rc = read_event(&r, run, &events[r.index]);
        if (rc != TD_OK) {
            return rc;
        }
        r.index++;
    }
    if (t.kind != TDI_JSON_ARRAY_END) {
        return wrong(&r, "it is not an object");
    }
    *ret = events;
    *ret_count = r.index;
    return TD_OK;
}
