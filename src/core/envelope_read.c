/*
 * Reading an envelope and the headers column: outside bytes, so everything is checked and bounded.
 * Texts without escapes point into the input.
 *
 * Invariant: the caller's message is written once, at the end, and not at all on failure.
 */
#include "core/attribute.h"
#include "core/envelope.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"

#include <string.h>

#define HEADERS_FIRST 8 /* of the growing array; doubles up to TD_HEADERS_MAX */

struct reader {
    struct tdi_json json;
    struct tdi_arena *arena;
    struct td_error *err;
    struct td_message m;
    struct td_header *headers; /* m.headers while it grows */
    size_t headers_room;
    size_t hint; /* for tdi_attribute_find() */
    bool with_data;
    struct tdi_json_token data; /* kind END: no such member; raw: the whole value */
    struct tdi_json_token data_base64;
};

static enum td_err out_of_memory(struct reader *r)
{
    return td_error_set(r->err, TD_ERR_NOMEM, "no memory for the attributes of a message");
}

static enum td_err malformed(struct reader *r)
{
    return td_error_set(r->err, TD_ERR_INVALID, "not valid JSON: %s at byte %zu", r->json.why,
                        r->json.at);
}

/* Decoded text of a key or string. */
static enum td_err text_of(struct reader *r, const struct tdi_json_token *t, struct td_str *ret)
{
    if (!tdi_json_text(t, r->arena, ret)) {
        /* Two reasons: an arena that cannot hold the text, or a text that is none. */
        if (!tdi_arena_alloc(r->arena, t->raw.len)) {
            return out_of_memory(r);
        }
        return td_error_set(r->err, TD_ERR_INVALID,
                            "a string holds half of a surrogate pair at byte %zu", t->offset);
    }
    if (t->escaped && ret->len > 0 && memchr(ret->data, '\0', ret->len)) {
        return td_error_set(r->err, TD_ERR_INVALID, "a string holds a NUL character at byte %zu",
                            t->offset);
    }
    return TD_OK;
}

/* ---- own headers ------------------------------------------------------------------------ */

/* Names are lower-case for everybody who reads them, however they were written. */
static enum td_err lower(struct reader *r, struct td_str *name)
{
    size_t at = 0;
    while (at < name->len && (name->data[at] < 'A' || name->data[at] > 'Z')) {
        at++;
    }
    if (at == name->len) {
        return TD_OK;
    }
    char *copy = tdi_arena_alloc(r->arena, name->len);
    if (!copy) {
        return out_of_memory(r);
    }
    for (size_t i = 0; i < name->len; i++) {
        char c = name->data[i];
        copy[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    name->data = copy;
    return TD_OK;
}

static enum td_err add_header(struct reader *r, struct td_str name, struct td_str value)
{
    if (r->m.headers_count == TD_HEADERS_MAX) {
        return td_error_set(r->err, TD_ERR_LIMIT, "more than %d headers", TD_HEADERS_MAX);
    }
    if (r->m.headers_count == r->headers_room) {
        size_t room = r->headers_room == 0 ? HEADERS_FIRST : r->headers_room * 2;
        struct td_header *grown = tdi_arena_array(r->arena, room, sizeof(*grown));
        if (!grown) {
            return out_of_memory(r);
        }
        if (r->m.headers_count > 0) {
            memcpy(grown, r->headers, r->m.headers_count * sizeof(*grown));
        }
        r->headers = grown;
        r->headers_room = room;
    }
    enum td_err e = lower(r, &name);
    if (!e) {
        r->headers[r->m.headers_count++] = (struct td_header){.name = name, .value = value};
    }
    return e;
}

/* Behind the opening brace of an object of strings; reads up to its end. */
static enum td_err read_headers(struct reader *r)
{
    for (;;) {
        struct tdi_json_token t;
        struct td_str name;
        struct td_str value;
        enum tdi_json_kind kind = tdi_json_next(&r->json, &t);
        if (kind == TDI_JSON_OBJECT_END) {
            return TD_OK;
        }
        if (kind != TDI_JSON_KEY) {
            return malformed(r);
        }
        enum td_err e = text_of(r, &t, &name);
        if (e) {
            return e;
        }
        kind = tdi_json_next(&r->json, &t);
        if (kind == TDI_JSON_ERROR) {
            return malformed(r);
        }
        if (kind != TDI_JSON_STRING) {
            return td_error_set(r->err, TD_ERR_INVALID, "the value of header %zu is not a string",
                                r->m.headers_count + 1);
        }
        e = text_of(r, &t, &value);
        if (!e) {
            e = add_header(r, name, value);
        }
        if (e) {
            return e;
        }
    }
}

/* ---- attributes ------------------------------------------------------------------------- */

/* An integer as a number or in a string. TD_NUMBER_NONE is not one. */
static bool integer_of(const struct tdi_json_token *t, int64_t *ret)
{
    int64_t v = 0;
    bool ok = t->kind == TDI_JSON_NUMBER
                  ? tdi_json_int(t->raw, &v)
                  : t->kind == TDI_JSON_STRING && !t->escaped && tdi_str_to_i64(t->raw, &v);
    if (!ok || v == TD_NUMBER_NONE) {
        return false;
    }
    *ret = v;
    return true;
}

static enum td_err wrong_attribute(struct reader *r, const struct tdi_attribute *a,
                                   const char *what)
{
    return td_error_set(r->err, TD_ERR_INVALID, "the attribute %s is not %s", a->name.data, what);
}

/* A member that is no attribute of ours: text, number or boolean become a header. */
static enum td_err read_unknown(struct reader *r, struct td_str name,
                                const struct tdi_json_token *t)
{
    struct td_str value = t->raw;
    switch (t->kind) {
    case TDI_JSON_STRING: {
        enum td_err e = text_of(r, t, &value);
        return e ? e : add_header(r, name, value);
    }
    case TDI_JSON_NUMBER:
    case TDI_JSON_TRUE:
    case TDI_JSON_FALSE:
        return add_header(r, name, value);
    case TDI_JSON_OBJECT_BEGIN:
    case TDI_JSON_ARRAY_BEGIN:
        return tdi_json_skip(&r->json, t) ? TD_OK : malformed(r);
    case TDI_JSON_END:
    case TDI_JSON_OBJECT_END:
    case TDI_JSON_ARRAY_END:
    case TDI_JSON_KEY:
    case TDI_JSON_NULL:
    case TDI_JSON_ERROR:
        break;
    }
    return TD_OK;
}

static enum td_err read_attribute(struct reader *r, const struct tdi_attribute *a,
                                  const struct tdi_json_token *t)
{
    if (t->kind == TDI_JSON_NULL) {
        return TD_OK; /* CloudEvents: as if it were not there */
    }
    switch (a->kind) {
    case TDI_ATTRIBUTE_TEXT:
        return t->kind == TDI_JSON_STRING ? text_of(r, t, tdi_attribute_text(&r->m, a))
                                          : wrong_attribute(r, a, "a string");
    case TDI_ATTRIBUTE_TIME: {
        td_time_us time = TD_TIME_NONE;
        if (t->kind != TDI_JSON_STRING || !tdi_time_parse(t->raw, &time) ||
            !tdi_time_writable(time)) {
            return wrong_attribute(r, a, "a time as in RFC 3339");
        }
        *tdi_attribute_number(&r->m, a) = time;
        break;
    }
    case TDI_ATTRIBUTE_INTEGER:
        if (!integer_of(t, tdi_attribute_number(&r->m, a))) {
            return wrong_attribute(r, a, "an integer of 64 bits");
        }
        break;
    case TDI_ATTRIBUTE_SEQUENCE:
        /* CloudEvents allows any text here; ours is a number, another one's is only passed on. */
        if (!integer_of(t, tdi_attribute_number(&r->m, a))) {
            return read_unknown(r, a->name, t);
        }
        break;
    }
    return TD_OK;
}

/* ---- the body --------------------------------------------------------------------------- */

static bool same_letters(struct td_str s, const char *lower_case)
{
    size_t i = 0;
    for (; i < s.len && lower_case[i] != '\0'; i++) {
        char c = (char)(s.data[i] >= 'A' && s.data[i] <= 'Z' ? s.data[i] - 'A' + 'a' : s.data[i]);
        if (c != lower_case[i]) {
            return false;
        }
    }
    return i == s.len && lower_case[i] == '\0';
}

bool tdi_content_is_json(struct td_str content_type)
{
    struct td_str media = content_type;
    const char *end = media.len > 0 ? memchr(media.data, ';', media.len) : NULL;
    if (end) {
        media.len = (size_t)(end - media.data);
    }
    while (media.len > 0 &&
           (media.data[media.len - 1] == ' ' || media.data[media.len - 1] == '\t')) {
        media.len--;
    }
    struct td_str suffix = {0};
    if (media.len > 5) {
        suffix = (struct td_str){.data = media.data + media.len - 5, .len = 5};
    }
    return content_type.len == 0 || same_letters(media, "application/json") ||
           same_letters(media, "text/json") || same_letters(suffix, "+json");
}

/* The token becomes the whole value. */
static enum td_err keep_value(struct reader *r, struct tdi_json_token *t,
                              struct tdi_json_token *keep)
{
    if (!tdi_json_skip(&r->json, t)) {
        return malformed(r);
    }
    *keep = *t;
    if (t->kind == TDI_JSON_OBJECT_BEGIN || t->kind == TDI_JSON_ARRAY_BEGIN) {
        keep->end = r->json.at;
    }
    return TD_OK;
}

static enum td_err decode_base64(struct reader *r)
{
    struct td_str text;
    if (r->data_base64.kind != TDI_JSON_STRING) {
        return td_error_set(r->err, TD_ERR_INVALID, "the member data_base64 is not a string");
    }
    enum td_err e = text_of(r, &r->data_base64, &text);
    if (e) {
        return e;
    }
    size_t len = 0;
    unsigned char *bytes = tdi_arena_alloc(r->arena, text.len / 4 * 3);
    if (!bytes) {
        return out_of_memory(r);
    }
    if (!tdi_base64_decode(text, bytes, &len)) {
        return td_error_set(r->err, TD_ERR_INVALID, "the member data_base64 is not base64");
    }
    r->m.body = (struct td_bytes){.data = bytes, .len = len};
    return TD_OK;
}

/* After the whole object, for the content type may come behind the data. */
static enum td_err read_body(struct reader *r)
{
    bool has_data = r->data.kind != TDI_JSON_END && r->data.kind != TDI_JSON_NULL;
    bool has_base64 = r->data_base64.kind != TDI_JSON_END && r->data_base64.kind != TDI_JSON_NULL;
    if (has_data && has_base64) {
        return td_error_set(r->err, TD_ERR_INVALID, "both data and data_base64 are there");
    }
    if (has_base64) {
        return decode_base64(r);
    }
    if (!has_data) {
        return TD_OK;
    }
    if (r->data.kind == TDI_JSON_STRING && !tdi_content_is_json(r->m.content_type)) {
        struct td_str text;
        if (!tdi_json_text(&r->data, r->arena, &text)) { /* a body may hold NUL: not text_of() */
            return text_of(r, &r->data, &text);
        }
        r->m.body = (struct td_bytes){.data = text.data, .len = text.len};
        return TD_OK;
    }
    r->m.body = (struct td_bytes){.data = r->json.text.data + r->data.offset,
                                  .len = r->data.end - r->data.offset};
    return TD_OK;
}

/* ---- the whole -------------------------------------------------------------------------- */

/* The member's value begins with t. */
static enum td_err read_member(struct reader *r, struct td_str name, struct tdi_json_token *t)
{
    const struct tdi_attribute *a = tdi_attribute_find(name, &r->hint);
    if (a) {
        return read_attribute(r, a, t);
    }
    if (tdi_str_is(name, "specversion")) {
        if (t->kind != TDI_JSON_STRING || !tdi_json_text_is(t, "1.0")) {
            return td_error_set(r->err, TD_ERR_INVALID, "the attribute specversion is not \"1.0\"");
        }
        return TD_OK;
    }
    if (tdi_str_is(name, "headers") && t->kind == TDI_JSON_OBJECT_BEGIN) {
        return read_headers(r);
    }
    if (tdi_str_is(name, "data")) {
        return keep_value(r, t, &r->data);
    }
    if (tdi_str_is(name, "data_base64")) {
        return keep_value(r, t, &r->data_base64);
    }
    if (r->with_data && tdi_str_is(name, "topic") && t->kind == TDI_JSON_STRING) {
        return text_of(r, t, &r->m.topic);
    }
    return read_unknown(r, name, t);
}

static enum td_err read_members(struct reader *r)
{
    struct tdi_json_token t;
    for (;;) {
        enum tdi_json_kind kind = tdi_json_next(&r->json, &t);
        if (kind == TDI_JSON_OBJECT_END) {
            kind = tdi_json_next(&r->json, &t); /* END, or something follows */
            return kind == TDI_JSON_END ? TD_OK : malformed(r);
        }
        if (kind != TDI_JSON_KEY) {
            return malformed(r);
        }
        struct td_str name;
        enum td_err e = text_of(r, &t, &name);
        if (e) {
            return e;
        }
        if (tdi_json_next(&r->json, &t) == TDI_JSON_ERROR) {
            return malformed(r);
        }
        e = read_member(r, name, &t);
        if (e) {
            return e;
        }
    }
}

static enum td_err begin_object(struct reader *r, struct td_str text, const char *what)
{
    struct tdi_json_token t;
    tdi_json_init(&r->json, text);
    enum tdi_json_kind kind = tdi_json_next(&r->json, &t);
    if (kind == TDI_JSON_OBJECT_BEGIN) {
        return TD_OK;
    }
    return kind == TDI_JSON_ERROR
               ? malformed(r)
               : td_error_set(r->err, TD_ERR_INVALID, "the %s are not a JSON object", what);
}

enum td_err tdi_envelope_read(struct td_str text, bool with_data, struct tdi_arena *a,
                              struct td_message *ret, struct td_error *err)
{
    struct reader r = {
        .arena = a,
        .err = err,
        .with_data = with_data,
        .m = {.time = TD_TIME_NONE,
              .sequence = TD_NUMBER_NONE,
              .aggregate_version = TD_NUMBER_NONE,
              .deliver_at = TD_TIME_NONE,
              .expires_at = TD_TIME_NONE,
              .published_at = TD_TIME_NONE},
    };
    enum td_err e = begin_object(&r, text, "attributes");
    if (!e) {
        e = read_members(&r);
    }
    if (!e && with_data) {
        e = read_body(&r);
    }
    if (!e) {
        if (!with_data) {
            r.m.body = ret->body;
        }
        r.m.headers = r.headers;
        *ret = r.m;
    }
    return e;
}

enum td_err tdi_headers_read(struct td_str json, struct tdi_arena *a, struct td_header **ret,
                             size_t *ret_count, struct td_error *err)
{
    struct reader r = {.arena = a, .err = err};
    struct tdi_json_token t;
    enum td_err e = begin_object(&r, json, "headers");
    if (!e) {
        e = read_headers(&r);
    }
    if (!e && tdi_json_next(&r.json, &t) != TDI_JSON_END) {
        e = malformed(&r);
    }
    if (!e) {
        *ret = r.headers;
        *ret_count = r.m.headers_count;
    }
    return e;
}
