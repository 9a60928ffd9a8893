/*
 * The scheduler's side of parked rows: leasing what is due, giving it back.
 *
 * Must not know: how a row is run.
 * Invariants: an attempt is counted and committed before it runs. A row whose runs are used up is
 * never leased again. A row that may have killed its process comes alone. The inbox row decides: a
 * worker may have settled the message in a transaction of its own and died before its answer.
 */
#include "store/sqlite/internal.h"

#include "base/str.h"
#include "core/deadletter.h"

#define DUE_ROWS_MAX 1024
#define DUE_BYTES_MAX (16 * 1024 * 1024)

static const char op[] = "parked_due";

/* What is read of a due row before it is decided about. */
struct due {
    int64_t arrival;
    bool without_verdict; /* its last run ended so, or may have */
    bool used_up;
};

struct leasing {
    struct tdd_sqlite *s;
    const struct td_parked_due *ask;
    struct tdi_arena *a;
    struct td_parked_batch *batch;
    td_time_us now;
    size_t bytes;
};

static void bind_shard(sqlite3_stmt *stmt, const struct td_parked_due *ask)
{
    tdi_bind_str(stmt, 1, ask->consumer);
    tdi_bind_i64(stmt, 2, ask->shard);
}

/* First time that is not `except`; TD_TIME_NONE: there is none. */
static enum td_err next_due(struct tdd_sqlite *s, const struct td_parked_due *ask,
                            td_time_us except, td_time_us *ret, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(s, TDD_SQL_DUE_NEXT, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_shard(stmt, ask);
    tdi_bind_i64(stmt, 3, except == TD_TIME_NONE ? 0 : except);
    rc = tdd_step(s, stmt, &row, op, err);
    if (rc == TD_OK) {
        *ret = row ? sqlite3_column_int64(stmt, 0) : TD_TIME_NONE;
    }
    (void)sqlite3_reset(stmt);
    return rc;
}

/* Rows that a former owner of the shard leased: it starts no more runs, so nobody waits for it. */
static enum td_err orphans(struct tdd_sqlite *s, const struct td_parked_due *ask, bool take,
                           td_time_us now, bool *ret_any, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    *ret_any = false;
    if (ask->fence == 0) {
        return TD_OK;
    }
    enum tdd_sql sql = take ? TDD_SQL_ORPHANS_TAKE : TDD_SQL_ORPHANS_LOOK;
    enum td_err rc = tdd_stmt(s, sql, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_shard(stmt, ask);
    tdi_bind_i64(stmt, 3, ask->fence);
    tdi_bind_i64(stmt, 4, now);
    if (take) {
        return tdd_run(s, stmt, NULL, op, err);
    }
    rc = tdd_step(s, stmt, ret_any, op, err);
    (void)sqlite3_reset(stmt);
    return rc;
}

static enum td_err due_collect(struct leasing *l, struct due **ret, size_t *ret_count,
                               struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    size_t max = l->ask->max < DUE_ROWS_MAX ? l->ask->max : DUE_ROWS_MAX;
    struct due *list = tdi_arena_array(l->a, max, sizeof(*list));
    size_t count = 0;
    if (list == NULL) {
        return tdd_nomem(op, err);
    }
    enum td_err rc = tdd_stmt(l->s, TDD_SQL_DUE, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_shard(stmt, l->ask);
    tdi_bind_i64(stmt, 3, l->now);
    tdi_bind_i64(stmt, 4, (int64_t)max);
    while (rc == TD_OK && count < max) {
        bool row = false;
        rc = tdd_step(l->s, stmt, &row, op, err);
        if (rc != TD_OK || !row) {
            break;
        }
        list[count++] = (struct due){
            .arrival = sqlite3_column_int64(stmt, 0),
            .without_verdict = sqlite3_column_int64(stmt, 1) != 0,
            .used_up = sqlite3_column_int64(stmt, 2) != 0,
        };
    }
    (void)sqlite3_reset(stmt);
    *ret = list;
    *ret_count = count;
    return rc;
}

static enum td_err read_row(struct leasing *l, int64_t arrival, struct td_parked_row *ret,
                            struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(l->s, TDD_SQL_PARKED_BY_ARRIVAL, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(stmt, 1, arrival);
    rc = tdd_step(l->s, stmt, &row, op, err);
    if (rc == TD_OK && !row) {
        return tdd_fail(TD_ERR_INTERNAL, op, err, "a due row is gone inside its transaction");
    }
    if (rc == TD_OK) {
        rc = tdd_parked_decode(l->s, stmt, true, l->a, ret, op, err);
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

static enum td_err lease_row(struct leasing *l, const struct due *d, struct td_parked_row *row,
                             struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    struct td_message_ref ref = {row->message.source, row->message.id};
    enum td_err rc = tdd_stmt(l->s, TDD_SQL_PARKED_LEASE, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(stmt, 1, d->arrival);
    tdi_bind_i64(stmt, 2, l->now + l->ask->lease_us);
    tdi_bind_i64(stmt, 3, l->ask->fence);
    rc = tdd_run(l->s, stmt, NULL, op, err);
    row->attempts += 1;
    row->revision += 1;
    row->due_at = l->now + l->ask->lease_us;
    if (rc == TD_OK) {
        rc = tdd_inbox_update(l->s, row->consumer, &ref, TD_OUTCOME_RETRY, row->attempts, op, err);
    }
    return rc;
}

/* No more runs: dead, with the last failure's reason where it had one. */
static enum td_err bury_row(struct leasing *l, const struct due *d, struct td_parked_row *row,
                            struct td_error *err)
{
    struct tdd_sqlite *s = l->s;
    struct tdd_parked_write w = {
        .consumer = row->consumer,
        .shard = row->shard,
        .ref = {row->message.source, row->message.id},
        .outcome = TD_OUTCOME_DEAD,
        .due_at = TD_TIME_NONE,
        .attempts = row->attempts,
        .blocks_key = row->blocks_key && !l->ask->release_on_dead,
        .failed = true,
        .code = d->without_verdict ? TD_DEAD_POISON : TD_DEAD_EXHAUSTED,
        .error_type = row->error_type,
        .error_message = row->error_message,
        .handler = row->handler,
    };
    w.reason = d->without_verdict
                   ? TD_STR_LIT("its last run ended without an answer, and no run is left")
                   : row->reason;
    if (w.reason.len == 0) {
        w.reason = TD_STR_LIT("all runs that it may have were used up");
    }
    struct tdd_key key = {row->consumer, row->shard, row->message.key};
    bool done = false;
    enum td_err rc =
        tdd_inbox_update(s, row->consumer, &w.ref, TD_OUTCOME_DEAD, row->attempts, op, err);
    if (rc == TD_OK) {
        rc = tdd_parked_update(s, &w, &done, op, err);
    }
    if (rc == TD_OK && l->ask->release_on_dead) {
        rc = tdd_key_release(s, &key, &done, op, err);
    }
    if (rc == TD_OK) {
        rc = tdd_key_blocked(s, &key, 0, &row->key_blocked, op, err);
    }
    row->outcome = TD_OUTCOME_DEAD;
    row->code = w.code;
    row->reason = w.reason;
    row->blocks_key = w.blocks_key;
    row->last_failed_at = l->now;
    row->due_at = TD_TIME_NONE;
    row->revision += 1;
    return rc;
}

/* A worker has settled it: the parked row follows the inbox row. */
static enum td_err adopt_row(struct leasing *l, const struct td_inbox_state *inbox,
                             struct td_parked_row *row, struct td_error *err)
{
    struct tdd_parked_write w = {
        .consumer = row->consumer,
        .shard = row->shard,
        .ref = {row->message.source, row->message.id},
        .outcome = inbox->outcome,
        .due_at = TD_TIME_NONE,
        .attempts = inbox->attempts,
        .attempt_limit = row->attempt_limit,
        .handler = row->handler,
    };
    struct tdd_key key = {row->consumer, row->shard, row->message.key};
    bool ignored = false;
    enum td_err rc = tdd_parked_update(l->s, &w, &ignored, op, err);
    if (rc == TD_OK && row->blocks_key) {
        rc = tdd_key_release(l->s, &key, &ignored, op, err);
    }
    if (rc == TD_OK) {
        rc = tdd_key_blocked(l->s, &key, 0, &row->key_blocked, op, err);
    }
    row->outcome = inbox->outcome;
    row->attempts = inbox->attempts;
    row->blocks_key = false;
    row->due_at = TD_TIME_NONE;
    row->revision += 1;
    return rc;
}

static bool settled_elsewhere(const struct td_inbox_state *inbox)
{
    return inbox->outcome == TD_OUTCOME_EFFECT || inbox->outcome == TD_OUTCOME_DROPPED ||
           inbox->outcome == TD_OUTCOME_DISCARDED;
}

static enum td_err take_rows(struct leasing *l, const struct due *list, size_t count,
                             struct td_error *err)
{
    struct td_parked_batch *b = l->batch;
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < count && rc == TD_OK && l->bytes < DUE_BYTES_MAX; i++) {
        const struct due *d = &list[i];
        struct td_inbox_state inbox;
        struct td_parked_row row;
        if (d->without_verdict && !d->used_up && b->count > 0) {
            break; /* comes alone, next time */
        }
        rc = read_row(l, d->arrival, &row, err);
        if (rc == TD_ERR_NOMEM && b->count + b->dead_count + b->done_count > 0) {
            return TD_OK;
        }
        if (rc == TD_OK) {
            struct td_message_ref ref = {row.message.source, row.message.id};
            rc = tdd_inbox_state(l->s, row.consumer, &ref, &inbox, op, err);
        }
        if (rc != TD_OK) {
            break;
        }
        l->bytes += row.message.body.len;
        if (settled_elsewhere(&inbox)) {
            rc = adopt_row(l, &inbox, &row, err);
            b->done[b->done_count++] = row;
            continue;
        }
        if (d->used_up) {
            rc = bury_row(l, d, &row, err);
            b->dead[b->dead_count++] = row;
            continue;
        }
        rc = lease_row(l, d, &row, err);
        b->rows[b->count++] = row;
        if (d->without_verdict) {
            break;
        }
    }
    return rc;
}

static enum td_err due_in_tx(struct leasing *l, struct td_str lease, struct td_error *err)
{
    struct due *list = NULL;
    size_t count = 0;
    bool any = false;
    enum td_err rc = tdd_fence_check(l->s, lease, l->ask->fence, op, err);
    if (rc == TD_OK) {
        rc = orphans(l->s, l->ask, true, l->now, &any, err);
    }
    if (rc == TD_OK) {
        rc = due_collect(l, &list, &count, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    l->batch->rows = tdi_arena_array(l->a, count, sizeof(*l->batch->rows));
    l->batch->dead = tdi_arena_array(l->a, count, sizeof(*l->batch->dead));
    l->batch->done = tdi_arena_array(l->a, count, sizeof(*l->batch->done));
    if (l->batch->rows == NULL || l->batch->dead == NULL || l->batch->done == NULL) {
        return tdd_nomem(op, err);
    }
    rc = take_rows(l, list, count, err);
    if (rc == TD_OK) {
        td_time_us end = l->now + l->ask->lease_us;
        rc = next_due(l->s, l->ask, end, &l->batch->next_due_us, err);
    }
    return rc;
}

enum td_err tdd_parked_due(struct td_store *store, struct td_str lease,
                           const struct td_parked_due *ask, struct tdi_arena *a,
                           struct td_parked_batch *ret_batch, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct td_parked_batch batch = {.next_due_us = TD_TIME_NONE};
    struct leasing l = {.s = s, .ask = ask, .a = a, .batch = &batch, .now = tdd_now(s)};
    bool any = false;
    /* Asked often, and mostly nothing is due: that takes no write lock. */
    enum td_err rc = next_due(s, ask, TD_TIME_NONE, &batch.next_due_us, err);
    if (rc == TD_OK) {
        rc = orphans(s, ask, false, l.now, &any, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    bool due = batch.next_due_us != TD_TIME_NONE && batch.next_due_us <= l.now;
    if (due || any) {
        rc = tdd_tx_begin(s, op, err);
        if (rc == TD_OK) {
            rc = tdd_tx_end(s, due_in_tx(&l, lease, err), true, err);
        }
    }
    if (rc == TD_OK) {
        *ret_batch = batch;
    }
    return rc;
}

enum td_err tdd_parked_return(struct td_store *store, struct td_str consumer,
                              const struct td_message_ref *refs, size_t count, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    enum td_err rc = tdd_tx_begin(s, "parked_return", err);
    if (rc != TD_OK) {
        return rc;
    }
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        sqlite3_stmt *stmt = NULL;
        rc = tdd_stmt(s, TDD_SQL_PARKED_RETURN, &stmt, "parked_return", err);
        if (rc == TD_OK) {
            tdi_bind_str(stmt, 1, consumer);
            tdi_bind_str(stmt, 2, refs[i].source);
            tdi_bind_str(stmt, 3, refs[i].id);
            tdi_bind_i64(stmt, 4, tdd_now(s));
            rc = tdd_run(s, stmt, NULL, "parked_return", err);
        }
    }
    return tdd_tx_end(s, rc, true, err);
}
