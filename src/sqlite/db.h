/*
 * What the SQLite store and the embedded broker share: opening a connection the way we want it,
 * kept statements, syncing the WAL, checkpoints, and SQLite's errors in our terms.
 *
 * All files and syncs go through the connection's VFS, the WAL sync included (it uses SQLite's own
 * file object), so that a test's VFS sees every one of them. Closing any other descriptor of a
 * database file would drop SQLite's POSIX locks; nothing here opens one.
 *
 * Must not know: tables of store or broker.
 */
#ifndef TDI_SQLITE_DB_H
#define TDI_SQLITE_DB_H

#include <sqlite3.h>

#include "tidings/error.h"
#include "tidings/types.h"

#define TDI_DB_STATEMENTS_MAX 128
#define TDI_DB_WAL_CHECKPOINT_PAGES 4096 /* 16 MiB */

struct tdi_db_options {
    struct td_str path;
    struct td_str vfs; /* empty: default */
    bool create;       /* CANNOT_CREATE, NOT_FOUND otherwise */
    bool read_only;
    bool own_file;          /* ours alone (broker.db): page size, auto_vacuum, journal_mode are set
                                 at creation; otherwise a file that is not in WAL mode is refused
                                 unless it is new */
    int32_t application_id; /* own_file: written at creation, FOREIGN when it differs */
    int cache_kib;
    td_time_us busy_timeout_us;
    struct td_clock clock;
};

struct tdi_db {
    sqlite3 *handle;
    struct tdi_db_options options; /* path is a copy */
    char *path;
    sqlite3_stmt *statements[TDI_DB_STATEMENTS_MAX]; /* by the caller's index, made on first use */
    bool in_transaction;
    bool sync_failed;        /* final: nothing is confirmed after a failed sync */
    int interrupted;         /* atomic; set by tdi_db_interrupt */
    const char *driver_name; /* for errors */
    int wal_pages;           /* as the WAL hook said last */
    uint64_t wal_commits;    /* commits of this connection that wrote frames */
    /* SQLite's own file objects, looked up once at open. WAL mode keeps both for the life of the
     * connection; looking them up later would wait for the connection's mutex. */
    sqlite3_file *main_file;
    sqlite3_file *wal_file;
    unsigned char wal_salt[8]; /* of the WAL when synced last; another one: it was reset */
    td_time_us busy_since_us;  /* of the lock that is being waited for */
    td_time_us busy_slept_us;
    bool busy_never; /* do not wait for locks at the moment */
};

/* Opens with synchronous=NORMAL, wal_autocheckpoint=0, trusted_schema=OFF, foreign_keys as it is,
 * temp_store=MEMORY, no mmap, own busy handler. A corrupt or foreign file is said so in one
 * sentence that names the file. */
enum td_err tdi_db_open(struct tdi_db *db, const struct tdi_db_options *o, const char *driver_name,
                        struct td_error *err);
void tdi_db_close(struct tdi_db *db);
void tdi_db_interrupt(struct tdi_db *db);

/* SQLite's result in our terms: code, class, peer name, SQLSTATE; `what` begins the sentence. */
enum td_err tdi_db_error(struct tdi_db *db, int rc, const char *op, const char *what,
                         struct td_error *err);
/* A five-character SQLSTATE for an extended result code. */
const char *tdi_db_sqlstate(int extended_rc);

/* Statement number `index` of the caller's table, prepared once, reset and with cleared bindings. */
enum td_err tdi_db_statement(struct tdi_db *db, int index, const char *sql, sqlite3_stmt **ret,
                             struct td_error *err);
/* Run SQL without results; several statements are allowed. */
enum td_err tdi_db_exec(struct tdi_db *db, const char *sql, const char *op, struct td_error *err);

enum td_err tdi_db_begin(struct tdi_db *db, bool immediate, struct td_error *err);
/* COMMIT only; the caller syncs. Rolled back when it fails, unless the class is UNKNOWN. */
enum td_err tdi_db_commit(struct tdi_db *db, struct td_error *err);
void tdi_db_rollback(struct tdi_db *db);

/* Returns when all that is committed is on disk. May be called from another thread than the one
 * that uses the connection, not during open or close. A failure is final (sync_failed). */
enum td_err tdi_db_sync(struct tdi_db *db, struct td_error *err);
/* Frames in the WAL as of the last commit of this connection (from the WAL hook). */
int tdi_db_wal_pages(const struct tdi_db *db);
/* PASSIVE, or TRUNCATE; busy is no error. */
enum td_err tdi_db_checkpoint(struct tdi_db *db, bool truncate, struct td_error *err);

/* Binding and reading. Absent text binds NULL; TD_TIME_NONE and TD_NUMBER_NONE bind NULL. */
void tdi_bind_str(sqlite3_stmt *s, int at, struct td_str v);
void tdi_bind_bytes(sqlite3_stmt *s, int at, struct td_bytes v);
void tdi_bind_i64(sqlite3_stmt *s, int at, int64_t v);
struct td_str tdi_column_str(sqlite3_stmt *s, int at); /* valid until the next step */
struct td_bytes tdi_column_bytes(sqlite3_stmt *s,
                                 int at);        /* NULL gives data == NULL; 0 bytes not */
int64_t tdi_column_i64(sqlite3_stmt *s, int at); /* NULL gives TD_NUMBER_NONE */

#endif
