/*
 * Life of the object, and what comes first in a step.
 *
 *   what must be closed; the rollback that is due; leaving; the store's rungs; the lease;
 *   the job that is going on; then, one of:
 *   acks, settlements that are decided, the end of a window, the broker's rungs, results,
 *   parked rows that are due, the window, live messages, housekeeping, waiting for deliveries
 *
 * Invariant: at most one call of a driver a step (and the close that follows a failed open).
 */
#include "consumer/consumer.h"

#include <stdio.h>
#include <stdlib.h>

#include "consumer/internal.h"
#include "handler/registry.h"

#define BATCH_DEFAULT 256
#define PREFETCH_MAX 32768
#define PREFETCH_BYTES_DEFAULT ((size_t)16 << 20)
#define DAY_US (24 * 3600 * TD_SECOND_US)
#define SKEW_MAX_US (3600 * TD_SECOND_US)
#define CLOSE_US (5 * TD_SECOND_US) /* for workers to end when the object is freed */
#define PRUNE_MAX 256
#define PRUNE_EVERY_US (60 * TD_SECOND_US)
#define COUNTS_SHARE 20 /* counting takes at most a twentieth of the time */

/* ---- life ---- */

static void default_time(td_time_us *t, td_time_us value)
{
    *t = *t > 0 ? *t : value;
}

static void fill_defaults(struct tdi_consumer_options *o)
{
    bool outside = o->handler_driver->place == TD_HANDLER_OUTSIDE;
    o->prefetch = o->prefetch > 0 ? o->prefetch : BATCH_DEFAULT;
    o->prefetch = o->prefetch < PREFETCH_MAX ? o->prefetch : PREFETCH_MAX;
    o->prefetch_bytes = o->prefetch_bytes > 0 ? o->prefetch_bytes : PREFETCH_BYTES_DEFAULT;
    o->batch = o->batch > 0 ? o->batch : BATCH_DEFAULT;
    o->parked_max = o->parked_max > 0 ? o->parked_max : 1000000;
    default_time(&o->inbox_keep_us, 14 * DAY_US);
    td_time_us skew = o->inbox_keep_us / 10;
    default_time(&o->stale_after_us, o->inbox_keep_us - (skew < SKEW_MAX_US ? skew : SKEW_MAX_US));
    default_time(&o->parked_keep_us, 90 * DAY_US);
    default_time(&o->lease_ttl_us, 10 * TD_SECOND_US);
    default_time(&o->drain_us, 20 * TD_SECOND_US);
    default_time(&o->write_budget_us, 20 * TD_MILLISECOND_US);
    if (o->retry.attempts <= 0) {
        o->retry = tdi_retry_default();
    }
    if (o->breaker.window_us <= 0) {
        o->breaker = tdi_breaker_default();
    }
    if (outside) {
        default_time(&o->handler.timeout_us, 30 * TD_SECOND_US);
        td_time_us least = 2 * o->handler.timeout_us;
        o->lease_ttl_us = o->lease_ttl_us > least ? o->lease_ttl_us : least;
    }
}

static bool init_parts(struct tdi_consumer *c)
{
    enum tdi_gate_mode mode = c->o.order == TDI_ORDER_NONE ? TDI_GATE_NONE : TDI_GATE_BLOCK;
    size_t keys_max = (size_t)c->o.parked_max + 2 * c->o.prefetch + TDI_ROWS_MAX;
    size_t name_bytes = c->o.name.len + sizeof("consumer::0");
    c->seed[0] = tdi_random_u64(c->o.random);
    c->seed[1] = tdi_random_u64(c->o.random);
    tdi_arena_init(&c->scratch, 0);
    tdi_report_init(c);
    c->lease_name = malloc(name_bytes);
    bool ok = c->lease_name != NULL && tdi_hand_init(c) && tdi_tx_init(c) &&
              tdi_gate_init(&c->gate, mode, keys_max, c->o.prefetch + TDI_ROWS_MAX, c->seed);
    if (ok) {
        snprintf(c->lease_name, name_bytes, "consumer:%.*s:0", (int)c->o.name.len, c->o.name.data);
        tdi_breaker_init(&c->breaker, &c->o.breaker);
        c->prune_at = tdi_now(c) + PRUNE_EVERY_US;
    }
    return ok;
}

enum td_err tdi_consumer_new(const struct tdi_consumer_options *o,
                             struct tdi_consumer **ret_consumer, struct td_error *err)
{
    struct tdi_consumer *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for a consumer");
    }
    c->o = *o;
    fill_defaults(&c->o);
    c->outside = o->handler_driver->place == TD_HANDLER_OUTSIDE;
    pthread_mutex_init(&c->lock, NULL);
    enum td_err rc = init_parts(c)
                         ? tdi_handler_open(o->handler_driver, &c->o.handler, &c->handler, err)
                         : td_error_set(err, TD_ERR_NOMEM, "no memory for a consumer");
    if (rc != TD_OK) {
        tdi_consumer_free(c);
        return rc;
    }
    *ret_consumer = c;
    return TD_OK;
}

void tdi_consumer_free(struct tdi_consumer *c)
{
    if (c == NULL) {
        return;
    }
    tdi_handler_close(c->handler, tdi_now(c) + CLOSE_US);
    tdi_session_close_all(c);
    tdi_hand_release(c);
    tdi_gate_release(&c->gate);
    tdi_tx_release(c);
    tdi_report_release(c);
    tdi_arena_release(&c->scratch);
    free(c->lease_name);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- other threads ---- */

void tdi_consumer_stop(struct tdi_consumer *c)
{
    int before = atomic_fetch_add(&c->stops, 1);
    pthread_mutex_lock(&c->lock);
    if (c->broker != NULL) {
        c->o.broker_driver->interrupt(c->broker);
    }
    if (before > 0 && c->store != NULL) {
        c->o.store_driver->interrupt(c->store);
    }
    pthread_mutex_unlock(&c->lock);
}

void tdi_consumer_interrupt(struct tdi_consumer *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->broker != NULL) {
        c->o.broker_driver->interrupt(c->broker);
    }
    pthread_mutex_unlock(&c->lock);
}

void tdi_consumer_snapshot(struct tdi_consumer *c, struct tdi_consumer_snapshot *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = c->snapshot;
    pthread_mutex_unlock(&c->lock);
}

/* ---- a step ---- */

static enum tdi_step wait_until(td_time_us t, td_time_us *ret_wake)
{
    *ret_wake = t;
    return TDI_STEP_WAIT;
}

static td_time_us earlier(td_time_us a, td_time_us b)
{
    return a < b ? a : b;
}

/* Nothing else is done from now on. clean: give the lease back. */
static enum tdi_step leave(struct tdi_consumer *c, bool clean)
{
    c->leaving = true;
    c->leave_clean = clean;
    if (tdi_session_leave_step(c, clean)) {
        return TDI_STEP_AGAIN;
    }
    c->ended = true;
    return TDI_STEP_ENDED;
}

/* Start the settlements that are decided. */
static bool settle(struct tdi_consumer *c)
{
    if (c->decided_first == NULL) {
        return false;
    }
    tdi_tx_start(c, TDI_JOB_SETTLE, NULL);
    return true;
}

/* Everything with a store call waits; runs go on as long as the lease lasts. */
static enum tdi_step while_store_is_down(struct tdi_consumer *c, td_time_us now,
                                         td_time_us *ret_wake)
{
    if (c->drain_until != 0 && now >= c->drain_until) {
        return leave(c, false);
    }
    if (c->acks_count > 0 && c->subscribed && !c->lose_broker) {
        tdi_hand_ack(c);
        return TDI_STEP_AGAIN;
    }
    td_time_us until = c->store_retry_at;
    until = c->drain_until != 0 ? earlier(until, c->drain_until) : until;
    if (c->running == 0) {
        return wait_until(until, ret_wake);
    }
    if (now >= c->lease_until) {
        tdi_lose(c); /* nobody knows whose the shard is now: the runs end */
        return TDI_STEP_AGAIN;
    }
    until = earlier(until, c->lease_until);
    return tdi_outside_poll(c, until) > 0 ? TDI_STEP_AGAIN : wait_until(until, ret_wake);
}

static void job_step(struct tdi_consumer *c)
{
    switch (c->tx.job) {
    case TDI_JOB_NONE:
        break;
    case TDI_JOB_BATCH:
        tdi_batch_step(c);
        break;
    case TDI_JOB_SINGLES:
        tdi_singles_step(c);
        break;
    case TDI_JOB_SETTLE:
        tdi_settle_step(c);
        break;
    }
}

/* Nothing new is begun. What runs may end until the deadline; what was leased is given back. */
static enum tdi_step drain_step(struct tdi_consumer *c, td_time_us now, td_time_us *ret_wake)
{
    if (c->acks_count > 0 && c->subscribed) {
        tdi_hand_ack(c);
        return TDI_STEP_AGAIN;
    }
    bool late = now >= c->drain_until;
    if (!late) {
        tdi_parked_give_back(c, true);
    }
    if (settle(c)) {
        return TDI_STEP_AGAIN;
    }
    if (c->running == 0) {
        return leave(c, true);
    }
    if (late) {
        tdi_outside_cancel_one(c);
        return TDI_STEP_AGAIN;
    }
    td_time_us until = earlier(earlier(c->drain_until, c->renew_at), now + TDI_IDLE_MAX_US);
    return tdi_outside_poll(c, until) > 0 ? TDI_STEP_AGAIN : wait_until(until, ret_wake);
}

static bool count_rows(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    struct td_consumer_counts counts = {0};
    if (now < c->counts_at || (!c->counts_wanted && !tdi_paused(c))) {
        return false;
    }
    if (c->o.store_driver->counts(c->store, c->o.name, &counts, &err) != TD_OK) {
        tdi_store_failed(c, &err);
        return true;
    }
    td_time_us took = tdi_now(c) - now;
    td_time_us pause = took * COUNTS_SHARE;
    c->counts = counts;
    c->counts_wanted = false;
    c->counts_at = now + (pause > TDI_REPORT_EVERY_US ? pause : TDI_REPORT_EVERY_US);
    return true;
}

static bool prune(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    size_t removed = 0;
    if (now < c->prune_at) {
        return false;
    }
    c->prune_at = now + PRUNE_EVERY_US;
    if (c->o.store_driver->inbox_prune(c->store, c->o.name, c->o.inbox_keep_us, c->o.parked_keep_us,
                                       PRUNE_MAX, &removed, &err) != TD_OK) {
        tdi_store_failed(c, &err);
    } else if (removed == PRUNE_MAX) {
        c->prune_at = now + TD_SECOND_US / 2;
    }
    return true;
}

/* Live messages, inside: a batch, or one alone. false: none may run now. */
static bool live_inside(struct tdi_consumer *c, td_time_us now)
{
    const struct tdi_work *w = c->hand.first;
    if (w == NULL || now < c->live_at) {
        return false;
    }
    size_t allowed = tdi_breaker_allows(&c->breaker, now);
    if (w->fault.data != NULL || allowed == 1) {
        tdi_singles_start(c, &c->hand, 1, true);
    } else if (allowed > 1 && tdi_batch_may(c)) {
        tdi_tx_start(c, TDI_JOB_BATCH, &c->hand);
    } else {
        return false;
    }
    return true;
}

/* Leased rows that an outage of the store left in hand. */
static bool rows_inside(struct tdi_consumer *c)
{
    if (c->outside || c->rows.count == 0) {
        return false;
    }
    tdi_singles_start(c, &c->rows, c->rows.count, false);
    return true;
}

static bool live(struct tdi_consumer *c, td_time_us now)
{
    bool did = c->outside ? tdi_outside_look(c) || tdi_outside_start(c, now) : live_inside(c, now);
    c->parked_turn = c->parked_turn || did;
    return did;
}

static size_t may_fetch(struct tdi_consumer *c, td_time_us now)
{
    if (!c->subscribed || tdi_paused(c) || !tdi_hand_may_fetch(c) ||
        (!c->outside && c->hand.count > 0)) {
        return 0;
    }
    size_t allowed = tdi_breaker_allows(&c->breaker, now);
    return allowed == 1 && c->hand.count + c->rows.count > 0 ? 0 : allowed;
}

/* Nothing to do but to wait, for deliveries, results, or the next timer. */
static enum tdi_step idle(struct tdi_consumer *c, td_time_us now, td_time_us *ret_wake)
{
    td_time_us until = earlier(now + TDI_IDLE_MAX_US, earlier(c->renew_at, c->prune_at));
    until = c->breaker.state == TDI_BREAKER_OPEN ? earlier(until, c->breaker.probe_at) : until;
    until = tdi_parked_room(c, now) > 0 ? earlier(until, c->parked_at) : until;
    until = c->counts_wanted || tdi_paused(c) ? earlier(until, c->counts_at) : until;
    until = c->subscribed ? until : earlier(until, c->broker_retry_at);
    until = c->hand.count > 0 && c->live_at > now ? earlier(until, c->live_at) : until;
    until = c->outside ? earlier(until, tdi_outside_ready_at(c, now)) : until;
    until = until > now ? until : now;

    size_t most = may_fetch(c, now);
    c->parked_turn = c->parked_turn || most == 0;
    if (c->running > 0 && (most == 0 || !c->fetch_turn)) {
        until = most > 0 ? earlier(until, now + TDI_POLL_BUSY_US) : until;
        c->fetch_turn = true;
        return tdi_outside_poll(c, until) > 0 ? TDI_STEP_AGAIN : wait_until(until, ret_wake);
    }
    if (most == 0) {
        return wait_until(until, ret_wake);
    }
    c->fetch_turn = false;
    td_time_us deadline = c->running > 0 ? now : until;
    c->interrupted = false;
    size_t count = tdi_hand_fetch(c, most, deadline);
    c->parked_turn = c->parked_turn || count == 0;
    bool more = count > 0 || c->running > 0 || c->lose_broker || c->interrupted;
    return more ? TDI_STEP_AGAIN : wait_until(deadline, ret_wake);
}

static enum tdi_step work_step(struct tdi_consumer *c, td_time_us now, td_time_us *ret_wake)
{
    if (c->acks_count > 0 && c->subscribed) {
        tdi_hand_ack(c);
        return TDI_STEP_AGAIN;
    }
    tdi_parked_give_back(c, false);
    if (settle(c)) {
        return TDI_STEP_AGAIN;
    }
    if (tdi_window_done(c)) {
        tdi_session_clear_unclean(c);
        return TDI_STEP_AGAIN;
    }
    if (count_rows(c, now) || tdi_session_broker_step(c, now)) {
        return TDI_STEP_AGAIN;
    }
    if (c->running > 0 && c->poll_turn) {
        c->poll_turn = false;
        tdi_outside_poll(c, now);
        return TDI_STEP_AGAIN;
    }
    if (rows_inside(c) || tdi_parked_lease(c, now) || tdi_window_decide(c) > 0 || live(c, now) ||
        prune(c, now)) {
        c->poll_turn = true;
        return TDI_STEP_AGAIN;
    }
    return idle(c, now, ret_wake);
}

static enum tdi_step step(struct tdi_consumer *c, td_time_us now, td_time_us *ret_wake)
{
    int stops = atomic_load(&c->stops);
    if (c->ended) {
        return TDI_STEP_ENDED;
    }
    if (stops > 1 || c->leaving) {
        return leave(c, stops == 1 && c->leave_clean);
    }
    if (tdi_session_close_step(c)) {
        return TDI_STEP_AGAIN;
    }
    if (c->tx.rollback) {
        tdi_tx_rollback_step(c);
        return TDI_STEP_AGAIN;
    }
    if (stops > 0 && c->drain_until == 0) {
        c->drain_until = now + c->o.drain_us;
    }
    if (stops > 0 && !c->keys_read) {
        return leave(c, c->leased);
    }
    if (!c->tx.open && now < c->store_retry_at) {
        return while_store_is_down(c, now, ret_wake);
    }
    if (tdi_session_store_step(c, now)) {
        return TDI_STEP_AGAIN;
    }
    if (!c->tx.open && now >= c->renew_at && tdi_session_renew(c, now)) {
        return TDI_STEP_AGAIN;
    }
    if (c->tx.job != TDI_JOB_NONE) {
        job_step(c);
        return TDI_STEP_AGAIN;
    }
    return stops > 0 ? drain_step(c, now, ret_wake) : work_step(c, now, ret_wake);
}

enum tdi_step tdi_consumer_step(struct tdi_consumer *c, td_time_us *ret_wake)
{
    td_time_us now = tdi_now(c);
    *ret_wake = now;
    enum tdi_step result = step(c, now, ret_wake);
    tdi_report_publish(c);
    return result;
}
