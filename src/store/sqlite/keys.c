/*
 * Keys of ordered consumers: what blocks one, and waking the next follower.
 *
 * Must not know: why a row was settled.
 * Invariants: followers go by arrival, never by time; only one becomes due at a time.
 */
#include "store/sqlite/internal.h"

#include "core/deadletter.h"

#define KEYS_MAX 1000000

static void bind_key(sqlite3_stmt *stmt, const struct tdd_key *k)
{
    tdi_bind_str(stmt, 1, k->consumer);
    tdi_bind_i64(stmt, 2, k->shard);
    tdi_bind_str(stmt, 3, k->key);
}

enum td_err tdd_key_blocked(struct tdd_sqlite *s, const struct tdd_key *k, int64_t before,
                            bool *ret_blocked, const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    if (k->key.data == NULL) {
        *ret_blocked = false;
        return TD_OK;
    }
    enum td_err rc = tdd_stmt(s, TDD_SQL_KEY_BLOCKED, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_key(stmt, k);
    tdi_bind_i64(stmt, 4, before > 0 ? before : INT64_MAX);
    rc = tdd_step(s, stmt, &row, op, err);
    (void)sqlite3_reset(stmt);
    if (rc == TD_OK) {
        *ret_blocked = row;
    }
    return rc;
}

static enum td_err release_row(struct tdd_sqlite *s, int64_t arrival, const char *op,
                               struct td_error *err)
{
    static const enum tdd_sql both[] = {TDD_SQL_RELEASE_INBOX, TDD_SQL_RELEASE_PARKED};
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < sizeof(both) / sizeof(both[0]) && rc == TD_OK; i++) {
        sqlite3_stmt *stmt = NULL;
        rc = tdd_stmt(s, both[i], &stmt, op, err);
        if (rc == TD_OK) {
            tdi_bind_i64(stmt, 1, arrival);
            tdi_bind_i64(stmt, 2, tdd_now(s));
            rc = tdd_run(s, stmt, NULL, op, err);
        }
    }
    return rc;
}

enum td_err tdd_key_release(struct tdd_sqlite *s, const struct tdd_key *k, bool *ret_released,
                            const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    bool blocked = false;
    int64_t arrival = 0;
    *ret_released = false;
    if (k->key.data == NULL) {
        return TD_OK;
    }
    enum td_err rc = tdd_stmt(s, TDD_SQL_KEY_FOLLOWER, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_key(stmt, k);
    rc = tdd_step(s, stmt, &row, op, err);
    if (rc != TD_OK || !row) {
        return rc;
    }
    arrival = sqlite3_column_int64(stmt, 0);
    (void)sqlite3_reset(stmt);
    rc = tdd_key_blocked(s, k, arrival, &blocked, op, err);
    if (rc == TD_OK && !blocked) {
        rc = release_row(s, arrival, op, err);
        *ret_released = rc == TD_OK;
    }
    return rc;
}

static enum td_err keys_count(struct tdd_sqlite *s, struct td_str consumer, int32_t shard,
                              size_t *ret, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(s, TDD_SQL_KEYS_COUNT, &stmt, "parked_keys", err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, consumer);
    tdi_bind_i64(stmt, 2, shard);
    rc = tdd_step(s, stmt, &row, "parked_keys", err);
    if (rc == TD_OK && row) {
        *ret = (size_t)sqlite3_column_int64(stmt, 0);
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

enum td_err tdd_parked_keys(struct td_store *store, struct td_str consumer, int32_t shard,
                            struct tdi_arena *a, struct td_str **ret_keys, size_t *ret_count,
                            struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    size_t limit = 0;
    size_t count = 0;
    struct td_str *keys = NULL;
    /* One snapshot for both: a key left out would let a later message pass. */
    enum td_err rc = tdi_db_begin(&s->db, false, err);
    if (rc != TD_OK) {
        return rc;
    }
    rc = keys_count(s, consumer, shard, &limit, err);
    if (rc == TD_OK && limit > KEYS_MAX) {
        rc = tdd_fail(TD_ERR_LIMIT, "parked_keys", err, "more than %d keys are blocked", KEYS_MAX);
    }
    if (rc == TD_OK) {
        keys = tdi_arena_array(a, limit, sizeof(*keys));
        rc = keys != NULL ? tdd_stmt(s, TDD_SQL_KEYS, &stmt, "parked_keys", err)
                          : tdd_nomem("parked_keys", err);
    }
    if (rc == TD_OK) {
        tdi_bind_str(stmt, 1, consumer);
        tdi_bind_i64(stmt, 2, shard);
    }
    while (rc == TD_OK && count < limit) {
        bool row = false;
        rc = tdd_step(s, stmt, &row, "parked_keys", err);
        if (rc != TD_OK || !row) {
            break;
        }
        rc = tdd_copy_str(stmt, 0, a, &keys[count]) ? TD_OK : tdd_nomem("parked_keys", err);
        count += rc == TD_OK ? 1 : 0;
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    tdi_db_rollback(&s->db);
    if (rc == TD_OK) {
        *ret_keys = keys;
        *ret_count = count;
    }
    return rc;
}
