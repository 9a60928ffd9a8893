/*
 * What to do next while the lease is held. One function decides, in order of urgency; the leaves
 * make the driver call.
 *
 * Nothing here waits for one thing only: each blocking call is made until the next moment at which
 * something else is due, and never longer than TDI_RELAY_BLOCK_US.
 */
#include "relay/internal.h"

/* ---- lease ------------------------------------------------------------------------------ */

enum tdi_step tdi_relay_renew(struct tdi_relay *r)
{
    struct td_error err;
    td_time_us asked = tdi_mono(&r->o.clock);

    enum td_err e = r->store->driver->lease_renew(r->store, r->o.name, r->fence, r->o.lease_ttl_us,
                                                  tdi_buf_str(&r->report), &err);
    if (e != TD_OK && tdi_relay_lock_missed(r, &err)) {
        r->report_at = asked + TDI_RELAY_REPORT_US / 10;
        return TDI_STEP_AGAIN;
    }
    if (e != TD_OK) {
        td_time_us others = r->store_retry_at;
        enum tdi_step step = tdi_relay_store_failed(r, &err);
        r->renew_at = tdi_later(r->store_retry_at, asked);
        r->renew_at = tdi_earlier(r->renew_at, asked + r->o.lease_ttl_us / 6);
        r->report_at = r->renew_at;
        if (err.class_ == TD_CLASS_RETRY && r->fence > 0) {
            r->store_retry_at = others; /* the lease still holds: go on with the rest */
        }
        return step;
    }
    tdi_relay_wrote(r);
    r->lease_until = asked + r->o.lease_ttl_us;
    r->renew_at = asked + r->o.lease_ttl_us / 3;
    r->report_at = asked + TDI_RELAY_REPORT_US;
    tdi_buf_clear(&r->reported);
    tdi_buf_add_str(&r->reported, tdi_buf_str(&r->report));
    return TDI_STEP_AGAIN;
}

static bool renew_due(struct tdi_relay *r, td_time_us now)
{
    if (now < r->write_at || (now < r->renew_at && now < r->report_at)) {
        return false;
    }
    bool news = tdi_relay_report(r, now);
    r->report_at = now + TDI_RELAY_REPORT_US;
    return news || now >= r->renew_at;
}

/* ---- what is due ------------------------------------------------------------------------ */

static bool window_is_stuck(struct tdi_relay *r)
{
    return r->window.submitted == 0 && !tdi_relay_read_allowed(r) && !tdi_relay_submit_wanted(r);
}

/* Few position writes, but at once when somebody waits for one: rows behind a dead one, or the
 * reader for room. */
static td_time_us settle_at(struct tdi_relay *r)
{
    const struct tdi_window_front *f = tdi_relay_front(r);

    if (f->rows == 0) {
        return INT64_MAX;
    }
    if (f->dead > 0 || r->stopping || window_is_stuck(r)) {
        return r->write_at;
    }
    return tdi_later(r->settled_at + r->o.position_interval_us, r->write_at);
}

static td_time_us stats_at(const struct tdi_relay *r)
{
    bool known = r->caught_up && r->broker != NULL;

    return known || r->stopping ? INT64_MAX : r->stats_at;
}

static td_time_us read_at(const struct tdi_relay *r)
{
    return tdi_relay_read_allowed(r) && !r->stopping ? r->read_at : INT64_MAX;
}

static td_time_us purge_at(const struct tdi_relay *r)
{
    return r->o.keep_us == TD_TIME_NONE || r->stopping ? INT64_MAX
                                                       : tdi_later(r->purge_at, r->write_at);
}

static td_time_us submit_at(struct tdi_relay *r)
{
    return tdi_relay_submit_wanted(r) ? r->submit_at : INT64_MAX;
}

static bool in_flight(const struct tdi_relay *r)
{
    return r->broker != NULL && r->window.submitted + r->letters.submitted > 0;
}

static td_time_us letters_submit_at(const struct tdi_relay *r)
{
    return tdi_relay_letters_submit_wanted(r) ? r->submit_at : INT64_MAX;
}

static td_time_us letters_settle_at(const struct tdi_relay *r)
{
    return tdi_relay_letters_decided(r) ? INT64_MIN : INT64_MAX;
}

static td_time_us confirm_at(const struct tdi_relay *r)
{
    bool waiting = in_flight(r) && !r->stopping; /* drain_until ends a drain */

    return waiting ? r->progress_at + r->o.confirm_timeout_us : INT64_MAX;
}

static td_time_us open_at(const struct tdi_relay *r)
{
    return r->broker == NULL && !r->stopping ? r->broker_retry_at : INT64_MAX;
}

/* The next moment at which this loop has something to do by itself. */
static td_time_us next_at(struct tdi_relay *r, td_time_us now)
{
    td_time_us store = tdi_earlier(settle_at(r), tdi_earlier(stats_at(r), purge_at(r)));
    store = tdi_earlier(store, r->undurable ? INT64_MIN : read_at(r));
    store = tdi_earlier(store, tdi_earlier(letters_settle_at(r), tdi_relay_letters_at(r)));
    store = tdi_later(store, r->store_retry_at);

    td_time_us at = tdi_later(tdi_earlier(r->renew_at, r->report_at), r->write_at);
    at = tdi_earlier(at, tdi_earlier(open_at(r), submit_at(r)));
    at = tdi_earlier(at, tdi_earlier(confirm_at(r), letters_submit_at(r)));
    at = tdi_earlier(at, store);
    return tdi_earlier(at, now + TDI_RELAY_BLOCK_US);
}

/* ---- leaves ----------------------------------------------------------------------------- */

static enum tdi_step open_broker(struct tdi_relay *r)
{
    struct td_error err;

    if (tdi_relay_broker_open(r, &err) != TD_OK) {
        return tdi_relay_broker_failed(r, &err);
    }
    if (tdi_window_count(&r->window) == 0) {
        r->broker_failures = 0; /* else the first accepted row says that it works */
    }
    return TDI_STEP_AGAIN;
}

static enum tdi_step no_answer(struct tdi_relay *r)
{
    struct td_error err = {.code = TD_OK};

    td_error_set(&err, TD_ERR_OUTCOME_UNKNOWN,
                 "the broker has not answered for too long; a new session is opened");
    return tdi_relay_broker_failed(r, &err);
}

static enum tdi_step wait_for_rows(struct tdi_relay *r, td_time_us until)
{
    struct td_error err;
    bool woken = false;

    if (r->store->driver->wait(r->store, until, &woken, &err) != TD_OK) {
        return tdi_relay_store_failed(r, &err);
    }
    if (woken) {
        r->read_at = tdi_mono(&r->o.clock);
        r->read_gap_us = TDI_RELAY_READ_GAP_US;
    }
    return TDI_STEP_AGAIN;
}

static enum tdi_step wait_until(td_time_us at, td_time_us *ret_wake)
{
    *ret_wake = at;
    return TDI_STEP_WAIT;
}

/* ---- the decision ----------------------------------------------------------------------- */

/* Stopping: answers of what is in flight, position, end. */
static enum tdi_step drain(struct tdi_relay *r, td_time_us now, td_time_us *ret_wake)
{
    tdi_relay_letters_give_back(r);
    bool letters = tdi_relay_letters_decided(r);
    td_time_us settle = letters ? INT64_MIN : settle_at(r); /* INT64_MAX: nothing to settle */
    settle = tdi_later(settle, r->store_retry_at);

    if (now < r->drain_until && settle <= now) {
        return letters ? tdi_relay_letters_settle(r) : tdi_relay_settle(r, now);
    }
    if (now < r->drain_until && in_flight(r)) {
        return tdi_relay_collect(r, tdi_earlier(r->drain_until, next_at(r, now)));
    }
    if (now < r->drain_until && settle < INT64_MAX) {
        return wait_until(tdi_earlier(r->drain_until, settle), ret_wake);
    }
    r->phase = TDI_PHASE_RELEASE;
    return TDI_STEP_AGAIN;
}

/* An ordered pipeline that was broken, and has answered for all that came before the break. */
static bool session_is_used_up(const struct tdi_relay *r)
{
    return r->broker != NULL && !in_flight(r) && (r->window.broken || r->letters.broken);
}

static enum tdi_step work_on_store(struct tdi_relay *r, td_time_us now, bool *ret_done)
{
    *ret_done = true;
    if (r->undurable) {
        return tdi_relay_durable(r);
    }
    if (settle_at(r) <= now) {
        return tdi_relay_settle(r, now);
    }
    if (letters_settle_at(r) <= now) {
        return tdi_relay_letters_settle(r);
    }
    if (submit_at(r) > now) { /* else the broker first: it works while we read */
        if (stats_at(r) <= now) {
            return tdi_relay_stats(r, now);
        }
        if (purge_at(r) <= now) {
            return tdi_relay_purge(r, now);
        }
        if (tdi_relay_letters_at(r) <= now) {
            return tdi_relay_letters_lease(r, now);
        }
        if (read_at(r) <= now) {
            return tdi_relay_read(r, now);
        }
    }
    *ret_done = false;
    return TDI_STEP_AGAIN;
}

enum tdi_step tdi_relay_run(struct tdi_relay *r, td_time_us now, td_time_us *ret_wake)
{
    bool done = false;

    if (r->letters.tx != TDI_LETTERS_TX_NONE) {
        return tdi_relay_letters_settle(r); /* no other slot may be called meanwhile */
    }
    if (renew_due(r, now)) {
        return tdi_relay_renew(r);
    }
    if (now >= r->lease_until) {
        if (r->stopping) {
            r->phase = TDI_PHASE_RELEASE;
            return TDI_STEP_AGAIN;
        }
        return wait_until(tdi_later(r->renew_at, r->write_at), ret_wake);
    }
    if (r->stopping) {
        return drain(r, now, ret_wake);
    }
    if (session_is_used_up(r)) {
        r->broker_close = true;
        return TDI_STEP_AGAIN;
    }
    if (confirm_at(r) <= now) {
        return no_answer(r);
    }
    if (now >= r->store_retry_at) {
        enum tdi_step step = work_on_store(r, now, &done);
        if (done) {
            return step;
        }
    }
    if (open_at(r) <= now) {
        return open_broker(r);
    }
    if (letters_submit_at(r) <= now) {
        return tdi_relay_letters_submit(r, now);
    }
    if (submit_at(r) <= now) {
        return tdi_relay_submit(r, now);
    }
    td_time_us until = next_at(r, now);
    if (in_flight(r)) {
        return tdi_relay_collect(r, until);
    }
    if (r->store->driver->wait != NULL && r->broker != NULL && now >= r->store_retry_at) {
        return wait_for_rows(r, until);
    }
    return wait_until(until, ret_wake);
}
