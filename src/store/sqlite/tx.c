/*
 * Write transactions: taking the lock fairly, committing, bringing commits to disk, checkpoints.
 *
 * Must not know: tables.
 * Invariants: the write lock is taken at BEGIN and never waited for later; a commit is synced after
 * the lock was given back. Before SQLite 3.51.3 a checkpoint could damage the file if another
 * connection began the WAL anew at the same moment; checkpoint() says how that is kept out.
 */
#include "store/sqlite/internal.h"

#include <time.h>

#define FAIR_PAUSE_MAX_US 20000
#define CHECKPOINT_CACHE_KIB 64

/* ---- fairness ------------------------------------------------------------------------------- */

static enum td_err data_version(struct tdd_sqlite *s, int64_t *ret, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(s, TDD_SQL_DATA_VERSION, &stmt, "begin", err);
    if (rc == TD_OK) {
        rc = tdd_step(s, stmt, &row, "begin", err);
    }
    if (rc == TD_OK && row) {
        *ret = sqlite3_column_int64(stmt, 0);
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

/*
 * SQLite has no queue for its write lock: waiting connections poll. If others write to the file
 * too, we leave it alone as long as we held it, or their polls would always find it taken.
 */
static enum td_err leave_room(struct tdd_sqlite *s, struct td_error *err)
{
    int64_t version = 0;
    enum td_err rc = data_version(s, &version, err);
    if (rc != TD_OK || version == s->data_version) {
        return rc;
    }
    bool first = s->tx_ended_us == 0;
    s->data_version = version;
    td_time_us pause = s->tx_held_us < FAIR_PAUSE_MAX_US ? s->tx_held_us : FAIR_PAUSE_MAX_US;
    pause -= tdd_mono(s) - s->tx_ended_us;
    if (!first && pause > 0) {
        struct timespec t = {.tv_sec = 0, .tv_nsec = (long)pause * 1000};
        (void)nanosleep(&t, NULL);
    }
    return TD_OK;
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

static enum td_err checkpointer(struct tdd_sqlite *s, struct td_error *err)
{
    if (s->checkpointer_open) {
        return TD_OK;
    }
    struct tdi_db_options o = s->db.options;
    o.create = false;
    o.cache_kib = CHECKPOINT_CACHE_KIB;
    o.busy_timeout_us = 0;
    enum td_err rc = tdi_db_open(&s->checkpointer, &o, s->db.driver_name, err);
    if (rc != TD_OK) {
        tdi_db_close(&s->checkpointer);
        return rc;
    }
    s->checkpointer_open = true;
    return TD_OK;
}

/*
 * The damage of old SQLite versions needs a WAL that is begun anew after a checkpoint has looked at
 * it. That takes a WAL of which everything is in the database file already. So: whoever holds the
 * checkpoint byte of the owner file is the only one of us who moves pages, and has committed frames
 * since it got the byte. Those keep the WAL from being begun anew until they were moved, and the
 * write lock stays free for applications meanwhile.
 */
static enum td_err checkpoint(struct tdd_sqlite *s, struct td_error *err)
{
    struct td_error why;
    enum td_err rc = checkpointer(s, &why);
    if (rc == TD_OK) {
        rc = tdi_db_checkpoint(&s->checkpointer, false, &why);
    }
    /* What a reader still needs stays; it is not tried again after every single commit. */
    s->checkpoint_at = tdi_db_wal_pages(&s->db) + TDI_DB_WAL_CHECKPOINT_PAGES;
    /* A WAL that stays long costs space, not data; a failed sync is the end. */
    if (s->checkpointer_open && s->checkpointer.sync_failed) {
        s->db.sync_failed = true;
        if (err != NULL) {
            *err = why;
        }
        return rc;
    }
    return TD_OK;
}

static bool checkpoint_is_due(struct tdd_sqlite *s)
{
    if (tdi_db_wal_pages(&s->db) < TDI_DB_WAL_CHECKPOINT_PAGES) {
        s->checkpoint_at = TDI_DB_WAL_CHECKPOINT_PAGES;
    }
    return tdi_db_wal_pages(&s->db) >= s->checkpoint_at;
}

/* Without an owner file (a VFS of tests) the write lock does what its byte does otherwise. */
static enum td_err checkpoint_under_lock(struct tdd_sqlite *s, struct td_error *err)
{
    s->db.busy_never = true;
    enum td_err rc = tdi_db_begin(&s->db, true, NULL);
    s->db.busy_never = false;
    if (rc != TD_OK) {
        return TD_OK;
    }
    rc = checkpoint(s, err);
    tdi_db_rollback(&s->db);
    return rc;
}

/* ---- transactions --------------------------------------------------------------------------- */

static enum td_err lock_begin(struct tdd_sqlite *s, const char *op, struct td_error *err)
{
    if (s->tx_open) {
        return tdd_fail(TD_ERR_INTERNAL, op, err, "a transaction is open already");
    }
    if (s->db.options.read_only) {
        return tdd_fail(TD_ERR_READ_ONLY, op, err, "%s was opened for reading only", s->db.path);
    }
    enum td_err rc = leave_room(s, err);
    if (rc == TD_OK) {
        rc = tdi_db_begin(&s->db, true, err);
    }
    if (rc == TD_OK) {
        s->tx_began_us = tdd_mono(s);
    }
    return rc;
}

static void lock_ended(struct tdd_sqlite *s)
{
    s->tx_ended_us = tdd_mono(s);
    s->tx_held_us = s->tx_ended_us - s->tx_began_us;
}

static enum td_err commit(struct tdd_sqlite *s, bool sync, struct td_error *err)
{
    bool due = checkpoint_is_due(s);
    enum tdd_lock lock = due ? tdd_owner_lock(s, TDD_CHECKPOINT_BYTE) : TDD_LOCK_OTHERS;
    uint64_t before = s->db.wal_commits;
    enum td_err rc = tdi_db_commit(&s->db, err);
    lock_ended(s);
    if (rc == TD_OK && sync) {
        rc = tdi_db_sync(&s->db, err);
    }
    if (rc == TD_OK && lock == TDD_LOCK_OURS && s->db.wal_commits != before) {
        rc = checkpoint(s, err);
    } else if (rc == TD_OK && lock == TDD_LOCK_NONE) {
        rc = checkpoint_under_lock(s, err);
    }
    if (lock == TDD_LOCK_OURS) {
        tdd_owner_unlock(s, TDD_CHECKPOINT_BYTE);
    }
    return rc;
}

enum td_err tdd_tx_begin(struct tdd_sqlite *s, const char *op, struct td_error *err)
{
    return lock_begin(s, op, err);
}

enum td_err tdd_tx_begin_soon(struct tdd_sqlite *s, const char *op, struct td_error *err)
{
    td_time_us usual = s->db.options.busy_timeout_us;
    if (s->lock_wait_us > 0 && s->lock_wait_us < usual) {
        s->db.options.busy_timeout_us = s->lock_wait_us;
    }
    enum td_err rc = lock_begin(s, op, err);
    s->db.options.busy_timeout_us = usual;
    return rc;
}

enum td_err tdd_tx_end(struct tdd_sqlite *s, enum td_err rc, bool sync, struct td_error *err)
{
    if (rc == TD_OK) {
        return commit(s, sync, err);
    }
    tdi_db_rollback(&s->db);
    lock_ended(s);
    return rc;
}

enum td_err tdd_tx_check(struct tdd_sqlite *s, const char *op, struct td_error *err)
{
    if (!s->tx_open) {
        return tdd_fail(TD_ERR_INTERNAL, op, err, "no transaction is open");
    }
    /* A full disk, an interrupt or ON CONFLICT ROLLBACK end it without being asked. */
    if (sqlite3_get_autocommit(s->db.handle) != 0) {
        return tdd_fail(TD_ERR_UNAVAILABLE, op, err,
                        "the transaction was rolled back by the failure of an earlier statement");
    }
    return TD_OK;
}

enum td_err tdd_begin(struct td_store *store, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    enum td_err rc = lock_begin(s, "begin", err);
    if (rc == TD_OK) {
        s->tx_open = true;
        s->savepoint_open = false;
        s->undone = false;
    }
    return rc;
}

enum td_err tdd_savepoint(struct td_store *store, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_tx_check(s, "savepoint", err);
    if (rc == TD_OK && s->savepoint_open) {
        rc = tdd_fail(TD_ERR_INTERNAL, "savepoint", err, "a savepoint is open already");
    }
    if (rc == TD_OK) {
        rc = tdd_stmt(s, TDD_SQL_SAVEPOINT, &stmt, "savepoint", err);
    }
    if (rc == TD_OK) {
        rc = tdd_run(s, stmt, NULL, "savepoint", err);
    }
    s->savepoint_open = s->savepoint_open || rc == TD_OK;
    return rc;
}

enum td_err tdd_savepoint_end(struct td_store *store, bool keep, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_tx_check(s, "savepoint_end", err);
    if (rc == TD_OK && !s->savepoint_open) {
        rc = tdd_fail(TD_ERR_INTERNAL, "savepoint_end", err, "no savepoint is open");
    }
    if (rc == TD_OK && !keep) {
        s->undone = true;
        rc = tdd_stmt(s, TDD_SQL_SAVEPOINT_UNDO, &stmt, "savepoint_end", err);
        if (rc == TD_OK) {
            rc = tdd_run(s, stmt, NULL, "savepoint_end", err);
        }
    }
    if (rc == TD_OK) {
        rc = tdd_stmt(s, TDD_SQL_SAVEPOINT_END, &stmt, "savepoint_end", err);
    }
    if (rc == TD_OK) {
        rc = tdd_run(s, stmt, NULL, "savepoint_end", err);
    }
    s->savepoint_open = s->savepoint_open && rc != TD_OK;
    return rc;
}

enum td_err tdd_finish(struct td_store *store, bool commit_it, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    if (!s->tx_open) {
        return tdd_fail(TD_ERR_INTERNAL, "finish", err, "no transaction is open");
    }
    enum td_err rc = commit_it ? tdd_tx_check(s, "finish", err) : TD_OK;
    s->tx_open = false;
    s->savepoint_open = false;
    if (commit_it && rc == TD_OK) {
        return commit(s, true, err);
    }
    tdi_db_rollback(&s->db);
    lock_ended(s);
    return rc;
}
