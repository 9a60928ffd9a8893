/*
 * Sessions of store and broker, the lease, and what an error means.
 *
 * The way to work is a ladder, one rung a step:
 *   store open -> handler prepared -> lease -> totals -> clock -> blocked keys   (store)
 *   -> broker open -> subscribed                                                 (broker)
 * The embedded broker assigns no shards, so the lease comes first. Where a broker assigns them
 * (TD_BROKER_SHARDS) the lease would follow the assignment: between subscribe and the keys.
 *
 * Invariants: a session that answered UNKNOWN or FATAL, or a newer fence, is closed with everything
 * that was in hand; the lease is then taken anew, which waits for a transaction whose COMMIT was not
 * answered, and the blocked keys are loaded after it.
 */
#include "base/str.h"
#include "broker/registry.h"
#include "consumer/internal.h"
#include "store/registry.h"

#define STANDBY_US TD_SECOND_US
#define CLOCK_EVERY_US (60 * TD_SECOND_US)

/* ---- errors ---- */

void tdi_lose(struct tdi_consumer *c)
{
    c->lose = true;
}

static td_time_us failed_until(struct tdi_consumer *c, const struct td_error *err, int failures)
{
    td_time_us wait = tdi_backoff(failures, c->o.random);
    return tdi_now(c) + (err->retry_after_us > wait ? err->retry_after_us : wait);
}

void tdi_store_failed(struct tdi_consumer *c, const struct td_error *err)
{
    if (err->code == TD_ERR_INTERRUPTED) {
        return;
    }
    tdi_report_error(c, err);
    if (err->code == TD_ERR_FENCED) {
        tdi_lose(c);
        return;
    }
    switch (err->class_) {
    case TD_CLASS_UNKNOWN:
    case TD_CLASS_FATAL:
        tdi_lose(c);
        break;
    case TD_CLASS_RETRY:
    case TD_CLASS_PERMANENT:
        break;
    }
    c->store_failures += c->store_failures < INT16_MAX ? 1 : 0;
    c->store_retry_at = failed_until(c, err, c->store_failures);
}

void tdi_store_worked(struct tdi_consumer *c)
{
    c->store_failures = 0;
}

void tdi_broker_failed(struct tdi_consumer *c, const struct td_error *err)
{
    if (err->code == TD_ERR_INTERRUPTED) {
        c->interrupted = true;
        return;
    }
    tdi_report_error(c, err);
    c->lose_broker = true;
    c->broker_failures += c->broker_failures < INT16_MAX ? 1 : 0;
    c->broker_retry_at = failed_until(c, err, c->broker_failures);
}

void tdi_broker_worked(struct tdi_consumer *c)
{
    c->broker_failures = 0;
}

/* ---- closing ---- */

static void set_store(struct tdi_consumer *c, struct td_store *s)
{
    pthread_mutex_lock(&c->lock);
    c->store = s;
    pthread_mutex_unlock(&c->lock);
}

static void set_broker(struct tdi_consumer *c, struct td_broker *b)
{
    pthread_mutex_lock(&c->lock);
    c->broker = b;
    pthread_mutex_unlock(&c->lock);
}

static void close_store(struct tdi_consumer *c)
{
    struct td_store *s = c->store;
    set_store(c, NULL);
    tdi_store_close(s);
    c->tx.open = false;
    c->tx.rollback = false;
    c->prepared = false;
}

static void close_broker(struct tdi_consumer *c)
{
    struct td_broker *b = c->broker;
    set_broker(c, NULL);
    tdi_broker_close(b);
    c->subscribed = false;
    c->broker_session++;
}

/* Everything is closed and nothing runs: begin anew at the first rung. */
static void begin_anew(struct tdi_consumer *c)
{
    tdi_tx_end(c);
    tdi_hand_forget(c);
    c->lose = false;
    c->lose_broker = false;
    c->leased = false;
    c->totals_read = false;
    c->clock_read = false;
    c->keys_read = false;
    c->suspect = c->suspect || c->window;
    c->window = false;
    c->slots_taken = false;
}

bool tdi_session_close_step(struct tdi_consumer *c)
{
    if (c->lose) {
        if (tdi_outside_cancel_one(c)) {
            return true;
        }
        if (c->broker != NULL) {
            close_broker(c);
            return true;
        }
        close_store(c);
        begin_anew(c);
        return true;
    }
    if (c->lose_broker && c->tx.job == TDI_JOB_NONE) {
        close_broker(c);
        tdi_hand_forget_live(c);
        c->lose_broker = false;
        return true;
    }
    return false;
}

void tdi_session_close_all(struct tdi_consumer *c)
{
    close_broker(c);
    close_store(c);
}

/* ---- the store's rungs ---- */

static void open_store(struct tdi_consumer *c)
{
    struct td_error err = {0};
    struct td_store *s = NULL;
    if (tdi_store_open(c->o.store_driver, &c->o.store, &s, &err) == TD_OK) {
        set_store(c, s);
    } else {
        err.class_ = TD_CLASS_RETRY; /* nothing is in hand that could be lost */
        tdi_store_failed(c, &err);
    }
}

static void take_lease(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    enum td_err rc = c->o.store_driver->lease_take(c->store, tdi_str(c->lease_name),
                                                   c->o.lease_ttl_us, &c->lease, &err);
    c->owned = rc != TD_OK && err.code == TD_ERR_OWNED;
    if (c->owned) {
        tdi_store_worked(c);
        td_time_us wait = c->o.lease_ttl_us / 3;
        c->store_retry_at = now + (wait < STANDBY_US ? wait : STANDBY_US);
        return;
    }
    if (rc != TD_OK) {
        tdi_store_failed(c, &err);
        return;
    }
    c->leased = true;
    c->lease_until = now + c->o.lease_ttl_us;
    c->renew_must_at = now + c->o.lease_ttl_us / 3;
    c->renew_at = now + TDI_REPORT_EVERY_US;
    c->renew_at = c->renew_at < c->renew_must_at ? c->renew_at : c->renew_must_at;
    c->window = c->lease.unclean || c->suspect;
    c->window_ending = false;
    c->window_left = c->o.prefetch;
    c->suspect = false;
    TDI_LOG(c->o.log, TDI_LOG_INFO, "consumer has the lease", TDI_LOG_STR("consumer", c->o.name),
            TDI_LOG_INT("fence", c->lease.fence), TDI_LOG_INT("unclean", c->lease.unclean ? 1 : 0));
}

static void read_totals(struct tdi_consumer *c)
{
    struct td_error err = {0};
    struct td_lease_state *states = NULL;
    size_t count = 0;
    tdi_arena_reset(&c->scratch);
    if (c->o.store_driver->lease_scan(c->store, &c->scratch, &states, &count, &err) != TD_OK) {
        tdi_store_failed(c, &err);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (tdi_str_is(states[i].name, c->lease_name)) {
            tdi_report_read(c, states[i].report);
        }
    }
    c->totals_read = true;
}

static void read_clock(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    td_time_us store_now = 0;
    if (c->o.store_driver->now(c->store, &store_now, &err) != TD_OK) {
        tdi_store_failed(c, &err);
        return;
    }
    c->store_clock_offset = store_now - now;
    c->clock_read = true;
    c->clock_at = now + CLOCK_EVERY_US;
}

static void read_keys(struct tdi_consumer *c)
{
    struct td_error err = {0};
    struct td_str *keys = NULL;
    size_t count = 0;
    tdi_arena_reset(&c->scratch);
    if (c->o.store_driver->parked_keys(c->store, c->o.name, 0, &c->scratch, &keys, &count, &err) !=
        TD_OK) {
        tdi_store_failed(c, &err);
        return;
    }
    tdi_gate_clear(&c->gate);
    for (size_t i = 0; i < count; i++) {
        tdi_key_mark(c, keys[i], true);
    }
    tdi_arena_reset(&c->scratch);
    tdi_store_worked(c);
    c->keys_read = true;
    c->counts_wanted = true;
    c->parked_at = tdi_now(c);
    c->parked_turn = true;
}

bool tdi_session_store_step(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    if (c->store == NULL) {
        open_store(c);
    } else if (!c->outside && !c->prepared) {
        c->prepared = c->o.handler_driver->prepare(c->handler, c->store, &err) == TD_OK;
        if (!c->prepared) {
            tdi_store_failed(c, &err);
        }
    } else if (!c->leased) {
        take_lease(c, now);
    } else if (!c->totals_read) {
        read_totals(c);
    } else if (!c->clock_read || (now >= c->clock_at && !c->tx.open)) {
        read_clock(c, now);
    } else if (!c->keys_read) {
        read_keys(c);
    } else {
        return false;
    }
    return true;
}

/* ---- the broker's rungs ---- */

static void open_broker(struct tdi_consumer *c)
{
    struct td_error err = {0};
    struct td_broker *b = NULL;
    if (tdi_broker_open(c->o.broker_driver, &c->o.broker, &b, &err) == TD_OK) {
        set_broker(c, b);
    } else {
        tdi_broker_failed(c, &err);
    }
}

bool tdi_session_broker_step(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    if (c->subscribed || now < c->broker_retry_at) {
        return false;
    }
    if (c->broker == NULL) {
        open_broker(c);
        return true;
    }
    struct td_subscription sub = {
        .consumer = c->o.name,
        .topic = c->o.topic,
        .prefetch = c->o.prefetch,
        .prefetch_bytes = c->o.prefetch_bytes,
    };
    if (c->o.broker_driver->subscribe(c->broker, &sub, &err) == TD_OK) {
        c->subscribed = true;
    } else {
        tdi_broker_failed(c, &err);
    }
    return true;
}

/* ---- the lease in hand ---- */

bool tdi_session_renew(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    tdi_report_build(c, now);
    bool same = tdi_str_eq(tdi_buf_str(&c->report), tdi_buf_str(&c->report_sent));
    td_time_us third = c->o.lease_ttl_us / 3;
    if (same && now < c->renew_must_at && now < c->lease_until) {
        td_time_us next = now + TDI_REPORT_EVERY_US;
        c->renew_at = next < c->renew_must_at ? next : c->renew_must_at;
        return false;
    }
    if (c->o.store_driver->lease_renew(c->store, tdi_str(c->lease_name), c->lease.fence,
                                       c->o.lease_ttl_us, tdi_buf_str(&c->report), &err) != TD_OK) {
        tdi_store_failed(c, &err);
        return true;
    }
    tdi_store_worked(c);
    c->lease_until = now + c->o.lease_ttl_us;
    c->renew_must_at = now + third;
    c->renew_at = now + (third < TDI_REPORT_EVERY_US ? third : TDI_REPORT_EVERY_US);
    tdi_buf_clear(&c->report_sent);
    tdi_buf_add_str(&c->report_sent, tdi_buf_str(&c->report));
    return true;
}

void tdi_session_clear_unclean(struct tdi_consumer *c)
{
    struct td_error err = {0};
    if (c->lease.unclean && c->o.store_driver->lease_clear_unclean(c->store, tdi_str(c->lease_name),
                                                                   c->lease.fence, &err) != TD_OK) {
        tdi_store_failed(c, &err);
        return;
    }
    c->lease.unclean = false;
    c->window = false;
}

bool tdi_session_leave_step(struct tdi_consumer *c, bool clean)
{
    struct td_error err = {0};
    if (c->broker != NULL) {
        close_broker(c);
    } else if (c->store != NULL && c->leased && clean && !c->left) {
        c->left = true; /* tried once: totals of the last second are no reason to stay */
        tdi_report_build(c, tdi_now(c));
        if (c->o.store_driver->lease_renew(c->store, tdi_str(c->lease_name), c->lease.fence,
                                           c->o.lease_ttl_us, tdi_buf_str(&c->report),
                                           &err) != TD_OK) {
            tdi_report_error(c, &err);
        }
    } else if (c->store != NULL && c->leased && clean) {
        c->leased = false;
        if (c->o.store_driver->lease_release(c->store, tdi_str(c->lease_name), c->lease.fence,
                                             &err) != TD_OK) {
            tdi_report_error(c, &err);
        }
    } else if (c->store != NULL) {
        close_store(c);
    } else {
        return false;
    }
    return true;
}
