/*
 * The order gate of one shard. An entry exists for each key that is blocked, runs, is being parked
 * or waits; all other keys cost nothing.
 *
 * Must not know: messages, stores, brokers, handlers.
 */
#include "core/gate.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>

struct tdi_gate_waiting {
    uint64_t token;
    bool parked; /* a leased parked row: the mark of its key does not hold it */
    struct tdi_gate_waiting *next;
};

/* blocked is true whenever parking is not 0. */
struct gate_key {
    bool blocked;
    bool running;
    size_t parking; /* sent to be parked, not reported yet */
    struct tdi_gate_waiting *first;
    struct tdi_gate_waiting *last;
};

/* ---- life ------------------------------------------------------------------------------- */

static void give_back(struct tdi_gate *g, struct tdi_gate_waiting *one)
{
    one->next = g->pool_free;
    g->pool_free = one;
}

bool tdi_gate_init(struct tdi_gate *g, enum tdi_gate_mode mode, size_t keys_max, size_t waiting_max,
                   const uint64_t seed[2])
{
    *g = (struct tdi_gate){.mode = mode};
    tdi_map_init(&g->keys, seed, keys_max);
    if (waiting_max > 0) {
        g->pool = calloc(waiting_max, sizeof(*g->pool));
        if (!g->pool) {
            return false;
        }
    }
    for (size_t i = 0; i < waiting_max; i++) {
        give_back(g, &g->pool[i]);
    }
    return true;
}

void tdi_gate_clear(struct tdi_gate *g)
{
    const uint64_t seed[2] = {g->keys.seed[0], g->keys.seed[1]};
    size_t keys_max = g->keys.max;
    size_t cursor = 0;
    struct td_str key;
    void *value;
    while (tdi_map_next(&g->keys, &cursor, &key, &value)) {
        struct gate_key *k = value;
        while (k->first) {
            struct tdi_gate_waiting *one = k->first;
            k->first = one->next;
            give_back(g, one);
        }
        free(k);
    }
    tdi_map_release(&g->keys);
    tdi_map_init(&g->keys, seed, keys_max);
    g->waiting = 0;
    g->running = 0;
    g->blocked = 0;
}

void tdi_gate_release(struct tdi_gate *g)
{
    tdi_gate_clear(g);
    tdi_map_release(&g->keys);
    free(g->pool);
    *g = (struct tdi_gate){0};
}

/* ---- one key ---------------------------------------------------------------------------- */

static bool is_gated(const struct tdi_gate *g, struct td_str key)
{
    return g->mode != TDI_GATE_NONE && !tdi_str_empty(key);
}

static struct gate_key *find_or_add(struct tdi_gate *g, struct td_str key)
{
    struct gate_key *k = tdi_map_get(&g->keys, key);
    if (k) {
        return k;
    }
    k = calloc(1, sizeof(*k));
    if (k && !tdi_map_put(&g->keys, key, k)) {
        free(k);
        k = NULL;
    }
    return k;
}

static void drop_if_idle(struct tdi_gate *g, struct td_str key, struct gate_key *k)
{
    if (!k->blocked && !k->running && !k->first) {
        tdi_map_del(&g->keys, key);
        free(k);
    }
}

static void set_blocked(struct tdi_gate *g, struct gate_key *k, bool blocked)
{
    bool now = k->parking > 0 || (blocked && g->mode == TDI_GATE_BLOCK);
    if (now && !k->blocked) {
        g->blocked++;
    } else if (!now && k->blocked) {
        g->blocked--;
    }
    k->blocked = now;
}

static enum tdi_gate_answer run(struct tdi_gate *g, struct gate_key *k)
{
    k->running = true;
    g->running++;
    return TDI_GATE_RUN;
}

static enum tdi_gate_answer wait_behind(struct tdi_gate *g, struct gate_key *k, uint64_t token,
                                        bool parked)
{
    struct tdi_gate_waiting *one = g->pool_free;
    if (!one) {
        return TDI_GATE_FULL;
    }
    g->pool_free = one->next;
    *one = (struct tdi_gate_waiting){.token = token, .parked = parked};
    if (k->first) {
        k->last->next = one;
    } else {
        k->first = one;
    }
    k->last = one;
    g->waiting++;
    return TDI_GATE_WAIT;
}

/* ---- deliveries ------------------------------------------------------------------------- */

static enum tdi_gate_answer offer(struct tdi_gate *g, struct td_str key, uint64_t token,
                                  bool parked)
{
    if (!is_gated(g, key)) {
        return TDI_GATE_RUN;
    }
    struct gate_key *k = find_or_add(g, key);
    if (!k) {
        return TDI_GATE_FULL;
    }
    if (k->running || k->first) {
        return wait_behind(g, k, token, parked);
    }
    if (k->blocked && !parked) {
        k->parking++;
        return TDI_GATE_PARK;
    }
    return run(g, k);
}

enum tdi_gate_answer tdi_gate_offer(struct tdi_gate *g, struct td_str key, uint64_t token)
{
    return offer(g, key, token, false);
}

enum tdi_gate_answer tdi_gate_offer_parked(struct tdi_gate *g, struct td_str key, uint64_t token)
{
    return offer(g, key, token, true);
}

void tdi_gate_end(struct tdi_gate *g, struct td_str key, bool blocked)
{
    if (!is_gated(g, key)) {
        return;
    }
    struct gate_key *k = tdi_map_get(&g->keys, key);
    TDI_ASSERT(k && k->running);
    k->running = false;
    g->running--;
    set_blocked(g, k, blocked);
    drop_if_idle(g, key, k);
}

void tdi_gate_parked(struct tdi_gate *g, struct td_str key, bool blocked)
{
    struct gate_key *k = tdi_map_get(&g->keys, key);
    TDI_ASSERT(k && k->parking > 0);
    k->parking--;
    set_blocked(g, k, blocked);
    drop_if_idle(g, key, k);
}

bool tdi_gate_next(struct tdi_gate *g, struct td_str key, uint64_t *ret_token,
                   enum tdi_gate_answer *ret_answer)
{
    struct gate_key *k = is_gated(g, key) ? tdi_map_get(&g->keys, key) : NULL;
    if (!k || !k->first || k->running) {
        return false;
    }
    struct tdi_gate_waiting *one = k->first;
    k->first = one->next;
    g->waiting--;
    *ret_token = one->token;
    if (k->blocked && !one->parked) {
        k->parking++;
        *ret_answer = TDI_GATE_PARK;
    } else {
        *ret_answer = run(g, k);
    }
    give_back(g, one);
    return true;
}

static void forget_live_of(struct tdi_gate *g, struct gate_key *k)
{
    struct tdi_gate_waiting *all = k->first;
    k->first = NULL;
    k->last = NULL;
    while (all) {
        struct tdi_gate_waiting *one = all;
        all = one->next;
        one->next = NULL;
        if (!one->parked) {
            give_back(g, one);
            g->waiting--;
        } else {
            if (k->first) {
                k->last->next = one;
            } else {
                k->first = one;
            }
            k->last = one;
        }
    }
}

void tdi_gate_forget_live(struct tdi_gate *g)
{
    size_t cursor = 0;
    struct td_str key;
    void *value;
    while (tdi_map_next(&g->keys, &cursor, &key, &value)) {
        forget_live_of(g, value);
    }
}

/* ---- marks ------------------------------------------------------------------------------ */

bool tdi_gate_mark(struct tdi_gate *g, struct td_str key, bool blocked)
{
    if (g->mode != TDI_GATE_BLOCK || tdi_str_empty(key)) {
        return true;
    }
    struct gate_key *k = blocked ? find_or_add(g, key) : tdi_map_get(&g->keys, key);
    if (k) {
        set_blocked(g, k, blocked);
        drop_if_idle(g, key, k);
    }
    return k || !blocked;
}

bool tdi_gate_blocked(const struct tdi_gate *g, struct td_str key)
{
    const struct gate_key *k = is_gated(g, key) ? tdi_map_get(&g->keys, key) : NULL;
    return k && k->blocked;
}

bool tdi_gate_busy(const struct tdi_gate *g, struct td_str key)
{
    const struct gate_key *k = is_gated(g, key) ? tdi_map_get(&g->keys, key) : NULL;
    return k && k->running;
}
