/*
 * Scanner for :name parameters. It walks the text once and steps over whatever may hold a colon
 * that is no parameter: 'text', "name", `name`, [name], -- line and block comments, and casts.
 */
#include "core/sqlparams.h"

#include "base/str.h"

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
