/*
 * Opening a connection the way we want it, kept statements, transactions, waiting for locks.
 *
 * Must not know: tables of store or broker.
 * Invariants: tdi_db_close() takes a connection in any state; nobody but SQLite holds a descriptor
 * of a database file.
 */
#include "sqlite/db.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUSY_SLEEP_MIN_US 100
#define BUSY_SLEEP_MAX_US 2000
#define PRAGMA_BYTES_MAX 96
#define PAGE_BYTES 4096
#define WAL_BYTES_AT_REST_MAX (64 * 1024 * 1024)

/* ---- waiting for a lock ------------------------------------------------------------------- */

/*
 * Called by SQLite while another connection holds the lock. Bounded by the clock that was handed
 * in and, as that one may stand still in a simulation, by the time really slept.
 */
static int busy_wait(void *ctx, int tries)
{
    struct tdi_db *db = ctx;
    td_time_us now = db->options.clock.mono(db->options.clock.ctx);
    if (tries == 0) {
        db->busy_since_us = now;
        db->busy_slept_us = 0;
    }
    td_time_us limit = db->options.busy_timeout_us;
    if (db->busy_never || __atomic_load_n(&db->interrupted, __ATOMIC_ACQUIRE) != 0 ||
        now - db->busy_since_us >= limit || db->busy_slept_us >= limit) {
        return 0;
    }
    /* Short at first: most locks are held for a millisecond. */
    long us = BUSY_SLEEP_MIN_US * (tries < 20 ? tries + 1 : 20);
    if (us > BUSY_SLEEP_MAX_US) {
        us = BUSY_SLEEP_MAX_US;
    }
    struct timespec pause = {.tv_sec = 0, .tv_nsec = us * 1000};
    (void)nanosleep(&pause, NULL);
    db->busy_slept_us += us;
    return 1;
}

static int wal_committed(void *ctx, sqlite3 *handle, const char *name, int pages)
{
    struct tdi_db *db = ctx;
    (void)handle;
    if (strcmp(name, "main") == 0) {
        db->wal_pages = pages;
        db->wal_commits++;
    }
    return SQLITE_OK;
}

/* ---- opening ------------------------------------------------------------------------------ */

static enum td_err open_fail(struct tdi_db *db, enum td_err code, const char *text,
                             struct td_error *err)
{
    (void)td_error_set(err, code, "%s: %s", db->path, text);
    if (err != NULL) {
        (void)snprintf(err->driver, sizeof(err->driver), "%s", db->driver_name);
        (void)snprintf(err->op, sizeof(err->op), "open");
    }
    return code;
}

/* Why the file could not be opened, by the system's error; SQLite only says "unable to open". */
static enum td_err open_fail_errno(struct tdi_db *db, int e, struct td_error *err)
{
    switch (e) {
    case ENOENT:
        return db->options.create
                   ? open_fail(db, TD_ERR_CANNOT_CREATE, "its directory does not exist", err)
                   : open_fail(db, TD_ERR_NOT_FOUND,
                               "the database does not exist; run tidings init", err);
    case ENOTDIR:
        return open_fail(db, TD_ERR_CANNOT_CREATE, "a part of the path is not a directory", err);
    case EISDIR:
        return open_fail(db, TD_ERR_FOREIGN, "is a directory, not a database file", err);
    case EACCES:
    case EPERM:
        return open_fail(db, TD_ERR_DENIED, "this user may not open it", err);
    case EROFS:
        return open_fail(db, TD_ERR_READ_ONLY, "is on a file system that cannot be written", err);
    case ENOSPC:
    case EDQUOT:
        return open_fail(db, TD_ERR_DISK_FULL, "no space is left", err);
    default:
        return open_fail(db, db->options.create ? TD_ERR_CANNOT_CREATE : TD_ERR_IO,
                         e != 0 ? strerrordesc_np(e) : "cannot be opened", err);
    }
}

static enum td_err open_handle(struct tdi_db *db, struct td_error *err)
{
    char vfs[64];
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (db->options.vfs.len >= sizeof(vfs)) {
        return open_fail(db, TD_ERR_CONFIG, "the name of the VFS is too long", err);
    }
    (void)snprintf(vfs, sizeof(vfs), "%.*s", (int)db->options.vfs.len,
                   db->options.vfs.data != NULL ? db->options.vfs.data : "");
    flags |= db->options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    flags |= db->options.create && !db->options.read_only ? SQLITE_OPEN_CREATE : 0;
    int rc = sqlite3_open_v2(db->path, &db->handle, flags, vfs[0] != '\0' ? vfs : NULL);
    if (db->handle == NULL) {
        return open_fail(db, TD_ERR_NOMEM, "memory is exhausted", err);
    }
    if (rc == SQLITE_OK) {
        return TD_OK;
    }
    if ((rc & 0xff) == SQLITE_CANTOPEN) {
        if (rc == SQLITE_CANTOPEN_ISDIR) {
            return open_fail_errno(db, EISDIR, err);
        }
        return open_fail_errno(db, sqlite3_system_errno(db->handle), err);
    }
    return tdi_db_error(db, rc, "open", "cannot open", err);
}

/* One value of a pragma; text is cut to PRAGMA_BYTES_MAX. Empty: the pragma gives none. */
static enum td_err pragma_read(struct tdi_db *db, const char *sql, char text[PRAGMA_BYTES_MAX],
                               struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    text[0] = '\0';
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(s);
    }
    if (rc == SQLITE_ROW) {
        const unsigned char *value = sqlite3_column_text(s, 0);
        (void)snprintf(text, PRAGMA_BYTES_MAX, "%s", value != NULL ? (const char *)value : "");
        rc = SQLITE_DONE;
    }
    enum td_err code = TD_OK;
    if (rc != SQLITE_DONE) {
        code = tdi_db_error(db, rc, "open", "cannot read the database", err);
        if (err != NULL && code == TD_ERR_BUSY) {
            err->retry_after_us = TD_SECOND_US;
        }
    }
    (void)sqlite3_finalize(s);
    return code;
}

static enum td_err set_wal(struct tdi_db *db, struct td_error *err)
{
    char mode[PRAGMA_BYTES_MAX];
    enum td_err rc = pragma_read(db, "PRAGMA main.journal_mode=WAL", mode, err);
    if (rc == TD_OK && strcmp(mode, "wal") != 0) {
        rc = open_fail(db, TD_ERR_CONFIG, "cannot be put into WAL mode here", err);
    }
    return rc;
}

/* A file without any page: we decide how it looks. */
static enum td_err make_new(struct tdi_db *db, struct td_error *err)
{
    if (!db->options.create) {
        if (db->options.own_file) {
            return open_fail(db, TD_ERR_SCHEMA, "is empty; run tidings init", err);
        }
        return TD_OK;
    }
    enum td_err rc = TD_OK;
    if (db->options.own_file) {
        char sql[160];
        /* One transaction: a file that has a page has our application id. */
        (void)snprintf(sql, sizeof(sql),
                       "PRAGMA page_size=%d; BEGIN; PRAGMA auto_vacuum=INCREMENTAL;"
                       "PRAGMA application_id=%d; COMMIT",
                       PAGE_BYTES, (int)db->options.application_id);
        rc = tdi_db_exec(db, sql, "open", err);
    }
    return rc == TD_OK ? set_wal(db, err) : rc;
}

static enum td_err check_file(struct tdi_db *db, struct td_error *err)
{
    char text[PRAGMA_BYTES_MAX];
    enum td_err rc = pragma_read(db, "PRAGMA page_count", text, err);
    if (rc != TD_OK) {
        return rc;
    }
    if (strcmp(text, "0") == 0) {
        return make_new(db, err);
    }
    if (db->options.own_file) {
        char wanted[16];
        (void)snprintf(wanted, sizeof(wanted), "%d", (int)db->options.application_id);
        rc = pragma_read(db, "PRAGMA application_id", text, err);
        if (rc != TD_OK) {
            return rc;
        }
        if (strcmp(text, wanted) != 0) {
            return open_fail(db, TD_ERR_FOREIGN, "is a database of another program", err);
        }
    }
    rc = pragma_read(db, "PRAGMA main.journal_mode", text, err);
    if (rc != TD_OK || strcmp(text, "wal") == 0) {
        return rc;
    }
    /* Ours, but its creation was cut short between two steps. */
    if (db->options.own_file && !db->options.read_only) {
        return set_wal(db, err);
    }
    char why[PRAGMA_BYTES_MAX + 160];
    (void)snprintf(why, sizeof(why),
                   "its journal mode is %s, and Tidings needs WAL; run once: "
                   "sqlite3 FILE 'PRAGMA journal_mode=WAL'",
                   text);
    return open_fail(db, TD_ERR_CONFIG, why, err);
}

static enum td_err configure(struct tdi_db *db, struct td_error *err)
{
    char sql[400];
    (void)snprintf(sql, sizeof(sql),
                   "PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;"
                   "PRAGMA trusted_schema=OFF; PRAGMA cache_size=-%d;"
                   "PRAGMA journal_size_limit=%d;%s",
                   db->options.cache_kib > 0 ? db->options.cache_kib : 2048, WAL_BYTES_AT_REST_MAX,
                   db->options.own_file ? "PRAGMA secure_delete=OFF;" : "");
    enum td_err rc = tdi_db_exec(db, sql, "open", err);
    if (rc != TD_OK) {
        return rc;
    }
    /* Checkpoints are ours to time. This takes the hook away, so ours comes after it. */
    (void)sqlite3_wal_autocheckpoint(db->handle, 0);
    (void)sqlite3_wal_hook(db->handle, wal_committed, db);
    return TD_OK;
}

/* Everything that can be read from now on is on disk, the directory entry of the WAL included. */
static enum td_err adopt_files(struct tdi_db *db, struct td_error *err)
{
    char text[PRAGMA_BYTES_MAX];
    /* The WAL is opened by the first read. */
    enum td_err rc = pragma_read(db, "SELECT count(*) FROM sqlite_schema", text, err);
    if (rc != TD_OK) {
        return rc;
    }
    (void)sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_FILE_POINTER, &db->main_file);
    (void)sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &db->wal_file);
    if (db->wal_file != NULL && db->wal_file->pMethods == NULL) {
        db->wal_file = NULL;
    }
    return db->options.read_only ? TD_OK : tdi_db_sync(db, err);
}

enum td_err tdi_db_open(struct tdi_db *db, const struct tdi_db_options *o, const char *driver_name,
                        struct td_error *err)
{
    memset(db, 0, sizeof(*db));
    db->options = *o;
    db->driver_name = driver_name;
    db->path = malloc(o->path.len + 1);
    if (db->path == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "memory is exhausted");
    }
    if (o->path.len > 0) {
        memcpy(db->path, o->path.data, o->path.len);
    }
    db->path[o->path.len] = '\0';
    db->options.path = (struct td_str){.data = db->path, .len = o->path.len};
    if (o->path.len == 0 || strlen(db->path) != o->path.len) {
        return open_fail(db, TD_ERR_CONFIG, "the path is empty or holds a NUL character", err);
    }
    enum td_err rc = open_handle(db, err);
    if (rc != TD_OK) {
        return rc;
    }
    (void)sqlite3_busy_handler(db->handle, busy_wait, db);
    if (!o->read_only && sqlite3_db_readonly(db->handle, "main") == 1) {
        return open_fail(db, TD_ERR_READ_ONLY, "this user may read it but not write it", err);
    }
    rc = check_file(db, err);
    if (rc == TD_OK) {
        rc = configure(db, err);
    }
    return rc == TD_OK ? adopt_files(db, err) : rc;
}

void tdi_db_close(struct tdi_db *db)
{
    if (db->handle != NULL) {
        if (db->sync_failed) {
            /* What did not reach the disk must not be moved into the database file. */
            (void)sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        }
        sqlite3_stmt *s = NULL;
        while ((s = sqlite3_next_stmt(db->handle, NULL)) != NULL) {
            (void)sqlite3_finalize(s);
        }
        db->busy_never = true;
        (void)sqlite3_close(db->handle);
    }
    free(db->path);
    memset(db, 0, sizeof(*db));
}

void tdi_db_interrupt(struct tdi_db *db)
{
    __atomic_store_n(&db->interrupted, 1, __ATOMIC_RELEASE);
    if (db->handle != NULL) {
        sqlite3_interrupt(db->handle);
    }
}

/* ---- statements and transactions ------------------------------------------------------------ */

enum td_err tdi_db_statement(struct tdi_db *db, int index, const char *sql, sqlite3_stmt **ret,
                             struct td_error *err)
{
    if (index < 0 || index >= TDI_DB_STATEMENTS_MAX) {
        return td_error_set(err, TD_ERR_INTERNAL, "no kept statement has number %d", index);
    }
    sqlite3_stmt *s = db->statements[index];
    if (s == NULL) {
        int rc = sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL);
        if (rc != SQLITE_OK) {
            return tdi_db_error(db, rc, "prepare", "cannot prepare a statement", err);
        }
        db->statements[index] = s;
    } else {
        (void)sqlite3_reset(s);
        (void)sqlite3_clear_bindings(s);
    }
    *ret = s;
    return TD_OK;
}

enum td_err tdi_db_exec(struct tdi_db *db, const char *sql, const char *op, struct td_error *err)
{
    int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? TD_OK : tdi_db_error(db, rc, op, "cannot execute", err);
}

enum td_err tdi_db_begin(struct tdi_db *db, bool immediate, struct td_error *err)
{
    const char *sql = immediate ? "BEGIN IMMEDIATE" : "BEGIN";
    int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    if (rc != SQLITE_OK) {
        return tdi_db_error(db, rc, "begin", "cannot begin a transaction", err);
    }
    db->in_transaction = true;
    return TD_OK;
}

/* Certainly not committed: the failure came before the frame that makes a commit was written. */
static bool commit_failed_before_write(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_CONSTRAINT:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_INTERRUPT:
    case SQLITE_READONLY:
        return true;
    default:
        return false;
    }
}

enum td_err tdi_db_commit(struct tdi_db *db, struct td_error *err)
{
    int rc = sqlite3_exec(db->handle, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        db->in_transaction = false;
        return TD_OK;
    }
    enum td_err code = tdi_db_error(db, rc, "commit", "cannot commit", err);
    if (!commit_failed_before_write(rc)) {
        code = TD_ERR_OUTCOME_UNKNOWN;
        if (err != NULL) {
            err->code = code;
            err->class_ = TD_CLASS_UNKNOWN;
        }
    }
    tdi_db_rollback(db);
    return code;
}

void tdi_db_rollback(struct tdi_db *db)
{
    if (db->handle != NULL && sqlite3_get_autocommit(db->handle) == 0) {
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    db->in_transaction = false;
}
