/*
 * Writing and reading the worker protocol. Workers are strangers: every line is checked, unknown
 * members are stepped over, and nothing a worker writes can be more than a stray line.
 */
#include "handler/exec/protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"
#include "base/uuid.h"
#include "core/envelope.h"

#define AFTER_SECONDS_MAX (365.0 * 24 * 3600)

/* Milliseconds are enough; no double, whose text depends on the locale. */
static void add_seconds(struct tdi_buf *b, td_time_us us)
{
    tdi_buf_printf(b, "%" PRId64 ".%03" PRId64, us / TD_SECOND_US,
                   us % TD_SECOND_US / TD_MILLISECOND_US);
}

void tdd_exec_write_hello(struct tdi_buf *b, struct td_str consumer, td_time_us timeout_us)
{
    bool first = true;
    tdi_buf_add_cstr(b, "{\"hello\":{");
    tdi_json_add_member_int(b, &first, "protocol", TDD_EXEC_PROTOCOL_VERSION);
    tdi_json_add_member(b, &first, "consumer", consumer);
    tdi_json_add_key(b, &first, "timeout_seconds");
    add_seconds(b, timeout_us);
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

static void write_data(struct tdi_buf *b, const struct td_message *m)
{
    struct td_str text = {m->body.data, m->body.len};
    if (m->body.data == NULL) {
        return; /* a tombstone has no data */
    }
    if (tdi_content_is_json(m->content_type) && tdi_json_valid(text, NULL, NULL)) {
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
    tdi_buf_printf(b, "{\"delivery\":%" PRId64 ",\"attempt\":%" PRId32 ",\"deadline_seconds\":",
                   delivery, run->attempt);
    add_seconds(b, remaining_us);
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
    if (t->kind != TDI_JSON_NUMBER || t->raw.len >= sizeof(text)) {
        return false;
    }
    snprintf(text, sizeof(text), "%.*s", (int)t->raw.len, t->raw.data);
    double seconds = strtod(text, NULL); /* the grammar was checked; too much is infinite */
    if (!(seconds >= 0) || seconds > AFTER_SECONDS_MAX) {
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
        if (tdi_json_text_is(&t, "protocol") && !number_of(&v, 0, INT32_MAX, &ret->number)) {
            return false;
        }
        if (tdi_json_text_is(&t, "window") && !number_of(&v, 1, INT64_MAX, &ret->window)) {
            return false;
        }
        if (!tdi_json_skip(j, &v)) {
            return false;
        }
    }
    if (ret->window > TDD_EXEC_WINDOW_MAX) {
        ret->window = TDD_EXEC_WINDOW_MAX;
    }
    return t.kind == TDI_JSON_OBJECT_END;
}

static void read_result(const struct tdi_json_token *v, struct tdd_exec_line *ret)
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
        }
    }
}

/* Step over a value that begins with v; its whole text. false: malformed. */
static bool skip_whole(struct tdi_json *j, const struct tdi_json_token *v, struct td_str *ret)
{
    bool container = v->kind == TDI_JSON_OBJECT_BEGIN || v->kind == TDI_JSON_ARRAY_BEGIN;
    if (!tdi_json_skip(j, v)) {
        return false;
    }
    size_t end = container ? j->at : v->end;
    *ret = (struct td_str){j->text.data + v->offset, end - v->offset};
    return true;
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
    if (tdi_json_text_is(key, "emit") && v->kind != TDI_JSON_NULL) {
        return skip_whole(j, v, &ret->emit); /* judged with the delivery */
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

/* More would be taken for headers of the event; here it is most likely a slip. */
static bool emit_member_is_known(const struct tdi_json_token *key, const struct tdi_json_token *v)
{
    static const char *const texts[] = {"type", "partitionkey", "topic", "datacontenttype",
                                        "dataschema"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (tdi_json_text_is(key, texts[i])) {
            return v->kind == TDI_JSON_STRING || v->kind == TDI_JSON_NULL;
        }
    }
    if (tdi_json_text_is(key, "headers")) {
        return v->kind == TDI_JSON_OBJECT_BEGIN || v->kind == TDI_JSON_NULL;
    }
    return tdi_json_text_is(key, "data") || tdi_json_text_is(key, "data_base64");
}

/* Names and kinds of the members of the event that begins at the reader; behind it afterwards. */
static bool check_members(struct tdi_json *j)
{
    struct tdi_json_token key, v;
    while (tdi_json_next(j, &key) == TDI_JSON_KEY) {
        tdi_json_next(j, &v);
        if (!emit_member_is_known(&key, &v) || !tdi_json_skip(j, &v)) {
            return false;
        }
    }
    return key.kind == TDI_JSON_OBJECT_END;
}

static enum td_err name_event(const struct td_run *run, size_t index, struct tdi_arena *a,
                              struct td_message *m, struct td_error *err)
{
    char number[24], id[TDI_UUID_TEXT_LEN + 1];
    const struct td_message *cause = run->message;
    snprintf(number, sizeof(number), "%zu", index);
    const struct td_str parts[] = {run->consumer, cause->source, cause->id, tdi_str(number)};
    tdi_uuid5(parts, sizeof(parts) / sizeof(parts[0]), id);
    if (!tdi_arena_str(a, tdi_str(id), &m->id)) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for emitted events");
    }
    m->causation_id = cause->id;
    m->correlation_id = tdi_str_empty(cause->correlation_id) ? cause->id : cause->correlation_id;
    m->traceparent = cause->traceparent;
    m->tracestate = cause->tracestate;
    m->baggage = cause->baggage;
    m->tenant = cause->tenant;
    return TD_OK;
}

/* The source is the store's to set; a stand-in lets the rest be checked. */
static enum td_err check_event(const struct td_message *m, struct td_error *err)
{
    struct td_message whole = *m;
    whole.source = TD_STR_LIT("service:");
    return tdi_message_check(&whole, err);
}

static enum td_err read_event(struct td_str text, const struct td_run *run, size_t index,
                              struct tdi_arena *a, struct td_message *ret, struct td_error *err)
{
    enum td_err rc = tdi_envelope_read(text, true, a, ret, err);
    if (rc == TD_OK) {
        rc = name_event(run, index, a, ret, err);
    }
    return rc == TD_OK ? check_event(ret, err) : rc;
}

enum td_err tdd_exec_read_emit(struct td_str json, const struct td_run *run, struct tdi_arena *a,
                               struct td_message **ret, size_t *ret_count, struct td_error *err)
{
    struct tdi_json j;
    struct tdi_json_token t;
    struct td_error why = {.text = ""};
    size_t n = 0;
    struct td_message *events = tdi_arena_array(a, TDD_EXEC_EMIT_MAX, sizeof(*events));
    if (events == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for emitted events");
    }
    tdi_json_init(&j, json);
    if (tdi_json_next(&j, &t) != TDI_JSON_ARRAY_BEGIN) {
        return td_error_set(err, TD_ERR_INVALID, "emit is not an array");
    }
    while (tdi_json_next(&j, &t) == TDI_JSON_OBJECT_BEGIN) {
        if (n == TDD_EXEC_EMIT_MAX) {
            return td_error_set(err, TD_ERR_LIMIT, "emit has more than %d events",
                                TDD_EXEC_EMIT_MAX);
        }
        if (!check_members(&j)) {
            return td_error_set(err, TD_ERR_INVALID,
                                "emit[%zu]: a member is none of type, partitionkey, topic, data, "
                                "data_base64, datacontenttype, dataschema, headers, or has a wrong "
                                "form",
                                n);
        }
        struct td_str text = {json.data + t.offset, j.at - t.offset};
        enum td_err rc = read_event(text, run, n, a, &events[n], &why);
        if (rc != TD_OK) {
            return td_error_set(err, rc, "emit[%zu]: %s", n, why.text);
        }
        n++;
    }
    if (t.kind != TDI_JSON_ARRAY_END) {
        return td_error_set(err, TD_ERR_INVALID, "emit[%zu]: it is not an object", n);
    }
    *ret = events;
    *ret_count = n;
    return TD_OK;
}
