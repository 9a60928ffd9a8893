/*
 * Making commits durable, and checkpoints.
 *
 * Must not know: tables of store or broker.
 * Invariants: a failed sync is final, for the kernel may have dropped the pages and a second try
 * would find nothing to do and succeed. Syncs use SQLite's own file objects, so its VFS sees them.
 */
#include "sqlite/db.h"

#include <string.h>

#define WAL_SALT_OFFSET 16

static enum td_err sync_error(struct tdi_db *db, int rc, struct td_error *err)
{
    __atomic_store_n(&db->sync_failed, true, __ATOMIC_RELEASE);
    /* The connection's own error belongs to another thread, so only rc is used. */
    struct tdi_db plain = {.path = db->path, .driver_name = db->driver_name};
    enum td_err code = tdi_db_error(&plain, (rc & 0xff) == SQLITE_IOERR ? rc : SQLITE_IOERR_FSYNC,
                                    "sync", "cannot bring the database to disk", err);
    if (err != NULL) {
        err->class_ = TD_CLASS_FATAL;
    }
    return code;
}

static int sync_file(sqlite3_file *file)
{
    if (file == NULL || file->pMethods == NULL) {
        return SQLITE_OK;
    }
    return file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
}

/* Did somebody begin the WAL anew since the last sync? Then pages went to the database file, and
 * with synchronous=OFF in the application nobody has synced that. */
static int wal_was_reset(struct tdi_db *db, bool *ret_reset)
{
    unsigned char salt[sizeof(db->wal_salt)] = {0};
    sqlite3_file *wal = db->wal_file;
    int rc = wal->pMethods->xRead(wal, salt, (int)sizeof(salt), WAL_SALT_OFFSET);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ) {
        return rc;
    }
    *ret_reset = memcmp(salt, db->wal_salt, sizeof(salt)) != 0;
    memcpy(db->wal_salt, salt, sizeof(salt));
    return SQLITE_OK;
}

enum td_err tdi_db_sync(struct tdi_db *db, struct td_error *err)
{
    if (__atomic_load_n(&db->sync_failed, __ATOMIC_ACQUIRE)) {
        return sync_error(db, SQLITE_IOERR_FSYNC, err);
    }
    int rc = sync_file(db->wal_file);
    if (rc == SQLITE_OK && !db->options.own_file && db->wal_file != NULL) {
        /* The WAL first: a reset after its sync only means one sync of the database too many. */
        bool reset = false;
        rc = wal_was_reset(db, &reset);
        if (rc == SQLITE_OK && reset) {
            rc = sync_file(db->main_file);
        }
    }
    return rc == SQLITE_OK ? TD_OK : sync_error(db, rc, err);
}

int tdi_db_wal_pages(const struct tdi_db *db)
{
    return db->wal_pages;
}

enum td_err tdi_db_checkpoint(struct tdi_db *db, bool truncate, struct td_error *err)
{
    int left = 0;
    int done = 0;
    int mode = truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
    db->busy_never = true;
    int rc = sqlite3_wal_checkpoint_v2(db->handle, "main", mode, &left, &done);
    db->busy_never = false;
    if (rc == SQLITE_OK) {
        db->wal_pages = truncate ? 0 : left - done;
        return TD_OK;
    }
    if ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED) {
        return TD_OK;
    }
    if (rc == SQLITE_IOERR_FSYNC) {
        return sync_error(db, rc, err);
    }
    return tdi_db_error(db, rc, "checkpoint", "cannot move the WAL into the database", err);
}
