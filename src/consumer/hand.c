/*
 * What is in hand: works and their memory, fetching, acknowledging, forgetting.
 *
 * Must not know: transactions and verdicts.
 */
#include <stdlib.h>

#include "base/str.h"
#include "base/uuid.h"
#include "consumer/internal.h"
#include "core/route.h"

#define PARCEL_BYTES_MAX ((size_t)256 << 20)

/* ---- parcels ---- */

struct tdi_parcel *tdi_parcel_take(struct tdi_consumer *c)
{
    struct tdi_parcel *p = c->parcels_free;
    if (p != NULL) {
        c->parcels_free = p->next;
        p->next = NULL;
        return p;
    }
    p = calloc(1, sizeof(*p));
    if (p != NULL) {
        tdi_arena_init(&p->arena, PARCEL_BYTES_MAX);
    }
    return p;
}

void tdi_parcel_drop(struct tdi_consumer *c, struct tdi_parcel *p)
{
    if (p->refs > 0) {
        return;
    }
    c->parcels_bytes -= p->bytes;
    p->bytes = 0;
    tdi_arena_reset(&p->arena);
    p->next = c->parcels_free;
    c->parcels_free = p;
}

static void parcel_unref(struct tdi_consumer *c, struct tdi_parcel *p)
{
    if (p != NULL) {
        TDI_ASSERT(p->refs > 0);
        p->refs--;
        tdi_parcel_drop(c, p);
    }
}

void tdi_parcel_ref(struct tdi_consumer *c, struct tdi_parcel *p)
{
    p->refs++;
    c->parcels_bytes += p->arena.bytes - p->bytes;
    p->bytes = p->arena.bytes;
}

/* ---- works ---- */

static void list_append(struct tdi_work_list *list, struct tdi_work *w)
{
    w->prev = list->last;
    w->next = NULL;
    if (list->last != NULL) {
        list->last->next = w;
    } else {
        list->first = w;
    }
    list->last = w;
    list->count++;
}

static void list_remove(struct tdi_work_list *list, struct tdi_work *w)
{
    if (w->prev != NULL) {
        w->prev->next = w->next;
    } else {
        list->first = w->next;
    }
    if (w->next != NULL) {
        w->next->prev = w->prev;
    } else {
        list->last = w->prev;
    }
    list->count--;
}

bool tdi_hand_init(struct tdi_consumer *c)
{
    c->works_max = c->o.prefetch + TDI_ROWS_MAX;
    c->works = calloc(c->works_max, sizeof(*c->works));
    c->acks = calloc(c->o.prefetch, sizeof(*c->acks));
    if (c->works == NULL || c->acks == NULL) {
        return false;
    }
    for (size_t i = 0; i < c->works_max; i++) {
        list_append(&c->spare, &c->works[i]);
    }
    return true;
}

struct tdi_work *tdi_work_new(struct tdi_consumer *c, bool parked, struct tdi_parcel *parcel)
{
    struct tdi_work *w = c->spare.first;
    if (w == NULL) {
        return NULL;
    }
    list_remove(&c->spare, w);
    *w = (struct tdi_work){
        .parcel = parcel,
        .parked = parked,
        .token = (++c->uses << 16) | (uint64_t)(w - c->works),
    };
    tdi_parcel_ref(c, parcel);
    list_append(parked ? &c->rows : &c->hand, w);
    return w;
}

void tdi_work_free(struct tdi_consumer *c, struct tdi_work *w)
{
    list_remove(w->parked ? &c->rows : &c->hand, w);
    parcel_unref(c, w->parcel);
    parcel_unref(c, w->answer);
    w->token = 0;
    list_append(&c->spare, w);
}

struct tdi_work *tdi_work_of(struct tdi_consumer *c, uint64_t token)
{
    size_t index = (size_t)(token & 0xffff);
    if (token == 0 || index >= c->works_max || c->works[index].token != token) {
        return NULL;
    }
    return &c->works[index];
}

/* ---- fetching ---- */

bool tdi_hand_may_fetch(const struct tdi_consumer *c)
{
    return c->hand.count + c->acks_count < c->o.prefetch &&
           c->parcels_bytes < 2 * c->o.prefetch_bytes;
}

/* A message without a usable id or source still needs a name for its row: the same for every copy
 * of it, different for another message. */
static bool name_message(struct tdi_consumer *c, struct tdi_work *w)
{
    struct td_message *m = &w->message;
    if (tdi_str_empty(m->source)) {
        m->source = TD_STR_LIT("unknown");
    }
    if (tdi_str_is_id(m->id, TD_ID_BYTES_MAX)) {
        return true;
    }
    w->no_id = tdi_str_empty(m->id);
    struct td_str parts[] = {
        TD_STR_LIT("no-id"),
        c->o.topic,
        w->origin,
        m->id,
        {.data = m->body.data, .len = m->body.len},
    };
    char text[TDI_UUID_TEXT_LEN + 1];
    tdi_uuid5(parts, sizeof(parts) / sizeof(parts[0]), text);
    if (!w->no_id && tdi_str_empty(w->defect)) {
        w->defect = TD_STR_LIT("the id is not 1 to 128 bytes of printable ASCII");
    }
    return tdi_arena_str(&w->parcel->arena, tdi_str(text), &m->id);
}

/* Does the delivery belong to the window after an unclean end? */
static bool belongs_to_window(struct tdi_consumer *c, const struct td_delivery *d)
{
    if (!c->window || c->window_ending) {
        return false;
    }
    if (c->o.broker_driver->caps & TD_BROKER_REDELIVERED_MARK) {
        c->window_ending = !d->redelivered;
    } else {
        c->window_ending = c->window_left == 0;
        c->window_left -= c->window_left > 0 ? 1 : 0;
    }
    return !c->window_ending;
}

static bool take_delivery(struct tdi_consumer *c, struct tdi_parcel *parcel,
                          const struct td_delivery *d)
{
    bool in_window = belongs_to_window(c, d);
    bool typed = !tdi_str_empty(d->message.type);
    if ((typed || tdi_str_empty(d->defect)) &&
        !tdi_patterns_match(c->o.types, c->o.types_count, d->message.type)) {
        c->acks[c->acks_count++] = d->handle;
        return true;
    }
    struct tdi_work *w = tdi_work_new(c, false, parcel);
    if (w == NULL) {
        return false;
    }
    w->message = d->message;
    w->origin = d->origin;
    w->defect = d->defect;
    w->handle = d->handle;
    w->session = c->broker_session;
    w->in_window = in_window;
    tdi_work_key(c, w);
    return name_message(c, w);
}

static void take_events(struct tdi_consumer *c, const struct td_fetch *f)
{
    for (size_t i = 0; i < f->events_count; i++) {
        switch (f->events[i].kind) {
        case TD_SHARD_ASSIGNED:
            break;
        case TD_SHARD_REVOKED:
        case TD_SHARD_CANCELLED:
            c->lose_broker = true;
            break;
        }
    }
}

size_t tdi_hand_fetch(struct tdi_consumer *c, size_t most, td_time_us deadline)
{
    struct td_error err = {0};
    struct td_fetch f = {0};
    size_t room = c->o.prefetch - c->hand.count - c->acks_count;
    room = room < most ? room : most;
    struct tdi_parcel *parcel = tdi_parcel_take(c);
    if (parcel == NULL) {
        td_error_set(&err, TD_ERR_NOMEM, "no memory for deliveries");
        tdi_broker_failed(c, &err);
        return 0;
    }
    enum td_err rc = c->o.broker_driver->fetch(c->broker, room, deadline, &parcel->arena, &f, &err);
    if (rc == TD_OK) {
        tdi_broker_worked(c);
        take_events(c, &f);
        for (size_t i = 0; i < f.count && rc == TD_OK; i++) {
            if (i >= room || !take_delivery(c, parcel, &f.deliveries[i])) {
                rc = td_error_set(&err, TD_ERR_LIMIT, "no room for the deliveries of one fetch");
            }
        }
        if (c->window && f.caught_up) {
            c->window_ending = true;
        }
    }
    tdi_parcel_drop(c, parcel);
    if (rc != TD_OK) {
        tdi_broker_failed(c, &err);
    }
    return f.count;
}

/* ---- acknowledging ---- */

void tdi_hand_queue_ack(struct tdi_consumer *c, const struct tdi_work *w)
{
    if (w->session == c->broker_session) {
        TDI_ASSERT(c->acks_count < c->o.prefetch);
        c->acks[c->acks_count++] = w->handle;
    }
}

void tdi_hand_ack(struct tdi_consumer *c)
{
    struct td_error err = {0};
    if (c->o.broker_driver->ack(c->broker, c->acks, c->acks_count, &err) == TD_OK) {
        c->acks_count = 0;
        tdi_broker_worked(c);
    } else {
        tdi_broker_failed(c, &err);
    }
}

/* ---- the window after an unclean end ---- */

bool tdi_window_done(const struct tdi_consumer *c)
{
    if (!c->window || !c->window_ending) {
        return false;
    }
    for (const struct tdi_work *w = c->hand.first; w != NULL; w = w->next) {
        if (w->in_window) {
            return false;
        }
    }
    return true;
}

/* The next slice of the window gets its decisions: parked first, run later. Returns how many. Only
 * while nothing else is decided, so that the marks of the slice before are committed. */
size_t tdi_window_decide(struct tdi_consumer *c)
{
    size_t count = 0;
    for (struct tdi_work *w = c->hand.first; w != NULL && count < TDI_SLICE_MAX; w = w->next) {
        if (!w->in_window || w->state != TDI_WORK_NEW) {
            continue;
        }
        if (tdi_decide_unfit(c, w)) {
            /* dead without a run */
        } else if (tdi_key_blocked(c, w->key)) {
            tdi_decide_blocked(c, w);
        } else {
            tdi_decide_window(c, w);
        }
        tdi_settle_queue(c, w);
        count++;
        if (w->settle.blocks_key) {
            tdi_key_tentative(c, w->key, true);
        }
    }
    tdi_key_tentative_clear(c);
    return count;
}

/* ---- forgetting ---- */

/* The gate let it go and is told that it will not run. */
static void gate_give_up(struct tdi_consumer *c, struct tdi_work *w)
{
    switch (w->gate) {
    case TDI_GATE_REPORT_NONE:
        break;
    case TDI_GATE_REPORT_END:
        tdi_gate_end(&c->gate, w->key, tdi_gate_blocked(&c->gate, w->key));
        tdi_gate_drain(c, w->key);
        break;
    case TDI_GATE_REPORT_PARKED:
        tdi_gate_parked(&c->gate, w->key, true);
        tdi_gate_drain(c, w->key);
        break;
    }
    w->gate = TDI_GATE_REPORT_NONE;
}

void tdi_hand_forget_live(struct tdi_consumer *c)
{
    tdi_gate_forget_live(&c->gate);
    struct tdi_work *next = NULL;
    for (struct tdi_work *w = c->hand.first; w != NULL; w = next) {
        next = w->next;
        switch (w->state) {
        case TDI_WORK_NEW:
        case TDI_WORK_WAITING:
        case TDI_WORK_READY:
            gate_give_up(c, w);
            tdi_work_free(c, w);
            break;
        case TDI_WORK_RUNNING:
        case TDI_WORK_DECIDED:
            break;
        }
    }
    c->acks_count = 0;
    c->window_ending = false;
    c->window_left = c->o.prefetch;
}

void tdi_hand_forget(struct tdi_consumer *c)
{
    TDI_ASSERT(c->running == 0);
    while (c->hand.first != NULL) {
        tdi_work_free(c, c->hand.first);
    }
    c->decided_first = NULL;
    c->decided_last = NULL;
    c->decided_count = 0;
    struct tdi_work *next = NULL;
    for (struct tdi_work *w = c->rows.first; w != NULL; w = next) {
        next = w->next;
        if (w->suspect) {
            tdi_work_free(c, w); /* costs the attempt that was counted at its lease */
            continue;
        }
        parcel_unref(c, w->answer);
        w->answer = NULL;
        w->state = TDI_WORK_NEW;
        w->gate = TDI_GATE_REPORT_NONE;
        w->plan = TDI_PLAN_NONE;
        w->fate = TDI_FATE_NONE;
        w->give_back = true;
    }
    c->acks_count = 0;
    tdi_gate_clear(&c->gate);
}

void tdi_hand_release(struct tdi_consumer *c)
{
    while (c->hand.first != NULL) {
        tdi_work_free(c, c->hand.first);
    }
    while (c->rows.first != NULL) {
        tdi_work_free(c, c->rows.first);
    }
    while (c->parcels_free != NULL) {
        struct tdi_parcel *p = c->parcels_free;
        c->parcels_free = p->next;
        tdi_arena_release(&p->arena);
        free(p);
    }
    free(c->works);
    free(c->acks);
}
