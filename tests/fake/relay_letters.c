/* See relay_letters.h. */
#include "relay_letters.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"

static struct relay_store_client *client_of(struct td_store *s)
{
    return ((struct relay_store_session *)s)->client;
}

static int64_t seq_of(const struct relay_db *db, const struct relay_row *row)
{
    return (int64_t)(row - db->rows) + 1;
}

/* ---- the operator ----------------------------------------------------------------------- */

void relay_letter_new(struct relay_row *row)
{
    row->letter = (struct relay_letter){.outcome = TD_OUTCOME_DEAD, .attempts = 1, .limit = 1};
}

void relay_letter_replay(struct relay_db *db, int64_t seq, int32_t more, td_time_us after_us)
{
    struct relay_letter *l = &db->rows[seq - 1].letter;

    if (l->outcome == TD_OUTCOME_DEAD) {
        l->outcome = TD_OUTCOME_RETRY;
        l->due_at = db->time->wall + after_us;
        l->limit = l->attempts + more;
        l->running = false;
    }
}

bool relay_letters_ended(const struct relay_db *db)
{
    for (int64_t i = 0; i < db->committed; i++) {
        if (db->rows[i].letter.outcome == TD_OUTCOME_RETRY) {
            return false;
        }
    }
    return true;
}

/* ---- leasing ---------------------------------------------------------------------------- */

struct leasing {
    struct relay_db *db;
    const struct td_parked_due *ask;
    struct tdi_arena *a;
    struct td_parked_batch *batch;
};

static bool due(const struct leasing *x, const struct relay_letter *l)
{
    bool orphan = l->running && l->fence < x->ask->fence;
    return l->outcome == TD_OUTCOME_RETRY && (orphan || l->due_at <= x->db->time->wall);
}

static bool copy_letter(struct leasing *x, struct relay_row *row, struct td_parked_row *ret)
{
    struct td_bytes body = row->message.body;

    *ret = (struct td_parked_row){
        .message = row->message,
        .outcome = row->letter.outcome,
        .attempts = row->letter.attempts,
        .attempt_limit = row->letter.limit,
        .code = row->dead_code,
        .reason = TD_STR_LIT("used up"),
    };
    if (row->letter.edited != NULL) {
        body = (struct td_bytes){row->letter.edited, strlen(row->letter.edited)};
    }
    return tdi_arena_str(x->a, row->message.id, &ret->message.id) &&
           tdi_arena_str(x->a, row->message.key, &ret->message.key) &&
           tdi_arena_str(x->a, row->message.type, &ret->message.type) &&
           tdi_arena_str(x->a, row->message.topic, &ret->message.topic) &&
           tdi_arena_bytes(x->a, body, &ret->message.body);
}

static void lease(struct leasing *x, struct relay_letter *l)
{
    l->attempts++;
    l->running = true;
    l->fence = x->ask->fence;
    l->due_at = x->db->time->wall + x->ask->lease_us;
}

static void note_next(struct leasing *x, const struct relay_letter *l)
{
    if (l->outcome == TD_OUTCOME_RETRY && !l->running &&
        (x->batch->next_due_us == TD_TIME_NONE || l->due_at < x->batch->next_due_us)) {
        x->batch->next_due_us = l->due_at;
    }
}

/* One row; false: no more after it. */
static bool take(struct leasing *x, struct relay_row *row)
{
    struct td_parked_batch *b = x->batch;
    struct relay_letter *l = &row->letter;
    bool alone = l->running;

    if (b->count == x->ask->max || (alone && b->count > 0)) {
        note_next(x, l);
        return false;
    }
    if (l->attempts >= l->limit) {
        l->outcome = TD_OUTCOME_DEAD;
        row->dead_code = alone ? TD_DEAD_POISON : TD_DEAD_EXHAUSTED;
        return copy_letter(x, row, &b->dead[b->dead_count++]);
    }
    lease(x, l);
    return copy_letter(x, row, &b->rows[b->count++]) && !alone;
}

static enum td_err take_due(struct leasing *x, struct td_error *err)
{
    struct td_parked_batch *b = x->batch;
    bool more = true;

    b->rows = tdi_arena_array(x->a, x->ask->max, sizeof(*b->rows));
    b->dead = tdi_arena_array(x->a, (size_t)x->db->committed + 1, sizeof(*b->dead));
    if (b->rows == NULL || b->dead == NULL) {
        return relay_store_refuse(err, TD_ERR_NOMEM, "no memory");
    }
    for (int64_t i = 0; i < x->db->committed; i++) {
        struct relay_row *row = &x->db->rows[i];
        if (more && due(x, &row->letter)) {
            more = take(x, row);
        } else {
            note_next(x, &row->letter);
        }
    }
    return TD_OK;
}

enum td_err relay_store_parked_due(struct td_store *s, struct td_str lease_name,
                                   const struct td_parked_due *ask, struct tdi_arena *a,
                                   struct td_parked_batch *ret_batch, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct td_parked_batch batch = {.next_due_us = TD_TIME_NONE};
    struct leasing x = {.db = c->db, .ask = ask, .a = a, .batch = &batch};
    struct relay_plan p;
    bool failed = relay_store_fails(c, RELAY_STORE_DUE, &p);
    char consumer[64];

    if (failed && !p.done) {
        return relay_failure(&p, err);
    }
    snprintf(consumer, sizeof(consumer), "relay:%.*s", (int)lease_name.len, lease_name.data);
    if (!tdi_str_is(ask->consumer, consumer) || ask->shard != 0 || ask->release_on_dead) {
        relay_violation(c->db, "letters of another consumer are asked for");
    }
    if (relay_db_name_of(c->db, lease_name)->fence != ask->fence) {
        return relay_store_refuse(err, TD_ERR_FENCED, "a newer owner");
    }
    enum td_err e = take_due(&x, err);
    if (e == TD_OK && failed) {
        return relay_failure(&p, err);
    }
    if (e == TD_OK) {
        *ret_batch = batch;
    }
    return e;
}

/* ---- the transaction -------------------------------------------------------------------- */

enum td_err relay_store_begin(struct td_store *s, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_BEGIN, &p)) {
        return relay_failure(&p, err);
    }
    c->in_tx = true;
    c->tx_count = 0;
    return TD_OK;
}

static void check_settle(struct relay_db *db, const struct relay_row *row,
                         const struct td_settle *item)
{
    const struct relay_letter *l = &row->letter;

    if (!tdi_str_eq(item->ref.id, row->message.id) ||
        !tdi_str_eq(item->ref.source, row->message.source)) {
        relay_violation(db, "letter %" PRId64 " is settled under another id", seq_of(db, row));
    }
    if (item->attempts < l->attempts) {
        relay_violation(db, "attempts of letter %" PRId64 " go down", seq_of(db, row));
    }
    if (item->outcome == TD_OUTCOME_EFFECT && l->published == 0) {
        relay_violation(db, "letter %" PRId64 " was not published", seq_of(db, row));
    }
    if (item->blocks_key || item->release_next || item->claimed || item->emit_count > 0) {
        relay_violation(db, "letter %" PRId64 " is settled as a consumer's", seq_of(db, row));
    }
}

static void settle_one(struct relay_store_client *c, struct td_settle *item)
{
    int64_t seq = item->message->sequence;
    struct relay_row *row = &c->db->rows[seq - 1];

    check_settle(c->db, row, item);
    item->settled =
        row->letter.outcome == item->expected && row->letter.attempts == item->expected_attempts;
    if (!item->settled) {
        return;
    }
    struct relay_tx_item *t = &c->tx[c->tx_count++];
    *t = (struct relay_tx_item){
        .seq = seq,
        .letter = row->letter,
        .code = item->code,
    };
    t->letter.outcome = item->outcome;
    t->letter.attempts = item->attempts;
    t->letter.limit = item->attempt_limit > t->letter.limit ? item->attempt_limit : t->letter.limit;
    t->letter.due_at = c->db->time->wall + item->due_after_us;
    t->letter.running = false;
    snprintf(t->reason, sizeof(t->reason), "%.*s", (int)item->reason.len,
             item->reason.data == NULL ? "" : item->reason.data);
}

enum td_err relay_store_inbox_settle(struct td_store *s, struct td_str consumer, int32_t shard,
                                     struct td_str lease_name, int64_t fence,
                                     struct td_settle *items, size_t count, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_plan p;

    if (!c->in_tx || shard != 0 || !tdi_str_starts(consumer, "relay:")) {
        relay_violation(c->db, "letters are settled outside of a transaction, or as others'");
    }
    if (relay_store_fails(c, RELAY_STORE_INBOX, &p)) {
        return relay_failure(&p, err);
    }
    if (relay_db_name_of(c->db, lease_name)->fence != fence) {
        return relay_store_refuse(err, TD_ERR_FENCED, "a newer owner");
    }
    for (size_t i = 0; i < count; i++) {
        settle_one(c, &items[i]);
    }
    return TD_OK;
}

enum td_err relay_store_finish(struct td_store *s, bool commit, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_plan p;
    bool failed = relay_store_fails(c, RELAY_STORE_FINISH, &p);

    if (!c->in_tx) {
        relay_violation(c->db, "no transaction is open");
    }
    c->in_tx = false;
    for (size_t i = 0; commit && (!failed || p.done) && i < c->tx_count; i++) {
        struct relay_row *row = &c->db->rows[c->tx[i].seq - 1];
        row->letter = c->tx[i].letter;
        row->dead_code = c->tx[i].code;
        memcpy(row->dead_reason, c->tx[i].reason, sizeof(row->dead_reason));
    }
    return failed ? relay_failure(&p, err) : TD_OK;
}
