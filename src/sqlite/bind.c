/*
 * Binding values to statements and reading columns, in the types of include/tidings/types.h.
 *
 * Must not know: which statement, which table.
 * Invariant: absent text and bytes are NULL both ways, 0 bytes are not.
 */
#include "sqlite/db.h"

#include "tidings/message.h"

/* SQLite takes a NULL pointer for SQL NULL, so a value of 0 bytes needs some pointer. */
static const char nothing[1] = "";

/* The values live until the statement was reset: callers bind, step and reset in one function. */
void tdi_bind_str(sqlite3_stmt *s, int at, struct td_str v)
{
    if (v.data == NULL) {
        (void)sqlite3_bind_null(s, at);
    } else {
        (void)sqlite3_bind_text64(s, at, v.data, v.len, SQLITE_STATIC, SQLITE_UTF8);
    }
}

void tdi_bind_bytes(sqlite3_stmt *s, int at, struct td_bytes v)
{
    if (v.data == NULL) {
        (void)sqlite3_bind_null(s, at);
    } else {
        (void)sqlite3_bind_blob64(s, at, v.data, v.len, SQLITE_STATIC);
    }
}

void tdi_bind_i64(sqlite3_stmt *s, int at, int64_t v)
{
    /* TD_TIME_NONE is the same number. */
    if (v == TD_NUMBER_NONE) {
        (void)sqlite3_bind_null(s, at);
    } else {
        (void)sqlite3_bind_int64(s, at, v);
    }
}

struct td_str tdi_column_str(sqlite3_stmt *s, int at)
{
    struct td_str v = TD_STR_NONE;
    if (sqlite3_column_type(s, at) == SQLITE_NULL) {
        return v;
    }
    const unsigned char *text = sqlite3_column_text(s, at);
    v.data = text != NULL ? (const char *)text : nothing;
    v.len = (size_t)sqlite3_column_bytes(s, at);
    return v;
}

struct td_bytes tdi_column_bytes(sqlite3_stmt *s, int at)
{
    struct td_bytes v = TD_BYTES_NONE;
    int type = sqlite3_column_type(s, at);
    if (type == SQLITE_NULL) {
        return v;
    }
    /* Text in whatever encoding the file has is delivered as UTF-8; blobs stay as they are. */
    if (type == SQLITE_BLOB) {
        v.data = sqlite3_column_blob(s, at);
    } else {
        v.data = sqlite3_column_text(s, at);
    }
    v.len = (size_t)sqlite3_column_bytes(s, at);
    if (v.data == NULL) {
        v.data = nothing;
    }
    return v;
}

int64_t tdi_column_i64(sqlite3_stmt *s, int at)
{
    if (sqlite3_column_type(s, at) == SQLITE_NULL) {
        return TD_NUMBER_NONE;
    }
    return sqlite3_column_int64(s, at);
}
