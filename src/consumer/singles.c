/*
 * Handler inside, one by one: live messages whose batch failed, the probe of the breaker, and
 * parked rows that are due. In one transaction, with a savepoint around each run:
 *
 *   live    SAVEPOINT -> CLAIM -> RUN -> [SETTLE] -> KEEP        or  ... UNDO -> SETTLE
 *   parked  SAVEPOINT -> RUN -> SETTLE -> KEEP                   or  ... UNDO -> SETTLE
 *
 * The transaction is cut at its write budget and goes on in another. If the store refuses it, each
 * work gets a transaction of its own (alone); if it refuses that, the work has a fault and is
 * settled as failed in a fresh transaction, without a run.
 *
 * Invariants: works are taken from the front of tx.list, in order; an uncharged live message ends
 * the transaction before it, so that nothing of its key overtakes it.
 */
#include "base/str.h"
#include "consumer/internal.h"

void tdi_singles_start(struct tdi_consumer *c, struct tdi_work_list *list, size_t todo, bool alone)
{
    tdi_tx_start(c, TDI_JOB_SINGLES, list);
    c->tx.todo = todo;
    c->tx.alone = alone;
}

static void settle_now(struct tdi_consumer *c, struct tdi_work *w)
{
    w->plan = TDI_PLAN_SETTLE;
    c->tx.phase = TDI_PHASE_SETTLE;
}

static void finish(struct tdi_consumer *c)
{
    if (c->tx.covered_count > 0) {
        c->tx.phase = TDI_PHASE_COMMIT;
    } else {
        tdi_tx_rollback(c);
        tdi_tx_end(c);
    }
}

/* Take the next work into the transaction, or end it. */
static void pick(struct tdi_consumer *c)
{
    struct tdi_transaction *tx = &c->tx;
    tdi_tx_cover(c);
    struct tdi_work *w = tx->cursor;
    bool full = tx->covered_count > 0 && (tx->alone || tx->covered_count == tx->covered_max ||
                                          tdi_now(c) >= tx->budget_until);
    if (w == NULL || tx->stop || full || tx->covered_count >= tx->todo) {
        finish(c);
        return;
    }
    bool may_run = tdi_breaker_allows(&c->breaker, tdi_now(c)) > 0;
    if (!may_run && !w->parked && w->fault.data == NULL) {
        tx->stop = true;
        finish(c);
        return;
    }
    w->ran = false;
    tx->slice[0] = w;
    tx->slice_count = 1;
    tx->cursor = w->next;
    if (w->fault.data != NULL) {
        tdi_decide_fault(c, w);
        settle_now(c, w);
    } else if (!may_run) {
        tdi_decide_give_back(c, w, tdi_probe_wait(c));
        settle_now(c, w);
    } else {
        tx->phase = TDI_PHASE_SAVEPOINT;
    }
}

/* Before the run: is it known, unfit or blocked? */
static void plan(struct tdi_consumer *c, struct tdi_work *w)
{
    if (!w->parked && w->known_as.outcome != TD_OUTCOME_NONE) {
        w->fate = TDI_FATE_KNOWN;
        if (tdi_known_blocks(c, w->known_as.outcome)) {
            tdi_key_tentative(c, w->key, true);
        }
        c->tx.phase = TDI_PHASE_KEEP;
    } else if (tdi_decide_unfit(c, w)) {
        w->settle.claimed = !w->parked;
        settle_now(c, w);
    } else if (!w->parked && tdi_key_blocked(c, w->key)) {
        tdi_decide_blocked(c, w);
        w->settle.claimed = true;
        settle_now(c, w);
    } else {
        w->plan = TDI_PLAN_RUN;
        c->tx.phase = TDI_PHASE_RUN;
    }
}

static void after_verdict(struct tdi_consumer *c, struct tdi_work *w, const struct td_verdict *v)
{
    bool uncharged = tdi_breaker_result(&c->breaker, v->broken, tdi_now(c), c->o.random) ||
                     (v->kind == TD_VERDICT_RETRY && v->uncharged);
    w->plan = TDI_PLAN_NONE;
    w->ran = true;
    tdi_decide_verdict(c, w, v, uncharged);
    switch (v->kind) {
    case TD_VERDICT_OK:
        w->settle.claimed = !w->parked;
        if (!w->parked && v->emit_count == 0) {
            w->fate = TDI_FATE_EFFECT;
            c->tx.phase = TDI_PHASE_KEEP;
        } else {
            settle_now(c, w);
        }
        break;
    case TD_VERDICT_RETRY:
        if (uncharged && !w->parked) {
            c->tx.stop = true; /* it stays in hand */
        } else {
            w->plan = TDI_PLAN_SETTLE;
        }
        c->tx.phase = TDI_PHASE_UNDO;
        break;
    case TD_VERDICT_DROP:
    case TD_VERDICT_DEAD:
        w->plan = TDI_PLAN_SETTLE;
        c->tx.phase = TDI_PHASE_UNDO;
        break;
    }
}

static enum tdi_tx step_run(struct tdi_consumer *c, struct tdi_work *w)
{
    struct td_verdict verdict = {0};
    size_t done = 0;
    tdi_breaker_started(&c->breaker);
    enum tdi_tx r = tdi_tx_run(c, &verdict, &done);
    if (r == TDI_TX_OK) {
        after_verdict(c, w, &verdict);
    } else {
        tdi_breaker_forgotten(&c->breaker);
    }
    return r;
}

/* With a savepoint open the settlement is part of it: a row that was otherwise undoes the run. */
static void after_settle(struct tdi_consumer *c, const struct tdi_work *w)
{
    if (!c->tx.savepoint) {
        pick(c);
    } else {
        c->tx.phase = w->fate == TDI_FATE_GONE ? TDI_PHASE_UNDO : TDI_PHASE_KEEP;
    }
}

static void after_undo(struct tdi_consumer *c, const struct tdi_work *w)
{
    if (w->plan == TDI_PLAN_SETTLE) {
        c->tx.phase = TDI_PHASE_SETTLE;
    } else if (w->fate == TDI_FATE_NONE) {
        c->tx.slice_count = 0; /* uncharged: not part of this transaction */
        c->live_at = tdi_now(c) + tdi_backoff(1, c->o.random);
        finish(c);
    } else {
        pick(c);
    }
}

/* Whose fault is it? First each gets a transaction of its own, then the one that ran is settled as
 * failed. What did not run is not at fault: a follower that became retry would pass its head. */
static void refused(struct tdi_consumer *c, struct tdi_work *w, size_t covered)
{
    if (covered > 1) {
        c->tx.alone = true;
    } else if (w != NULL && w->ran && w->fault.data == NULL) {
        tdi_work_fault(w, &c->tx_error);
    } else {
        tdi_tx_end(c);
        c->tx_error.class_ = TD_CLASS_RETRY; /* nobody's fault: wait */
        tdi_store_failed(c, &c->tx_error);
    }
}

static enum tdi_tx step_commit(struct tdi_consumer *c)
{
    size_t count = c->tx.covered_count;
    enum tdi_tx r = tdi_tx_commit(c);
    if (r == TDI_TX_OK) {
        c->tx.todo -= count;
        c->tx.phase = TDI_PHASE_BEGIN;
        if (c->tx.todo == 0 || c->tx.stop || tdi_draining(c)) {
            tdi_tx_end(c);
        }
    }
    return r;
}

void tdi_singles_step(struct tdi_consumer *c)
{
    struct tdi_transaction *tx = &c->tx;
    struct tdi_work *w = tx->slice_count > 0 ? tx->slice[0] : NULL;
    size_t covered = tx->covered_count + tx->slice_count;
    struct tdi_work *first = tx->covered_count > 0 ? tx->covered[0] : w;
    enum tdi_phase phase = tx->phase;
    enum tdi_tx r = TDI_TX_OK;
    switch (phase) {
    case TDI_PHASE_BEGIN:
        r = tdi_tx_begin(c);
        if (r == TDI_TX_OK) {
            tx->cursor = tx->list->first;
            pick(c);
        }
        break;
    case TDI_PHASE_SAVEPOINT:
        r = tdi_tx_savepoint(c);
        if (r == TDI_TX_OK && w->parked) {
            plan(c, w);
        } else if (r == TDI_TX_OK) {
            tx->phase = TDI_PHASE_CLAIM;
        }
        break;
    case TDI_PHASE_CLAIM:
        r = tdi_tx_claim(c);
        if (r == TDI_TX_OK) {
            plan(c, w);
        }
        break;
    case TDI_PHASE_RUN:
        r = step_run(c, w);
        if (r == TDI_TX_REFUSED && w->fault.data == NULL) {
            tdi_work_fault(w, &c->tx_error);
            return;
        }
        break;
    case TDI_PHASE_SETTLE:
        r = tdi_tx_settle(c);
        if (r == TDI_TX_OK) {
            after_settle(c, w);
        }
        break;
    case TDI_PHASE_KEEP:
        r = tdi_tx_savepoint_end(c, true);
        if (r == TDI_TX_OK) {
            pick(c);
        }
        break;
    case TDI_PHASE_UNDO:
        r = tdi_tx_savepoint_end(c, false);
        if (r == TDI_TX_OK) {
            after_undo(c, w);
        }
        break;
    case TDI_PHASE_COMMIT:
        r = step_commit(c);
        break;
    }
    if (r == TDI_TX_REFUSED) {
        refused(c, first, covered);
    }
}
