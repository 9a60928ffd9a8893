/*
 * The inbox table: looking, claiming, pruning, counting.
 *
 * Must not know: parked rows beyond their existence (settle.c).
 * Invariant: rows that are not finished are never pruned.
 */
#include "store/sqlite/internal.h"

#include "base/str.h"
#include "core/deadletter.h"

#define PRUNE_LOOK_MAX 4096 /* rows looked at by one call */
#define PRUNE_ARENA_BYTES_MAX (4 * 1024 * 1024)
#define FIND_PAIRS_MAX 4096 /* (consumer, source) pairs that inbox_find() tries */
#define FIND_ROWS_MAX 256

static enum td_err outcome_of(sqlite3_stmt *stmt, int at, enum td_outcome *ret, const char *op,
                              struct td_error *err)
{
    if (!tdi_outcome_parse(tdi_column_str(stmt, at), ret)) {
        return tdd_fail(TD_ERR_CORRUPT, op, err, "a row of tidings_inbox has an unknown outcome");
    }
    return TD_OK;
}

static void bind_ref(sqlite3_stmt *stmt, struct td_str consumer, const struct td_message_ref *ref)
{
    tdi_bind_str(stmt, 1, consumer);
    tdi_bind_str(stmt, 2, ref->source);
    tdi_bind_str(stmt, 3, ref->id);
}

enum td_err tdd_inbox_state(struct tdd_sqlite *s, struct td_str consumer,
                            const struct td_message_ref *ref, struct td_inbox_state *ret,
                            const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    struct td_inbox_state state = {.outcome = TD_OUTCOME_NONE};
    enum td_err rc = tdd_stmt(s, TDD_SQL_INBOX_STATE, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_ref(stmt, consumer, ref);
    rc = tdd_step(s, stmt, &row, op, err);
    if (rc == TD_OK && row) {
        rc = outcome_of(stmt, 0, &state.outcome, op, err);
        state.attempts = (int32_t)sqlite3_column_int64(stmt, 1);
        (void)sqlite3_reset(stmt);
    }
    if (rc == TD_OK) {
        *ret = state;
    }
    return rc;
}

enum td_err tdd_inbox_insert(struct tdd_sqlite *s, struct td_str consumer,
                             const struct td_message_ref *ref, enum td_outcome outcome,
                             int32_t attempts, struct td_str origin, td_time_us published_at,
                             const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_INBOX_INSERT, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_ref(stmt, consumer, ref);
    tdi_bind_str(stmt, 4, tdi_str(tdi_outcome_name(outcome)));
    tdi_bind_i64(stmt, 5, attempts);
    tdi_bind_str(stmt, 6, origin.len > 0 ? origin : TD_STR_NONE);
    tdi_bind_i64(stmt, 7, published_at);
    tdi_bind_i64(stmt, 8, tdd_now(s));
    return tdd_run(s, stmt, NULL, op, err);
}

enum td_err tdd_inbox_update(struct tdd_sqlite *s, struct td_str consumer,
                             const struct td_message_ref *ref, enum td_outcome outcome,
                             int32_t attempts, const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_INBOX_UPDATE, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_ref(stmt, consumer, ref);
    tdi_bind_str(stmt, 4, tdi_str(tdi_outcome_name(outcome)));
    tdi_bind_i64(stmt, 5, attempts);
    tdi_bind_i64(stmt, 6, tdd_now(s));
    return tdd_run(s, stmt, NULL, op, err);
}

/* With the look at tidings_parked that inbox_state() does not take. */
static enum td_err look_one(struct tdd_sqlite *s, struct td_str consumer,
                            const struct td_message_ref *ref, struct td_inbox_state *ret,
                            struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_inbox_state(s, consumer, ref, ret, "inbox_look", err);
    if (rc != TD_OK || ret->outcome == TD_OUTCOME_NONE) {
        return rc;
    }
    rc = tdd_stmt(s, TDD_SQL_PARKED_HAS_BODY, &stmt, "inbox_look", err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_ref(stmt, consumer, ref);
    rc = tdd_step(s, stmt, &row, "inbox_look", err);
    if (rc == TD_OK && row) {
        ret->parked = true;
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

enum td_err tdd_inbox_look(struct td_store *store, struct td_str consumer,
                           const struct td_message_ref *refs, size_t count,
                           struct td_inbox_state *ret_states, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        rc = look_one(s, consumer, &refs[i], &ret_states[i], err);
    }
    return rc;
}

static enum td_err claim_one(struct tdd_sqlite *s, struct td_str consumer, struct td_claim *c,
                             td_time_us now, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int64_t inserted = 0;
    enum td_err rc = tdd_stmt(s, TDD_SQL_INBOX_CLAIM, &stmt, "inbox_claim", err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_ref(stmt, consumer, &c->ref);
    tdi_bind_str(stmt, 4, c->origin.len > 0 ? c->origin : TD_STR_NONE);
    tdi_bind_i64(stmt, 5, c->published_at);
    tdi_bind_i64(stmt, 6, now);
    rc = tdd_run(s, stmt, &inserted, "inbox_claim", err);
    if (rc != TD_OK) {
        return rc;
    }
    if (inserted > 0) {
        c->former = (struct td_inbox_state){.outcome = TD_OUTCOME_NONE};
        return TD_OK;
    }
    return look_one(s, consumer, &c->ref, &c->former, err);
}

enum td_err tdd_inbox_claim(struct td_store *store, struct td_str consumer, struct td_str lease,
                            int64_t fence, struct td_claim *claims, size_t count,
                            struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    enum td_err rc = tdd_tx_check(s, "inbox_claim", err);
    if (rc == TD_OK) {
        rc = tdd_fence_check(s, lease, fence, "inbox_claim", err);
    }
    td_time_us now = tdd_now(s);
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        rc = claim_one(s, consumer, &claims[i], now, err);
    }
    return rc;
}

/* ---- pruning --------------------------------------------------------------------------------- */

struct prune {
    td_time_us settled_before; /* effect, dropped */
    td_time_us discarded_before;
    struct td_message_ref *gone;
    size_t gone_count;
    struct td_message_ref last; /* row looked at last */
    bool at_end;
};

static bool prunable(sqlite3_stmt *stmt, const struct prune *p)
{
    enum td_outcome outcome = TD_OUTCOME_NONE;
    if (!tdi_outcome_parse(tdi_column_str(stmt, 2), &outcome) || outcome == TD_OUTCOME_NONE ||
        tdi_outcome_unfinished(outcome)) {
        return false;
    }
    td_time_us settled = sqlite3_column_int64(stmt, 3);
    td_time_us published = tdi_column_i64(stmt, 4);
    td_time_us since = published > settled ? published : settled;
    return since < (outcome == TD_OUTCOME_DISCARDED ? p->discarded_before : p->settled_before);
}

static enum td_err prune_collect(struct tdd_sqlite *s, struct td_str consumer, size_t max,
                                 struct tdi_arena *a, struct prune *p, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    size_t looked = 0;
    enum td_err rc = tdd_stmt(s, TDD_SQL_INBOX_PRUNE_SCAN, &stmt, "inbox_prune", err);
    if (rc != TD_OK) {
        return rc;
    }
    bool go_on = tdi_str_eq(s->prune_consumer, consumer);
    tdi_bind_str(stmt, 1, consumer);
    tdi_bind_str(stmt, 2, go_on ? s->prune_at.source : TD_STR_LIT(""));
    tdi_bind_str(stmt, 3, go_on ? s->prune_at.id : TD_STR_LIT(""));
    tdi_bind_i64(stmt, 4, PRUNE_LOOK_MAX);
    while (rc == TD_OK && p->gone_count < max) {
        bool row = false;
        rc = tdd_step(s, stmt, &row, "inbox_prune", err);
        if (rc != TD_OK || !row) {
            break;
        }
        looked++;
        if (!tdd_copy_str(stmt, 0, a, &p->last.source) || !tdd_copy_str(stmt, 1, a, &p->last.id)) {
            rc = tdd_nomem("inbox_prune", err);
        } else if (prunable(stmt, p)) {
            p->gone[p->gone_count++] = p->last;
        }
    }
    (void)sqlite3_reset(stmt);
    p->at_end = looked < PRUNE_LOOK_MAX && p->gone_count < max;
    return rc;
}

static enum td_err prune_delete(struct tdd_sqlite *s, struct td_str consumer, const struct prune *p,
                                struct td_error *err)
{
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < p->gone_count && rc == TD_OK; i++) {
        sqlite3_stmt *stmt = NULL;
        rc = tdd_stmt(s, TDD_SQL_INBOX_DELETE, &stmt, "inbox_prune", err);
        if (rc == TD_OK) {
            bind_ref(stmt, consumer, &p->gone[i]);
            rc = tdd_run(s, stmt, NULL, "inbox_prune", err);
        }
        if (rc == TD_OK) {
            rc = tdd_stmt(s, TDD_SQL_PARKED_DELETE, &stmt, "inbox_prune", err);
        }
        if (rc == TD_OK) {
            bind_ref(stmt, consumer, &p->gone[i]);
            rc = tdd_run(s, stmt, NULL, "inbox_prune", err);
        }
    }
    return rc;
}

/* Ids grow with time, so rows to remove lie together; the cursor goes round over all of them. */
static void prune_move(struct tdd_sqlite *s, struct td_str consumer, const struct prune *p)
{
    struct td_message_ref last = p->last;
    struct tdi_arena fresh;
    struct td_str name = TD_STR_NONE;
    struct td_message_ref at = {TD_STR_NONE, TD_STR_NONE};
    tdi_arena_init(&fresh, PRUNE_ARENA_BYTES_MAX);
    bool kept = !p->at_end && tdi_arena_str(&fresh, consumer, &name) &&
                tdi_arena_str(&fresh, last.source, &at.source) &&
                tdi_arena_str(&fresh, last.id, &at.id);
    tdi_arena_release(&s->prune_arena);
    s->prune_arena = fresh;
    s->prune_consumer = kept ? name : TD_STR_NONE;
    s->prune_at = at;
}

enum td_err tdd_inbox_prune(struct td_store *store, struct td_str consumer, td_time_us keep_us,
                            td_time_us parked_keep_us, size_t max, size_t *ret_removed,
                            struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct tdi_arena a;
    td_time_us now = tdd_now(s);
    struct prune p = {
        .settled_before = now - keep_us,
        .discarded_before = now - (parked_keep_us > keep_us ? parked_keep_us : keep_us),
    };
    max = max < PRUNE_LOOK_MAX ? max : PRUNE_LOOK_MAX;
    tdi_arena_init(&a, PRUNE_ARENA_BYTES_MAX);
    p.gone = tdi_arena_array(&a, max, sizeof(*p.gone));
    enum td_err rc = p.gone != NULL ? prune_collect(s, consumer, max, &a, &p, err)
                                    : tdd_nomem("inbox_prune", err);
    if (rc == TD_OK && p.gone_count > 0) {
        rc = tdd_tx_begin(s, "inbox_prune", err);
        if (rc == TD_OK) {
            rc = tdd_tx_end(s, prune_delete(s, consumer, &p, err), false, err);
        }
    }
    if (rc == TD_OK) {
        prune_move(s, consumer, &p);
        *ret_removed = p.gone_count;
    }
    tdi_arena_release(&a);
    return rc;
}

/* ---- operator -------------------------------------------------------------------------------- */

static enum td_err find_row(struct tdd_sqlite *s, struct td_str consumer, struct td_str source,
                            struct td_str id, struct tdi_arena *a, struct td_inbox_row *out,
                            bool *ret_found, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    struct td_message_ref ref = {source, id};
    enum td_err rc = tdd_stmt(s, TDD_SQL_INBOX_ROW, &stmt, "inbox_find", err);
    if (rc != TD_OK) {
        return rc;
    }
    bind_ref(stmt, consumer, &ref);
    rc = tdd_step(s, stmt, ret_found, "inbox_find", err);
    if (rc != TD_OK || !*ret_found) {
        return rc;
    }
    rc = outcome_of(stmt, 0, &out->outcome, "inbox_find", err);
    out->attempts = (int32_t)sqlite3_column_int64(stmt, 1);
    out->published_at = tdi_column_i64(stmt, 3);
    out->seen_at = tdi_column_i64(stmt, 4);
    out->settled_at = tdi_column_i64(stmt, 5);
    out->consumer = consumer;
    out->ref.source = source;
    if (rc == TD_OK &&
        (!tdd_copy_str(stmt, 2, a, &out->origin) || !tdi_arena_str(a, id, &out->ref.id))) {
        rc = tdd_nomem("inbox_find", err);
    }
    (void)sqlite3_reset(stmt);
    return rc;
}

/* The key begins with the consumer, so every pair of consumer and source is tried; they are few. */
enum td_err tdd_inbox_find(struct td_store *store, struct td_str id, struct tdi_arena *a,
                           struct td_inbox_row **ret_rows, size_t *ret_count, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct td_str consumer = TD_STR_LIT("");
    struct td_str source = TD_STR_LIT("");
    size_t count = 0;
    enum td_err rc = TD_OK;
    struct td_inbox_row *rows = tdi_arena_array(a, FIND_ROWS_MAX, sizeof(*rows));
    if (rows == NULL) {
        return tdd_nomem("inbox_find", err);
    }
    for (size_t pair = 0; pair < FIND_PAIRS_MAX && count < FIND_ROWS_MAX && rc == TD_OK; pair++) {
        sqlite3_stmt *stmt = NULL;
        bool row = false;
        rc = tdd_stmt(s, TDD_SQL_INBOX_NEXT_PAIR, &stmt, "inbox_find", err);
        if (rc != TD_OK) {
            break;
        }
        tdi_bind_str(stmt, 1, consumer);
        tdi_bind_str(stmt, 2, source);
        rc = tdd_step(s, stmt, &row, "inbox_find", err);
        if (rc != TD_OK || !row) {
            break;
        }
        bool copied = tdd_copy_str(stmt, 0, a, &consumer) && tdd_copy_str(stmt, 1, a, &source);
        (void)sqlite3_reset(stmt);
        bool found = false;
        rc = copied ? find_row(s, consumer, source, id, a, &rows[count], &found, err)
                    : tdd_nomem("inbox_find", err);
        count += found && rc == TD_OK ? 1 : 0;
    }
    if (rc == TD_OK) {
        *ret_rows = rows;
        *ret_count = count;
    }
    return rc;
}

static enum td_err count_parked(struct tdd_sqlite *s, struct td_str consumer,
                                struct td_consumer_counts *c, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(s, TDD_SQL_PARKED_COUNTS, &stmt, "counts", err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, consumer);
    rc = tdd_step(s, stmt, &row, "counts", err);
    if (rc == TD_OK && row) {
        c->retrying = sqlite3_column_int64(stmt, 0);
        c->blocked = sqlite3_column_int64(stmt, 1);
        c->dead = sqlite3_column_int64(stmt, 2);
        c->discarded = sqlite3_column_int64(stmt, 3);
        c->oldest_due_us = tdi_column_i64(stmt, 4);
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

enum td_err tdd_counts(struct td_store *store, struct td_str consumer,
                       struct td_consumer_counts *ret_counts, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct td_consumer_counts c = {.oldest_due_us = TD_TIME_NONE};
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = count_parked(s, consumer, &c, err);
    if (rc == TD_OK) {
        rc = tdd_stmt(s, TDD_SQL_INBOX_COUNT, &stmt, "counts", err);
    }
    if (rc == TD_OK) {
        tdi_bind_str(stmt, 1, consumer);
        tdi_bind_i64(stmt, 2, TDD_COUNT_MAX);
        rc = tdd_step(s, stmt, &row, "counts", err);
    }
    if (rc == TD_OK && row) {
        c.inbox = sqlite3_column_int64(stmt, 0);
        (void)sqlite3_reset(stmt);
    }
    if (rc == TD_OK) {
        *ret_counts = c;
    }
    return rc;
}
