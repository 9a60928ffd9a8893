/*
 * SQLite's result codes in our terms: code, class, name, SQLSTATE.
 *
 * Must not know: tables of store or broker.
 */
#include "sqlite/db.h"

#include <stdio.h>
#include <string.h>

struct code_row {
    int rc; /* extended or primary; extended ones first */
    enum td_err code;
    const char *sqlstate;
    const char *name;
};

/* The first row that has the extended code counts, else the first with the primary one. */
static const struct code_row code_table[] = {
    {SQLITE_CONSTRAINT_UNIQUE, TD_ERR_STATEMENT, "23505", "SQLITE_CONSTRAINT_UNIQUE"},
    {SQLITE_CONSTRAINT_PRIMARYKEY, TD_ERR_STATEMENT, "23505", "SQLITE_CONSTRAINT_PRIMARYKEY"},
    {SQLITE_CONSTRAINT_ROWID, TD_ERR_STATEMENT, "23505", "SQLITE_CONSTRAINT_ROWID"},
    {SQLITE_CONSTRAINT_NOTNULL, TD_ERR_STATEMENT, "23502", "SQLITE_CONSTRAINT_NOTNULL"},
    {SQLITE_CONSTRAINT_CHECK, TD_ERR_STATEMENT, "23514", "SQLITE_CONSTRAINT_CHECK"},
    {SQLITE_CONSTRAINT_FOREIGNKEY, TD_ERR_STATEMENT, "23503", "SQLITE_CONSTRAINT_FOREIGNKEY"},
    {SQLITE_CONSTRAINT_DATATYPE, TD_ERR_STATEMENT, "22000", "SQLITE_CONSTRAINT_DATATYPE"},
    {SQLITE_CONSTRAINT_TRIGGER, TD_ERR_STATEMENT, "23000", "SQLITE_CONSTRAINT_TRIGGER"},
    {SQLITE_BUSY_SNAPSHOT, TD_ERR_BUSY, "55P03", "SQLITE_BUSY_SNAPSHOT"},
    {SQLITE_BUSY_RECOVERY, TD_ERR_BUSY, "55P03", "SQLITE_BUSY_RECOVERY"},
    {SQLITE_IOERR_NOMEM, TD_ERR_NOMEM, "53200", "SQLITE_IOERR_NOMEM"},
    {SQLITE_IOERR_READ, TD_ERR_IO, "58030", "SQLITE_IOERR_READ"},
    {SQLITE_IOERR_SHORT_READ, TD_ERR_IO, "58030", "SQLITE_IOERR_SHORT_READ"},
    {SQLITE_IOERR_WRITE, TD_ERR_IO, "58030", "SQLITE_IOERR_WRITE"},
    {SQLITE_IOERR_FSYNC, TD_ERR_IO, "58030", "SQLITE_IOERR_FSYNC"},
    {SQLITE_IOERR_TRUNCATE, TD_ERR_IO, "58030", "SQLITE_IOERR_TRUNCATE"},
    {SQLITE_IOERR_SHMSIZE, TD_ERR_DISK_FULL, "53100", "SQLITE_IOERR_SHMSIZE"},
    {SQLITE_CONSTRAINT, TD_ERR_STATEMENT, "23000", "SQLITE_CONSTRAINT"},
    {SQLITE_BUSY, TD_ERR_BUSY, "55P03", "SQLITE_BUSY"},
    {SQLITE_LOCKED, TD_ERR_BUSY, "55P03", "SQLITE_LOCKED"},
    {SQLITE_PROTOCOL, TD_ERR_BUSY, "55P03", "SQLITE_PROTOCOL"},
    {SQLITE_SCHEMA, TD_ERR_BUSY, "55P03", "SQLITE_SCHEMA"},
    {SQLITE_INTERRUPT, TD_ERR_INTERRUPTED, "57014", "SQLITE_INTERRUPT"},
    {SQLITE_FULL, TD_ERR_DISK_FULL, "53100", "SQLITE_FULL"},
    {SQLITE_IOERR, TD_ERR_IO, "58030", "SQLITE_IOERR"},
    {SQLITE_CANTOPEN, TD_ERR_IO, "58030", "SQLITE_CANTOPEN"},
    {SQLITE_NOLFS, TD_ERR_IO, "58030", "SQLITE_NOLFS"},
    {SQLITE_CORRUPT, TD_ERR_CORRUPT, "XX001", "SQLITE_CORRUPT"},
    {SQLITE_NOTADB, TD_ERR_FOREIGN, "XX001", "SQLITE_NOTADB"},
    {SQLITE_FORMAT, TD_ERR_CORRUPT, "XX001", "SQLITE_FORMAT"},
    {SQLITE_READONLY, TD_ERR_READ_ONLY, "25006", "SQLITE_READONLY"},
    {SQLITE_PERM, TD_ERR_DENIED, "42501", "SQLITE_PERM"},
    {SQLITE_AUTH, TD_ERR_STATEMENT, "42501", "SQLITE_AUTH"},
    {SQLITE_NOMEM, TD_ERR_NOMEM, "53200", "SQLITE_NOMEM"},
    {SQLITE_TOOBIG, TD_ERR_STATEMENT, "22000", "SQLITE_TOOBIG"},
    {SQLITE_MISMATCH, TD_ERR_STATEMENT, "22000", "SQLITE_MISMATCH"},
    {SQLITE_RANGE, TD_ERR_STATEMENT, "22000", "SQLITE_RANGE"},
    {SQLITE_ERROR, TD_ERR_STATEMENT, "42000", "SQLITE_ERROR"},
    {SQLITE_ABORT, TD_ERR_STATEMENT, "25000", "SQLITE_ABORT"},
};

static const struct code_row other_code = {0, TD_ERR_INTERNAL, "XX000", "SQLITE_UNKNOWN"};

static const struct code_row *code_find(int rc)
{
    const size_t count = sizeof(code_table) / sizeof(code_table[0]);
    for (size_t i = 0; i < count; i++) {
        if (code_table[i].rc == rc) {
            return &code_table[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (code_table[i].rc == (rc & 0xff)) {
            return &code_table[i];
        }
    }
    return &other_code;
}

const char *tdi_db_sqlstate(int extended_rc)
{
    return code_find(extended_rc)->sqlstate;
}

/* SQLite has one code for all that a statement can be wrong in; only its text tells more. */
static const char *sqlstate_of(const struct code_row *row, const char *message)
{
    if (row->rc == SQLITE_ERROR && strncmp(message, "no such table", 13) == 0) {
        return "42P01";
    }
    return row->sqlstate;
}

enum td_err tdi_db_error(struct tdi_db *db, int rc, const char *op, const char *what,
                         struct td_error *err)
{
    const char *message = sqlite3_errstr(rc);
    if (db->handle != NULL && (sqlite3_errcode(db->handle) & 0xff) == (rc & 0xff)) {
        rc = sqlite3_extended_errcode(db->handle);
        message = sqlite3_errmsg(db->handle);
    }
    const struct code_row *row = code_find(rc);
    enum td_err code = row->code;
    if (code == TD_ERR_DISK_FULL) {
        message = "the disk is full"; /* SQLite says "disk I/O error" where it is the -shm file */
    }
    /* A wait for a lock that was interrupted ends as busy. */
    if (code == TD_ERR_BUSY && __atomic_load_n(&db->interrupted, __ATOMIC_ACQUIRE) != 0) {
        code = TD_ERR_INTERRUPTED;
    }
    if (code == TD_ERR_INTERRUPTED) {
        __atomic_store_n(&db->interrupted, 0, __ATOMIC_RELEASE);
    }
    const char *sqlstate = sqlstate_of(row, message);
    (void)td_error_set(err, code, "%s: %s (%s)", what, message,
                       db->path != NULL ? db->path : "no file");
    if (err != NULL) {
        (void)snprintf(err->driver, sizeof(err->driver), "%s", db->driver_name);
        (void)snprintf(err->op, sizeof(err->op), "%s", op);
        (void)snprintf(err->peer, sizeof(err->peer), "%s", row->name);
        (void)snprintf(err->sqlstate, sizeof(err->sqlstate), "%s", sqlstate);
    }
    return code;
}
