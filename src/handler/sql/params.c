/*
 * Values for parameters. Types are kept: 64-bit integers are integers, every other number is the text
 * that the body had, so nothing is rounded on its way to the database.
 */
#include "handler/sql/params.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "core/envelope.h"

static bool known_attribute(struct td_str name)
{
    static const struct td_message nothing;
    struct td_value ignored;
    struct tdi_arena none;
    tdi_arena_init(&none, 1);
    bool known = tdi_message_attribute(&nothing, name, &none, &ignored);
    tdi_arena_release(&none);
    return known;
}

enum td_err tdd_sql_source_parse(const struct td_param *param, struct tdd_sql_source *ret,
                                 struct td_error *err)
{
    struct td_str from = param->from;
    ret->param = param->name;
    ret->name = from;
    if (tdi_json_pointer_valid(from)) {
        ret->origin = TDD_SQL_POINTER;
        return TD_OK;
    }
    if (tdi_str_starts(from, "$header.") && from.len > 8) {
        ret->origin = TDD_SQL_HEADER;
        ret->name = (struct td_str){from.data + 8, from.len - 8};
        return TD_OK;
    }
    if (tdi_str_is(from, "$body")) {
        ret->origin = TDD_SQL_BODY;
        return TD_OK;
    }
    if (tdi_str_is(from, "$consumer")) {
        ret->origin = TDD_SQL_CONSUMER;
        return TD_OK;
    }
    if (tdi_str_is(from, "$attempt")) {
        ret->origin = TDD_SQL_ATTEMPT;
        return TD_OK;
    }
    if (from.len > 1 && from.data[0] == '$') {
        ret->origin = TDD_SQL_ATTRIBUTE;
        ret->name = (struct td_str){from.data + 1, from.len - 1};
        if (known_attribute(ret->name)) {
            return TD_OK;
        }
    }
    return td_error_set(err, TD_ERR_CONFIG,
                        "parameter %.*s: '%.*s' is not a /pointer into the body, a $attribute or "
                        "$header.NAME",
                        (int)param->name.len, param->name.data, (int)from.len, from.data);
}

/* The verdict for a value that is not there or cannot be used. */
static bool refuse(const struct tdd_sql_source *source, const char *what, struct tdi_arena *a,
                   struct td_verdict *ret)
{
    *ret = (struct td_verdict){.kind = TD_VERDICT_DEAD, .code = TD_DEAD_SCHEMA};
    ret->reason = tdi_arena_printf(a, "%.*s %s, needed by :%.*s", (int)source->name.len,
                                   source->name.data, what, (int)source->param.len,
                                   source->param.data);
    ret->error_type = TD_STR_LIT("schema");
    return false;
}

static bool missing(const struct tdd_sql_source *source, bool missing_null, struct tdi_arena *a,
                    struct td_value *ret, struct td_verdict *ret_verdict)
{
    if (missing_null) {
        *ret = (struct td_value){.type = TD_VALUE_NULL};
        return true;
    }
    return refuse(source, "is missing", a, ret_verdict);
}

/* false: a string that has no UTF-8 form, or the arena is exhausted. */
static bool token_value(const struct tdi_json_token *t, struct tdi_arena *a, struct td_value *ret)
{
    *ret = (struct td_value){.type = TD_VALUE_NULL};
    switch (t->kind) {
    case TDI_JSON_NULL:
        return true;
    case TDI_JSON_TRUE:
    case TDI_JSON_FALSE:
        ret->type = TD_VALUE_BOOL;
        ret->i = t->kind == TDI_JSON_TRUE;
        return true;
    case TDI_JSON_NUMBER:
        if (tdi_json_int(t->raw, &ret->i)) {
            ret->type = TD_VALUE_INT;
            return true;
        }
        ret->type = TD_VALUE_DECIMAL;
        ret->text = t->raw;
        return true;
    case TDI_JSON_STRING:
        ret->type = TD_VALUE_TEXT;
        return tdi_json_text(t, a, &ret->text);
    case TDI_JSON_OBJECT_BEGIN:
    case TDI_JSON_ARRAY_BEGIN:
        ret->type = TD_VALUE_TEXT; /* the JSON text itself */
        ret->text = t->raw;
        return true;
    case TDI_JSON_END:
    case TDI_JSON_OBJECT_END:
    case TDI_JSON_ARRAY_END:
    case TDI_JSON_KEY:
    case TDI_JSON_ERROR:
        break;
    }
    return false;
}

static bool pointer_value(const struct tdd_sql_source *source, const struct td_message *m,
                          bool missing_null, struct tdi_arena *a, struct td_value *ret,
                          struct td_verdict *ret_verdict)
{
    struct tdi_json_token token;
    struct td_error why;
    struct td_str text = {m->body.data, m->body.len};
    if (m->body.data == NULL) {
        return missing(source, missing_null, a, ret, ret_verdict);
    }
    enum td_err rc = tdi_json_pointer(text, source->name, a, &token, &why);
    if (rc == TD_ERR_NOT_FOUND) {
        return missing(source, missing_null, a, ret, ret_verdict);
    }
    if (rc != TD_OK) {
        *ret_verdict = (struct td_verdict){.kind = TD_VERDICT_DEAD, .code = TD_DEAD_SCHEMA};
        ret_verdict->error_type = TD_STR_LIT("schema");
        ret_verdict->reason =
            tdi_arena_printf(a, "the body is not JSON (%s), needed by :%.*s", why.text,
                             (int)source->param.len, source->param.data);
        return false;
    }
    if (!token_value(&token, a, ret)) {
        return refuse(source, "is a string without a UTF-8 form", a, ret_verdict);
    }
    return true;
}

static struct td_value body_value(const struct td_message *m)
{
    struct td_str text = {m->body.data, m->body.len};
    if (m->body.data == NULL) {
        return (struct td_value){.type = TD_VALUE_NULL};
    }
    if (tdi_utf8_valid(text)) {
        return (struct td_value){.type = TD_VALUE_TEXT, .text = text};
    }
    return (struct td_value){.type = TD_VALUE_BLOB, .blob = m->body};
}

bool tdd_sql_source_value(const struct tdd_sql_source *source, const struct td_run *run,
                          bool missing_null, struct tdi_arena *a, struct td_value *ret,
                          struct td_verdict *ret_verdict)
{
    switch (source->origin) {
    case TDD_SQL_POINTER:
        return pointer_value(source, run->message, missing_null, a, ret, ret_verdict);
    case TDD_SQL_ATTRIBUTE:
        if (!tdi_message_attribute(run->message, source->name, a, ret)) {
            *ret = (struct td_value){.type = TD_VALUE_NULL};
        }
        return true;
    case TDD_SQL_HEADER:
        *ret = (struct td_value){.type = TD_VALUE_TEXT,
                                 .text = tdi_message_header(run->message, source->name)};
        return ret->text.data != NULL || missing(source, missing_null, a, ret, ret_verdict);
    case TDD_SQL_BODY:
        *ret = body_value(run->message);
        return true;
    case TDD_SQL_CONSUMER:
        *ret = (struct td_value){.type = TD_VALUE_TEXT, .text = run->consumer};
        return true;
    case TDD_SQL_ATTEMPT:
        *ret = (struct td_value){.type = TD_VALUE_INT, .i = run->attempt};
        return true;
    }
    return false;
}
