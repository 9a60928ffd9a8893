/*
 * A queue's messages in memory: one array sorted by id that holds what is ready, what is in flight
 * and, until they are dropped, what was settled in between. So order survives whatever comes back.
 * Lock held.
 *
 * Invariants: head..tail is sorted by id; `ready` and `settled` count the states; no READY item lies
 * before first_ready. Memory is bounded by the refill, the cache limit and the prefetch of the
 * consumers, never by the backlog.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/embedded/internal.h"

#define CAP_MIN 64
#define CAP_KEPT 2048  /* items of an empty window */
#define COMPACT_MIN 64 /* settled items worth a pass */

static size_t entry_bytes(const struct tdd_emb_entry *e)
{
    return e->envelope_len + e->body_len;
}

static void move_to_front(struct tdd_emb_queue *q)
{
    size_t count = q->tail - q->head;
    memmove(q->items, q->items + q->head, count * sizeof(*q->items));
    q->first_ready -= q->head;
    q->tail = count;
    q->head = 0;
}

static bool make_room(struct tdd_emb_queue *q)
{
    if (q->tail < q->cap) {
        return true;
    }
    if (q->head > q->cap / 2) {
        move_to_front(q);
        return true;
    }
    size_t cap = q->cap > 0 ? q->cap * 2 : CAP_MIN;
    struct tdd_emb_item *items = realloc(q->items, cap * sizeof(*items));
    if (items == NULL) {
        return false;
    }
    q->items = items;
    q->cap = cap;
    return true;
}

bool tdd_emb_window_add(struct td_broker_instance *in, struct tdd_emb_queue *q, int64_t id,
                        struct tdd_emb_entry *e, bool redelivered)
{
    if (!make_room(q)) {
        return false;
    }
    TDI_ASSERT(q->tail == q->head || q->items[q->tail - 1].id < id);
    q->items[q->tail++] = (struct tdd_emb_item){
        .id = id, .entry = e, .state = TDD_EMB_READY, .redelivered = redelivered};
    q->ready++;
    e->refs++;
    in->cached_bytes += entry_bytes(e);
    return true;
}

struct tdd_emb_item *tdd_emb_window_find(struct tdd_emb_queue *q, int64_t id)
{
    size_t low = q->head;
    size_t high = q->tail;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (q->items[mid].id < id) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < q->tail && q->items[low].id == id ? &q->items[low] : NULL;
}

struct tdd_emb_item *tdd_emb_window_first(struct tdd_emb_queue *q)
{
    if (q->ready == 0) {
        return NULL;
    }
    while (q->items[q->first_ready].state != TDD_EMB_READY) {
        q->first_ready++;
    }
    return &q->items[q->first_ready];
}

void tdd_emb_window_lease(struct td_broker_instance *in, struct tdd_emb_queue *q,
                          struct tdd_emb_item *it, struct tdd_emb_con *c)
{
    TDI_ASSERT(it->state == TDD_EMB_READY);
    it->state = TDD_EMB_IN_FLIGHT;
    it->holder = c;
    q->ready--;
    q->in_flight++;
    c->in_flight++;
    c->in_flight_bytes += it->entry->body_len;
    in->cached_bytes -= entry_bytes(it->entry);
    if (it->id > q->delivered_hi) {
        q->delivered_hi = it->id;
    }
}

static void leave_flight(struct tdd_emb_queue *q, struct tdd_emb_item *it)
{
    TDI_ASSERT(it->state == TDD_EMB_IN_FLIGHT);
    it->holder->in_flight--;
    it->holder->in_flight_bytes -= it->entry->body_len;
    it->holder = NULL;
    q->in_flight--;
}

void tdd_emb_window_return(struct td_broker_instance *in, struct tdd_emb_queue *q,
                           struct tdd_emb_item *it, bool redelivered)
{
    leave_flight(q, it);
    it->state = TDD_EMB_READY;
    it->redelivered = redelivered;
    q->ready++;
    in->cached_bytes += entry_bytes(it->entry);
    size_t at = (size_t)(it - q->items);
    if (at < q->first_ready) {
        q->first_ready = at;
    }
}

void tdd_emb_queue_dirty(struct td_broker_instance *in, struct tdd_emb_queue *q)
{
    if (!q->dirty) {
        q->dirty = true;
        q->next_dirty = in->dirty;
        in->dirty = q;
    }
}

bool tdd_emb_window_reserve(struct tdd_emb_queue *q, size_t count)
{
    size_t cap = q->acks_cap > 0 ? q->acks_cap : CAP_MIN;
    while (cap - q->acks_count < count) {
        cap *= 2;
    }
    if (cap > q->acks_cap) {
        struct tdd_emb_ack *acks = realloc(q->acks, cap * sizeof(*acks));
        if (acks == NULL) {
            return false;
        }
        q->acks = acks;
        q->acks_cap = cap;
    }
    return true;
}

void tdd_emb_window_settle(struct td_broker_instance *in, struct tdd_emb_queue *q,
                           struct tdd_emb_item *it)
{
    TDI_ASSERT(q->acks_count < q->acks_cap);
    q->acks[q->acks_count++] =
        (struct tdd_emb_ack){.id = it->id, .bytes = (int64_t)entry_bytes(it->entry)};
    if (in->acks_waiting++ == 0) {
        in->ack_since = tdi_mono(&in->clock);
    }
    tdd_emb_queue_dirty(in, q);
    leave_flight(q, it);
    tdd_emb_entry_unref(it->entry);
    it->entry = NULL;
    it->state = TDD_EMB_SETTLED;
    q->settled++;
    q->live--;
}

void tdd_emb_window_trim(struct tdd_emb_queue *q)
{
    while (q->head < q->tail && q->items[q->head].state == TDD_EMB_SETTLED) {
        q->head++;
        q->settled--;
    }
    if (q->settled >= COMPACT_MIN && q->settled * 2 > q->tail - q->head) {
        /* One that is held for long must not keep all that came after it. */
        size_t to = q->head;
        for (size_t i = q->head; i < q->tail; i++) {
            if (q->items[i].state != TDD_EMB_SETTLED) {
                q->items[to++] = q->items[i];
            }
        }
        q->tail = to;
        q->settled = 0;
        q->first_ready = q->head;
    }
    if (q->head == q->tail) {
        q->head = q->tail = 0;
        if (q->cap > CAP_KEPT) {
            free(q->items);
            q->items = NULL;
            q->cap = 0;
        }
    }
    if (q->first_ready < q->head || q->first_ready > q->tail) {
        q->first_ready = q->head;
    }
}

void tdd_emb_window_free(struct tdd_emb_queue *q)
{
    for (size_t i = q->head; i < q->tail; i++) {
        if (q->items[i].entry != NULL) {
            tdd_emb_entry_unref(q->items[i].entry);
        }
    }
    free(q->items);
    q->items = NULL;
    q->head = q->tail = q->cap = 0;
}
