/*
 * Values for parameters. Types are kept: 64-bit integers are integers, every other number is the text
 * that the body had, so nothing is rounded on its way to the database.
 */
#include "handler/sql/params.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "core/envelope.h"

enum td_err tdd_sql_source_parse(const struct td_param *param, struct tdd_sql_source *ret,
                                 struct td_error *err)
{
    struct td_str from = param->from;
    ret->param = param->name;
    ret->text = from;
    ret->origin = tdi_param_origin(from, &ret->name);
    if (ret->origin != TDI_PARAM_WRONG) {
        return TD_OK;
    }
    return td_error_set(err, TD_ERR_CONFIG,
                        "parameter %.*s: '%.*s' is not a /pointer into the body, a $attribute or "
                        "$header.NAME",
                        (int)param->name.len, param->name.data, (int)from.len, from.data);
}

static enum td_err out_of_memory(struct td_error *err)
{
    return td_error_set(err, TD_ERR_NOMEM, "no memory for the parameters of a statement");
}

/* The message cannot be used: "/user_id is missing, needed by :user". */
static enum td_err refuse(const struct tdd_sql_source *source, const char *what,
                          struct tdi_arena *a, struct td_verdict *ret, struct td_error *err)
{
    struct td_verdict v = {.kind = TD_VERDICT_DEAD, .code = TD_DEAD_SCHEMA};
    v.reason =
        tdi_arena_printf(a, "%.*s %s, needed by :%.*s", (int)source->text.len, source->text.data,
                         what, (int)source->param.len, source->param.data);
    if (v.reason.data == NULL) {
        return out_of_memory(err);
    }
    v.error_type = TD_STR_LIT("schema");
    v.error_message = v.reason;
    *ret = v;
    return TD_ERR_INVALID;
}

static enum td_err missing(const struct tdd_sql_source *source, bool missing_null,
                           struct tdi_arena *a, struct td_value *ret,
                           struct td_verdict *ret_verdict, struct td_error *err)
{
    if (missing_null) {
        *ret = (struct td_value){.type = TD_VALUE_NULL};
        return TD_OK;
    }
    return refuse(source, "is missing", a, ret_verdict, err);
}

/* false: a string that cannot be decoded. */
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

static enum td_err pointer_value(const struct tdd_sql_source *source, const struct td_run *run,
                                 bool missing_null, struct tdi_arena *a, struct td_value *ret,
                                 struct td_verdict *ret_verdict, struct td_error *err)
{
    struct tdi_json_token token;
    struct td_error why;
    struct td_str text = {run->message->body.data, run->message->body.len};
    if (text.data == NULL) {
        return missing(source, missing_null, a, ret, ret_verdict, err);
    }
    enum td_err rc = tdi_json_pointer(text, source->name, a, &token, &why);
    if (rc == TD_ERR_NOT_FOUND) {
        return missing(source, missing_null, a, ret, ret_verdict, err);
    }
    if (rc == TD_ERR_NOMEM) {
        return out_of_memory(err);
    }
    if (rc != TD_OK) {
        struct td_str sentence = tdi_arena_printf(a, "cannot be read: the body is %s", why.text);
        return sentence.data == NULL ? out_of_memory(err)
                                     : refuse(source, sentence.data, a, ret_verdict, err);
    }
    if (!token_value(&token, a, ret)) {
        /* Two reasons: an arena that cannot hold the text, or a text that is none. */
        return tdi_arena_alloc(a, token.raw.len + 1) == NULL
                   ? out_of_memory(err)
                   : refuse(source, "holds half of a surrogate pair", a, ret_verdict, err);
    }
    return TD_OK;
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

enum td_err tdd_sql_source_value(const struct tdd_sql_source *source, const struct td_run *run,
                                 bool missing_null, struct tdi_arena *a, struct td_value *ret,
                                 struct td_verdict *ret_verdict, struct td_error *err)
{
    switch (source->origin) {
    case TDI_PARAM_POINTER:
        return pointer_value(source, run, missing_null, a, ret, ret_verdict, err);
    case TDI_PARAM_ATTRIBUTE:
        /* The name was checked when it was parsed. */
        return tdi_message_attribute(run->message, source->name, a, ret) ? TD_OK
                                                                         : out_of_memory(err);
    case TDI_PARAM_HEADER:
        *ret = (struct td_value){.type = TD_VALUE_TEXT,
                                 .text = tdi_message_header(run->message, source->name)};
        return ret->text.data != NULL ? TD_OK
                                      : missing(source, missing_null, a, ret, ret_verdict, err);
    case TDI_PARAM_BODY:
        *ret = body_value(run->message);
        return TD_OK;
    case TDI_PARAM_CONSUMER:
        *ret = (struct td_value){.type = TD_VALUE_TEXT, .text = run->consumer};
        return TD_OK;
    case TDI_PARAM_ATTEMPT:
        *ret = (struct td_value){.type = TD_VALUE_INT, .i = run->attempt};
        return TD_OK;
    case TDI_PARAM_WRONG: /* refused at open */
        break;
    }
    return td_error_set(err, TD_ERR_INTERNAL, "a parameter has no origin");
}
