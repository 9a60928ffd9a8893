/*
 * Scanner for :name parameters. It walks the text once and steps over whatever may hold a colon
 * that is no parameter: 'text', "name", `name`, [name], -- line and block comments, and casts.
 */
#include "core/sqlparams.h"

#include "base/json.h"
#include "base/str.h"
#include "core/envelope.h"

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_char(char c)
{
    return is_name_start(c) || (c >= '0' && c <= '9');
}

/* Behind the quoted text that begins at `at`; a doubled quote stays inside. */
static size_t skip_quoted(struct td_str sql, size_t at)
{
    char quote = sql.data[at] == '[' ? ']' : sql.data[at];
    at++;
    while (at < sql.len) {
        if (sql.data[at] == quote) {
            if (at + 1 < sql.len && sql.data[at + 1] == quote && quote != ']') {
                at += 2;
                continue;
            }
            return at + 1;
        }
        at++;
    }
    return at;
}

static size_t skip_line(struct td_str sql, size_t at)
{
    while (at < sql.len && sql.data[at] != '\n') {
        at++;
    }
    return at;
}

static size_t skip_block(struct td_str sql, size_t at)
{
    at += 2;
    while (at + 1 < sql.len && !(sql.data[at] == '*' && sql.data[at + 1] == '/')) {
        at++;
    }
    return at + 2 < sql.len ? at + 2 : sql.len;
}

/* Something that is stepped over begins at `at`: where does it end? Otherwise `at` itself. */
static size_t skip_inert(struct td_str sql, size_t at)
{
    char c = sql.data[at];
    char next = at + 1 < sql.len ? sql.data[at + 1] : '\0';
    if (c == '\'' || c == '"' || c == '`' || c == '[') {
        return skip_quoted(sql, at);
    }
    if (c == '-' && next == '-') {
        return skip_line(sql, at);
    }
    if (c == '/' && next == '*') {
        return skip_block(sql, at);
    }
    if (c == ':' && next == ':') {
        return at + 2;
    }
    return at;
}

static bool add_name(struct tdi_sql_params *p, struct td_str name, size_t offset)
{
    for (size_t i = 0; i < p->count; i++) {
        if (tdi_str_eq(p->names[i], name)) {
            return true;
        }
    }
    if (p->count == TDI_SQL_PARAMS_MAX) {
        return false;
    }
    p->names[p->count] = name;
    p->offsets[p->count] = offset;
    p->count++;
    return true;
}

bool tdi_sql_params(struct td_str sql, struct tdi_sql_params *ret)
{
    size_t at = 0;
    ret->count = 0;
    while (at < sql.len) {
        size_t behind = skip_inert(sql, at);
        if (behind != at) {
            at = behind;
            continue;
        }
        if (sql.data[at] != ':' || at + 1 >= sql.len || !is_name_start(sql.data[at + 1])) {
            at++;
            continue;
        }
        size_t end = at + 1;
        while (end < sql.len && is_name_char(sql.data[end])) {
            end++;
        }
        if (!add_name(ret, (struct td_str){sql.data + at + 1, end - at - 1}, at)) {
            return false;
        }
        at = end;
    }
    return true;
}

/* Absent attributes are NULL and need no memory, so false means that the name is unknown. */
static bool known_attribute(struct td_str name)
{
    static const struct td_message nothing = {
        .time = TD_TIME_NONE,
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
    };
    struct td_value ignored;
    return tdi_message_attribute(&nothing, name, NULL, &ignored);
}

enum tdi_param_origin tdi_param_origin(struct td_str from, struct td_str *ret_name)
{
    static const struct td_str header = {"$header.", sizeof("$header.") - 1};
    *ret_name = from;
    if (from.data == NULL) {
        return TDI_PARAM_WRONG;
    }
    if (tdi_json_pointer_valid(from)) {
        return TDI_PARAM_POINTER;
    }
    if (tdi_str_starts(from, header.data)) {
        *ret_name = (struct td_str){from.data + header.len, from.len - header.len};
        return ret_name->len > 0 ? TDI_PARAM_HEADER : TDI_PARAM_WRONG;
    }
    if (tdi_str_is(from, "$body")) {
        return TDI_PARAM_BODY;
    }
    if (tdi_str_is(from, "$consumer")) {
        return TDI_PARAM_CONSUMER;
    }
    if (tdi_str_is(from, "$attempt")) {
        return TDI_PARAM_ATTEMPT;
    }
    if (from.len < 2 || from.data[0] != '$') {
        return TDI_PARAM_WRONG;
    }
    *ret_name = (struct td_str){from.data + 1, from.len - 1};
    return known_attribute(*ret_name) ? TDI_PARAM_ATTRIBUTE : TDI_PARAM_WRONG;
}
