/*
 * Life of a relay, its step, and the way from a closed store to a held lease:
 *
 *   OPEN -> DECLARE -> LEASE -> (HALTED ->) POSITION -> STATS -> RUN -> RELEASE -> LEAVE -> ENDED
 *
 * Whatever fails leads back to OPEN (the session is gone) or LEASE (somebody else is the owner),
 * see session.c; a stop leads to RELEASE or LEAVE.
 */
#include "relay/relay.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "relay/internal.h"

/* ---- making and freeing ----------------------------------------------------------------- */

static void take_options(struct tdi_relay *r, const struct tdi_relay_options *o)
{
    r->o = *o;
    r->o.broker.role = TD_BROKER_PUBLISH;
    r->o.store.lock_wait_us =
        o->store.lock_wait_us > 0 ? o->store.lock_wait_us : TDI_RELAY_LOCK_WAIT_US;
    r->o.lease_ttl_us = o->lease_ttl_us > 0 ? o->lease_ttl_us : TDI_RELAY_LEASE_TTL_US;
    r->o.position_interval_us =
        o->position_interval_us > 0 ? o->position_interval_us : TDI_RELAY_POSITION_INTERVAL_US;
    r->o.poll_us = o->poll_us > 0 ? o->poll_us : TDI_RELAY_POLL_US;
    r->o.confirm_timeout_us =
        o->confirm_timeout_us > 0 ? o->confirm_timeout_us : TDI_RELAY_CONFIRM_TIMEOUT_US;
    r->o.drain_us = o->drain_us > 0 ? o->drain_us : TDI_RELAY_DRAIN_US;
    r->o.window_rows = o->window_rows > 0 ? o->window_rows : TDI_RELAY_WINDOW_ROWS;
    r->o.read_rows = o->read_rows > 0 ? o->read_rows : TDI_RELAY_READ_ROWS;
    r->o.read_bytes = o->read_bytes > 0 ? o->read_bytes : TDI_RELAY_READ_BYTES;
}

static bool make_parts(struct tdi_relay *r)
{
    bool ordered = (r->o.broker_driver->caps & TD_BROKER_ORDERED_PIPELINE) != 0;
    const uint64_t seed[2] = {tdi_random_u64(r->o.random), tdi_random_u64(r->o.random)};

    for (size_t i = 0; i < TDI_RELAY_BATCHES_MAX; i++) {
        tdi_arena_init(&r->batches[i].arena, 0);
    }
    tdi_relay_letters_init(r);
    tdi_buf_init(&r->report, TDI_RELAY_REPORT_BYTES_MAX);
    tdi_buf_init(&r->reported, TDI_RELAY_REPORT_BYTES_MAX);
    tdi_buf_init(&r->read_data, TD_POSITION_BYTES_MAX);
    r->slots = calloc(r->o.window_rows, sizeof(*r->slots));
    return r->slots != NULL && tdi_window_init(&r->window, r->o.window_rows, ordered, seed);
}

enum td_err tdi_relay_new(const struct tdi_relay_options *o, struct tdi_relay **ret_relay,
                          struct td_error *err)
{
    if (tdi_str_empty(o->name) || o->name.len > TD_TYPE_BYTES_MAX || o->catalogue == NULL ||
        o->store_driver == NULL || o->broker_driver == NULL || o->random == NULL ||
        o->window_rows > TDI_WINDOW_ROWS_MAX) {
        return td_error_set(err, TD_ERR_USAGE, "options of a relay are missing or out of range");
    }
    struct tdi_relay *r = calloc(1, sizeof(*r));
    if (r == NULL || pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        return td_error_set(err, TD_ERR_NOMEM, "no memory for a relay");
    }
    take_options(r, o);
    if (!make_parts(r)) {
        tdi_relay_free(r);
        return td_error_set(err, TD_ERR_NOMEM, "no memory for the window of a relay");
    }
    r->store_retry_at = INT64_MIN;
    r->write_at = INT64_MIN;
    r->busy_since = TD_TIME_NONE;
    r->broker_retry_at = INT64_MIN;
    r->pending_counted = -1;
    r->oldest_counted_us = TD_TIME_NONE;
    r->front_stale = true;
    r->state_logged = TDI_RELAY_WAITING;
    tdi_relay_publish_state(r);
    *ret_relay = r;
    return TD_OK;
}

void tdi_relay_free(struct tdi_relay *r)
{
    if (r == NULL) {
        return;
    }
    if (r->broker != NULL) {
        tdi_relay_broker_close(r); /* before the rows that it may point to */
    }
    tdi_relay_store_close(r);
    tdi_window_release(&r->window);
    for (size_t i = 0; i < TDI_RELAY_BATCHES_MAX; i++) {
        tdi_arena_release(&r->batches[i].arena);
    }
    tdi_arena_release(&r->letters.arena);
    tdi_buf_release(&r->report);
    tdi_buf_release(&r->reported);
    tdi_buf_release(&r->read_data);
    free(r->slots);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- what is in hand -------------------------------------------------------------------- */

void tdi_relay_release_rows(struct tdi_relay *r)
{
    while (r->batches_count > 0 && r->batches[r->batches_first].end <= r->window.first) {
        tdi_arena_reset(&r->batches[r->batches_first].arena);
        r->batches_first = (r->batches_first + 1) % TDI_RELAY_BATCHES_MAX;
        r->batches_count--;
    }
}

void tdi_relay_forget(struct tdi_relay *r)
{
    tdi_window_clear(&r->window);
    tdi_relay_letters_forget(r);
    tdi_relay_release_rows(r);
    r->front_stale = true;
    r->undurable = false;
    r->forget = false;
}

void tdi_relay_set_position(struct tdi_relay *r, struct tdi_buf *take_data, int64_t order)
{
    tdi_buf_release(&r->read_data);
    r->read_data = *take_data;
    r->read_position = (struct td_position){{r->read_data.data, r->read_data.len}, order};
}

/* ---- to the lease ----------------------------------------------------------------------- */

static enum tdi_step open_store(struct tdi_relay *r)
{
    struct td_error err;

    if (tdi_relay_store_open(r, &err) != TD_OK) {
        return tdi_relay_store_failed(r, &err);
    }
    r->phase = TDI_PHASE_DECLARE;
    return TDI_STEP_AGAIN;
}

static enum tdi_step declare(struct tdi_relay *r)
{
    struct td_error err;

    if (r->store->driver->relay_declare(r->store, r->o.name, &err) != TD_OK) {
        return tdi_relay_store_failed(r, &err);
    }
    r->phase = TDI_PHASE_LEASE;
    return TDI_STEP_AGAIN;
}

static enum tdi_step take_lease(struct tdi_relay *r)
{
    struct td_lease lease = {.fence = 0};
    struct td_error err;
    td_time_us asked = tdi_mono(&r->o.clock);

    enum td_err e =
        r->store->driver->lease_take(r->store, r->o.name, r->o.lease_ttl_us, &lease, &err);
    if (e != TD_OK) {
        r->owner_pid = lease.owner_pid;
        return tdi_relay_store_failed(r, &err);
    }
    r->standby = false;
    r->owner_pid = 0;
    r->fence = lease.fence;
    r->lease_until = asked + r->o.lease_ttl_us;
    r->renew_at = asked + r->o.lease_ttl_us / 3;
    r->report_at = asked;
    tdi_buf_clear(&r->reported);
    r->phase = r->halted && asked < r->look_at ? TDI_PHASE_HALTED : TDI_PHASE_POSITION;
    return TDI_STEP_AGAIN;
}

/* Others see at the lease row why it does not go on. Who mends the position takes the lease away
 * (relay_rebase), and the next renewal says so. */
static enum tdi_step stay_halted(struct tdi_relay *r, td_time_us now, td_time_us *ret_wake)
{
    if (now >= r->report_at) {
        tdi_relay_report(r, now);
        return tdi_relay_renew(r);
    }
    if (now >= r->look_at) {
        r->phase = TDI_PHASE_POSITION;
        return TDI_STEP_AGAIN;
    }
    *ret_wake = tdi_earlier(r->report_at, r->look_at);
    return TDI_STEP_WAIT;
}

static enum tdi_step load_position(struct tdi_relay *r)
{
    struct tdi_arena a;
    struct tdi_buf data;
    struct td_position p;
    struct td_error err;

    tdi_arena_init(&a, 2 * TD_POSITION_BYTES_MAX);
    tdi_buf_init(&data, TD_POSITION_BYTES_MAX);
    enum td_err e = r->store->driver->relay_position(r->store, r->o.name, &a, &p, &err);
    if (e == TD_OK) {
        tdi_buf_add(&data, p.data.data, p.data.len);
        e = data.failed ? td_error_set(&err, TD_ERR_NOMEM, "no memory for the relay's position")
                        : TD_OK;
    }
    tdi_arena_release(&a);
    if (e != TD_OK) {
        tdi_buf_release(&data);
        return tdi_relay_store_failed(r, &err);
    }
    tdi_relay_set_position(r, &data, p.order);
    r->position_order = p.order;
    r->phase = TDI_PHASE_STATS;
    return TDI_STEP_AGAIN;
}

/* The totals since init are kept by the store: others may have published meanwhile. */
static enum tdi_step load_stats(struct tdi_relay *r)
{
    struct td_relay_stats stats;
    struct td_error err;
    td_time_us now = tdi_mono(&r->o.clock);

    if (r->store->driver->relay_stats(r->store, r->o.name, &stats, &err) != TD_OK) {
        return tdi_relay_store_failed(r, &err);
    }
    tdi_relay_store_worked(r);
    r->published_total = stats.published_total;
    r->rate_total = stats.published_total;
    r->rate_at = now;
    r->pending_counted = stats.pending;
    r->oldest_counted_us = stats.oldest_pending_us;
    r->read_once = false;
    r->caught_up = false;
    r->read_at = now;
    r->read_gap_us = TDI_RELAY_READ_GAP_US;
    r->purge_at = now + TDI_RELAY_READ_GAP_US;
    r->stats_at = now + TDI_RELAY_STATS_US;
    r->settled_at = now - r->o.position_interval_us;
    r->submit_at = INT64_MIN;
    r->refusals = 0;
    r->phase = TDI_PHASE_RUN;
    return TDI_STEP_AGAIN;
}

static enum tdi_step release(struct tdi_relay *r)
{
    struct td_error err;

    if (r->store->driver->lease_release(r->store, r->o.name, r->fence, &err) != TD_OK) {
        tdi_relay_remember(r, &err);
    }
    r->fence = 0;
    r->phase = TDI_PHASE_LEAVE;
    return TDI_STEP_AGAIN;
}

static enum tdi_step leave(struct tdi_relay *r)
{
    if (r->broker == NULL && r->store == NULL) {
        r->phase = TDI_PHASE_ENDED;
        return TDI_STEP_ENDED;
    }
    r->broker_close = r->broker != NULL;
    r->store_close = r->store != NULL;
    return TDI_STEP_AGAIN;
}

/* ---- the step --------------------------------------------------------------------------- */

static void obey_stop(struct tdi_relay *r, td_time_us now)
{
    int calls = atomic_load(&r->stop_calls);

    if (calls == 0 || r->phase >= TDI_PHASE_LEAVE) {
        return;
    }
    if (!r->stopping) {
        r->stopping = true;
        r->drain_until = now + r->o.drain_us;
    }
    if (calls > 1) {
        r->phase = TDI_PHASE_LEAVE;
    } else if (r->phase < TDI_PHASE_RUN) {
        r->phase = r->fence > 0 ? TDI_PHASE_RELEASE : TDI_PHASE_LEAVE;
    }
}

static enum tdi_step on_the_way(struct tdi_relay *r, td_time_us now, td_time_us *ret_wake)
{
    if (now < r->store_retry_at) {
        *ret_wake = r->store_retry_at;
        return TDI_STEP_WAIT;
    }
    switch (r->phase) {
    case TDI_PHASE_OPEN:
        return open_store(r);
    case TDI_PHASE_DECLARE:
        return declare(r);
    case TDI_PHASE_LEASE:
        return take_lease(r);
    case TDI_PHASE_POSITION:
        return load_position(r);
    case TDI_PHASE_HALTED:
    case TDI_PHASE_STATS:
    case TDI_PHASE_RUN:
    case TDI_PHASE_RELEASE:
    case TDI_PHASE_LEAVE:
    case TDI_PHASE_ENDED:
        break;
    }
    return load_stats(r);
}

/* Closing comes first: the broker, then what its session may have pointed to, then the store. */
static bool clear_away(struct tdi_relay *r)
{
    if (r->broker_close) {
        tdi_relay_broker_close(r);
        return true;
    }
    if (r->forget) {
        tdi_relay_forget(r);
    }
    if (r->store_close) {
        tdi_relay_store_close(r);
        return true;
    }
    return false;
}

static enum tdi_step next(struct tdi_relay *r, td_time_us *ret_wake)
{
    td_time_us now = tdi_mono(&r->o.clock);

    obey_stop(r, now);
    if (clear_away(r)) {
        return TDI_STEP_AGAIN;
    }
    switch (r->phase) {
    case TDI_PHASE_OPEN:
    case TDI_PHASE_DECLARE:
    case TDI_PHASE_LEASE:
    case TDI_PHASE_POSITION:
    case TDI_PHASE_STATS:
        return on_the_way(r, now, ret_wake);
    case TDI_PHASE_HALTED:
        return stay_halted(r, now, ret_wake);
    case TDI_PHASE_RUN:
        return tdi_relay_run(r, now, ret_wake);
    case TDI_PHASE_RELEASE:
        return release(r);
    case TDI_PHASE_LEAVE:
        return leave(r);
    case TDI_PHASE_ENDED:
        break;
    }
    return TDI_STEP_ENDED;
}

enum tdi_step tdi_relay_step(struct tdi_relay *r, td_time_us *ret_wake)
{
    enum tdi_step step = next(r, ret_wake);
    tdi_relay_publish_state(r);
    return step;
}

/* ---- from other threads ----------------------------------------------------------------- */

void tdi_relay_stop(struct tdi_relay *r)
{
    atomic_fetch_add(&r->stop_calls, 1);
    tdi_relay_interrupt(r);
}

void tdi_relay_interrupt(struct tdi_relay *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->store != NULL) {
        r->store->driver->interrupt(r->store);
    }
    if (r->broker != NULL) {
        r->broker->driver->interrupt(r->broker);
    }
    pthread_mutex_unlock(&r->lock);
}

void tdi_relay_snapshot(struct tdi_relay *r, struct tdi_relay_snapshot *ret)
{
    pthread_mutex_lock(&r->lock);
    *ret = r->snapshot;
    pthread_mutex_unlock(&r->lock);
}
