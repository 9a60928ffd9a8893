/*
 * Settlements without a run in the transaction: the window after an unclean end, results of outside
 * runs and what the gate sent to be parked, rows given back.
 *
 *   BEGIN -> SETTLE -> (more decided: SETTLE) -> COMMIT
 *
 * Invariant: works are settled in the order of their decisions, and stay queued until the commit.
 */
#include "consumer/internal.h"

void tdi_settle_queue(struct tdi_consumer *c, struct tdi_work *w)
{
    w->state = TDI_WORK_DECIDED;
    w->decided_next = NULL;
    if (c->decided_last != NULL) {
        c->decided_last->decided_next = w;
    } else {
        c->decided_first = w;
    }
    c->decided_last = w;
    c->decided_count++;
}

static bool take_slice(struct tdi_consumer *c)
{
    struct tdi_transaction *tx = &c->tx;
    size_t most = tx->alone ? 1 : tx->covered_max - tx->covered_count;
    if (tx->alone && tx->covered_count > 0) {
        return false;
    }
    tx->slice_count = 0;
    while (tx->cursor != NULL && tx->slice_count < TDI_SLICE_MAX && tx->slice_count < most) {
        struct tdi_work *w = tx->cursor;
        if (w->fault.data != NULL) {
            tdi_decide_fault(c, w);
        }
        w->plan = TDI_PLAN_SETTLE;
        tx->slice[tx->slice_count++] = w;
        tx->cursor = w->decided_next;
    }
    return tx->slice_count > 0;
}

static void next_slice(struct tdi_consumer *c)
{
    tdi_tx_cover(c);
    bool budget = tdi_now(c) < c->tx.budget_until;
    c->tx.phase = budget && take_slice(c) ? TDI_PHASE_SETTLE : TDI_PHASE_COMMIT;
}

static enum tdi_tx step_commit(struct tdi_consumer *c)
{
    /* Committing frees the works and may queue others behind them: unlink first. */
    size_t count = c->tx.covered_count;
    struct tdi_work *rest = c->tx.covered[count - 1]->decided_next;
    struct tdi_work *first = c->decided_first;
    struct tdi_work *last = c->decided_last;
    c->decided_first = rest;
    c->decided_last = rest != NULL ? last : NULL;
    c->decided_count -= count;
    enum tdi_tx r = tdi_tx_commit(c);
    if (r != TDI_TX_OK) {
        c->decided_first = first;
        c->decided_last = last;
        c->decided_count += count;
    } else if (c->decided_first != NULL && c->tx.alone) {
        c->tx.phase = TDI_PHASE_BEGIN;
    } else {
        tdi_tx_end(c);
    }
    return r;
}

static void refused(struct tdi_consumer *c, size_t covered)
{
    struct tdi_work *w = c->decided_first;
    if (covered > 1) {
        c->tx.alone = true;
    } else if (covered == 1 && w->ran && w->fault.data == NULL) {
        tdi_work_fault(w, &c->tx_error);
    } else {
        tdi_tx_end(c);
        c->tx_error.class_ = TD_CLASS_RETRY; /* nobody's fault: wait */
        tdi_store_failed(c, &c->tx_error);
    }
}

void tdi_settle_step(struct tdi_consumer *c)
{
    size_t covered = c->tx.covered_count + c->tx.slice_count;
    enum tdi_tx r = TDI_TX_OK;
    switch (c->tx.phase) {
    case TDI_PHASE_BEGIN:
        r = tdi_tx_begin(c);
        if (r == TDI_TX_OK) {
            c->tx.cursor = c->decided_first;
            bool some = take_slice(c);
            TDI_ASSERT(some);
            c->tx.phase = TDI_PHASE_SETTLE;
        }
        break;
    case TDI_PHASE_SETTLE:
        r = tdi_tx_settle(c);
        if (r == TDI_TX_OK) {
            next_slice(c);
        }
        break;
    case TDI_PHASE_COMMIT:
        r = step_commit(c);
        break;
    case TDI_PHASE_SAVEPOINT:
    case TDI_PHASE_CLAIM:
    case TDI_PHASE_RUN:
    case TDI_PHASE_KEEP:
    case TDI_PHASE_UNDO:
        TDI_ASSERT(c->tx.phase == TDI_PHASE_COMMIT); /* settlements run nothing */
        break;
    }
    if (r == TDI_TX_REFUSED) {
        refused(c, covered);
    }
}
