/*
 * Dead letters of this relay that an operator replays: leased, routed by the catalogue as it is
 * now, published, settled.
 *
 *   lease a few -> judge -> alone at the broker: publish, collect -> begin, settle, finish
 *
 * They are out of order by nature, and a refusal would break an ordered pipeline for the rows
 * behind it. So they have the broker for themselves: they wait until nothing is in flight, and rows
 * wait until every letter has its answer.
 *
 * Attempts are committed with the lease of a row. What failed by no fault of the letter gets one
 * run more, so a broker that is down never uses a letter up.
 *
 * Invariants: no more are leased while some are in hand; an open transaction is ended before any
 * other slot of the store is called (tdi_relay_run() sees to it).
 */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "core/retry.h"
#include "relay/internal.h"

void tdi_relay_letters_init(struct tdi_relay *r)
{
    struct tdi_relay_letters *l = &r->letters;
    int len = snprintf(l->consumer_text, sizeof(l->consumer_text), "relay:%.*s", (int)r->o.name.len,
                       r->o.name.data);

    TDI_ASSERT(len > 0 && (size_t)len < sizeof(l->consumer_text));
    l->consumer = (struct td_str){l->consumer_text, (size_t)len};
    l->ask_at = INT64_MIN;
    tdi_arena_init(&l->arena, 0);
}

void tdi_relay_letters_forget(struct tdi_relay *r)
{
    struct tdi_relay_letters *l = &r->letters;

    l->count = 0;
    l->decided = 0;
    l->submitted = 0;
    tdi_arena_reset(&l->arena);
}

static size_t waiting(const struct tdi_relay_letters *l)
{
    return l->count - l->decided;
}

bool tdi_relay_letters_unanswered(const struct tdi_relay *r)
{
    return waiting(&r->letters) > 0;
}

bool tdi_relay_letters_decided(const struct tdi_relay *r)
{
    return r->letters.count > 0 && waiting(&r->letters) == 0;
}

/* ---- what becomes of a letter ----------------------------------------------------------- */

static struct td_settle *decide(struct tdi_relay *r, size_t i, enum td_outcome outcome)
{
    struct tdi_relay_letters *l = &r->letters;
    const struct td_parked_row *row = &l->rows[i];

    TDI_ASSERT(l->states[i] != TDI_LETTER_DECIDED);
    l->submitted -= l->states[i] == TDI_LETTER_SUBMITTED ? 1 : 0;
    l->states[i] = TDI_LETTER_DECIDED;
    l->decided++;
    l->settles[i] = (struct td_settle){
        .ref = {.source = row->message.source, .id = row->message.id},
        .expected = TD_OUTCOME_RETRY,
        .expected_attempts = row->attempts,
        .outcome = outcome,
        .attempts = row->attempts,
        .attempt_limit = row->attempt_limit,
        .handler = TD_STR_LIT("relay"),
        .origin = row->origin,
        .message = &row->message,
    };
    return &l->settles[i];
}

static void dead_again(struct tdi_relay *r, size_t i, enum td_dead_code code, struct td_str reason)
{
    struct td_settle *s = decide(r, i, TD_OUTCOME_DEAD);

    s->code = code;
    s->reason = reason;
}

/* Not by its own fault. Attempts never go down, so the limit goes up. */
static void once_more(struct tdi_relay *r, size_t i, td_time_us after_us, struct td_str reason)
{
    struct td_settle *s = decide(r, i, TD_OUTCOME_RETRY);

    s->attempt_limit += s->attempt_limit < INT32_MAX ? 1 : 0;
    s->due_after_us = after_us;
    s->reason = reason;
}

static td_time_us backoff(struct tdi_relay *r, size_t i)
{
    return tdi_backoff(r->letters.rows[i].attempts, r->o.random);
}

/* ---- leasing ---------------------------------------------------------------------------- */

static void judge(struct tdi_relay *r, size_t i, td_time_us wall)
{
    struct tdi_relay_letters *l = &r->letters;
    struct td_message *m = &l->rows[i].message;
    struct tdi_relay_judgement j = tdi_relay_judge(r, m, TD_STR_NONE, wall, &l->arena);

    l->states[i] = TDI_LETTER_READY;
    if (j.dead != TD_DEAD_NONE) {
        dead_again(r, i, j.dead, j.reason);
    } else if (!j.ours) {
        const struct tdi_topic *t = j.route.topic;
        struct td_str why =
            t == NULL ? tdi_route_reason(&j.route, m, &l->arena)
                      : tdi_arena_printf(&l->arena,
                                         "its topic %.*s is on the broker %.*s now, and this relay "
                                         "publishes to %.*s",
                                         (int)t->name.len, t->name.data, (int)t->broker.len,
                                         t->broker.data, (int)r->o.broker_name.len,
                                         r->o.broker_name.data);
        dead_again(r, i, TD_DEAD_UNROUTABLE, why);
    } else {
        m->topic = j.topic;
        m->deliver_at = TD_TIME_NONE;
    }
}

/* Not in the way of the rows: when few of them are in hand, or after a while all the same. */
td_time_us tdi_relay_letters_at(const struct tdi_relay *r)
{
    const struct tdi_relay_letters *l = &r->letters;
    bool able = r->broker != NULL && !r->halted && r->read_once && !r->stopping;
    bool calm = tdi_window_count(&r->window) <= r->window.capacity / TDI_RELAY_LETTERS_CALM;

    if (!able || l->count > 0) {
        return INT64_MAX;
    }
    return calm ? l->ask_at : l->ask_at + TDI_RELAY_LETTERS_PATIENCE_US;
}

static void plan_next(struct tdi_relay *r, td_time_us now, td_time_us next_due_us)
{
    td_time_us in = TDI_RELAY_LETTERS_US;

    if (next_due_us != TD_TIME_NONE) {
        in = tdi_earlier(in, next_due_us - tdi_wall(&r->o.clock));
    }
    r->letters.ask_at = now + tdi_later(in, TDI_RELAY_LETTERS_GAP_US);
}

static void tell_used_up(const struct tdi_relay *r, const struct td_parked_batch *batch)
{
    if (batch->dead_count > 0) {
        TDI_LOG(r->o.log, TDI_LOG_WARN, "replayed letters have used up their runs",
                TDI_LOG_STR("relay", r->o.name), TDI_LOG_INT("count", (int64_t)batch->dead_count),
                TDI_LOG_STR("message_id", batch->dead[0].message.id),
                TDI_LOG_STR("reason", batch->dead[0].reason));
    }
}

enum tdi_step tdi_relay_letters_lease(struct tdi_relay *r, td_time_us now)
{
    struct tdi_relay_letters *l = &r->letters;
    struct td_parked_batch batch = {.count = 0};
    struct td_error err;
    const struct td_parked_due ask = {
        .consumer = l->consumer,
        .fence = r->fence,
        .max = TDI_RELAY_LETTERS_MAX,
        .lease_us = TDI_RELAY_LETTERS_LEASE_US,
    };

    l->ask_at = now + TDI_RELAY_LETTERS_US;
    if (r->store->driver->parked_due(r->store, r->o.name, &ask, &l->arena, &batch, &err) != TD_OK) {
        tdi_arena_reset(&l->arena);
        return tdi_relay_housekeeping_failed(r, &err);
    }
    TDI_ASSERT(batch.count <= TDI_RELAY_LETTERS_MAX);
    tdi_relay_store_worked(r);
    plan_next(r, now, batch.next_due_us);
    tell_used_up(r, &batch);
    l->rows = batch.rows;
    l->count = batch.count;
    td_time_us wall = tdi_wall(&r->o.clock);
    for (size_t i = 0; i < l->count; i++) {
        judge(r, i, wall);
    }
    if (l->count == 0) {
        tdi_arena_reset(&l->arena);
    }
    return TDI_STEP_AGAIN;
}

/* ---- at the broker ---------------------------------------------------------------------- */

bool tdi_relay_letters_submit_wanted(const struct tdi_relay *r)
{
    const struct tdi_relay_letters *l = &r->letters;

    return waiting(l) > l->submitted && r->broker != NULL && !l->broken && !r->window.broken &&
           r->window.submitted == 0 && !r->pipeline_full;
}

enum tdi_step tdi_relay_letters_submit(struct tdi_relay *r, td_time_us now)
{
    struct tdi_relay_letters *l = &r->letters;
    td_time_us wall = tdi_wall(&r->o.clock);
    size_t count = 0;
    size_t taken = 0;
    struct td_error err;

    TDI_ASSERT(r->fence > 0 && now < r->lease_until && r->window.submitted == 0);
    for (size_t i = 0; i < l->count; i++) {
        struct td_message *m = &l->rows[i].message;
        if (l->states[i] == TDI_LETTER_READY) {
            m->published_at = wall;
            r->items[count++] = (struct td_publish){
                .topic = m->topic, .message = m, .replay = true, .token = TDI_LETTER_TOKEN | i};
        }
    }
    if (r->broker->driver->submit(r->broker, r->items, count, &taken, &err) != TD_OK) {
        return tdi_relay_broker_failed(r, &err);
    }
    TDI_ASSERT(taken <= count);
    for (size_t n = 0; n < taken; n++) {
        l->states[r->items[n].token & ~TDI_LETTER_TOKEN] = TDI_LETTER_SUBMITTED;
    }
    if (l->submitted == 0) {
        r->progress_at = now;
    }
    l->submitted += taken;
    if (taken < count) {
        r->pipeline_full = l->submitted > 0;
        r->submit_at = r->pipeline_full ? r->submit_at : now + TDI_RELAY_READ_GAP_US;
    }
    return TDI_STEP_AGAIN;
}

static void refused(struct tdi_relay *r, size_t i, const struct td_published *p)
{
    struct tdi_relay_letters *l = &r->letters;
    enum td_dead_code dead = tdi_relay_fault_of(p);

    l->broken = r->window.ordered;
    if (dead != TD_DEAD_NONE) {
        dead_again(r, i, dead, tdi_relay_fault_reason(dead));
        return;
    }
    once_more(r, i, backoff(r, i),
              tdi_arena_printf(&l->arena, "the broker did not take it: %s", td_err_name(p->code)));
}

bool tdi_relay_letters_answer(struct tdi_relay *r, const struct td_published *p)
{
    struct tdi_relay_letters *l = &r->letters;
    size_t i = (size_t)(p->token & ~TDI_LETTER_TOKEN);

    if ((p->token & TDI_LETTER_TOKEN) == 0) {
        return false;
    }
    if (i >= l->count || l->states[i] != TDI_LETTER_SUBMITTED) {
        return true;
    }
    switch (p->result) {
    case TD_PUBLISH_ACCEPTED:
        decide(r, i, TD_OUTCOME_EFFECT);
        r->broker_failures = 0;
        break;
    case TD_PUBLISH_REFUSED:
        refused(r, i, p);
        break;
    case TD_PUBLISH_UNKNOWN:
        break; /* the caller closes the session, which decides it */
    }
    return true;
}

void tdi_relay_letters_session_lost(struct tdi_relay *r)
{
    struct tdi_relay_letters *l = &r->letters;

    l->broken = false;
    for (size_t i = 0; i < l->count; i++) {
        switch (l->states[i]) {
        case TDI_LETTER_READY:
            once_more(r, i, backoff(r, i),
                      TD_STR_LIT("the session with the broker ended before it was sent"));
            break;
        case TDI_LETTER_SUBMITTED:
            once_more(r, i, backoff(r, i),
                      TD_STR_LIT("the broker may or may not have stored it; it is sent again"));
            break;
        case TDI_LETTER_DECIDED:
            break;
        }
    }
}

void tdi_relay_letters_give_back(struct tdi_relay *r)
{
    for (size_t i = 0; i < r->letters.count; i++) {
        if (r->letters.states[i] == TDI_LETTER_READY) {
            once_more(r, i, 0, TD_STR_LIT("the run that was counted did not take place"));
        }
    }
}

/* ---- settling --------------------------------------------------------------------------- */

static void settled(struct tdi_relay *r)
{
    const struct tdi_relay_letters *l = &r->letters;
    int64_t published = 0;
    int64_t dead = 0;

    for (size_t i = 0; i < l->count; i++) {
        bool done = l->settles[i].settled; /* else an operator gave it up meanwhile */
        published += done && l->settles[i].outcome == TD_OUTCOME_EFFECT ? 1 : 0;
        dead += done && l->settles[i].outcome == TD_OUTCOME_DEAD ? 1 : 0;
    }
    TDI_LOG(r->o.log, dead > 0 ? TDI_LOG_WARN : TDI_LOG_INFO, "letters replayed",
            TDI_LOG_STR("relay", r->o.name), TDI_LOG_INT("published", published),
            TDI_LOG_INT("dead_again", dead),
            TDI_LOG_INT("tried_again", (int64_t)l->count - published - dead));
    tdi_relay_store_worked(r);
    tdi_relay_letters_forget(r);
}

/* What the store refuses for good costs the letters, whose lease ends, and not the rows. */
static enum tdi_step settle_failed(struct tdi_relay *r, const struct td_error *e)
{
    if (e->class_ == TD_CLASS_PERMANENT) {
        tdi_relay_letters_forget(r);
    }
    return tdi_relay_housekeeping_failed(r, e);
}

static enum tdi_step undo(struct tdi_relay *r)
{
    struct tdi_relay_letters *l = &r->letters;
    struct td_error err;

    l->tx = TDI_LETTERS_TX_NONE;
    if (r->store->driver->finish(r->store, false, &err) != TD_OK) {
        return settle_failed(r, &err);
    }
    return settle_failed(r, &l->tx_error);
}

enum tdi_step tdi_relay_letters_settle(struct tdi_relay *r)
{
    struct tdi_relay_letters *l = &r->letters;
    const struct td_store_driver *d = r->store->driver;
    struct td_error err;

    TDI_ASSERT(tdi_relay_letters_decided(r) && r->fence > 0);
    switch (l->tx) {
    case TDI_LETTERS_TX_NONE:
        if (d->begin(r->store, &err) != TD_OK) {
            return settle_failed(r, &err);
        }
        l->tx = TDI_LETTERS_TX_BEGUN;
        break;
    case TDI_LETTERS_TX_BEGUN:
        l->tx = TDI_LETTERS_TX_SETTLED;
        if (d->inbox_settle(r->store, l->consumer, 0, r->o.name, r->fence, l->settles, l->count,
                            &l->tx_error) != TD_OK) {
            l->tx = TDI_LETTERS_TX_UNDO;
        }
        break;
    case TDI_LETTERS_TX_SETTLED:
        l->tx = TDI_LETTERS_TX_NONE;
        if (d->finish(r->store, true, &err) != TD_OK) {
            return settle_failed(r, &err);
        }
        settled(r);
        break;
    case TDI_LETTERS_TX_UNDO:
        return undo(r);
    }
    return TDI_STEP_AGAIN;
}
