/*
 * What an operator reads: parked rows and the audit table.
 *
 * Must not know: who asks.
 */
#include "store/sqlite/internal.h"

#include <stdio.h>

#include "base/str.h"
#include "core/deadletter.h"

#define SCAN_ROWS_MAX 1024
#define AUDIT_ROWS_MAX 256
#define ID_PREFIX_BYTES_MIN 8

static void bind_filter(sqlite3_stmt *stmt, const struct td_parked_filter *f)
{
    tdi_bind_str(stmt, 1, f->consumer.len > 0 ? f->consumer : TD_STR_NONE);
    tdi_bind_str(stmt, 2, f->type.len > 0 ? f->type : TD_STR_NONE);
    tdi_bind_str(stmt, 3,
                 f->code != TD_DEAD_NONE ? tdi_str(tdi_dead_code_name(f->code)) : TD_STR_NONE);
    tdi_bind_i64(stmt, 4, f->any_outcome);
    tdi_bind_i64(stmt, 5, f->skip_stale);
}

enum td_err tdd_parked_scan(struct td_store *store, const struct td_parked_filter *filter,
                            int64_t *cursor, size_t max, struct tdi_arena *a,
                            struct td_parked_row **ret_rows, size_t *ret_count,
                            struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    static const char op[] = "parked_scan";
    sqlite3_stmt *stmt = NULL;
    char end[TD_ID_BYTES_MAX + 2];
    size_t limit = max < SCAN_ROWS_MAX ? max : SCAN_ROWS_MAX;
    size_t count = 0;
    bool by_id = filter->id.len > 0;
    struct td_parked_row *rows = tdi_arena_array(a, limit, sizeof(*rows));
    if (rows == NULL) {
        return tdd_nomem(op, err);
    }
    enum td_err rc =
        tdd_stmt(s, by_id ? TDD_SQL_PARKED_SCAN_ID : TDD_SQL_PARKED_SCAN, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_filter(stmt, filter);
    tdi_bind_i64(stmt, 6, *cursor);
    tdi_bind_i64(stmt, 7, (int64_t)limit);
    if (by_id) {
        /* Ids are printable ASCII, so DEL is behind all that begin like this one. */
        bool prefix = filter->id.len >= ID_PREFIX_BYTES_MIN && filter->id.len <= TD_ID_BYTES_MAX;
        (void)snprintf(end, sizeof(end), "%.*s\x7f", (int)(prefix ? filter->id.len : 0),
                       filter->id.data);
        tdi_bind_str(stmt, 8, filter->id);
        tdi_bind_str(stmt, 9, prefix ? tdi_str(end) : filter->id);
    }
    while (rc == TD_OK && count < limit) {
        bool row = false;
        rc = tdd_step(s, stmt, &row, op, err);
        if (rc != TD_OK || !row) {
            break;
        }
        rc = tdd_parked_decode(s, stmt, filter->with_body, a, &rows[count], op, err);
        count += rc == TD_OK ? 1 : 0;
    }
    (void)sqlite3_reset(stmt);
    if (rc == TD_OK) {
        *cursor = count > 0 ? rows[count - 1].arrival : *cursor;
        *ret_rows = rows;
        *ret_count = count;
    }
    return rc;
}

enum td_err tdd_audit_add(struct tdd_sqlite *s, const struct tdd_audit *entry, const char *op,
                          struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_AUDIT_ADD, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(stmt, 1, tdd_now(s));
    tdi_bind_str(stmt, 2, entry->actor);
    tdi_bind_str(stmt, 3, tdi_str(entry->action));
    tdi_bind_str(stmt, 4, entry->consumer);
    tdi_bind_str(stmt, 5, entry->ref.source);
    tdi_bind_str(stmt, 6, entry->ref.id);
    tdi_bind_str(stmt, 7, entry->detail);
    return tdd_run(s, stmt, NULL, op, err);
}

enum td_err tdd_audit_find(struct td_store *store, struct td_str id, struct tdi_arena *a,
                           struct td_audit_row **ret_rows, size_t *ret_count, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    static const char op[] = "audit_find";
    sqlite3_stmt *stmt = NULL;
    size_t count = 0;
    struct td_audit_row *rows = tdi_arena_array(a, AUDIT_ROWS_MAX, sizeof(*rows));
    if (rows == NULL) {
        return tdd_nomem(op, err);
    }
    enum td_err rc = tdd_stmt(s, TDD_SQL_AUDIT_FIND, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, id);
    while (rc == TD_OK && count < AUDIT_ROWS_MAX) {
        bool row = false;
        rc = tdd_step(s, stmt, &row, op, err);
        if (rc != TD_OK || !row) {
            break;
        }
        struct td_audit_row *r = &rows[count++];
        r->at = sqlite3_column_int64(stmt, 0);
        if (!tdd_copy_str(stmt, 1, a, &r->actor) || !tdd_copy_str(stmt, 2, a, &r->action) ||
            !tdd_copy_str(stmt, 3, a, &r->consumer) || !tdd_copy_str(stmt, 4, a, &r->ref.source) ||
            !tdd_copy_str(stmt, 5, a, &r->ref.id) || !tdd_copy_str(stmt, 6, a, &r->detail)) {
            rc = tdd_nomem(op, err);
        }
    }
    (void)sqlite3_reset(stmt);
    if (rc == TD_OK) {
        *ret_rows = rows;
        *ret_count = count;
    }
    return rc;
}
