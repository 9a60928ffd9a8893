/*
 * Sessions of the relay, and what follows from a failure.
 *
 *   store  RETRY           keep everything in hand, try again after a while
 *          FENCED, OWNED   somebody else is the owner: forget everything, stand by
 *          PERMANENT       a person is needed: forget everything, halt, and look again every 10 s
 *          all others      close the session, forget everything, take the lease anew; what cannot
 *                          heal by itself halts too
 *   broker any             close the session; what was in flight is queued again, under the same ids
 *
 * An interrupted call failed for certain and is simply made again.
 */
#include "broker/registry.h"
#include "core/retry.h"
#include "relay/internal.h"
#include "store/registry.h"

/* ---- opening and closing ---------------------------------------------------------------- */

enum td_err tdi_relay_store_open(struct tdi_relay *r, struct td_error *err)
{
    struct td_store *s = NULL;
    enum td_err e = tdi_store_open(r->o.store_driver, &r->o.store, &s, err);
    if (e == TD_OK) {
        pthread_mutex_lock(&r->lock);
        r->store = s;
        pthread_mutex_unlock(&r->lock);
    }
    return e;
}

void tdi_relay_store_close(struct tdi_relay *r)
{
    pthread_mutex_lock(&r->lock);
    struct td_store *s = r->store;
    r->store = NULL;
    pthread_mutex_unlock(&r->lock);
    r->store_close = false;
    r->letters.tx = TDI_LETTERS_TX_NONE; /* rolled back */
    tdi_store_close(s);
}

enum td_err tdi_relay_broker_open(struct tdi_relay *r, struct td_error *err)
{
    struct td_broker *b = NULL;
    enum td_err e = tdi_broker_open(r->o.broker_driver, &r->o.broker, &b, err);
    if (e == TD_OK) {
        pthread_mutex_lock(&r->lock);
        r->broker = b;
        pthread_mutex_unlock(&r->lock);
    }
    return e;
}

void tdi_relay_broker_close(struct tdi_relay *r)
{
    pthread_mutex_lock(&r->lock);
    struct td_broker *b = r->broker;
    r->broker = NULL;
    pthread_mutex_unlock(&r->lock);
    r->broker_close = false;
    r->pipeline_full = false;
    tdi_broker_close(b);
    tdi_window_session(&r->window);
    tdi_relay_letters_session_lost(r);
}

/* ---- failures --------------------------------------------------------------------------- */

/* Will it still be so when asked again soon? Then a person is needed. */
static bool needs_a_person(const struct td_error *e)
{
    return e->class_ == TD_CLASS_PERMANENT || e->code == TD_ERR_SCHEMA ||
           e->code == TD_ERR_FOREIGN || e->code == TD_ERR_CORRUPT || e->code == TD_ERR_READ_ONLY ||
           e->code == TD_ERR_IO;
}

static void drop_everything(struct tdi_relay *r)
{
    r->forget = true;
    r->broker_close = r->broker != NULL;
}

static void stand_by(struct tdi_relay *r, td_time_us now)
{
    drop_everything(r);
    r->fence = 0;
    r->look_at = now; /* the position may be another one */
    r->standby = true;
    r->phase = r->store != NULL ? TDI_PHASE_LEASE : TDI_PHASE_OPEN;
    r->store_retry_at = now + TDI_RELAY_STANDBY_US;
}

static void reopen(struct tdi_relay *r)
{
    drop_everything(r);
    r->fence = 0;
    r->store_close = r->store != NULL;
    r->phase = TDI_PHASE_OPEN;
}

/* The lease is kept, or taken anew, so that its row can say why. */
static void halt(struct tdi_relay *r, const struct td_error *e, td_time_us now)
{
    bool had_lease = r->fence > 0;

    r->halted = true;
    r->look_at = now + TDI_RELAY_HALTED_US;
    if (had_lease && e->class_ == TD_CLASS_PERMANENT) {
        drop_everything(r);
        r->report_at = now;
        r->phase = TDI_PHASE_HALTED;
    } else {
        reopen(r);
    }
    r->store_retry_at = had_lease ? now : r->look_at;
}

enum tdi_step tdi_relay_store_failed(struct tdi_relay *r, const struct td_error *e)
{
    td_time_us now = tdi_mono(&r->o.clock);

    if (e->code == TD_ERR_INTERRUPTED) {
        return TDI_STEP_AGAIN;
    }
    tdi_relay_remember(r, e);
    if (e->code == TD_ERR_FENCED || e->code == TD_ERR_OWNED) {
        stand_by(r, now);
        return TDI_STEP_AGAIN;
    }
    r->store_failures++;
    r->store_code = e->code;
    r->store_retry_at =
        now + tdi_later(tdi_backoff(r->store_failures, r->o.random), e->retry_after_us);
    if (e->class_ == TD_CLASS_RETRY) {
        return TDI_STEP_AGAIN;
    }
    if (needs_a_person(e)) {
        halt(r, e, now);
    } else {
        reopen(r);
    }
    return TDI_STEP_AGAIN;
}

bool tdi_relay_lock_missed(struct tdi_relay *r, const struct td_error *e)
{
    td_time_us now = tdi_mono(&r->o.clock);

    if (e->code != TD_ERR_BUSY || r->o.store.lock_wait_us == 0) {
        return false;
    }
    r->busy_since = r->busy_since == TD_TIME_NONE ? now : r->busy_since;
    if (now - r->busy_since >= TDI_RELAY_LOCK_US) {
        return false;
    }
    r->write_at = now + TDI_RELAY_LOCK_GAP_US;
    return true;
}

void tdi_relay_wrote(struct tdi_relay *r)
{
    tdi_relay_store_worked(r);
    r->busy_since = TD_TIME_NONE;
    r->write_at = INT64_MIN;
}

void tdi_relay_store_worked(struct tdi_relay *r)
{
    r->store_failures = 0;
    r->store_retry_at = INT64_MIN;
}

enum tdi_step tdi_relay_broker_failed(struct tdi_relay *r, const struct td_error *e)
{
    if (e->code == TD_ERR_INTERRUPTED) {
        return TDI_STEP_AGAIN;
    }
    tdi_relay_remember(r, e);
    r->broker_failures++;
    r->broker_retry_at = tdi_mono(&r->o.clock) +
                         tdi_later(tdi_backoff(r->broker_failures, r->o.random), e->retry_after_us);
    r->broker_close = r->broker != NULL;
    return TDI_STEP_AGAIN;
}
