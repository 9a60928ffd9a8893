/*
 * Handler outside: look at what is in hand, offer it to the gate, start, collect results.
 *
 *   NEW --look--> known: acknowledged
 *                 fresh: gate --> READY | WAITING (for its key) | decided: blocked
 *   READY --start--> RUNNING --poll--> decided
 *
 * A run starts only while the lease lasts, by the monotonic clock, longer than the handler's
 * time-out. No transaction is open here.
 */
#include "base/str.h"
#include "consumer/internal.h"

/* ---- the gate ---- */

static void blocked_at_gate(struct tdi_consumer *c, struct tdi_work *w)
{
    w->gate = w->key.data != NULL ? TDI_GATE_REPORT_PARKED : TDI_GATE_REPORT_NONE;
    if (!tdi_decide_unfit(c, w)) {
        tdi_decide_blocked(c, w);
    }
    tdi_settle_queue(c, w);
}

static void runs_at_gate(struct tdi_consumer *c, struct tdi_work *w)
{
    w->gate = w->key.data != NULL ? TDI_GATE_REPORT_END : TDI_GATE_REPORT_NONE;
    if (tdi_decide_unfit(c, w)) {
        tdi_settle_queue(c, w);
    } else {
        w->state = TDI_WORK_READY;
    }
}

static void take_answer(struct tdi_consumer *c, struct tdi_work *w, enum tdi_gate_answer answer)
{
    switch (answer) {
    case TDI_GATE_RUN:
        runs_at_gate(c, w);
        break;
    case TDI_GATE_PARK:
        blocked_at_gate(c, w);
        break;
    case TDI_GATE_WAIT:
        w->state = TDI_WORK_WAITING;
        break;
    case TDI_GATE_FULL: {
        /* The gate is made for everything in hand: what is missing is memory. */
        struct td_error err = {0};
        td_error_set(&err, TD_ERR_NOMEM, "no memory to keep the order of keys");
        tdi_report_error(c, &err);
        tdi_lose(c);
        break;
    }
    }
}

void tdi_gate_drain(struct tdi_consumer *c, struct td_str key)
{
    uint64_t token = 0;
    enum tdi_gate_answer answer = TDI_GATE_RUN;
    while (tdi_gate_next(&c->gate, key, &token, &answer)) {
        struct tdi_work *w = tdi_work_of(c, token);
        TDI_ASSERT(w != NULL && w->state == TDI_WORK_WAITING);
        take_answer(c, w, answer);
    }
}

void tdi_outside_offer(struct tdi_consumer *c, struct tdi_work *w)
{
    take_answer(c, w,
                w->parked ? tdi_gate_offer_parked(&c->gate, w->key, w->token)
                          : tdi_gate_offer(&c->gate, w->key, w->token));
}

/* ---- look ---- */

/* Another copy of the message is being worked on: this one waits until that is settled. */
static bool has_twin(const struct tdi_consumer *c, const struct tdi_work *w)
{
    for (const struct tdi_work *o = c->hand.first; o != NULL && o != w; o = o->next) {
        if (tdi_str_eq(o->message.id, w->message.id) &&
            tdi_str_eq(o->message.source, w->message.source)) {
            return true;
        }
    }
    return false;
}

static size_t take_new(const struct tdi_consumer *c, struct tdi_work **ret)
{
    size_t count = 0;
    for (struct tdi_work *w = c->hand.first; w != NULL && count < TDI_SLICE_MAX; w = w->next) {
        if (w->state == TDI_WORK_NEW && !w->in_window && !has_twin(c, w)) {
            ret[count++] = w;
        }
    }
    return count;
}

bool tdi_outside_look(struct tdi_consumer *c)
{
    struct td_error err = {0};
    struct tdi_work *works[TDI_SLICE_MAX];
    struct td_message_ref refs[TDI_SLICE_MAX];
    struct td_inbox_state states[TDI_SLICE_MAX] = {0};
    size_t count = take_new(c, works);
    if (count == 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        refs[i] = (struct td_message_ref){works[i]->message.source, works[i]->message.id};
    }
    if (c->o.store_driver->inbox_look(c->store, c->o.name, refs, count, states, &err) != TD_OK) {
        tdi_store_failed(c, &err);
        return true;
    }
    tdi_store_worked(c);
    for (size_t i = 0; i < count && !c->lose; i++) {
        works[i]->known_as = states[i];
        if (states[i].outcome != TD_OUTCOME_NONE) {
            tdi_work_known(c, works[i]);
        } else {
            tdi_outside_offer(c, works[i]);
        }
    }
    return true;
}

/* ---- start ---- */

static struct tdi_work *next_ready(struct tdi_consumer *c, td_time_us now)
{
    struct tdi_work_list *lists[] = {&c->rows, &c->hand};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (struct tdi_work *w = lists[i]->first; w != NULL; w = w->next) {
            if (w->state == TDI_WORK_READY && w->not_before <= now) {
                return w;
            }
        }
    }
    return NULL;
}

/* When the next work that waits after an uncharged result may start; INT64_MAX: none waits. */
td_time_us tdi_outside_ready_at(const struct tdi_consumer *c, td_time_us now)
{
    const struct tdi_work_list *lists[] = {&c->rows, &c->hand};
    td_time_us at = INT64_MAX;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const struct tdi_work *w = lists[i]->first; w != NULL; w = w->next) {
            if (w->state == TDI_WORK_READY && w->not_before > now && w->not_before < at) {
                at = w->not_before;
            }
        }
    }
    return at;
}

static void start_failed(struct tdi_consumer *c, struct tdi_work *w, const struct td_error *err)
{
    tdi_report_error(c, err);
    switch (err->class_) {
    case TD_CLASS_RETRY:
    case TD_CLASS_FATAL:
    case TD_CLASS_UNKNOWN:
        tdi_breaker_trip(&c->breaker, tdi_now(c), c->o.random);
        break;
    case TD_CLASS_PERMANENT:
        tdi_work_fault(w, err);
        tdi_settle_queue(c, w);
        break;
    }
}

bool tdi_outside_start(struct tdi_consumer *c, td_time_us now)
{
    struct td_error err = {0};
    struct tdi_work *w = next_ready(c, now);
    td_time_us deadline = now + c->o.handler.timeout_us;
    if (w == NULL || c->slots_taken || tdi_breaker_allows(&c->breaker, now) == 0 ||
        (c->running > 0 && c->o.handler_driver->free_slots(c->handler) == 0)) {
        return false;
    }
    if (deadline >= c->lease_until) {
        c->renew_at = c->renew_at < now ? c->renew_at : now;
        return false;
    }
    if (w->parked && deadline >= w->row_until) {
        tdi_decide_give_back(c, w, 0);
        w->give_back = true;
        tdi_settle_queue(c, w);
        return true;
    }
    struct td_run run = {
        .token = w->token,
        .message = &w->message,
        .consumer = c->o.name,
        .attempt = w->parked ? w->attempts : 1,
        .fence = c->lease.fence,
        .deadline_us = deadline,
    };
    enum td_err rc = c->o.handler_driver->start(c->handler, &run, &err);
    if (rc == TD_OK) {
        w->state = TDI_WORK_RUNNING;
        c->running++;
        tdi_breaker_started(&c->breaker);
    } else if (err.code == TD_ERR_BUSY && c->running > 0) {
        c->slots_taken = true; /* until a result comes */
    } else if (err.code != TD_ERR_INTERRUPTED) {
        start_failed(c, w, &err);
    }
    return true;
}

/* ---- results ---- */

static void take_result(struct tdi_consumer *c, struct tdi_parcel *parcel,
                        const struct td_run_result *r)
{
    struct tdi_work *w = tdi_work_of(c, r->token);
    if (w == NULL || w->state != TDI_WORK_RUNNING) {
        return; /* cancelled */
    }
    c->running--;
    const struct td_verdict *v = &r->verdict;
    bool uncharged =
        tdi_breaker_result(&c->breaker, v->broken, tdi_now(c), c->o.random) || v->uncharged;
    if (v->kind == TD_VERDICT_RETRY && uncharged && !w->parked) {
        w->state = TDI_WORK_READY; /* stays in hand, its key with it */
        w->not_before = tdi_now(c) + tdi_backoff(1, c->o.random);
        return;
    }
    w->ran = true;
    w->answer = parcel;
    tdi_parcel_ref(c, parcel);
    tdi_decide_verdict(c, w, v, uncharged);
    tdi_settle_queue(c, w);
}

size_t tdi_outside_poll(struct tdi_consumer *c, td_time_us deadline)
{
    struct td_error err = {0};
    struct td_run_result results[TDI_SLICE_MAX];
    size_t count = 0;
    struct tdi_parcel *parcel = tdi_parcel_take(c);
    if (parcel == NULL) {
        td_error_set(&err, TD_ERR_NOMEM, "no memory for results");
        tdi_report_error(c, &err);
        return 0;
    }
    if (c->o.handler_driver->poll(c->handler, deadline, &parcel->arena, results, TDI_SLICE_MAX,
                                  &count, &err) != TD_OK) {
        tdi_report_error(c, &err);
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        take_result(c, parcel, &results[i]);
    }
    c->slots_taken = c->slots_taken && count == 0;
    tdi_parcel_drop(c, parcel);
    return count;
}

bool tdi_outside_cancel_one(struct tdi_consumer *c)
{
    struct tdi_work_list *lists[] = {&c->rows, &c->hand};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]) && c->running > 0; i++) {
        for (struct tdi_work *w = lists[i]->first; w != NULL; w = w->next) {
            if (w->state == TDI_WORK_RUNNING) {
                c->o.handler_driver->cancel(c->handler, w->token);
                tdi_breaker_forgotten(&c->breaker);
                w->state = TDI_WORK_NEW;
                c->running--;
                return true;
            }
        }
    }
    return false;
}
