/*
 * Settling: what became of a message, in the transaction that did the work.
 *
 * Must not know: handlers, retry policies.
 * Invariants: the inbox row is the one arbiter; it changes only on the condition of its former
 * outcome and attempts. inbox row and parked row say the same outcome, always.
 */
#include "store/sqlite/internal.h"

#include <string.h>

#include "base/str.h"
#include "core/deadletter.h"

static const char op[] = "inbox_settle";

/* One settlement under way. */
struct settling {
    struct tdd_sqlite *s;
    struct td_str consumer;
    struct td_settle *item;
    struct tdd_key key;
    int64_t arrival; /* of its parked row; 0: none */
    int32_t attempts;
    enum td_outcome outcome; /* as stored */
    bool by_worker;          /* a worker's own transaction wrote the inbox row */
    struct tdi_arena *a;
};

/* Is the row as the caller expects it? */
static bool as_expected(const struct td_settle *item, const struct td_inbox_state *state)
{
    if (item->claimed) {
        return state->outcome == TD_OUTCOME_EFFECT && state->attempts == 1;
    }
    if (item->expected == TD_OUTCOME_NONE) {
        return state->outcome == TD_OUTCOME_NONE;
    }
    return state->outcome == item->expected && state->attempts == item->expected_attempts;
}

static bool done_by_worker(const struct td_settle *item, const struct td_inbox_state *state)
{
    return !item->claimed && item->outcome == TD_OUTCOME_EFFECT &&
           (item->expected == TD_OUTCOME_NONE || item->expected == TD_OUTCOME_RETRY) &&
           state->outcome == TD_OUTCOME_EFFECT && state->attempts == item->attempts;
}

/* Place and key of the parked row, if there is one. */
static enum td_err find_parked(struct settling *g, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(g->s, TDD_SQL_PARKED_PLACE, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, g->consumer);
    tdi_bind_str(stmt, 2, g->item->ref.source);
    tdi_bind_str(stmt, 3, g->item->ref.id);
    rc = tdd_step(g->s, stmt, &row, op, err);
    if (rc == TD_OK && row) {
        g->arrival = sqlite3_column_int64(stmt, 0);
        g->key.shard = (int32_t)sqlite3_column_int64(stmt, 1);
        rc = tdd_copy_str(stmt, 2, g->a, &g->key.key) ? TD_OK : tdd_nomem(op, err);
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

/* A follower whose head has ended meanwhile would never be woken, so it is due at once. */
static enum td_err choose_outcome(struct settling *g, struct td_error *err)
{
    g->outcome = g->item->outcome;
    if (g->outcome != TD_OUTCOME_BLOCKED) {
        return TD_OK;
    }
    bool blocked = false;
    enum td_err rc = tdd_key_blocked(g->s, &g->key, g->arrival, &blocked, op, err);
    if (rc == TD_OK && !blocked) {
        g->outcome = TD_OUTCOME_RETRY;
    }
    return rc;
}

static enum td_err write_inbox(struct settling *g, const struct td_inbox_state *state,
                               struct td_error *err)
{
    struct td_settle *item = g->item;
    if (g->by_worker) {
        return TD_OK;
    }
    if (state->outcome == TD_OUTCOME_NONE) {
        return tdd_inbox_insert(
            g->s, g->consumer, &item->ref, g->outcome, g->attempts, item->origin,
            item->message != NULL ? item->message->published_at : TD_TIME_NONE, op, err);
    }
    /* inbox_claim() has written this already. */
    if (item->claimed && g->outcome == TD_OUTCOME_EFFECT && g->attempts == state->attempts) {
        return TD_OK;
    }
    return tdd_inbox_update(g->s, g->consumer, &item->ref, g->outcome, g->attempts, op, err);
}

static enum td_err write_parked(struct settling *g, struct td_error *err)
{
    const struct td_settle *item = g->item;
    bool parks = g->outcome == TD_OUTCOME_RETRY || g->outcome == TD_OUTCOME_BLOCKED ||
                 g->outcome == TD_OUTCOME_DEAD;
    if (g->arrival == 0 && !parks) {
        return TD_OK;
    }
    bool run = item->outcome != TD_OUTCOME_BLOCKED && !item->unfinished_run;
    struct tdd_parked_write w = {
        .consumer = g->consumer,
        .shard = g->key.shard,
        .ref = item->ref,
        .outcome = g->outcome,
        .due_at = TD_TIME_NONE,
        .attempts = g->attempts,
        .attempt_limit = item->attempt_limit,
        .blocks_key = item->blocks_key,
        .alone = item->unfinished_run,
        .failed = run && (g->outcome == TD_OUTCOME_RETRY || g->outcome == TD_OUTCOME_DEAD),
        .code = item->code,
        .reason = item->reason,
        .error_type = item->error_type,
        .error_message = item->error_message,
        .handler = item->handler,
        .origin = item->origin,
    };
    if (g->outcome == TD_OUTCOME_RETRY) {
        w.due_at = tdd_now(g->s) + (item->outcome == TD_OUTCOME_RETRY ? item->due_after_us : 0);
    }
    bool found = false;
    if (g->arrival != 0) {
        return tdd_parked_update(g->s, &w, &found, op, err);
    }
    if (item->message == NULL) {
        return tdd_fail(TD_ERR_INTERNAL, op, err, "a message without its body cannot be parked");
    }
    return tdd_parked_insert(g->s, &w, item->message, op, err);
}

static enum td_err after_settling(struct settling *g, struct td_error *err)
{
    struct td_settle *item = g->item;
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < item->emit_count && rc == TD_OK; i++) {
        /* Its id follows from this message's, so one that exists is this very event. */
        rc = tdd_outbox_insert(g->s, &item->emit[i], true, op, err);
    }
    if (rc == TD_OK && item->release_next) {
        rc = tdd_key_release(g->s, &g->key, &item->next_released, op, err);
    }
    /* What took effect at its first delivery was behind nothing. */
    bool plain = item->claimed && g->outcome == TD_OUTCOME_EFFECT && !item->release_next;
    if (rc == TD_OK && !plain) {
        rc = tdd_key_blocked(g->s, &g->key, 0, &item->key_blocked, op, err);
    }
    return rc;
}

/* The common case: inbox_claim() has written all there is to write, and nothing undid it. */
static bool is_done(const struct tdd_sqlite *s, const struct td_settle *item)
{
    return item->claimed && !s->undone && item->outcome == TD_OUTCOME_EFFECT &&
           item->attempts == 1 && item->emit_count == 0 && !item->release_next;
}

static enum td_err settle_one(struct settling *g, struct td_error *err)
{
    struct td_settle *item = g->item;
    struct td_inbox_state state = {.outcome = TD_OUTCOME_NONE};
    item->next_released = false;
    item->key_blocked = false;
    item->settled = is_done(g->s, item);
    if (item->settled) {
        item->found = state;
        return TD_OK;
    }
    enum td_err rc = tdd_inbox_state(g->s, g->consumer, &item->ref, &state, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bool expected = as_expected(item, &state);
    g->by_worker = !expected && done_by_worker(item, &state);
    if (!expected && !g->by_worker) {
        return tdd_inbox_look(&g->s->head, g->consumer, &item->ref, 1, &item->found, err);
    }
    item->found = state;
    g->key.key = item->message != NULL ? item->message->key : TD_STR_NONE;
    if (!item->claimed && state.outcome != TD_OUTCOME_NONE) {
        rc = find_parked(g, err);
    }
    if (rc == TD_OK) {
        rc = choose_outcome(g, err);
    }
    g->attempts = item->attempts;
    if (!item->claimed && state.attempts > g->attempts) {
        g->attempts = state.attempts;
    }
    if (rc == TD_OK) {
        rc = write_inbox(g, &state, err);
    }
    if (rc == TD_OK) {
        rc = write_parked(g, err);
    }
    if (rc == TD_OK) {
        rc = after_settling(g, err);
    }
    item->settled = rc == TD_OK;
    return rc;
}

enum td_err tdd_inbox_settle(struct td_store *store, struct td_str consumer, int32_t shard,
                             struct td_str lease, int64_t fence, struct td_settle *items,
                             size_t count, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct tdi_arena a;
    enum td_err rc = tdd_tx_check(s, op, err);
    if (rc == TD_OK) {
        rc = tdd_fence_check(s, lease, fence, op, err);
    }
    tdi_arena_init(&a, 0);
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        struct settling g = {
            .s = s,
            .consumer = consumer,
            .item = &items[i],
            .key = {.consumer = consumer, .shard = shard},
            .a = &a,
        };
        rc = settle_one(&g, err);
        tdi_arena_reset(&a);
    }
    tdi_arena_release(&a);
    return rc;
}
