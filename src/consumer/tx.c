/*
 * The calls inside a transaction, each with what its failure means for the job.
 *
 *   RETRY       rolled back, everything stays in hand, the loop waits (state store down)
 *   PERMANENT   rolled back; the job narrows down whose fault it is
 *   UNKNOWN, FATAL, or a newer fence: both sessions are given up
 *
 * Must not know: which job asks and why.
 */
#include <stdlib.h>

#include "base/str.h"
#include "consumer/internal.h"

bool tdi_tx_init(struct tdi_consumer *c)
{
    size_t most = c->o.batch > TDI_ROWS_MAX ? c->o.batch : TDI_ROWS_MAX;
    c->tx.covered = calloc(most, sizeof(struct tdi_work *));
    c->tx.covered_max = most;
    tdi_map_init(&c->tx.tentative, c->seed, 0);
    tdi_arena_init(&c->tx_arena, 0);
    return c->tx.covered != NULL;
}

void tdi_tx_release(struct tdi_consumer *c)
{
    free(c->tx.covered);
    tdi_map_release(&c->tx.tentative);
    tdi_arena_release(&c->tx_arena);
}

void tdi_tx_start(struct tdi_consumer *c, enum tdi_job job, struct tdi_work_list *list)
{
    c->tx.job = job;
    c->tx.phase = TDI_PHASE_BEGIN;
    c->tx.list = list;
    c->tx.alone = false;
    c->tx.stop = false;
}

/* Nothing of the transaction counts any more. */
static void forget_fates(struct tdi_consumer *c)
{
    for (size_t i = 0; i < c->tx.covered_count; i++) {
        c->tx.covered[i]->fate = TDI_FATE_NONE;
        c->tx.covered[i]->plan = TDI_PLAN_NONE;
    }
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        c->tx.slice[i]->fate = TDI_FATE_NONE;
        c->tx.slice[i]->plan = TDI_PLAN_NONE;
    }
    c->tx.covered_count = 0;
    c->tx.slice_count = 0;
    c->tx.savepoint = false;
    tdi_key_tentative_clear(c);
}

void tdi_tx_end(struct tdi_consumer *c)
{
    forget_fates(c);
    c->tx.job = TDI_JOB_NONE;
}

void tdi_tx_rollback(struct tdi_consumer *c)
{
    forget_fates(c);
    c->tx.rollback = c->tx.open;
    c->tx.phase = TDI_PHASE_BEGIN;
}

static enum tdi_tx failed(struct tdi_consumer *c, const struct td_error *err)
{
    c->tx_error = *err;
    tdi_tx_rollback(c);
    if (err->class_ == TD_CLASS_PERMANENT && err->code != TD_ERR_FENCED) {
        tdi_report_error(c, err);
        return TDI_TX_REFUSED;
    }
    tdi_tx_end(c);
    tdi_store_failed(c, err);
    return TDI_TX_GONE;
}

void tdi_tx_rollback_step(struct tdi_consumer *c)
{
    struct td_error err = {0};
    c->tx.rollback = false;
    c->tx.open = false;
    if (c->o.store_driver->finish(c->store, false, &err) != TD_OK) {
        tdi_report_error(c, &err);
        tdi_tx_end(c);
        tdi_lose(c);
    }
}

enum tdi_tx tdi_tx_begin(struct tdi_consumer *c)
{
    struct td_error err = {0};
    td_time_us now = tdi_now(c);
    forget_fates(c);
    tdi_arena_reset(&c->tx_arena);
    if (now >= c->lease_until) {
        c->renew_at = now; /* the lease has run out: renew it, or learn that it is lost */
        tdi_tx_end(c);
        return TDI_TX_GONE;
    }
    if (c->o.store_driver->begin(c->store, &err) != TD_OK) {
        return failed(c, &err);
    }
    c->tx.open = true;
    c->tx.budget_until = tdi_now(c) + c->o.write_budget_us;
    return TDI_TX_OK;
}

enum tdi_tx tdi_tx_savepoint(struct tdi_consumer *c)
{
    struct td_error err = {0};
    if (c->o.store_driver->savepoint(c->store, &err) != TD_OK) {
        return failed(c, &err);
    }
    c->tx.savepoint = true;
    return TDI_TX_OK;
}

enum tdi_tx tdi_tx_savepoint_end(struct tdi_consumer *c, bool keep)
{
    struct td_error err = {0};
    if (c->o.store_driver->savepoint_end(c->store, keep, &err) != TD_OK) {
        return failed(c, &err);
    }
    c->tx.savepoint = false;
    return TDI_TX_OK;
}

enum tdi_tx tdi_tx_claim(struct tdi_consumer *c)
{
    struct td_error err = {0};
    struct td_claim claims[TDI_SLICE_MAX];
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        const struct tdi_work *w = c->tx.slice[i];
        claims[i] = (struct td_claim){
            .ref = {.source = w->message.source, .id = w->message.id},
            .origin = w->origin,
            .published_at = w->message.published_at,
        };
    }
    if (c->o.store_driver->inbox_claim(c->store, c->o.name, tdi_str(c->lease_name), c->lease.fence,
                                       claims, c->tx.slice_count, &err) != TD_OK) {
        return failed(c, &err);
    }
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        c->tx.slice[i]->known_as = claims[i].former;
    }
    return TDI_TX_OK;
}

enum tdi_tx tdi_tx_settle(struct tdi_consumer *c)
{
    struct td_error err = {0};
    struct td_settle items[TDI_SLICE_MAX];
    struct tdi_work *of[TDI_SLICE_MAX];
    size_t count = 0;
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        if (c->tx.slice[i]->plan == TDI_PLAN_SETTLE) {
            of[count] = c->tx.slice[i];
            items[count++] = c->tx.slice[i]->settle;
        }
    }
    if (c->o.store_driver->inbox_settle(c->store, c->o.name, 0, tdi_str(c->lease_name),
                                        c->lease.fence, items, count, &err) != TD_OK) {
        return failed(c, &err);
    }
    for (size_t i = 0; i < count; i++) {
        struct tdi_work *w = of[i];
        w->settle = items[i];
        w->plan = TDI_PLAN_NONE;
        if (w->settle.settled) {
            w->fate = TDI_FATE_SETTLED;
            if (w->parked || w->settle.key_blocked) {
                tdi_key_tentative(c, w->key, w->settle.key_blocked);
            }
        } else {
            w->fate = w->parked ? TDI_FATE_GONE : TDI_FATE_KNOWN;
            w->known_as = w->settle.found;
        }
    }
    return TDI_TX_OK;
}

enum tdi_tx tdi_tx_run(struct tdi_consumer *c, struct td_verdict *ret_verdicts, size_t *ret_done)
{
    struct td_error err = {0};
    struct td_run runs[TDI_SLICE_MAX];
    size_t count = 0;
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        const struct tdi_work *w = c->tx.slice[i];
        if (w->plan == TDI_PLAN_RUN) {
            runs[count++] = (struct td_run){
                .token = w->token,
                .message = &w->message,
                .consumer = c->o.name,
                .attempt = w->parked ? w->attempts : 1,
                .fence = c->lease.fence,
                .deadline_us = TD_TIME_NONE,
            };
        }
    }
    enum td_err rc = c->o.handler_driver->run(c->handler, c->store, runs, count, &c->tx_arena,
                                              ret_verdicts, ret_done, &err);
    if (rc == TD_OK) {
        TDI_ASSERT(*ret_done > 0 && *ret_done <= count);
        return TDI_TX_OK;
    }
    switch (err.class_) {
    case TD_CLASS_UNKNOWN:
    case TD_CLASS_FATAL:
        /* The run may be what ends the session: it is charged, and comes alone next time. */
        c->suspect = true;
        for (size_t i = 0; i < c->tx.slice_count; i++) {
            c->tx.slice[i]->suspect = c->tx.slice[i]->plan == TDI_PLAN_RUN;
        }
        break;
    case TD_CLASS_RETRY:
    case TD_CLASS_PERMANENT:
        break;
    }
    return failed(c, &err);
}

enum tdi_tx tdi_tx_commit(struct tdi_consumer *c)
{
    struct td_error err = {0};
    enum td_err rc = c->o.store_driver->finish(c->store, true, &err);
    c->tx.open = false;
    if (rc != TD_OK) {
        return failed(c, &err);
    }
    tdi_store_worked(c);
    size_t count = c->tx.covered_count;
    c->tx.covered_count = 0;
    c->tx.slice_count = 0;
    tdi_key_tentative_clear(c);
    for (size_t i = 0; i < count; i++) {
        tdi_work_committed(c, c->tx.covered[i]);
    }
    return TDI_TX_OK;
}

void tdi_tx_cover(struct tdi_consumer *c)
{
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        TDI_ASSERT(c->tx.covered_count < c->tx.covered_max);
        c->tx.covered[c->tx.covered_count++] = c->tx.slice[i];
    }
    c->tx.slice_count = 0;
}
