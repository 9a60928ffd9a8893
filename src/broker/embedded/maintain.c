/*
 * Checkpoints and the return of free pages, between commits, by who holds `writing`. One connection
 * does all commits and all checkpoints, so SQLite's WAL-reset bug (before 3.51.3) cannot occur.
 * Lock held on entry and exit, let go while the disk works.
 */
#include <malloc.h>

#include "broker/embedded/internal.h"

#define VACUUM_EVERY 64 /* commits between two looks at the free list */
#define VACUUM_FREE_PAGES_MIN 4096
#define VACUUM_FREE_SHARE 5 /* and more than a fifth of the file */

static int64_t pragma_number(struct td_broker_instance *in, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t n = 0;
    if (sqlite3_prepare_v2(in->writer.handle, sql, -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW) {
        n = sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_finalize(s);
    return n;
}

/* true: a slice was given back, there may be more. */
static bool vacuum(struct td_broker_instance *in)
{
    int64_t free_pages = pragma_number(in, "PRAGMA freelist_count");
    if (free_pages < VACUUM_FREE_PAGES_MIN ||
        free_pages * VACUUM_FREE_SHARE < pragma_number(in, "PRAGMA page_count")) {
        return false;
    }
    struct td_error err;
    return tdi_db_exec(&in->writer, "PRAGMA incremental_vacuum(256)", "vacuum", &err) == TD_OK;
}

/* Without the lock. */
static enum td_err checkpoint(struct td_broker_instance *in, bool truncate, struct td_error *err)
{
    int pages = tdi_db_wal_pages(&in->writer);
    enum td_err rc = tdi_db_checkpoint(&in->writer, truncate, err);
    int left = tdi_db_wal_pages(&in->writer);
    /* One that a reader cut short is not repeated at every commit: each costs syncs. */
    in->checkpoint_at = rc == TD_OK && left <= 0 ? TDI_DB_WAL_CHECKPOINT_PAGES
                                                 : pages + TDD_EMB_CHECKPOINT_AGAIN_PAGES;
    return rc;
}

static void finish(struct td_broker_instance *in, enum td_err rc, const struct td_error *err)
{
    int pages = tdi_db_wal_pages(&in->writer);
    in->wal_full = pages >= TDD_EMB_WAL_PAGES_MAX;
    in->wal_large = pages >= TDD_EMB_WAL_PAGES_WARN;
    /* A full disk leaves all in the WAL; everything else may have lost a sync. */
    if (rc != TD_OK && rc != TD_ERR_DISK_FULL && err->class_ == TD_CLASS_FATAL) {
        tdd_emb_fail(in, err);
    }
}

void tdd_emb_maintain(struct td_broker_instance *in)
{
    bool look = in->commits - in->vacuum_looked >= VACUUM_EVERY;
    bool due = tdi_db_wal_pages(&in->writer) >= in->checkpoint_at;
    if (!look && !due) {
        return;
    }
    struct td_error err = {0};
    enum td_err rc = TD_OK;
    (void)pthread_mutex_unlock(&in->lock);
    if (due) {
        rc = checkpoint(in, false, &err);
    }
    if (look && rc == TD_OK) {
        in->vacuum_looked = in->commits;
        (void)vacuum(in);
    }
    (void)pthread_mutex_lock(&in->lock);
    finish(in, rc, &err);
}

void tdd_emb_maintain_idle(struct td_broker_instance *in)
{
    struct td_error err = {0};
    (void)pthread_mutex_unlock(&in->lock);
    enum td_err rc = TD_OK;
    bool more = vacuum(in);
    /* As long as pages are given back, the WAL is only kept from growing. */
    if (!more || tdi_db_wal_pages(&in->writer) >= in->checkpoint_at) {
        rc = checkpoint(in, !more, &err);
    }
    bool small = rc == TD_OK && tdi_db_wal_pages(&in->writer) == 0;
    (void)malloc_trim(0);
    (void)pthread_mutex_lock(&in->lock);
    td_time_us now = tdi_mono(&in->clock);
    in->idle_at = more ? now : small ? TD_TIME_NONE : now + TDD_EMB_IDLE_AGAIN_US;
    finish(in, rc, &err);
}
