/*
 * Handler inside, live: many messages in one transaction, in slices.
 *
 *   BEGIN -> CLAIM -> RUN -> SETTLE -> (next slice: CLAIM) -> COMMIT
 *
 * RUN and SETTLE are left out where no message of the slice needs them. The transaction takes no
 * further slice once its write budget is used up. A failing run rolls all back, and the same
 * messages are run one by one (singles.c).
 *
 * Invariant: the covered works and the slice are the first works in hand, in order of arrival.
 */
#include "consumer/internal.h"

static bool batchable(const struct tdi_work *w)
{
    return w->state == TDI_WORK_NEW && !w->in_window && w->fault.data == NULL;
}

bool tdi_batch_may(const struct tdi_consumer *c)
{
    return c->hand.first != NULL && batchable(c->hand.first);
}

static bool take_slice(struct tdi_consumer *c)
{
    struct tdi_transaction *tx = &c->tx;
    tx->slice_count = 0;
    while (tx->cursor != NULL && batchable(tx->cursor) && tx->slice_count < TDI_SLICE_MAX &&
           tx->covered_count + tx->slice_count < c->o.batch) {
        tx->slice[tx->slice_count++] = tx->cursor;
        tx->cursor = tx->cursor->next;
    }
    return tx->slice_count > 0;
}

static bool planned(const struct tdi_consumer *c, enum tdi_plan plan)
{
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        if (c->tx.slice[i]->plan == plan) {
            return true;
        }
    }
    return false;
}

/* What is to be done with each claimed message; a decision counts for those behind it. */
static void plan_slice(struct tdi_consumer *c)
{
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        struct tdi_work *w = c->tx.slice[i];
        if (w->known_as.outcome != TD_OUTCOME_NONE) {
            w->fate = TDI_FATE_KNOWN;
            if (tdi_known_blocks(c, w->known_as.outcome)) {
                tdi_key_tentative(c, w->key, true);
            }
            continue;
        }
        if (tdi_decide_unfit(c, w)) {
            w->plan = TDI_PLAN_SETTLE;
        } else if (tdi_key_blocked(c, w->key)) {
            tdi_decide_blocked(c, w);
            w->plan = TDI_PLAN_SETTLE;
        } else {
            w->plan = TDI_PLAN_RUN;
            continue;
        }
        w->settle.claimed = true;
        if (w->settle.blocks_key) {
            tdi_key_tentative(c, w->key, true);
        }
    }
}

static void next_slice(struct tdi_consumer *c)
{
    tdi_tx_cover(c);
    bool budget = tdi_now(c) < c->tx.budget_until;
    c->tx.phase = budget && take_slice(c) ? TDI_PHASE_CLAIM : TDI_PHASE_COMMIT;
}

static void after_claim(struct tdi_consumer *c)
{
    plan_slice(c);
    if (planned(c, TDI_PLAN_RUN)) {
        c->tx.phase = TDI_PHASE_RUN;
    } else if (planned(c, TDI_PLAN_SETTLE)) {
        c->tx.phase = TDI_PHASE_SETTLE;
    } else {
        next_slice(c);
    }
}

/* Roll back and run the same messages one by one. */
static void run_singly(struct tdi_consumer *c, size_t count, bool alone)
{
    tdi_tx_rollback(c);
    tdi_singles_start(c, &c->hand, count, alone);
}

/* Any other verdict than OK may have left something in the transaction. */
static bool all_well(const struct td_verdict *verdicts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (verdicts[i].kind != TD_VERDICT_OK) {
            return false;
        }
    }
    return true;
}

static void step_run(struct tdi_consumer *c)
{
    struct td_verdict verdicts[TDI_SLICE_MAX] = {0};
    size_t done = 0;
    size_t count = c->tx.covered_count + c->tx.slice_count;
    size_t wanted = 0;
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        wanted += c->tx.slice[i]->plan == TDI_PLAN_RUN ? 1 : 0;
    }
    enum tdi_tx r = tdi_tx_run(c, verdicts, &done);
    if (r == TDI_TX_GONE) {
        return;
    }
    if (r == TDI_TX_REFUSED || done < wanted || !all_well(verdicts, done)) {
        run_singly(c, count, false);
        return;
    }
    size_t at = 0;
    for (size_t i = 0; i < c->tx.slice_count; i++) {
        struct tdi_work *w = c->tx.slice[i];
        if (w->plan != TDI_PLAN_RUN) {
            continue;
        }
        const struct td_verdict *v = &verdicts[at++];
        tdi_breaker_result(&c->breaker, false, tdi_now(c), c->o.random);
        tdi_decide_verdict(c, w, v, false);
        w->settle.claimed = true;
        if (v->emit_count == 0) {
            w->plan = TDI_PLAN_NONE;
            w->fate = TDI_FATE_EFFECT;
        } else {
            w->plan = TDI_PLAN_SETTLE;
        }
    }
    if (planned(c, TDI_PLAN_SETTLE)) {
        c->tx.phase = TDI_PHASE_SETTLE;
    } else {
        next_slice(c);
    }
}

static void step_begin(struct tdi_consumer *c)
{
    if (tdi_tx_begin(c) == TDI_TX_OK) {
        c->tx.cursor = c->hand.first;
        c->tx.phase = take_slice(c) ? TDI_PHASE_CLAIM : TDI_PHASE_COMMIT;
    }
}

void tdi_batch_step(struct tdi_consumer *c)
{
    size_t count = c->tx.covered_count + c->tx.slice_count;
    enum tdi_tx r = TDI_TX_OK;
    switch (c->tx.phase) {
    case TDI_PHASE_BEGIN:
        step_begin(c);
        return;
    case TDI_PHASE_RUN:
        step_run(c);
        return;
    case TDI_PHASE_CLAIM:
        r = tdi_tx_claim(c);
        if (r == TDI_TX_OK) {
            after_claim(c);
        }
        break;
    case TDI_PHASE_SETTLE:
        r = tdi_tx_settle(c);
        if (r == TDI_TX_OK) {
            next_slice(c);
        }
        break;
    case TDI_PHASE_COMMIT:
        r = tdi_tx_commit(c);
        if (r == TDI_TX_OK) {
            tdi_tx_end(c);
        }
        break;
    case TDI_PHASE_SAVEPOINT:
    case TDI_PHASE_KEEP:
    case TDI_PHASE_UNDO:
        TDI_ASSERT(c->tx.phase == TDI_PHASE_COMMIT); /* a batch has no savepoints */
        break;
    }
    if (r == TDI_TX_REFUSED) {
        run_singly(c, count, true);
    }
}
