/*
 * Parked rows that are due: leasing them, and giving back what was leased and did not run.
 *
 * The attempt is committed by parked_due() before anything runs. Rows in hand survive the loss of
 * a session, so that the attempt can be given back by the settlement: it is conditional on the
 * attempt number, so a row that somebody else has leased since is left alone.
 *
 * Must not know: how rows are run.
 */
#include "base/str.h"
#include "consumer/internal.h"

#define ROW_LEASE_INSIDE_US (10 * TD_SECOND_US)
#define ROW_LEASE_MARGIN_US (30 * TD_SECOND_US)

static void take_row(struct tdi_consumer *c, struct tdi_parcel *parcel,
                     const struct td_parked_row *row, td_time_us row_until)
{
    struct tdi_work *w = tdi_work_new(c, true, parcel);
    TDI_ASSERT(w != NULL);
    w->message = row->message;
    w->origin = row->origin;
    w->attempts = row->attempts;
    w->attempt_limit = row->attempt_limit;
    w->blocks_key = row->blocks_key;
    w->code = row->code;
    w->row_until = row_until;
    tdi_work_key(c, w);
}

/* Settled dead by the store: used up. */
static void note_dead(struct tdi_consumer *c, const struct td_parked_row *row)
{
    struct tdi_work w = {
        .message = row->message,
        .parked = true,
        .attempts = row->attempts,
        .settle = {.code = row->code, .reason = row->reason, .error_type = row->error_type},
    };
    c->totals.dead++;
    tdi_log_work(c, TDI_LOG_WARN, "message failed", &w, "dead");
    tdi_work_key(c, &w);
    tdi_key_mark(c, w.key, row->key_blocked);
}

/* A worker had settled it in a transaction of its own; the store has finished it. */
static void note_done(struct tdi_consumer *c, const struct td_parked_row *row)
{
    struct tdi_work w = {.message = row->message, .parked = true, .attempts = row->attempts};
    c->totals.handled += row->outcome == TD_OUTCOME_EFFECT ? 1 : 0;
    tdi_work_key(c, &w);
    tdi_key_mark(c, w.key, row->key_blocked);
}

/* How many rows may be leased now. While the breaker is half open one may be its probe. */
size_t tdi_parked_room(struct tdi_consumer *c, td_time_us now)
{
    size_t allowed = tdi_breaker_allows(&c->breaker, now);
    if (allowed == 0 || (allowed == 1 && c->rows.count > c->running)) {
        return 0;
    }
    if (!c->outside) {
        size_t most = allowed < TDI_ROWS_MAX ? allowed : TDI_ROWS_MAX;
        return c->rows.count == 0 ? most : 0;
    }
    size_t slots = c->o.handler_driver->free_slots(c->handler);
    size_t waiting = c->rows.count > c->running ? c->rows.count - c->running : 0;
    size_t free_rows = TDI_ROWS_MAX - c->rows.count;
    slots = slots > waiting ? slots - waiting : 0;
    slots = slots < free_rows ? slots : free_rows;
    return slots < allowed ? slots : allowed;
}

bool tdi_parked_lease(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    struct td_parked_batch batch = {0};
    struct td_parked_due ask = {
        .consumer = c->o.name,
        .fence = c->lease.fence,
        .max = tdi_parked_room(c, now),
        .lease_us =
            c->outside ? c->o.handler.timeout_us + ROW_LEASE_MARGIN_US : ROW_LEASE_INSIDE_US,
        .release_on_dead = c->o.order != TDI_ORDER_BLOCK || c->o.on_dead == TDI_ON_DEAD_RELEASE,
    };
    if (now < c->parked_at || !c->parked_turn || ask.max == 0) {
        return false;
    }
    struct tdi_parcel *parcel = tdi_parcel_take(c);
    enum td_err rc = parcel == NULL
                         ? td_error_set(&err, TD_ERR_NOMEM, "no memory for parked messages")
                         : c->o.store_driver->parked_due(c->store, tdi_str(c->lease_name), &ask,
                                                         &parcel->arena, &batch, &err);
    if (rc == TD_OK) {
        tdi_store_worked(c);
        for (size_t i = 0; i < batch.dead_count; i++) {
            note_dead(c, &batch.dead[i]);
        }
        for (size_t i = 0; i < batch.done_count; i++) {
            note_done(c, &batch.done[i]);
        }
        for (size_t i = 0; i < batch.count; i++) {
            take_row(c, parcel, &batch.rows[i], now + ask.lease_us);
        }
        td_time_us next = batch.next_due_us == TD_TIME_NONE
                              ? now + TDI_IDLE_MAX_US
                              : batch.next_due_us - c->store_clock_offset;
        c->parked_at = next < now + TDI_IDLE_MAX_US ? next : now + TDI_IDLE_MAX_US;
        c->counts_wanted = c->counts_wanted || batch.dead_count + batch.done_count > 0;
        c->parked_turn = batch.count == 0;
    } else {
        tdi_store_failed(c, &err);
    }
    if (parcel != NULL) {
        tdi_parcel_drop(c, parcel);
    }
    if (rc != TD_OK || batch.count == 0) {
        return true;
    }
    if (!c->outside) {
        tdi_singles_start(c, &c->rows, batch.count, false);
        return true;
    }
    struct tdi_work *next = NULL;
    for (struct tdi_work *w = c->rows.first; w != NULL && !c->lose; w = next) {
        next = w->next;
        if (w->state == TDI_WORK_NEW && !w->give_back) {
            tdi_outside_offer(c, w);
        }
    }
    return true;
}

/* Rows that wait to be started while nothing may start would grow stale: an operator may change them
 * meanwhile. */
size_t tdi_parked_give_back(struct tdi_consumer *c, bool all)
{
    size_t count = 0;
    bool open = c->outside && c->breaker.state == TDI_BREAKER_OPEN;
    for (struct tdi_work *w = c->rows.first; w != NULL; w = w->next) {
        bool ready = w->state == TDI_WORK_READY;
        bool idle = w->state == TDI_WORK_NEW || ready;
        if (idle && (w->give_back || all || (open && ready))) {
            tdi_decide_give_back(c, w, tdi_probe_wait(c));
            w->give_back = true;
            tdi_settle_queue(c, w);
            count++;
        }
    }
    return count;
}
