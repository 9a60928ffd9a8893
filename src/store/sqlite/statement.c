/*
 * Statements of handlers: checked once, kept, run in the open transaction.
 *
 * Must not know: what the statements are for.
 * Invariants: a statement can neither end the transaction nor change the connection; it runs for at
 * most the operation timeout, for all others wait for it.
 */
#include "store/sqlite/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

#define SQL_BYTES_MAX (1024 * 1024)
#define PROGRESS_OPS 10000

static const char op_prepare[] = "statement_prepare";
static const char op_run[] = "statement_run";

static enum td_err refuse(struct td_error *err, const char *sqlstate, const char *why)
{
    (void)tdd_fail(TD_ERR_STATEMENT, op_prepare, err, "%s", why);
    if (err != NULL) {
        (void)snprintf(err->sqlstate, sizeof(err->sqlstate), "%s", sqlstate);
    }
    return TD_ERR_STATEMENT;
}

/* Called while a statement is compiled. */
static int authorize(void *ctx, int action, const char *a, const char *b, const char *c,
                     const char *d)
{
    (void)ctx;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    switch (action) {
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
    case SQLITE_PRAGMA:
        return SQLITE_DENY;
    default:
        return SQLITE_OK;
    }
}

/* VACUUM asks the authorizer only when it runs, so its word is looked for, behind comments too. */
static bool is_vacuum(const char *sql)
{
    const char *p = sql;
    for (;;) {
        p += strspn(p, " \t\r\n\f;");
        if (strncmp(p, "--", 2) == 0) {
            p += strcspn(p, "\n");
        } else if (strncmp(p, "/*", 2) == 0) {
            const char *end = strstr(p + 2, "*/");
            p = end != NULL ? end + 2 : p + strlen(p);
        } else {
            return strncasecmp(p, "vacuum", 6) == 0;
        }
    }
}

/* Is there nothing but space and comments behind the statement? */
static bool tail_is_empty(struct tdd_sqlite *s, const char *tail)
{
    sqlite3_stmt *more = NULL;
    const char *rest = tail;
    while (*rest != '\0') {
        const char *before = rest;
        int rc = sqlite3_prepare_v2(s->db.handle, before, -1, &more, &rest);
        if (rc != SQLITE_OK || more != NULL) {
            (void)sqlite3_finalize(more);
            return false;
        }
        if (rest == before) {
            break;
        }
    }
    return true;
}

static enum td_err compile(struct tdd_sqlite *s, const char *sql, sqlite3_stmt **ret,
                           struct td_error *err)
{
    const char *tail = sql;
    sqlite3_stmt *stmt = NULL;
    if (is_vacuum(sql)) {
        return refuse(err, "42501", "VACUUM cannot be a handler's statement");
    }
    (void)sqlite3_set_authorizer(s->db.handle, authorize, NULL);
    int rc = sqlite3_prepare_v3(s->db.handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, &tail);
    enum td_err code = TD_OK;
    if (rc == SQLITE_AUTH) {
        code = refuse(err, "42501",
                      "BEGIN, COMMIT, ROLLBACK, SAVEPOINT, ATTACH, DETACH and PRAGMA cannot be a "
                      "handler's statement: it runs inside a transaction of Tidings");
    } else if (rc != SQLITE_OK) {
        code = tdi_db_error(&s->db, rc, op_prepare, "the statement is wrong", err);
    } else if (stmt == NULL) {
        code = refuse(err, "42000", "the statement is empty");
    } else if (!tail_is_empty(s, tail)) {
        code = refuse(err, "42000", "only one statement is allowed; write one `run` for each");
    }
    (void)sqlite3_set_authorizer(s->db.handle, NULL, NULL);
    if (code != TD_OK) {
        (void)sqlite3_finalize(stmt);
        return code;
    }
    *ret = stmt;
    return TD_OK;
}

/* Which parameter of the statement each name is; every parameter must have a name. */
static enum td_err match_names(sqlite3_stmt *stmt, const struct td_statement *statement,
                               int *positions, struct td_error *err)
{
    for (size_t i = 0; i < statement->names_count; i++) {
        char name[258];
        int len = snprintf(name, sizeof(name), ":%.*s", (int)statement->names[i].len,
                           statement->names[i].data);
        bool fits = len > 1 && len < (int)sizeof(name);
        positions[i] = fits ? sqlite3_bind_parameter_index(stmt, name) : 0;
    }
    for (int p = 1; p <= sqlite3_bind_parameter_count(stmt); p++) {
        const char *name = sqlite3_bind_parameter_name(stmt, p);
        bool found = false;
        for (size_t i = 0; i < statement->names_count && !found; i++) {
            found = positions[i] == p;
        }
        if (!found) {
            char why[128];
            (void)snprintf(why, sizeof(why), "the parameter %.64s of the statement has no value",
                           name != NULL ? name : "?");
            return refuse(err, "42P02", why);
        }
    }
    return TD_OK;
}

enum td_err tdd_statement_prepare(struct td_store *store, const struct td_statement *statement,
                                  int *ret_handle, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct tdd_handle h = {.names_count = statement->names_count};
    if (s->handles_count == TDD_HANDLES_MAX || statement->names_count > TDD_PARAMS_MAX ||
        statement->sql.len > SQL_BYTES_MAX) {
        return tdd_fail(TD_ERR_LIMIT, op_prepare, err,
                        "at most %d statements of %d parameters and 1 MiB are possible",
                        TDD_HANDLES_MAX, TDD_PARAMS_MAX);
    }
    if (statement->sql.len > 0 && memchr(statement->sql.data, '\0', statement->sql.len) != NULL) {
        return refuse(err, "42000", "the statement holds a NUL character");
    }
    char *sql = malloc(statement->sql.len + 1);
    h.positions = calloc(h.names_count + 1, sizeof(*h.positions));
    enum td_err rc = sql != NULL && h.positions != NULL ? TD_OK : tdd_nomem(op_prepare, err);
    if (rc == TD_OK) {
        if (statement->sql.len > 0) {
            memcpy(sql, statement->sql.data, statement->sql.len);
        }
        sql[statement->sql.len] = '\0';
        rc = compile(s, sql, &h.stmt, err);
    }
    if (rc == TD_OK) {
        rc = match_names(h.stmt, statement, h.positions, err);
    }
    free(sql);
    if (rc != TD_OK) {
        (void)sqlite3_finalize(h.stmt);
        free(h.positions);
        return rc;
    }
    *ret_handle = (int)s->handles_count;
    s->handles[s->handles_count++] = h;
    return TD_OK;
}

void tdd_statements_close(struct tdd_sqlite *s)
{
    for (size_t i = 0; i < s->handles_count; i++) {
        (void)sqlite3_finalize(s->handles[i].stmt);
        free(s->handles[i].positions);
    }
    s->handles_count = 0;
}

/* ---- running -------------------------------------------------------------------------------- */

static void bind_value(sqlite3_stmt *stmt, int at, const struct td_value *v)
{
    switch (v->type) {
    case TD_VALUE_NULL:
        (void)sqlite3_bind_null(stmt, at);
        break;
    case TD_VALUE_INT:
    case TD_VALUE_BOOL:
        (void)sqlite3_bind_int64(stmt, at, v->i);
        break;
    case TD_VALUE_DECIMAL: /* SQLite has no exact type: the text keeps every digit */
    case TD_VALUE_TEXT:
        tdi_bind_str(stmt, at, v->text.data != NULL ? v->text : TD_STR_LIT(""));
        break;
    case TD_VALUE_BLOB:
        tdi_bind_bytes(stmt, at, v->blob);
        break;
    }
}

static int too_long(void *ctx)
{
    const struct tdd_sqlite *s = ctx;
    return tdd_mono(s) > s->run_deadline_us ? 1 : 0;
}

/* Rows changed, or for a statement that only reads the rows it gives. */
static enum td_err run_row(struct tdd_sqlite *s, const struct tdd_handle *h,
                           const struct td_value *values, int64_t *ret_changed,
                           struct td_error *err)
{
    int64_t given = 0;
    int rc = SQLITE_ROW;
    (void)sqlite3_reset(h->stmt);
    for (size_t i = 0; i < h->names_count; i++) {
        if (h->positions[i] > 0) {
            bind_value(h->stmt, h->positions[i], &values[i]);
        }
    }
    while ((rc = sqlite3_step(h->stmt)) == SQLITE_ROW) {
        given++;
    }
    enum td_err code = TD_OK;
    if (rc == SQLITE_DONE) {
        *ret_changed = sqlite3_stmt_readonly(h->stmt) ? given : sqlite3_changes64(s->db.handle);
    } else {
        bool timeout = rc == SQLITE_INTERRUPT && too_long(s);
        code = tdi_db_error(&s->db, rc, op_run, "the statement failed", err);
        if (timeout) {
            code = tdd_fail(TD_ERR_TIMEOUT, op_run, err, "the statement took too long");
        }
        if (timeout && err != NULL) {
            (void)snprintf(err->sqlstate, sizeof(err->sqlstate), "57014");
        }
    }
    (void)sqlite3_reset(h->stmt);
    (void)sqlite3_clear_bindings(h->stmt);
    return code;
}

enum td_err tdd_statement_run(struct td_store *store, int handle, const struct td_value *values,
                              size_t rows, int64_t *ret_changed, size_t *ret_failed,
                              struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    if (handle < 0 || (size_t)handle >= s->handles_count) {
        return tdd_fail(TD_ERR_INTERNAL, op_run, err, "no statement has the handle %d", handle);
    }
    enum td_err rc = tdd_tx_check(s, op_run, err);
    const struct tdd_handle *h = &s->handles[handle];
    s->run_deadline_us = tdd_mono(s) + s->db.options.busy_timeout_us;
    sqlite3_progress_handler(s->db.handle, PROGRESS_OPS, too_long, s);
    for (size_t i = 0; i < rows && rc == TD_OK; i++) {
        rc = run_row(s, h, values + i * h->names_count, &ret_changed[i], err);
        if (rc != TD_OK) {
            *ret_failed = i;
        }
    }
    sqlite3_progress_handler(s->db.handle, 0, NULL, NULL);
    return rc;
}
