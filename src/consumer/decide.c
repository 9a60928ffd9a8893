/*
 * From what is known of a work to its settlement: outcome, attempts, what happens to its key.
 *
 * Must not know: transactions, sessions.
 *
 * What a settlement does to its key
 *   block  a row that is retry, blocked, or dead with hold blocks it; the settlement of a parked
 *          row that ends otherwise releases the next follower
 *   skip   only rows of the window after an unclean end block, until their first run has ended
 *   none   nothing
 */
#include <string.h>

#include "base/str.h"
#include "consumer/internal.h"
#include "core/deadletter.h"

#define UNCHARGED_DELAY_US (100 * TD_MILLISECOND_US)

void tdi_work_key(struct tdi_consumer *c, struct tdi_work *w)
{
    struct td_str key = w->message.key;
    bool usable = c->o.order != TDI_ORDER_NONE && key.len > 0 && key.len <= TD_KEY_BYTES_MAX;
    w->key = usable ? key : TD_STR_NONE;
}

bool tdi_known_blocks(const struct tdi_consumer *c, enum td_outcome known)
{
    if (c->o.order != TDI_ORDER_BLOCK) {
        return false;
    }
    switch (known) {
    case TD_OUTCOME_RETRY:
    case TD_OUTCOME_BLOCKED:
        return true;
    case TD_OUTCOME_DEAD:
        return c->o.on_dead == TDI_ON_DEAD_HOLD;
    case TD_OUTCOME_NONE:
    case TD_OUTCOME_EFFECT:
    case TD_OUTCOME_DISCARDED:
    case TD_OUTCOME_DROPPED:
        return false;
    }
    return false;
}

/* Cut to the limit without splitting a character. */
static struct td_str bounded(struct td_str s)
{
    if (s.len <= TD_REASON_TEXT_MAX) {
        return s;
    }
    s.len = TD_REASON_TEXT_MAX;
    while (s.len > 0 && ((unsigned char)s.data[s.len] & 0xc0) == 0x80) {
        s.len--;
    }
    return s;
}

static struct td_settle *settle_base(struct tdi_consumer *c, struct tdi_work *w,
                                     enum td_outcome outcome)
{
    w->settle = (struct td_settle){
        .ref = {.source = w->message.source, .id = w->message.id},
        .expected = w->parked ? TD_OUTCOME_RETRY : TD_OUTCOME_NONE,
        .expected_attempts = w->parked ? w->attempts : 0,
        .outcome = outcome,
        .attempts = w->parked ? w->attempts : 1,
        .attempt_limit = w->parked ? w->attempt_limit : c->o.retry.attempts,
        .handler = tdi_str(c->o.handler_driver->name),
        .origin = w->origin,
        .message = &w->message,
    };
    return &w->settle;
}

/* Fill what the outcome of a run, or of a decision in its place, does to the key. */
static void settle_key(struct tdi_consumer *c, struct tdi_work *w)
{
    struct td_settle *s = &w->settle;
    if (w->key.data == NULL) {
        return;
    }
    switch (c->o.order) {
    case TDI_ORDER_NONE:
        break;
    case TDI_ORDER_SKIP:
        s->release_next = w->parked && w->blocks_key;
        break;
    case TDI_ORDER_BLOCK:
        s->blocks_key = tdi_known_blocks(c, s->outcome);
        s->release_next = w->parked && !s->blocks_key;
        break;
    }
}

static void one_run_more(struct td_settle *s)
{
    s->attempt_limit += s->attempt_limit < INT32_MAX ? 1 : 0;
}

static void decide_retry(struct tdi_consumer *c, struct tdi_work *w, const struct td_verdict *v,
                         bool uncharged)
{
    struct td_settle *s = &w->settle;
    if (uncharged) {
        /* Attempts never go down, so the limit goes up instead. */
        one_run_more(s);
        s->due_after_us = v->after_us > UNCHARGED_DELAY_US ? v->after_us : UNCHARGED_DELAY_US;
    } else if (s->attempts >= s->attempt_limit) {
        s->outcome = TD_OUTCOME_DEAD;
        s->code = v->verdictless ? TD_DEAD_POISON : TD_DEAD_EXHAUSTED;
    } else {
        s->due_after_us = tdi_retry_delay(&c->o.retry, s->attempts, v->after_us, c->o.random);
    }
}

void tdi_decide_verdict(struct tdi_consumer *c, struct tdi_work *w, const struct td_verdict *v,
                        bool uncharged)
{
    struct td_settle *s = settle_base(c, w, TD_OUTCOME_EFFECT);
    s->reason = bounded(v->reason);
    s->error_type = bounded(v->error_type);
    s->error_message = bounded(v->error_message);
    switch (v->kind) {
    case TD_VERDICT_OK:
        s->emit = v->emit;
        s->emit_count = v->emit_count;
        break;
    case TD_VERDICT_DROP:
        s->outcome = TD_OUTCOME_DROPPED;
        break;
    case TD_VERDICT_DEAD:
        s->outcome = TD_OUTCOME_DEAD;
        s->code = v->code != TD_DEAD_NONE ? v->code : TD_DEAD_REJECTED;
        break;
    case TD_VERDICT_RETRY:
        s->outcome = TD_OUTCOME_RETRY;
        s->code = v->code;
        decide_retry(c, w, v, uncharged);
        break;
    }
    settle_key(c, w);
}

static void decide_dead(struct tdi_consumer *c, struct tdi_work *w, enum td_dead_code code,
                        struct td_str reason)
{
    struct td_settle *s = settle_base(c, w, TD_OUTCOME_DEAD);
    s->code = code;
    s->reason = bounded(reason);
    settle_key(c, w);
}

bool tdi_decide_unfit(struct tdi_consumer *c, struct tdi_work *w)
{
    td_time_us store_now = tdi_now(c) + c->store_clock_offset;
    const struct td_message *m = &w->message;
    if (!w->parked && w->no_id) {
        decide_dead(c, w, TD_DEAD_NO_ID, TD_STR_LIT("the message has no id"));
    } else if (!w->parked && !tdi_str_empty(w->defect)) {
        decide_dead(c, w, TD_DEAD_INVALID, w->defect);
    } else if (!w->parked && m->published_at != TD_TIME_NONE &&
               m->published_at < store_now - c->o.stale_after_us) {
        decide_dead(c, w, TD_DEAD_STALE,
                    TD_STR_LIT("published longer ago than the inbox remembers; it may have taken "
                               "effect before"));
    } else if (m->expires_at != TD_TIME_NONE && m->expires_at <= store_now &&
               w->code != TD_DEAD_EXPIRED) {
        decide_dead(c, w, TD_DEAD_EXPIRED, TD_STR_LIT("the message has expired"));
    } else {
        return false;
    }
    return true;
}

void tdi_decide_blocked(struct tdi_consumer *c, struct tdi_work *w)
{
    struct td_settle *s = settle_base(c, w, TD_OUTCOME_BLOCKED);
    s->attempts = 0;
    s->blocks_key = true;
    s->unfinished_run = w->in_window;
    s->reason = TD_STR_LIT("waits behind an earlier message of its key");
}

void tdi_decide_window(struct tdi_consumer *c, struct tdi_work *w)
{
    struct td_settle *s = settle_base(c, w, TD_OUTCOME_RETRY);
    s->attempts = 0;
    s->blocks_key = w->key.data != NULL;
    s->unfinished_run = true;
    s->reason = TD_STR_LIT("was in hand when the consumer ended without warning; runs alone");
}

void tdi_decide_give_back(struct tdi_consumer *c, struct tdi_work *w, td_time_us due_after_us)
{
    struct td_settle *s = settle_base(c, w, TD_OUTCOME_RETRY);
    one_run_more(s);
    s->due_after_us = due_after_us;
    s->blocks_key = w->blocks_key;
    s->reason = TD_STR_LIT("the run that was counted did not take place");
}

void tdi_work_fault(struct tdi_work *w, const struct td_error *err)
{
    struct td_str text = tdi_arena_printf(&w->parcel->arena, "%s", err->text);
    w->fault = text.data != NULL ? text : TD_STR_LIT("the transaction was refused");
    memcpy(w->fault_sqlstate, err->sqlstate, sizeof(w->fault_sqlstate));
}

void tdi_decide_fault(struct tdi_consumer *c, struct tdi_work *w)
{
    struct td_verdict v = {
        .kind = TD_VERDICT_RETRY,
        .reason = w->fault,
        .error_type = tdi_str(w->fault_sqlstate),
        .error_message = w->fault,
    };
    tdi_decide_verdict(c, w, &v, false);
}
