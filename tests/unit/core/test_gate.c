/* The order gate: named cases, and a random life of a shard in which order must hold. */
#include "base/clock.h"
#include "base/str.h"
#include "core/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define A TD_STR_LIT("a")
#define B TD_STR_LIT("b")

static const uint64_t seed[2] = {3, 4};

static void open_gate(struct tdi_gate *g, enum tdi_gate_mode mode)
{
    assert_true(tdi_gate_init(g, mode, 100, 100, seed));
}

static void next_is(struct tdi_gate *g, struct td_str key, uint64_t token,
                    enum tdi_gate_answer answer)
{
    uint64_t t = 0;
    enum tdi_gate_answer a = TDI_GATE_FULL;
    assert_true(tdi_gate_next(g, key, &t, &a));
    assert_int_equal(t, token);
    assert_int_equal(a, answer);
}

static void no_next(struct tdi_gate *g, struct td_str key)
{
    uint64_t t = 77;
    enum tdi_gate_answer a = TDI_GATE_FULL;
    assert_false(tdi_gate_next(g, key, &t, &a));
    assert_int_equal(t, 77);
    assert_int_equal(a, TDI_GATE_FULL);
}

static void none_gates_nothing(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_NONE);
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer_parked(&g, A, 3), TDI_GATE_RUN);
    assert_true(tdi_gate_mark(&g, A, true));
    assert_false(tdi_gate_blocked(&g, A));
    assert_false(tdi_gate_busy(&g, A));
    tdi_gate_end(&g, A, true);
    no_next(&g, A);
    assert_int_equal(tdi_gate_offer(&g, A, 4), TDI_GATE_RUN);
    assert_int_equal(g.keys.count, 0);
    tdi_gate_release(&g);
}

static void without_a_key(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_BLOCK);
    struct td_str keys[] = {TD_STR_NONE, TD_STR_LIT("")};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(tdi_gate_offer(&g, keys[i], 1), TDI_GATE_RUN);
        assert_int_equal(tdi_gate_offer(&g, keys[i], 2), TDI_GATE_RUN);
        tdi_gate_end(&g, keys[i], true);
        assert_true(tdi_gate_mark(&g, keys[i], true));
        assert_false(tdi_gate_blocked(&g, keys[i]));
        assert_int_equal(tdi_gate_offer(&g, keys[i], 3), TDI_GATE_RUN);
        no_next(&g, keys[i]);
    }
    assert_int_equal(g.keys.count, 0);
    tdi_gate_release(&g);
}

static void one_run_of_a_key(void **state)
{
    (void)state;
    for (int mode = TDI_GATE_SKIP; mode <= TDI_GATE_BLOCK; mode++) {
        struct tdi_gate g;
        open_gate(&g, (enum tdi_gate_mode)mode);
        assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
        assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT);
        assert_int_equal(tdi_gate_offer(&g, B, 3), TDI_GATE_RUN);
        assert_int_equal(tdi_gate_offer(&g, A, 4), TDI_GATE_WAIT);
        assert_int_equal(g.waiting, 2);
        assert_int_equal(g.running, 2);
        assert_true(tdi_gate_busy(&g, A));
        no_next(&g, A); /* still running */
        tdi_gate_end(&g, A, false);
        assert_int_equal(tdi_gate_offer(&g, A, 5), TDI_GATE_WAIT); /* not past 2 and 4 */
        next_is(&g, A, 2, TDI_GATE_RUN);
        no_next(&g, A);
        tdi_gate_end(&g, A, false);
        next_is(&g, A, 4, TDI_GATE_RUN);
        tdi_gate_end(&g, A, false);
        next_is(&g, A, 5, TDI_GATE_RUN);
        tdi_gate_end(&g, A, false);
        no_next(&g, A);
        tdi_gate_end(&g, B, false);
        assert_int_equal(g.keys.count, 0); /* idle keys cost nothing */
        assert_int_equal(g.waiting, 0);
        assert_int_equal(g.running, 0);
        tdi_gate_release(&g);
    }
}

static void skip_never_blocks(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_SKIP);
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT);
    tdi_gate_end(&g, A, true);
    assert_false(tdi_gate_blocked(&g, A));
    next_is(&g, A, 2, TDI_GATE_RUN);
    assert_true(tdi_gate_mark(&g, A, true));
    assert_int_equal(tdi_gate_offer_parked(&g, A, 1), TDI_GATE_WAIT); /* but one at a time */
    tdi_gate_end(&g, A, false);
    next_is(&g, A, 1, TDI_GATE_RUN);
    tdi_gate_release(&g);
}

static void failed_head_parks_its_followers(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_BLOCK);
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer(&g, A, 3), TDI_GATE_WAIT);
    tdi_gate_end(&g, A, true);
    assert_true(tdi_gate_blocked(&g, A));
    assert_int_equal(g.blocked, 1);
    next_is(&g, A, 2, TDI_GATE_PARK);
    next_is(&g, A, 3, TDI_GATE_PARK);
    no_next(&g, A);
    assert_int_equal(tdi_gate_offer(&g, A, 4), TDI_GATE_PARK);
    assert_int_equal(tdi_gate_offer(&g, B, 5), TDI_GATE_RUN); /* others are not held */
    tdi_gate_parked(&g, A, true);
    tdi_gate_parked(&g, A, true);
    tdi_gate_parked(&g, A, true);
    assert_true(tdi_gate_blocked(&g, A));
    tdi_gate_release(&g);
}

/* The head takes effect and the store says "nothing blocks", while a follower is on its way to be
 * parked: a third one must not run before it. */
static void no_gap_between_decision_and_commit(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_BLOCK);
    assert_true(tdi_gate_mark(&g, A, true));
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_PARK);
    assert_int_equal(tdi_gate_offer_parked(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 3), TDI_GATE_WAIT);
    tdi_gate_end(&g, A, false);
    assert_true(tdi_gate_blocked(&g, A));
    next_is(&g, A, 3, TDI_GATE_PARK);
    assert_true(tdi_gate_mark(&g, A, false)); /* nor by a mark */
    assert_true(tdi_gate_blocked(&g, A));
    tdi_gate_parked(&g, A, false); /* 2; 3 is still on its way */
    assert_int_equal(tdi_gate_offer(&g, A, 4), TDI_GATE_PARK);
    tdi_gate_parked(&g, A, false);
    tdi_gate_parked(&g, A, false);
    assert_false(tdi_gate_blocked(&g, A));
    assert_int_equal(tdi_gate_offer(&g, A, 5), TDI_GATE_RUN);
    tdi_gate_release(&g);
}

static void parked_row_runs_though_blocked(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_BLOCK);
    assert_true(tdi_gate_mark(&g, A, true));
    assert_int_equal(tdi_gate_offer_parked(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer_parked(&g, A, 9), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer(&g, A, 3), TDI_GATE_WAIT);
    tdi_gate_end(&g, A, true);
    next_is(&g, A, 2, TDI_GATE_PARK);
    next_is(&g, A, 9, TDI_GATE_RUN);
    no_next(&g, A); /* 3 waits for the end of 9 */
    tdi_gate_parked(&g, A, true);
    no_next(&g, A);
    tdi_gate_end(&g, A, false);
    next_is(&g, A, 3, TDI_GATE_RUN);
    tdi_gate_end(&g, A, false);
    assert_int_equal(g.keys.count, 0);
    tdi_gate_release(&g);
}

static void marks(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_BLOCK);
    assert_true(tdi_gate_mark(&g, A, false)); /* never heard of */
    assert_int_equal(g.keys.count, 0);
    assert_true(tdi_gate_mark(&g, A, true));
    assert_true(tdi_gate_mark(&g, A, true));
    assert_true(tdi_gate_mark(&g, B, true));
    assert_int_equal(g.blocked, 2);
    assert_true(tdi_gate_mark(&g, A, false));
    assert_false(tdi_gate_blocked(&g, A));
    assert_true(tdi_gate_blocked(&g, B));
    assert_int_equal(g.blocked, 1);
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    /* A2: the look finds an unfinished row of the key while its copy runs. */
    assert_true(tdi_gate_mark(&g, A, true));
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT);
    tdi_gate_end(&g, A, true);
    next_is(&g, A, 2, TDI_GATE_PARK);
    tdi_gate_release(&g);
}

static void limit_of_waiting(void **state)
{
    (void)state;
    struct tdi_gate g;
    assert_true(tdi_gate_init(&g, TDI_GATE_BLOCK, 10, 2, seed));
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, B, 2), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 3), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer(&g, B, 4), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer(&g, A, 5), TDI_GATE_FULL);
    assert_int_equal(tdi_gate_offer_parked(&g, A, 5), TDI_GATE_FULL);
    assert_int_equal(g.waiting, 2);
    tdi_gate_end(&g, A, false);
    next_is(&g, A, 3, TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 5), TDI_GATE_WAIT);
    tdi_gate_release(&g);
    assert_true(tdi_gate_init(&g, TDI_GATE_SKIP, 10, 0, seed));
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_FULL);
    tdi_gate_release(&g);
}

static void limit_of_keys(void **state)
{
    (void)state;
    struct tdi_gate g;
    assert_true(tdi_gate_init(&g, TDI_GATE_BLOCK, 2, 10, seed));
    assert_true(tdi_gate_mark(&g, A, true));
    assert_int_equal(tdi_gate_offer(&g, B, 1), TDI_GATE_RUN);
    struct td_str c = TD_STR_LIT("c");
    assert_int_equal(tdi_gate_offer(&g, c, 2), TDI_GATE_FULL);
    assert_int_equal(tdi_gate_offer_parked(&g, c, 2), TDI_GATE_FULL);
    assert_false(tdi_gate_mark(&g, c, true));
    assert_true(tdi_gate_mark(&g, c, false));
    tdi_gate_end(&g, B, true); /* a key that ran is blocked without a new entry */
    assert_true(tdi_gate_blocked(&g, B));
    assert_true(tdi_gate_mark(&g, A, false));
    assert_true(tdi_gate_mark(&g, c, true));
    tdi_gate_release(&g);
}

static void forgetting_live_ones(void **state)
{
    (void)state;
    struct tdi_gate g;
    open_gate(&g, TDI_GATE_BLOCK);
    assert_true(tdi_gate_mark(&g, B, true));
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer_parked(&g, A, 8), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer(&g, A, 3), TDI_GATE_WAIT);
    assert_int_equal(tdi_gate_offer_parked(&g, A, 9), TDI_GATE_WAIT);
    tdi_gate_forget_live(&g);
    assert_int_equal(g.waiting, 2);
    assert_true(tdi_gate_busy(&g, A));
    assert_true(tdi_gate_blocked(&g, B));
    assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT); /* delivered again */
    tdi_gate_end(&g, A, false);
    next_is(&g, A, 8, TDI_GATE_RUN);
    tdi_gate_end(&g, A, false);
    next_is(&g, A, 9, TDI_GATE_RUN);
    tdi_gate_end(&g, A, false);
    next_is(&g, A, 2, TDI_GATE_RUN);
    tdi_gate_end(&g, A, false);
    assert_int_equal(g.waiting, 0);
    tdi_gate_release(&g);
}

static void forgotten_ones_make_room(void **state)
{
    (void)state;
    struct tdi_gate g;
    assert_true(tdi_gate_init(&g, TDI_GATE_SKIP, 2, 2, seed));
    assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(tdi_gate_offer(&g, A, 2), TDI_GATE_WAIT);
        assert_int_equal(tdi_gate_offer(&g, A, 3), TDI_GATE_WAIT);
        assert_int_equal(tdi_gate_offer(&g, A, 4), TDI_GATE_FULL);
        tdi_gate_forget_live(&g);
    }
    tdi_gate_release(&g);
}

static void clearing(void **state)
{
    (void)state;
    struct tdi_gate g;
    assert_true(tdi_gate_init(&g, TDI_GATE_BLOCK, 3, 3, seed));
    for (int round = 0; round < 3; round++) {
        assert_true(tdi_gate_mark(&g, B, true));
        assert_int_equal(tdi_gate_offer(&g, B, 0), TDI_GATE_PARK);
        assert_int_equal(tdi_gate_offer(&g, A, 1), TDI_GATE_RUN);
        for (uint64_t t = 2; t < 5; t++) {
            assert_int_equal(tdi_gate_offer(&g, A, t), TDI_GATE_WAIT);
        }
        tdi_gate_clear(&g);
        assert_int_equal(g.keys.count + g.waiting + g.running + g.blocked, 0);
        assert_false(tdi_gate_blocked(&g, B));
        no_next(&g, A);
    }
    tdi_gate_release(&g);
    tdi_gate_release(&g); /* twice is fine */
}

/* ---- a random life ----------------------------------------------------------------------- */

/*
 * A consumer of one shard, its store and its broker, as small as they can be: KEYS keys, messages
 * numbered in order of publication, settlements in an inbox of outcomes. Whatever comes (failures,
 * lost sessions, redelivery, take-over), messages of a key must take effect in order, one at a time.
 */
#define KEYS 4
#define MESSAGES 60
#define WAITING 6

enum outcome {
    FRESH,
    EFFECT,
    RETRY,
    BLOCKED,
};

struct life {
    struct tdi_gate gate;
    struct tdi_random r;
    enum tdi_gate_mode mode;
    unsigned key[MESSAGES];
    enum outcome inbox[MESSAGES];
    bool leased[MESSAGES]; /* offered as a parked row */
    size_t arrival[MESSAGES];
    size_t arrivals;
    size_t next_delivery;     /* of the broker */
    size_t running[KEYS];     /* message + 1; 0: none */
    size_t parking[MESSAGES]; /* sent to be parked, in order */
    size_t parking_count;
    size_t last_effect[KEYS]; /* message + 1 */
    size_t effects;
    size_t skipped; /* mode SKIP: effects out of order */
};

static struct td_str key_text(unsigned key)
{
    static const char *const texts[KEYS] = {"k0", "k1", "k2", "k3"};
    return tdi_str(texts[key]);
}

/* What a settlement reports: does any row block the key? */
static bool store_blocks(const struct life *l, unsigned key)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        if (l->key[i] == key && (l->inbox[i] == RETRY || l->inbox[i] == BLOCKED)) {
            return l->mode == TDI_GATE_BLOCK;
        }
    }
    return false;
}

/* A head has ended: the follower with the lowest arrival becomes due. */
static void store_release_next(struct life *l, unsigned key)
{
    size_t best = MESSAGES;
    for (size_t i = 0; i < MESSAGES; i++) {
        if (l->key[i] == key && l->inbox[i] == BLOCKED &&
            (best == MESSAGES || l->arrival[i] < l->arrival[best])) {
            best = i;
        }
    }
    if (best < MESSAGES) {
        l->inbox[best] = RETRY;
    }
}

static void decided(struct life *l, size_t message, enum tdi_gate_answer answer)
{
    unsigned key = l->key[message];
    if (answer == TDI_GATE_RUN) {
        assert_int_equal(l->running[key], 0); /* one at a time */
        l->running[key] = message + 1;
    } else if (answer == TDI_GATE_PARK) {
        assert_int_equal(l->mode, TDI_GATE_BLOCK);
        assert_true(l->parking_count < MESSAGES);
        l->parking[l->parking_count++] = message;
    }
}

static void drain(struct life *l, unsigned key)
{
    uint64_t token;
    enum tdi_gate_answer answer;
    while (tdi_gate_next(&l->gate, key_text(key), &token, &answer)) {
        decided(l, (size_t)token, answer);
    }
}

static void deliver(struct life *l)
{
    if (l->next_delivery == MESSAGES || l->parking_count > MESSAGES / 2) {
        return;
    }
    size_t m = l->next_delivery;
    enum tdi_gate_answer answer = tdi_gate_offer(&l->gate, key_text(l->key[m]), m);
    if (answer != TDI_GATE_FULL) {
        l->next_delivery++;
        decided(l, m, answer);
    }
}

static void take_effect(struct life *l, size_t m)
{
    unsigned key = l->key[m];
    assert_int_not_equal(l->inbox[m], EFFECT); /* once */
    l->skipped += l->last_effect[key] > m + 1 ? 1 : 0;
    l->last_effect[key] = m + 1;
    l->inbox[m] = EFFECT;
    l->effects++;
}

static void end_run(struct life *l, unsigned key)
{
    if (l->running[key] == 0) {
        return;
    }
    size_t m = l->running[key] - 1;
    bool known = l->inbox[m] != FRESH && !l->leased[m]; /* acknowledged, not run */
    bool ok = tdi_random_below(&l->r, 3) > 0;
    if (!known && ok) {
        bool head = l->inbox[m] == RETRY;
        take_effect(l, m);
        if (head && l->mode == TDI_GATE_BLOCK) {
            store_release_next(l, key);
        }
    } else if (!known && l->inbox[m] == FRESH) {
        l->inbox[m] = RETRY;
        l->arrival[m] = l->arrivals++;
    }
    l->leased[m] = false;
    l->running[key] = 0;
    tdi_gate_end(&l->gate, key_text(key), store_blocks(l, key));
    drain(l, key);
}

/* One transaction parks the first `count` in order. */
static void park(struct life *l, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t m = l->parking[i];
        if (l->inbox[m] == FRESH) {
            /* As the store does it: due now if nothing blocks the key any more. */
            l->inbox[m] = store_blocks(l, l->key[m]) ? BLOCKED : RETRY;
            l->arrival[m] = l->arrivals++;
        }
    }
    for (size_t i = 0; i < count; i++) {
        unsigned key = l->key[l->parking[i]];
        tdi_gate_parked(&l->gate, key_text(key), store_blocks(l, key));
        drain(l, key);
    }
    l->parking_count -= count;
    memmove(l->parking, l->parking + count, l->parking_count * sizeof(l->parking[0]));
}

static void schedule(struct life *l)
{
    size_t from = (size_t)tdi_random_below(&l->r, MESSAGES);
    for (size_t i = 0; i < MESSAGES; i++) {
        size_t m = (from + i) % MESSAGES;
        if (l->inbox[m] == RETRY && !l->leased[m]) {
            enum tdi_gate_answer answer = tdi_gate_offer_parked(&l->gate, key_text(l->key[m]), m);
            assert_int_not_equal(answer, TDI_GATE_PARK);
            if (answer != TDI_GATE_FULL) {
                l->leased[m] = true;
                decided(l, m, answer);
            }
            return;
        }
    }
}

static size_t first_unsettled(const struct life *l)
{
    size_t m = 0;
    while (m < MESSAGES && l->inbox[m] != FRESH) {
        m++;
    }
    return m;
}

static void lose_session(struct life *l)
{
    tdi_gate_forget_live(&l->gate);
    for (size_t i = 0; i < l->parking_count; i++) {
        tdi_gate_parked(&l->gate, key_text(l->key[l->parking[i]]), true);
    }
    l->parking_count = 0;
    l->next_delivery = first_unsettled(l);
}

static void take_over(struct life *l)
{
    tdi_gate_clear(&l->gate);
    memset(l->running, 0, sizeof(l->running));
    memset(l->leased, 0, sizeof(l->leased));
    l->parking_count = 0;
    for (unsigned key = 0; key < KEYS; key++) {
        if (store_blocks(l, key)) {
            assert_true(tdi_gate_mark(&l->gate, key_text(key), true));
        }
    }
    l->next_delivery = first_unsettled(l);
}

static void step(struct life *l)
{
    uint64_t what = tdi_random_below(&l->r, 200);
    if (what < 80) {
        deliver(l);
    } else if (what < 130) {
        end_run(l, (unsigned)tdi_random_below(&l->r, KEYS));
    } else if (what < 150) {
        park(l, (size_t)tdi_random_below(&l->r, l->parking_count + 1));
    } else if (what < 198) {
        schedule(l);
    } else if (what < 199) {
        lose_session(l);
    } else {
        take_over(l);
    }
}

static void live(struct life *l, enum tdi_gate_mode mode, uint64_t round)
{
    *l = (struct life){.mode = mode};
    tdi_random_seed(&l->r, round);
    assert_true(tdi_gate_init(&l->gate, mode, KEYS, WAITING, seed));
    for (size_t i = 0; i < MESSAGES; i++) {
        l->key[i] = (unsigned)tdi_random_below(&l->r, KEYS);
    }
    for (int i = 0; i < 20000 && l->effects < MESSAGES; i++) {
        step(l);
    }
    assert_int_equal(l->effects, MESSAGES); /* nothing is stuck, nothing lost */
    tdi_gate_release(&l->gate);
}

static void random_lives_in_order(void **state)
{
    (void)state;
    static struct life l;
    for (uint64_t round = 0; round < 300; round++) {
        live(&l, TDI_GATE_BLOCK, round);
        assert_int_equal(l.skipped, 0);
    }
}

static void random_lives_that_skip(void **state)
{
    (void)state;
    static struct life l;
    size_t skipped = 0;
    for (uint64_t round = 0; round < 100; round++) {
        live(&l, TDI_GATE_SKIP, round);
        skipped += l.skipped;
    }
    assert_true(skipped > 0); /* failed ones step aside: the model can tell the modes apart */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_gates_nothing),
        cmocka_unit_test(without_a_key),
        cmocka_unit_test(one_run_of_a_key),
        cmocka_unit_test(skip_never_blocks),
        cmocka_unit_test(failed_head_parks_its_followers),
        cmocka_unit_test(no_gap_between_decision_and_commit),
        cmocka_unit_test(parked_row_runs_though_blocked),
        cmocka_unit_test(marks),
        cmocka_unit_test(limit_of_waiting),
        cmocka_unit_test(limit_of_keys),
        cmocka_unit_test(forgetting_live_ones),
        cmocka_unit_test(forgotten_ones_make_room),
        cmocka_unit_test(clearing),
        cmocka_unit_test(random_lives_in_order),
        cmocka_unit_test(random_lives_that_skip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
