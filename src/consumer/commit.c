/*
 * What a commit changes in memory: marks of keys, the gate, counters, the queue of acks, the log.
 * And marks that hold only inside the open transaction.
 *
 * Must not know: how the transaction was made.
 */
#include "base/str.h"
#include "consumer/internal.h"
#include "core/deadletter.h"

/* ---- marks inside the transaction ---- */

static char mark_blocked;
static char mark_free;

bool tdi_key_blocked(const struct tdi_consumer *c, struct td_str key)
{
    if (key.data == NULL) {
        return false;
    }
    const char *mark = tdi_map_get(&c->tx.tentative, key);
    return mark != NULL ? mark == &mark_blocked : tdi_gate_blocked(&c->gate, key);
}

void tdi_key_tentative(struct tdi_consumer *c, struct td_str key, bool blocked)
{
    if (key.data != NULL &&
        !tdi_map_put(&c->tx.tentative, key, blocked ? &mark_blocked : &mark_free)) {
        struct td_error err = {0};
        td_error_set(&err, TD_ERR_NOMEM, "no memory for the mark of a blocked key");
        tdi_report_error(c, &err);
        tdi_lose(c);
    }
}

void tdi_key_tentative_clear(struct tdi_consumer *c)
{
    if (c->tx.tentative.count > 0) {
        tdi_map_release(&c->tx.tentative);
        tdi_map_init(&c->tx.tentative, c->seed, 0);
    }
}

void tdi_key_mark(struct tdi_consumer *c, struct td_str key, bool blocked)
{
    if (key.data != NULL && !tdi_gate_mark(&c->gate, key, blocked)) {
        struct td_error err = {0};
        td_error_set(&err, TD_ERR_NOMEM, "no memory for the mark of a blocked key");
        tdi_report_error(c, &err);
        tdi_lose(c);
    }
}

/* ---- log ---- */

void tdi_log_work(struct tdi_consumer *c, enum tdi_log_level level, const char *event,
                  const struct tdi_work *w, const char *result)
{
    if (!tdi_log_on(c->o.log, level)) {
        return;
    }
    const struct td_settle *s = &w->settle;
    struct tdi_log_field fields[] = {
        TDI_LOG_STR("message_id", w->message.id),
        TDI_LOG_STR("type", w->message.type),
        TDI_LOG_STR("consumer", c->o.name),
        TDI_LOG_STR("key", w->message.key),
        TDI_LOG_INT("attempt", w->parked ? w->attempts : 1),
        TDI_LOG_STR("trace_id", w->message.traceparent),
        TDI_LOG_STR("result", tdi_str(result)),
        TDI_LOG_STR("code", tdi_str(tdi_dead_code_name(s->code))),
        TDI_LOG_STR("reason", s->reason),
        TDI_LOG_STR("error_type", s->error_type),
    };
    size_t count = sizeof(fields) / sizeof(fields[0]);
    tdi_log_write(c->o.log, level, event, fields, s->reason.len > 0 ? count : count - 3);
}

/* ---- after the commit ---- */

/* The key of w after the commit: tell the gate, which may let others of the key go. */
static void report_key(struct tdi_consumer *c, const struct tdi_work *w, bool blocked)
{
    if (w->key.data == NULL) {
        return;
    }
    switch (w->gate) {
    case TDI_GATE_REPORT_NONE:
        if (tdi_gate_blocked(&c->gate, w->key) != blocked) {
            tdi_key_mark(c, w->key, blocked);
        }
        break;
    case TDI_GATE_REPORT_END:
        tdi_gate_end(&c->gate, w->key, blocked);
        tdi_gate_drain(c, w->key);
        break;
    case TDI_GATE_REPORT_PARKED:
        tdi_gate_parked(&c->gate, w->key, blocked);
        tdi_gate_drain(c, w->key);
        break;
    }
}

/* Leave the hand first: draining the gate may take other works of the same key further. */
static void leave_hand(struct tdi_consumer *c, struct tdi_work *w, bool blocked)
{
    if (!w->parked) {
        tdi_hand_queue_ack(c, w);
    }
    report_key(c, w, blocked);
    tdi_work_free(c, w);
}

void tdi_work_known(struct tdi_consumer *c, struct tdi_work *w)
{
    c->totals.duplicates++;
    tdi_log_work(c, TDI_LOG_DEBUG, "message known", w, tdi_outcome_name(w->known_as.outcome));
    bool blocked = tdi_known_blocks(c, w->known_as.outcome) ||
                   (w->key.data != NULL && tdi_gate_blocked(&c->gate, w->key));
    leave_hand(c, w, blocked);
}

static void count_row(struct td_consumer_counts *n, enum td_outcome outcome, int64_t by)
{
    switch (outcome) {
    case TD_OUTCOME_RETRY:
        n->retrying += by;
        break;
    case TD_OUTCOME_BLOCKED:
        n->blocked += by;
        break;
    case TD_OUTCOME_DEAD:
        n->dead += by;
        break;
    case TD_OUTCOME_NONE:
    case TD_OUTCOME_EFFECT:
    case TD_OUTCOME_DISCARDED:
    case TD_OUTCOME_DROPPED:
        break;
    }
}

/* What is parked, until it is counted again: so the state is right at once. */
static void count_parked(struct tdi_consumer *c, const struct tdi_work *w)
{
    if (w->parked) {
        count_row(&c->counts, TD_OUTCOME_RETRY, -1);
    }
    count_row(&c->counts, w->settle.outcome, 1);
    if (w->settle.next_released) {
        count_row(&c->counts, TD_OUTCOME_BLOCKED, -1);
        count_row(&c->counts, TD_OUTCOME_RETRY, 1);
    }
    c->counts_wanted = c->counts_wanted || w->parked || w->settle.outcome != TD_OUTCOME_EFFECT;
}

static void count_settled(struct tdi_consumer *c, const struct tdi_work *w)
{
    count_parked(c, w);
    switch (w->settle.outcome) {
    case TD_OUTCOME_EFFECT:
    case TD_OUTCOME_DROPPED:
        c->totals.handled++;
        tdi_log_work(c, TDI_LOG_DEBUG, "message handled", w, tdi_outcome_name(w->settle.outcome));
        break;
    case TD_OUTCOME_RETRY:
        if (w->settle.attempts > 0 && !w->give_back) {
            c->totals.retried++;
            tdi_log_work(c, TDI_LOG_WARN, "message failed", w, "retry");
        }
        break;
    case TD_OUTCOME_DEAD:
        c->totals.dead++;
        tdi_log_work(c, TDI_LOG_WARN, "message failed", w, "dead");
        break;
    case TD_OUTCOME_BLOCKED:
        tdi_log_work(c, TDI_LOG_DEBUG, "message blocked", w, "blocked");
        break;
    case TD_OUTCOME_NONE:
    case TD_OUTCOME_DISCARDED:
        break;
    }
}

void tdi_work_committed(struct tdi_consumer *c, struct tdi_work *w)
{
    bool was = w->key.data != NULL && tdi_gate_blocked(&c->gate, w->key);
    switch (w->fate) {
    case TDI_FATE_KNOWN:
        tdi_work_known(c, w);
        return;
    case TDI_FATE_EFFECT:
        count_settled(c, w);
        leave_hand(c, w, was);
        return;
    case TDI_FATE_SETTLED:
        count_settled(c, w);
        /* A live message that took effect says nothing of the rows behind its key's mark. */
        leave_hand(c, w, w->settle.key_blocked || (was && !w->parked));
        return;
    case TDI_FATE_GONE:
        tdi_log_work(c, TDI_LOG_INFO, "parked message was changed meanwhile", w, "none");
        c->counts_wanted = true;
        leave_hand(c, w, was);
        return;
    case TDI_FATE_NONE:
        break;
    }
    TDI_ASSERT(w->fate != TDI_FATE_NONE);
}
