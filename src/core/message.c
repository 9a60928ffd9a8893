/*
 * A message in memory: the table of its attributes, the check before it is published, copying, and
 * looking up attributes and headers by name.
 *
 * Must not know: JSON, stores, brokers.
 */
#include "core/attribute.h"
#include "core/envelope.h"

#include "base/arena.h"
#include "base/str.h"

#include <string.h>

#define HEADER_NAME_BYTES_MAX 255
#define TIME_FIRST_US INT64_C(-62167219200000000) /* 0000-01-01T00:00:00Z */
#define TIME_LAST_US INT64_C(253402300799999999)  /* 9999-12-31T23:59:59.999999Z */

#define ATTRIBUTE(text, kind_, field, max)                                                         \
    {                                                                                              \
        .name = {(text), sizeof(text) - 1}, .member = {",\"" text "\":", sizeof(text) + 3},        \
        .kind = (kind_), .offset = offsetof(struct td_message, field), .bytes_max = (max),         \
    }
#define TEXT(text, field, max) ATTRIBUTE(text, TDI_ATTRIBUTE_TEXT, field, max)

const struct tdi_attribute tdi_attributes[TDI_ATTRIBUTES] = {
    TEXT("id", id, TD_ID_BYTES_MAX),
    TEXT("source", source, TD_TYPE_BYTES_MAX),
    TEXT("type", type, TD_TYPE_BYTES_MAX),
    ATTRIBUTE("time", TDI_ATTRIBUTE_TIME, time, 0),
    TEXT("partitionkey", key, TD_KEY_BYTES_MAX),
    ATTRIBUTE("sequence", TDI_ATTRIBUTE_SEQUENCE, sequence, 0),
    TEXT("datacontenttype", content_type, TD_ATTRIBUTE_BYTES_MAX),
    TEXT("dataschema", data_schema, TD_ATTRIBUTE_BYTES_MAX),
    TEXT("traceparent", traceparent, TD_ATTRIBUTE_BYTES_MAX),
    TEXT("tracestate", tracestate, TD_ATTRIBUTE_BYTES_MAX),
    TEXT("baggage", baggage, TD_ATTRIBUTE_BYTES_MAX),
    TEXT("correlationid", correlation_id, TD_ATTRIBUTE_BYTES_MAX),
    TEXT("causationid", causation_id, TD_ATTRIBUTE_BYTES_MAX),
    TEXT("aggregatetype", aggregate_type, TD_ATTRIBUTE_BYTES_MAX),
    ATTRIBUTE("aggregateversion", TDI_ATTRIBUTE_INTEGER, aggregate_version, 0),
    TEXT("tenant", tenant, TD_ATTRIBUTE_BYTES_MAX),
    ATTRIBUTE("expirytime", TDI_ATTRIBUTE_TIME, expires_at, 0),
    TEXT("dataref", data_ref, TD_ATTRIBUTE_BYTES_MAX),
    ATTRIBUTE("tidingspublishedat", TDI_ATTRIBUTE_TIME, published_at, 0),
    ATTRIBUTE("tidingsdeliverat", TDI_ATTRIBUTE_TIME, deliver_at, 0),
};

const struct tdi_attribute *tdi_attribute_find(struct td_str name, size_t *hint)
{
    size_t at = *hint;
    for (size_t i = 0; i < TDI_ATTRIBUTES; i++, at++) {
        if (at >= TDI_ATTRIBUTES) {
            at = 0;
        }
        const struct tdi_attribute *a = &tdi_attributes[at];
        if (a->name.len == name.len && memcmp(a->name.data, name.data, name.len) == 0) {
            *hint = at + 1;
            return a;
        }
    }
    return NULL;
}

bool tdi_time_writable(td_time_us t)
{
    return t >= TIME_FIRST_US && t <= TIME_LAST_US;
}

/* ---- the check -------------------------------------------------------------------------- */

/* A text that every database and protocol can carry: UTF-8 without NUL. what, name: what it is
 * called in the sentence, put together only when it is needed. */
static enum td_err check_text(struct td_str s, const char *what, struct td_str name,
                              size_t bytes_max, struct td_error *err)
{
    int len = (int)name.len;
    if (s.len > bytes_max) {
        return td_error_set(err, TD_ERR_LIMIT, "the %s%.*s has %zu bytes, more than %zu", what, len,
                            name.data, s.len, bytes_max);
    }
    if (s.len > 0 && memchr(s.data, '\0', s.len)) {
        return td_error_set(err, TD_ERR_INVALID, "the %s%.*s holds a NUL character", what, len,
                            name.data);
    }
    if (!tdi_utf8_valid(s)) {
        return td_error_set(err, TD_ERR_INVALID, "the %s%.*s is not valid UTF-8", what, len,
                            name.data);
    }
    return TD_OK;
}

static enum td_err check_required(const struct td_message *m, struct td_error *err)
{
    if (tdi_str_empty(m->id)) {
        return td_error_set(err, TD_ERR_INVALID, "the message has no id");
    }
    if (m->id.len > TD_ID_BYTES_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "the attribute id has %zu bytes, more than %d",
                            m->id.len, TD_ID_BYTES_MAX);
    }
    if (!tdi_str_is_id(m->id, TD_ID_BYTES_MAX)) {
        return td_error_set(err, TD_ERR_INVALID,
                            "the attribute id may hold only printable ASCII without spaces");
    }
    if (tdi_str_empty(m->source)) {
        return td_error_set(err, TD_ERR_INVALID, "the message has no source");
    }
    if (tdi_str_empty(m->type)) {
        return td_error_set(err, TD_ERR_INVALID, "the message has no type");
    }
    return TD_OK;
}

static enum td_err check_attribute(const struct td_message *m, const struct tdi_attribute *a,
                                   struct td_error *err)
{
    switch (a->kind) {
    case TDI_ATTRIBUTE_TEXT:
        return check_text(tdi_attribute_get_text(m, a), "attribute ", a->name, a->bytes_max, err);
    case TDI_ATTRIBUTE_TIME: {
        td_time_us t = tdi_attribute_get_number(m, a);
        if (t != TD_TIME_NONE && !tdi_time_writable(t)) {
            return td_error_set(err, TD_ERR_INVALID,
                                "the attribute %s is not within the years 0000 to 9999",
                                a->name.data);
        }
        break;
    }
    case TDI_ATTRIBUTE_INTEGER:
    case TDI_ATTRIBUTE_SEQUENCE:
        break; /* every number is fine */
    }
    return TD_OK;
}

/* A lower-case token of HTTP (RFC 9110), which every protocol can carry. */
static bool is_header_name(struct td_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  (c != '\0' && strchr("-_.!#$%&'*+^`|~", c));
        if (!ok) {
            return false;
        }
    }
    return name.len > 0 && name.len <= HEADER_NAME_BYTES_MAX;
}

static enum td_err check_headers(const struct td_message *m, struct td_error *err)
{
    if (m->headers_count > TD_HEADERS_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "the message has %zu headers, more than %d",
                            m->headers_count, TD_HEADERS_MAX);
    }
    size_t bytes = 0;
    for (size_t i = 0; i < m->headers_count; i++) {
        const struct td_header *h = &m->headers[i];
        if (!is_header_name(h->name)) {
            return td_error_set(err, TD_ERR_INVALID,
                                "the name of header %zu is not 1 to %d lower-case letters, digits "
                                "or characters of -_.!#$%%&'*+^`|~",
                                i + 1, HEADER_NAME_BYTES_MAX);
        }
        enum td_err e =
            check_text(h->value, "value of header ", h->name, TD_HEADERS_BYTES_MAX, err);
        if (e) {
            return e;
        }
        bytes += h->name.len + h->value.len;
    }
    if (bytes > TD_HEADERS_BYTES_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "the headers have %zu bytes, more than %d", bytes,
                            TD_HEADERS_BYTES_MAX);
    }
    return TD_OK;
}

enum td_err tdi_message_check(const struct td_message *m, struct td_error *err)
{
    enum td_err e = check_required(m, err);
    for (size_t i = 0; i < TDI_ATTRIBUTES && !e; i++) {
        e = check_attribute(m, &tdi_attributes[i], err);
    }
    if (!e) {
        e = check_text(m->topic, "topic", TD_STR_LIT(""), TD_TYPE_BYTES_MAX, err);
    }
    if (!e) {
        e = check_headers(m, err);
    }
    if (!e && m->body.len > (size_t)TD_BODY_BYTES_MAX) {
        e = td_error_set(err, TD_ERR_LIMIT, "the body has %zu bytes, more than %d", m->body.len,
                         TD_BODY_BYTES_MAX);
    }
    return e;
}

/* ---- copying and looking up -------------------------------------------------------------- */

static bool copy_headers(struct tdi_arena *a, const struct td_message *m, struct td_message *copy)
{
    if (m->headers_count == 0) {
        copy->headers = NULL;
        return true;
    }
    struct td_header *headers = tdi_arena_array(a, m->headers_count, sizeof(*headers));
    if (!headers) {
        return false;
    }
    for (size_t i = 0; i < m->headers_count; i++) {
        if (!tdi_arena_str(a, m->headers[i].name, &headers[i].name) ||
            !tdi_arena_str(a, m->headers[i].value, &headers[i].value)) {
            return false;
        }
    }
    copy->headers = headers;
    return true;
}

bool tdi_message_copy(struct tdi_arena *a, const struct td_message *m, struct td_message *ret)
{
    struct td_message copy = *m;
    for (size_t i = 0; i < TDI_ATTRIBUTES; i++) {
        if (tdi_attributes[i].kind == TDI_ATTRIBUTE_TEXT) {
            struct td_str *text = tdi_attribute_text(&copy, &tdi_attributes[i]);
            if (!tdi_arena_str(a, *text, text)) {
                return false;
            }
        }
    }
    if (!tdi_arena_str(a, m->topic, &copy.topic) || !copy_headers(a, m, &copy) ||
        !tdi_arena_bytes(a, m->body, &copy.body)) {
        return false;
    }
    *ret = copy;
    return true;
}

struct td_str tdi_message_header(const struct td_message *m, struct td_str name)
{
    for (size_t i = 0; i < m->headers_count; i++) {
        if (tdi_str_eq(m->headers[i].name, name)) {
            return m->headers[i].value;
        }
    }
    return TD_STR_NONE;
}

static struct td_value text_value(struct td_str s)
{
    return (struct td_value){.type = s.data ? TD_VALUE_TEXT : TD_VALUE_NULL, .text = s};
}

bool tdi_message_attribute(const struct td_message *m, struct td_str name, struct tdi_arena *a,
                           struct td_value *ret)
{
    size_t hint = 0;
    const struct tdi_attribute *attribute =
        tdi_attribute_find(tdi_str_is(name, "key") ? TD_STR_LIT("partitionkey") : name, &hint);
    if (!attribute) {
        if (!tdi_str_is(name, "topic")) {
            return false;
        }
        *ret = text_value(m->topic);
        return true;
    }
    if (attribute->kind == TDI_ATTRIBUTE_TEXT) {
        *ret = text_value(tdi_attribute_get_text(m, attribute));
        return true;
    }
    int64_t number = tdi_attribute_get_number(m, attribute);
    struct td_value value = {.type = TD_VALUE_NULL};
    if (number != TD_NUMBER_NONE && attribute->kind != TDI_ATTRIBUTE_TIME) {
        value = (struct td_value){.type = TD_VALUE_INT, .i = number};
    } else if (number != TD_NUMBER_NONE) {
        char buf[TDI_TIME_BYTES];
        value.type = TD_VALUE_TEXT;
        if (!tdi_arena_str(a, tdi_str(tdi_time_format(number, buf)), &value.text)) {
            return false;
        }
    }
    *ret = value;
    return true;
}
