/*
 * The window of a relay. Where one row of a key may be in flight, the unsettled rows of each key
 * form a list; its first row alone may go, and queued first rows wait in a ring until they are
 * taken. Where the broker keeps the order, a cursor over the rows is enough.
 *
 * Must not know: stores, brokers, clocks.
 */
#include "core/window.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>

/* The rows of one key that hold each other: queued, submitted or refused. */
struct tdi_window_key {
    uint64_t head;                    /* token of the oldest */
    uint64_t tail;                    /* token of the newest */
    struct tdi_window_key *free_next; /* in the pool */
};

static struct tdi_window_row *row_at(const struct tdi_window *w, uint64_t token)
{
    TDI_ASSERT(token >= w->first && token < w->end);
    return &w->rows[token % w->capacity];
}

const struct tdi_window_row *tdi_window_at(const struct tdi_window *w, uint64_t token)
{
    return row_at(w, token);
}

/* ---- life ------------------------------------------------------------------------------- */

static void fill_pool(struct tdi_window *w)
{
    w->pool_free = NULL;
    for (size_t i = 0; w->pool && i < w->capacity; i++) {
        w->pool[i].free_next = w->pool_free;
        w->pool_free = &w->pool[i];
    }
}

bool tdi_window_init(struct tdi_window *w, size_t capacity, bool ordered, const uint64_t seed[2])
{
    *w = (struct tdi_window){.capacity = capacity, .ordered = ordered};
    tdi_map_init(&w->keys, seed, capacity);
    if (capacity == 0 || capacity > TDI_WINDOW_ROWS_MAX) {
        return false;
    }
    w->rows = calloc(capacity, sizeof(*w->rows));
    if (!ordered) {
        w->pool = calloc(capacity, sizeof(*w->pool));
        w->ready = calloc(capacity, sizeof(*w->ready));
    }
    if (!w->rows || (!ordered && (!w->pool || !w->ready))) {
        tdi_window_release(w);
        return false;
    }
    fill_pool(w);
    return true;
}

void tdi_window_release(struct tdi_window *w)
{
    free(w->rows);
    free(w->pool);
    free(w->ready);
    tdi_map_release(&w->keys);
    *w = (struct tdi_window){0};
}

void tdi_window_clear(struct tdi_window *w)
{
    const uint64_t seed[2] = {w->keys.seed[0], w->keys.seed[1]};
    tdi_map_release(&w->keys);
    tdi_map_init(&w->keys, seed, w->capacity);
    fill_pool(w);
    w->first = w->end;
    w->cursor = w->end;
    w->submitted = 0;
    w->broken = false;
    w->ready_first = 0;
    w->ready_count = 0;
}

/* ---- rows of one key (not ordered) ------------------------------------------------------- */

static void ready_add(struct tdi_window *w, uint64_t token)
{
    TDI_ASSERT(w->ready_count < w->capacity);
    w->ready[(w->ready_first + w->ready_count) % w->capacity] = token;
    w->ready_count++;
}

static bool may_go(const struct tdi_window_row *row, uint64_t token)
{
    return row->state == TDI_WINDOW_QUEUED && (!row->key || row->key->head == token);
}

/* Put the row behind the others of its key. false: out of memory. */
static bool key_add(struct tdi_window *w, struct tdi_window_row *row, uint64_t token)
{
    struct td_str key = row->row->message.key;
    struct tdi_window_key *k = tdi_map_get(&w->keys, key);
    if (k) {
        row_at(w, k->tail)->next = token;
    } else {
        k = w->pool_free;
        if (!tdi_map_put(&w->keys, key, k)) {
            return false;
        }
        w->pool_free = k->free_next;
        k->head = token;
    }
    k->tail = token;
    row->key = k;
    return true;
}

/* The row holds nothing back any more: the next of its key may go. */
static void key_advance(struct tdi_window *w, struct tdi_window_row *row, uint64_t token)
{
    struct tdi_window_key *k = row->key;
    if (!k) {
        return;
    }
    TDI_ASSERT(k->head == token);
    row->key = NULL;
    if (row->next == TDI_WINDOW_TOKEN_NONE) {
        tdi_map_del(&w->keys, row->row->message.key);
        k->free_next = w->pool_free;
        w->pool_free = k;
        return;
    }
    k->head = row->next;
    if (may_go(row_at(w, k->head), k->head)) {
        ready_add(w, k->head);
    }
}

/* ---- pushing ---------------------------------------------------------------------------- */

static bool push(struct tdi_window *w, const struct tdi_window_row *row)
{
    if (tdi_window_room(w) == 0) {
        return false;
    }
    uint64_t token = w->end;
    struct tdi_window_row *slot = &w->rows[token % w->capacity];
    *slot = *row;
    slot->next = TDI_WINDOW_TOKEN_NONE;
    bool bound =
        !w->ordered && row->state != TDI_WINDOW_SKIPPED && !tdi_str_empty(row->row->message.key);
    if (bound && !key_add(w, slot, token)) {
        return false;
    }
    w->end++;
    if (!w->ordered && may_go(slot, token)) {
        ready_add(w, token);
    }
    return true;
}

bool tdi_window_push(struct tdi_window *w, const struct td_outbox_row *row)
{
    return push(w, &(struct tdi_window_row){.row = row, .state = TDI_WINDOW_QUEUED});
}

bool tdi_window_push_skipped(struct tdi_window *w, const struct td_outbox_row *row)
{
    return push(w, &(struct tdi_window_row){.row = row, .state = TDI_WINDOW_SKIPPED});
}

bool tdi_window_push_refused(struct tdi_window *w, const struct td_outbox_row *row,
                             enum td_dead_code code, struct td_str reason)
{
    return push(
        w, &(struct tdi_window_row){
               .row = row, .state = TDI_WINDOW_REFUSED, .dead_code = code, .dead_reason = reason});
}

/* ---- submitting ------------------------------------------------------------------------- */

size_t tdi_window_ready(const struct tdi_window *w, uint64_t *ret_tokens, size_t max)
{
    size_t count = 0;
    if (!w->ordered) {
        for (; count < max && count < w->ready_count; count++) {
            ret_tokens[count] = w->ready[(w->ready_first + count) % w->capacity];
        }
        return count;
    }
    for (uint64_t t = w->cursor; !w->broken && t < w->end && count < max; t++) {
        const struct tdi_window_row *row = row_at(w, t);
        if (row->state == TDI_WINDOW_REFUSED) {
            break;
        }
        if (row->state == TDI_WINDOW_QUEUED) {
            ret_tokens[count++] = t;
        }
    }
    return count;
}

static void submit(struct tdi_window *w, uint64_t token)
{
    struct tdi_window_row *row = row_at(w, token);
    TDI_ASSERT(row->state == TDI_WINDOW_QUEUED);
    row->state = TDI_WINDOW_SUBMITTED;
    w->submitted++;
}

void tdi_window_submitted(struct tdi_window *w, size_t taken)
{
    if (w->ordered) {
        for (; taken > 0; w->cursor++) {
            if (row_at(w, w->cursor)->state == TDI_WINDOW_QUEUED) {
                submit(w, w->cursor);
                taken--;
            }
        }
        return;
    }
    TDI_ASSERT(taken <= w->ready_count);
    for (; taken > 0; taken--) {
        submit(w, w->ready[w->ready_first]);
        w->ready_first = (w->ready_first + 1) % w->capacity;
        w->ready_count--;
    }
}

/* ---- answers ---------------------------------------------------------------------------- */

/* The row if it waits for an answer. */
static struct tdi_window_row *answered(struct tdi_window *w, uint64_t token)
{
    if (token < w->first || token >= w->end) {
        return NULL;
    }
    struct tdi_window_row *row = row_at(w, token);
    return row->state == TDI_WINDOW_SUBMITTED ? row : NULL;
}

/* What is submitted from this token on goes back to queued. */
static void requeue_from(struct tdi_window *w, uint64_t token)
{
    for (uint64_t t = token; t < w->end; t++) {
        struct tdi_window_row *row = row_at(w, t);
        if (row->state == TDI_WINDOW_SUBMITTED) {
            row->state = TDI_WINDOW_QUEUED;
            w->submitted--;
        }
    }
    if (token < w->cursor) {
        w->cursor = token;
    }
}

bool tdi_window_accept(struct tdi_window *w, uint64_t token, uint64_t evidence)
{
    struct tdi_window_row *row = answered(w, token);
    if (!row) {
        return false;
    }
    row->state = TDI_WINDOW_ACCEPTED;
    row->evidence = evidence;
    w->submitted--;
    key_advance(w, row, token);
    return true;
}

bool tdi_window_refuse(struct tdi_window *w, uint64_t token, enum td_dead_code code,
                       struct td_str reason)
{
    struct tdi_window_row *row = answered(w, token);
    if (!row) {
        return false;
    }
    row->state = TDI_WINDOW_REFUSED;
    row->dead_code = code;
    row->dead_reason = reason;
    w->submitted--;
    if (w->ordered) {
        requeue_from(w, token);
        w->broken = true;
    }
    return true;
}

bool tdi_window_give_back(struct tdi_window *w, uint64_t token)
{
    struct tdi_window_row *row = answered(w, token);
    if (!row) {
        return false;
    }
    if (w->ordered) {
        requeue_from(w, token);
        w->broken = true;
    } else {
        row->state = TDI_WINDOW_QUEUED;
        w->submitted--;
        ready_add(w, token);
    }
    return true;
}

void tdi_window_session(struct tdi_window *w)
{
    requeue_from(w, w->first);
    w->broken = false;
    w->ready_first = 0;
    w->ready_count = 0;
    for (uint64_t t = w->first; !w->ordered && t < w->end; t++) {
        if (may_go(row_at(w, t), t)) {
            ready_add(w, t);
        }
    }
}

/* ---- the settled front ------------------------------------------------------------------- */

static bool is_settled(enum tdi_window_state state)
{
    return state != TDI_WINDOW_QUEUED && state != TDI_WINDOW_SUBMITTED;
}

static void widen(struct tdi_window_front *f, int64_t seq)
{
    if (seq == TD_NUMBER_NONE) {
        return;
    }
    if (f->from_seq == TD_NUMBER_NONE || seq < f->from_seq) {
        f->from_seq = seq;
    }
    if (f->to_seq == TD_NUMBER_NONE || seq > f->to_seq) {
        f->to_seq = seq;
    }
}

void tdi_window_front(const struct tdi_window *w, size_t dead_max, struct tdi_window_front *ret)
{
    struct tdi_window_front f = {.from_seq = TD_NUMBER_NONE, .to_seq = TD_NUMBER_NONE};
    for (uint64_t t = w->first; t < w->end; t++) {
        const struct tdi_window_row *row = row_at(w, t);
        bool dead = row->state == TDI_WINDOW_REFUSED;
        if (!is_settled(row->state) || (dead && f.dead == dead_max)) {
            break;
        }
        if (row->state == TDI_WINDOW_ACCEPTED) {
            f.published++;
            f.evidence = row->evidence;
        }
        f.dead += dead ? 1 : 0;
        f.rows++;
        f.position = &row->row->position;
        widen(&f, row->row->message.sequence);
    }
    *ret = f;
}

void tdi_window_settled(struct tdi_window *w, size_t rows)
{
    TDI_ASSERT(rows <= tdi_window_count(w));
    for (; rows > 0; rows--) {
        struct tdi_window_row *row = row_at(w, w->first);
        TDI_ASSERT(is_settled(row->state));
        key_advance(w, row, w->first);
        row->row = NULL;
        w->first++;
    }
    if (w->cursor < w->first) {
        w->cursor = w->first;
    }
}
