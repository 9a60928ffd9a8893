/*
 * A session of the SQLite store: opening, closing, what it is, and the small helpers that all slots
 * use. The driver's table is at the end.
 *
 * Must not know: what the core does with a slot.
 */
#include "store/sqlite/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "core/envelope.h"
#include "store/sqlite/driver.h"

static const char driver_name[] = "sqlite";

/* The first version in which a checkpoint is safe while others commit (WAL-reset bug). */
#define SQLITE_FIXED_VERSION 3051003

/* ---- helpers ------------------------------------------------------------------------------ */

enum td_err tdd_fail(enum td_err code, const char *op, struct td_error *err, const char *fmt, ...)
{
    if (err == NULL) {
        return code;
    }
    char text[TD_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)td_error_set(err, code, "%s", text);
    (void)snprintf(err->driver, sizeof(err->driver), "%s", driver_name);
    (void)snprintf(err->op, sizeof(err->op), "%s", op);
    return code;
}

enum td_err tdd_nomem(const char *op, struct td_error *err)
{
    return tdd_fail(TD_ERR_NOMEM, op, err, "memory is exhausted");
}

td_time_us tdd_now(const struct tdd_sqlite *s)
{
    return tdi_wall(&s->clock);
}

td_time_us tdd_mono(const struct tdd_sqlite *s)
{
    return tdi_mono(&s->clock);
}

static void set_op(const char *op, struct td_error *err)
{
    if (err != NULL) {
        (void)snprintf(err->op, sizeof(err->op), "%s", op);
    }
}

/* Our statements are right, so the tables are not those of this version. */
static enum td_err not_our_tables(struct tdd_sqlite *s, const char *op, struct td_error *err)
{
    return tdd_fail(TD_ERR_SCHEMA, op, err,
                    "%s: its tables are missing or not as this version made them (%s); run tidings "
                    "init",
                    s->db.path, sqlite3_errmsg(s->db.handle));
}

enum td_err tdd_stmt(struct tdd_sqlite *s, enum tdd_sql sql, sqlite3_stmt **ret, const char *op,
                     struct td_error *err)
{
    enum td_err rc = tdi_db_statement(&s->db, (int)sql, tdd_sql_text[sql], ret, err);
    if (rc == TD_ERR_STATEMENT) {
        rc = not_our_tables(s, op, err);
    } else if (rc != TD_OK) {
        set_op(op, err);
    }
    return rc;
}

enum td_err tdd_step(struct tdd_sqlite *s, sqlite3_stmt *stmt, bool *ret_row, const char *op,
                     struct td_error *err)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *ret_row = true;
        return TD_OK;
    }
    enum td_err code = TD_OK;
    if (rc == SQLITE_DONE) {
        *ret_row = false;
    } else if (rc == SQLITE_ERROR) {
        code = not_our_tables(s, op, err); /* SQLite compiled it again, for the schema changed */
    } else {
        code = tdi_db_error(&s->db, rc, op, "the database refused", err);
    }
    (void)sqlite3_reset(stmt);
    return code;
}

enum td_err tdd_run(struct tdd_sqlite *s, sqlite3_stmt *stmt, int64_t *ret_changed, const char *op,
                    struct td_error *err)
{
    bool row = true;
    while (row) {
        enum td_err rc = tdd_step(s, stmt, &row, op, err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    if (ret_changed != NULL) {
        *ret_changed = sqlite3_changes64(s->db.handle);
    }
    return TD_OK;
}

bool tdd_copy_str(sqlite3_stmt *stmt, int at, struct tdi_arena *a, struct td_str *ret)
{
    return tdi_arena_str(a, tdi_column_str(stmt, at), ret);
}

bool tdd_copy_bytes(sqlite3_stmt *stmt, int at, struct tdi_arena *a, struct td_bytes *ret)
{
    return tdi_arena_bytes(a, tdi_column_bytes(stmt, at), ret);
}

void tdd_bind_body(sqlite3_stmt *stmt, int at, struct td_bytes body, struct td_str content_type)
{
    struct td_str text = {body.data, body.len};
    bool readable = body.data != NULL && tdi_content_is_json(content_type) &&
                    memchr(body.data, '\0', body.len) == NULL && tdi_utf8_valid(text);
    if (readable) {
        tdi_bind_str(stmt, at, text);
    } else {
        tdi_bind_bytes(stmt, at, body);
    }
}

/* ---- open, close ---------------------------------------------------------------------------- */

static enum td_err session_open(struct td_store *store, const struct td_store_options *o,
                                struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    s->clock = o->clock;
    s->random = o->random;
    s->lock_wait_us = o->lock_wait_us;
    s->real_files = o->vfs.len == 0;
    s->owner_fd = -1;
    s->checkpoint_at = TDI_DB_WAL_CHECKPOINT_PAGES;
    if (o->service.len > TDD_SERVICE_BYTES_MAX) {
        return tdd_fail(TD_ERR_CONFIG, "open", err,
                        "the name of the service is longer than %d bytes", TDD_SERVICE_BYTES_MAX);
    }
    if (o->service.len > 0) {
        memcpy(s->wanted, o->service.data, o->service.len);
    }
    if (gethostname(s->host, sizeof(s->host) - 1) != 0 || s->host[0] == '\0') {
        (void)snprintf(s->host, sizeof(s->host), "localhost");
    }
    struct tdi_db_options db = {
        .path = o->location,
        .vfs = o->vfs,
        .create = o->create,
        .read_only = o->read_only,
        .cache_kib = TDD_CACHE_KIB,
        .busy_timeout_us =
            o->operation_timeout_us > 0 ? o->operation_timeout_us : TDD_OPERATION_TIMEOUT_US,
        .clock = o->clock,
    };
    enum td_err rc = tdd_wait_open(s, err);
    if (rc == TD_OK) {
        rc = tdi_db_open(&s->db, &db, driver_name, err);
    }
    return rc == TD_OK ? tdd_schema_load(s, o, err) : rc;
}

static void session_close(struct td_store *store)
{
    struct tdd_sqlite *s = tdd_session(store);
    tdd_statements_close(s);
    if (s->checkpointer_open) {
        tdi_db_close(&s->checkpointer);
    }
    tdi_db_rollback(&s->db);
    tdi_db_close(&s->db);
    /* After the database: who finds the lock free must find our last commit too. */
    tdd_owner_close(s);
    tdd_wait_close(s);
    tdi_arena_release(&s->prune_arena);
}

static void session_interrupt(struct td_store *store)
{
    struct tdd_sqlite *s = tdd_session(store);
    tdi_db_interrupt(&s->db);
    tdd_wait_interrupt(s);
}

static enum td_err session_now(struct td_store *store, td_time_us *ret_now, struct td_error *err)
{
    (void)err;
    *ret_now = tdd_now(tdd_session(store));
    return TD_OK;
}

static enum td_err session_info(struct td_store *store, struct tdi_arena *a,
                                struct td_store_info *ret_info, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct td_store_info info = {.schema = s->schema, .schema_wanted = tdd_schema_wanted()};
    info.version = tdi_arena_printf(a, "SQLite %s", sqlite3_libversion());
    info.warnings = TD_STR_LIT("");
    if (sqlite3_libversion_number() < SQLITE_FIXED_VERSION) {
        info.warnings = TD_STR_LIT(
            "SQLite older than 3.51.3: only one process may checkpoint a shared file; Tidings "
            "does it, so applications must set PRAGMA wal_autocheckpoint=0 and a busy_timeout "
            "of 5000 or more on every connection.");
    }
    if (info.version.data == NULL || !tdi_arena_str(a, tdi_str(s->identity), &info.identity) ||
        !tdi_arena_str(a, tdi_str(s->service), &info.service)) {
        return tdd_nomem("info", err);
    }
    *ret_info = info;
    return TD_OK;
}

/* ---- the driver ------------------------------------------------------------------------------ */

const struct td_store_driver tdd_sqlite_store = {
    .abi = TD_STORE_ABI,
    .struct_size = sizeof(struct td_store_driver),
    .name = driver_name,
    .caps = TD_STORE_SERIAL_WRITER | TD_STORE_WAKER | TD_STORE_TX_LOCKS_KEY,
    .session_size = sizeof(struct tdd_sqlite),
    .open = session_open,
    .close = session_close,
    .interrupt = session_interrupt,
    .info = session_info,
    .migrate = tdd_migrate,
    .schema_sql = tdd_schema_sql,
    .now = session_now,
    .begin = tdd_begin,
    .savepoint = tdd_savepoint,
    .savepoint_end = tdd_savepoint_end,
    .finish = tdd_finish,
    .relay_declare = tdd_relay_declare,
    .relay_position = tdd_relay_position,
    .outbox_read = tdd_outbox_read,
    .outbox_durable = tdd_outbox_durable,
    .relay_settle = tdd_relay_settle,
    .outbox_purge = tdd_outbox_purge,
    .wait = tdd_wait,
    .relay_rebase = tdd_relay_rebase,
    .lease_take = tdd_lease_take,
    .lease_renew = tdd_lease_renew,
    .lease_clear_unclean = tdd_lease_clear_unclean,
    .lease_release = tdd_lease_release,
    .lease_scan = tdd_lease_scan,
    .inbox_look = tdd_inbox_look,
    .inbox_claim = tdd_inbox_claim,
    .inbox_settle = tdd_inbox_settle,
    .parked_due = tdd_parked_due,
    .parked_return = tdd_parked_return,
    .parked_keys = tdd_parked_keys,
    .inbox_prune = tdd_inbox_prune,
    .counts = tdd_counts,
    .statement_prepare = tdd_statement_prepare,
    .statement_run = tdd_statement_run,
    .parked_scan = tdd_parked_scan,
    .parked_change = tdd_parked_change,
    .relay_stats = tdd_relay_stats,
    .outbox_find = tdd_outbox_find,
    .inbox_find = tdd_inbox_find,
    .published_find = tdd_published_find,
    .audit_find = tdd_audit_find,
    .outbox_add = tdd_outbox_add,
};
