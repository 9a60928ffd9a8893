/*
 * Leases on relays and shards: one owner at a time, with a fence that grows with every owner.
 *
 * Must not know: what relays and shards do.
 * Invariants: a fence is given out once. An owner that is seen to be alive keeps its lease until it
 * has run out; one that is seen to be dead loses it at once. The mark of an unclean end is set by
 * whoever takes over from an owner that did not give the lease back, and stays until cleared.
 */
#include "store/sqlite/internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#define LEASE_SCAN_MAX 4096

struct lease_row {
    bool found;
    bool owned;  /* not given back */
    bool locked; /* the owner holds the byte of the owner file */
    bool unclean;
    bool here; /* the owner is on this machine */
    int64_t slot;
    int64_t owner_pid;
    int64_t fence;
    td_time_us until;
};

static enum td_err lease_read(struct tdd_sqlite *s, struct td_str name, struct lease_row *ret,
                              const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    *ret = (struct lease_row){.found = false};
    enum td_err rc = tdd_stmt(s, TDD_SQL_LEASE_READ, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, name);
    rc = tdd_step(s, stmt, &ret->found, op, err);
    if (rc == TD_OK && ret->found) {
        struct td_str owner = tdi_column_str(stmt, 1);
        size_t host_len = strlen(s->host);
        ret->slot = sqlite3_column_int64(stmt, 0);
        ret->owned = owner.data != NULL;
        ret->here = owner.len > host_len && memcmp(owner.data, s->host, host_len) == 0 &&
                    owner.data[host_len] == '/';
        ret->owner_pid = sqlite3_column_int64(stmt, 2);
        ret->fence = sqlite3_column_int64(stmt, 3);
        ret->until = sqlite3_column_int64(stmt, 4);
        ret->locked = sqlite3_column_int64(stmt, 5) != 0;
        ret->unclean = sqlite3_column_int64(stmt, 6) != 0;
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

static struct tdd_held *held_find(struct tdd_sqlite *s, int64_t slot)
{
    for (size_t i = 0; i < TDD_LEASES_MAX; i++) {
        if (s->held[i].slot == slot) {
            return &s->held[i];
        }
    }
    return NULL;
}

/* Does an owner that is not this session have it now? lock: what was found at its byte. */
static bool others_have(const struct lease_row *row, enum tdd_lock lock, td_time_us now)
{
    if (!row->owned) {
        return false;
    }
    if (row->locked && lock == TDD_LOCK_OURS) {
        return false; /* its lock went with it */
    }
    return row->until > now;
}

static enum td_err owned(const struct lease_row *row, struct td_str name, struct td_lease *ret,
                         struct td_error *err)
{
    ret->owner_pid = row->here ? row->owner_pid : 0;
    return tdd_fail(TD_ERR_OWNED, "lease_take", err, "'%.*s' is owned by process %lld",
                    (int)name.len, name.data, (long long)row->owner_pid);
}

static enum td_err lease_insert(struct tdd_sqlite *s, struct td_str name, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_LEASE_INSERT, &stmt, "lease_take", err);
    if (rc == TD_OK) {
        tdi_bind_str(stmt, 1, name);
        rc = tdd_run(s, stmt, NULL, "lease_take", err);
    }
    return rc;
}

static enum td_err lease_write(struct tdd_sqlite *s, const struct lease_row *row, td_time_us until,
                               struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    char owner[sizeof(s->host) + 24];
    (void)snprintf(owner, sizeof(owner), "%s/%ld", s->host, (long)getpid());
    enum td_err rc = tdd_stmt(s, TDD_SQL_LEASE_TAKE, &stmt, "lease_take", err);
    if (rc == TD_OK) {
        tdi_bind_i64(stmt, 1, row->slot);
        tdi_bind_str(stmt, 2, tdi_str(owner));
        tdi_bind_i64(stmt, 3, (int64_t)getpid());
        tdi_bind_i64(stmt, 4, row->fence);
        tdi_bind_i64(stmt, 5, until);
        tdi_bind_i64(stmt, 6, row->locked);
        tdi_bind_i64(stmt, 7, row->unclean);
        rc = tdd_run(s, stmt, NULL, "lease_take", err);
    }
    return rc;
}

/* In the transaction: *row becomes what is written. *ret_held: our entry for it. */
static enum td_err take_in_tx(struct tdd_sqlite *s, struct td_str name, td_time_us ttl_us,
                              struct lease_row *row, struct tdd_held **ret_held,
                              struct td_lease *ret_lease, struct td_error *err)
{
    enum td_err rc = lease_insert(s, name, err);
    if (rc == TD_OK) {
        rc = lease_read(s, name, row, "lease_take", err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    struct tdd_held *held = held_find(s, row->slot);
    bool ours = held != NULL && held->fence == row->fence && row->owned;
    if (held != NULL && !ours) {
        /* Lost meanwhile; if it stays lost, the lock is given back below. */
        *held = (struct tdd_held){.slot = 0};
    }
    if (!ours) {
        held = held_find(s, 0);
    }
    if (held == NULL) {
        return tdd_fail(TD_ERR_LIMIT, "lease_take", err, "one session holds at most %d leases",
                        TDD_LEASES_MAX);
    }
    bool had_lock = ours && held->locked;
    enum tdd_lock lock = tdd_owner_lock(s, row->slot);
    td_time_us now = tdd_now(s);
    if (!ours && others_have(row, lock, now)) {
        if (lock == TDD_LOCK_OURS && !had_lock) {
            tdd_owner_unlock(s, row->slot);
        }
        return owned(row, name, ret_lease, err);
    }
    row->unclean = row->unclean || (row->owned && !ours);
    row->fence += 1;
    row->locked = lock == TDD_LOCK_OURS;
    rc = lease_write(s, row, now + ttl_us, err);
    if (rc != TD_OK && row->locked && !had_lock) {
        tdd_owner_unlock(s, row->slot);
    }
    *ret_held = held;
    return rc;
}

enum td_err tdd_lease_take(struct td_store *store, struct td_str name, td_time_us ttl_us,
                           struct td_lease *ret_lease, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct lease_row row;
    struct tdd_held *held = NULL;
    /* Who waits for a lease asks often; as long as it is owned that takes no write lock. */
    enum td_err rc = lease_read(s, name, &row, "lease_take", err);
    if (rc != TD_OK) {
        return rc;
    }
    if (row.found && held_find(s, row.slot) == NULL &&
        others_have(&row, tdd_owner_probe(s, row.slot), tdd_now(s))) {
        return owned(&row, name, ret_lease, err);
    }
    rc = tdd_tx_begin(s, "lease_take", err);
    if (rc != TD_OK) {
        return rc;
    }
    rc = tdd_tx_end(s, take_in_tx(s, name, ttl_us, &row, &held, ret_lease, err), true, err);
    if (rc == TD_OK && held != NULL) {
        *held = (struct tdd_held){.slot = row.slot, .fence = row.fence, .locked = row.locked};
        *ret_lease = (struct td_lease){.fence = row.fence, .unclean = row.unclean};
    } else if (held != NULL && held->slot != row.slot) {
        tdd_owner_unlock(s, row.slot);
    }
    return rc;
}

static enum td_err fenced(struct td_str name, int64_t fence, const char *op, struct td_error *err)
{
    return tdd_fail(TD_ERR_FENCED, op, err, "'%.*s' is no longer ours (fence %lld)", (int)name.len,
                    name.data, (long long)fence);
}

/* A statement whose first two parameters are name and fence; FENCED if it changes nothing. */
static enum td_err run_fenced(struct tdd_sqlite *s, sqlite3_stmt *stmt, struct td_str name,
                              int64_t fence, const char *op, struct td_error *err)
{
    int64_t changed = 0;
    tdi_bind_str(stmt, 1, name);
    tdi_bind_i64(stmt, 2, fence);
    enum td_err rc = tdd_run(s, stmt, &changed, op, err);
    return rc == TD_OK && changed == 0 ? fenced(name, fence, op, err) : rc;
}

static struct tdd_held *held_by_name(struct tdd_sqlite *s, struct td_str name, int64_t fence,
                                     struct td_error *err)
{
    struct lease_row row;
    if (lease_read(s, name, &row, "lease", err) != TD_OK || !row.found) {
        return NULL;
    }
    struct tdd_held *held = held_find(s, row.slot);
    return held != NULL && held->fence == fence ? held : NULL;
}

static enum td_err renew_in_tx(struct tdd_sqlite *s, struct td_str name, int64_t fence,
                               td_time_us ttl_us, struct td_str report, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    td_time_us now = tdd_now(s);
    struct tdd_held *held = held_by_name(s, name, fence, err);
    /* Taken over from a frozen owner: its lock is free once it has gone. */
    if (held != NULL && !held->locked) {
        held->locked = tdd_owner_lock(s, held->slot) == TDD_LOCK_OURS;
    }
    enum td_err rc = tdd_stmt(s, TDD_SQL_LEASE_RENEW, &stmt, "lease_renew", err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(stmt, 3, now + ttl_us);
    tdi_bind_i64(stmt, 4, held != NULL && held->locked);
    tdi_bind_str(stmt, 5, report.len > 0 ? report : TD_STR_NONE);
    tdi_bind_i64(stmt, 6, now);
    return run_fenced(s, stmt, name, fence, "lease_renew", err);
}

enum td_err tdd_lease_renew(struct td_store *store, struct td_str name, int64_t fence,
                            td_time_us ttl_us, struct td_str report, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    enum td_err rc = tdd_tx_begin_soon(s, "lease_renew", err);
    if (rc != TD_OK) {
        return rc;
    }
    return tdd_tx_end(s, renew_in_tx(s, name, fence, ttl_us, report, err), false, err);
}

enum td_err tdd_lease_clear_unclean(struct td_store *store, struct td_str name, int64_t fence,
                                    struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_tx_begin(s, "lease_clear_unclean", err);
    if (rc != TD_OK) {
        return rc;
    }
    rc = tdd_stmt(s, TDD_SQL_LEASE_CLEAR, &stmt, "lease_clear_unclean", err);
    if (rc == TD_OK) {
        rc = run_fenced(s, stmt, name, fence, "lease_clear_unclean", err);
    }
    return tdd_tx_end(s, rc, true, err);
}

enum td_err tdd_lease_release(struct td_store *store, struct td_str name, int64_t fence,
                              struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_tx_begin(s, "lease_release", err);
    if (rc != TD_OK) {
        return rc;
    }
    struct tdd_held *held = held_by_name(s, name, fence, err);
    rc = tdd_stmt(s, TDD_SQL_LEASE_RELEASE, &stmt, "lease_release", err);
    if (rc == TD_OK) {
        rc = run_fenced(s, stmt, name, fence, "lease_release", err);
    }
    rc = tdd_tx_end(s, rc, true, err);
    if (held != NULL && (rc == TD_OK || rc == TD_ERR_FENCED)) {
        tdd_owner_unlock(s, held->slot);
        *held = (struct tdd_held){.slot = 0};
    }
    return rc;
}

enum td_err tdd_fence_check(struct tdd_sqlite *s, struct td_str lease, int64_t fence,
                            const char *op, struct td_error *err)
{
    struct lease_row row;
    if (fence == 0) {
        return TD_OK;
    }
    enum td_err rc = lease_read(s, lease, &row, op, err);
    if (rc == TD_OK && (!row.found || row.fence != fence)) {
        return fenced(lease, fence, op, err);
    }
    return rc;
}

/* As far as can be seen: by its lock, else by its clock. */
static bool row_alive(struct tdd_sqlite *s, const struct lease_row *row)
{
    struct tdd_held *held = held_find(s, row->slot);
    if (!row->owned) {
        return false;
    }
    if (row->locked && held == NULL) {
        enum tdd_lock lock = tdd_owner_probe(s, row->slot);
        if (lock != TDD_LOCK_NONE) {
            return lock == TDD_LOCK_OTHERS;
        }
    }
    return (held != NULL && held->fence == row->fence) || row->until > tdd_now(s);
}

enum td_err tdd_lease_alive(struct tdd_sqlite *s, struct td_str name, bool *ret_alive,
                            int64_t *ret_fence, struct td_error *err)
{
    struct lease_row row;
    enum td_err rc = lease_read(s, name, &row, "lease", err);
    if (rc == TD_OK) {
        *ret_alive = row.found && row_alive(s, &row);
        *ret_fence = row.fence;
    }
    return rc;
}

enum td_err tdd_lease_end(struct tdd_sqlite *s, struct td_str name, const char *op,
                          struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_LEASE_END, &stmt, op, err);
    if (rc == TD_OK) {
        tdi_bind_str(stmt, 1, name);
        rc = tdd_run(s, stmt, NULL, op, err);
    }
    return rc;
}

enum td_err tdd_lease_scan(struct td_store *store, struct tdi_arena *a, struct td_lease_state **ret,
                           size_t *ret_count, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    int64_t rows = 0;
    size_t count = 0;
    bool more = true;
    enum td_err rc = tdd_stmt(s, TDD_SQL_LEASE_SCAN, &stmt, "lease_scan", err);
    struct td_lease_state *list = NULL;
    while (rc == TD_OK && count < LEASE_SCAN_MAX) {
        rc = tdd_step(s, stmt, &more, "lease_scan", err);
        if (rc != TD_OK || !more) {
            break;
        }
        if (list == NULL) {
            rows = sqlite3_column_int64(stmt, 8);
            list = tdi_arena_array(a, (size_t)rows, sizeof(*list));
        }
        if (list == NULL || (int64_t)count == rows) {
            rc = list == NULL ? tdd_nomem("lease_scan", err) : TD_OK;
            break;
        }
        struct td_lease_state *state = &list[count++];
        state->owner_pid = sqlite3_column_int64(stmt, 2);
        state->fence = sqlite3_column_int64(stmt, 3);
        state->unclean = sqlite3_column_int64(stmt, 5) != 0;
        state->reported_at = tdi_column_i64(stmt, 7);
        if (!tdd_copy_str(stmt, 0, a, &state->name) || !tdd_copy_str(stmt, 1, a, &state->owner) ||
            !tdd_copy_str(stmt, 6, a, &state->report)) {
            rc = tdd_nomem("lease_scan", err);
        }
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    /* After the cursor is closed, for it reads the rows again. */
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        rc = tdd_lease_alive(s, list[i].name, &list[i].alive, &list[i].fence, err);
    }
    if (rc == TD_OK) {
        *ret = list;
        *ret_count = count;
    }
    return rc;
}
