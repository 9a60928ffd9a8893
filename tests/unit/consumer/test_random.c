/*
 * Random schedules: two consumer objects of one name, messages of two keys and without, duplicates;
 * calls that fail, COMMITs that are not answered, kills, frozen processes, lost broker sessions, an
 * operator who replays and discards. Then all faults stop, and what must hold is checked:
 *
 *   effect      at most once for an id, whatever happens
 *   order       block with hold: effects of a key in the order of publication, none past a dead one
 *   conservation  every id has exactly one final outcome, or is blocked behind a dead one
 *   attempts    never above the limit; a message that kills is found
 *   end         everything comes to rest when the faults stop
 *
 * TDI_RANDOM_COUNT schedules (default 2000) from TDI_RANDOM_SEED on; TDI_RANDOM_TRACE prints one.
 */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

#define IDS_MAX 14
#define STEPS_FAULTY 700
#define STEPS_QUIET 60000
#define ATTEMPTS 3

struct id {
    char name[8];
    const char *key; /* NULL: none */
    bool published;
    bool bad;    /* always dead */
    bool poison; /* always kills */
    int replays;
    bool was_dead; /* release: what comes later may pass it */
};

struct sim {
    struct rig r;
    uint64_t seed;
    struct id ids[IDS_MAX];
    size_t count;
    bool faulty;
    struct tdi_consumer *c[2];
    td_time_us wake[2];
    bool draining[2];
};

static struct sim *current; /* for the handler's callback */

static uint64_t below(struct sim *s, uint64_t bound)
{
    return tdi_random_below(&s->r.w->random, bound);
}

static bool chance(struct sim *s, uint64_t permille)
{
    return below(s, 1000) < permille;
}

static void fail_sim(const struct sim *s, const char *what, const char *id)
{
    print_error("seed %llu: %s %s\n", (unsigned long long)s->seed, what, id);
    fail();
}

static struct id *id_of(struct sim *s, struct td_str name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (tdi_str_is(name, s->ids[i].name)) {
            return &s->ids[i];
        }
    }
    fail_sim(s, "a message that nobody published:", "");
    return NULL;
}

static bool finished(const struct sim *s, const struct id *id)
{
    switch (fake_outcome(s->r.w, id->name)) {
    case TD_OUTCOME_EFFECT:
    case TD_OUTCOME_DISCARDED:
    case TD_OUTCOME_DROPPED:
        return true;
    case TD_OUTCOME_DEAD:
        return s->r.o.on_dead == TDI_ON_DEAD_RELEASE;
    case TD_OUTCOME_NONE:
    case TD_OUTCOME_RETRY:
    case TD_OUTCOME_BLOCKED:
        return false;
    }
    return false;
}

static bool same_key(const struct id *a, const struct id *b)
{
    return a->key != NULL && b->key != NULL && strcmp(a->key, b->key) == 0;
}

/* Outside: a call of a key starts only after all before it are settled, and none after its own. */
static void check_call(struct sim *s, const struct id *id)
{
    if (fake_outcome(s->r.w, id->name) == TD_OUTCOME_EFFECT) {
        fail_sim(s, "called after it was settled:", id->name);
    }
    for (const struct id *o = s->ids; o < id; o++) {
        if (s->r.o.order == TDI_ORDER_BLOCK && same_key(o, id) && !finished(s, o) &&
            o->replays == 0) {
            fail_sim(s, "called before an earlier one of its key was settled:", id->name);
        }
    }
}

static void decide_faulty(struct sim *s, struct fake_script *ret)
{
    switch (below(s, 40)) {
    case 0:
    case 1:
    case 2:
    case 3:
        ret->kind = TD_VERDICT_RETRY;
        break;
    case 4:
        ret->kind = TD_VERDICT_DEAD;
        break;
    case 5:
        ret->kind = TD_VERDICT_DROP;
        break;
    case 6:
    case 7:
        ret->kind = TD_VERDICT_RETRY;
        ret->broken = true;
        break;
    case 8:
        ret->kind = TD_VERDICT_RETRY;
        ret->uncharged = true;
        break;
    case 9:
        ret->bad_commit = true;
        break;
    case 10:
        ret->kills = true;
        break;
    case 11:
        ret->error = below(s, 2) == 0 ? TD_ERR_UNAVAILABLE : TD_ERR_STATEMENT;
        ret->start_error = ret->error;
        break;
    case 12:
        ret->kind = TD_VERDICT_RETRY;
        ret->verdictless = true;
        break;
    case 13:
        ret->emit = true;
        break;
    default:
        break;
    }
}

static void decide(struct fake_world *w, const struct td_run *run, struct fake_script *ret)
{
    struct sim *s = current;
    (void)w;
    struct id *id = id_of(s, run->message->id);
    bool outside = s->r.o.handler_driver == &fake_outside_driver;
    if (outside) {
        check_call(s, id);
    }
    ret->takes_us = (td_time_us)below(s, outside ? 3000000 : 4000);
    if (id->poison) {
        ret->kills = true;
    } else if (s->faulty && chance(s, 600)) {
        decide_faulty(s, ret);
    } else if (id->bad) {
        ret->kind = TD_VERDICT_DEAD;
    }
}

/* ---- acts ---- */

static void publish(struct sim *s)
{
    static const char *keys[] = {"a", "b", NULL};
    if (s->count < IDS_MAX && chance(s, 700)) {
        struct id *id = &s->ids[s->count];
        snprintf(id->name, sizeof(id->name), "m%zu", s->count);
        id->key = keys[below(s, 3)];
        id->bad = chance(s, 60);
        id->poison = chance(s, 15);
        s->count++;
        fake_publish_key(s->r.w, id->name, id->key);
    } else if (s->count > 0 && chance(s, 200)) {
        const struct id *id = &s->ids[below(s, s->count)];
        fake_publish_key(s->r.w, id->name, id->key);
    }
}

static void kill_one(struct sim *s, size_t i)
{
    tdi_consumer_free(s->c[i]);
    s->c[i] = NULL;
    s->draining[i] = false;
}

static void operate(struct sim *s)
{
    if (s->count == 0) {
        return;
    }
    struct id *id = &s->ids[below(s, s->count)];
    if (chance(s, 600)) {
        id->replays += fake_replay(s->r.w, id->name, ATTEMPTS) ? 1 : 0;
    } else if (fake_outcome(s->r.w, id->name) == TD_OUTCOME_DEAD || chance(s, 100)) {
        fake_discard(s->r.w, id->name);
    }
}

static void step_one(struct sim *s, size_t i)
{
    if (s->c[i] == NULL) {
        if (!s->faulty || chance(s, 100)) {
            s->c[i] = rig_consumer(&s->r);
            s->wake[i] = 0;
        }
        return;
    }
    enum tdi_step r = rig_step(&s->r, s->c[i], &s->wake[i]);
    s->wake[i] = r == TDI_STEP_WAIT ? s->wake[i] : 0;
    if (fake_take_kill(s->r.w) || r == TDI_STEP_ENDED) {
        kill_one(s, i);
    }
}

/* The next that may do something; else time passes. */
static void go_on(struct sim *s)
{
    size_t i = below(s, 2);
    if (s->c[i] == NULL || s->wake[i] <= s->r.w->now) {
        step_one(s, i);
        return;
    }
    i = 1 - i;
    if (s->c[i] == NULL || s->wake[i] <= s->r.w->now) {
        step_one(s, i);
        return;
    }
    td_time_us next = s->wake[0] < s->wake[1] ? s->wake[0] : s->wake[1];
    s->r.w->now = next;
}

static void disturb(struct sim *s)
{
    switch (below(s, 12)) {
    case 0:
        kill_one(s, below(s, 2));
        break;
    case 1:
        fake_broker_drop_sessions(s->r.w);
        break;
    case 2:
        s->r.w->now += SECONDS(11); /* everybody stood still: leases have run out */
        break;
    case 3:
        fake_resolve_pending(s->r.w, chance(s, 500));
        break;
    case 4: {
        size_t i = below(s, 2);
        if (s->c[i] != NULL && !s->draining[i]) {
            s->draining[i] = true;
            tdi_consumer_stop(s->c[i]);
            s->wake[i] = 0;
        }
        break;
    }
    case 5:
        s->r.w->now += (td_time_us)below(s, 3000000);
        break;
    default:
        operate(s);
        break;
    }
}

/* ---- checks ---- */

static void check_effects(struct sim *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct id *id = &s->ids[i];
        if (s->r.o.handler_driver == &fake_inside_driver && fake_effects(s->r.w, id->name) > 1) {
            fail_sim(s, "took effect twice:", id->name);
        }
        const struct fake_parked *p = fake_parked_of(s->r.w, id->name);
        if (p != NULL && p->attempts > p->attempt_limit) {
            fail_sim(s, "more attempts than allowed:", id->name);
        }
        id->was_dead = id->was_dead || fake_outcome(s->r.w, id->name) == TD_OUTCOME_DEAD;
    }
}

static bool at_rest(const struct sim *s)
{
    return fake_broker_unsettled(s->r.w) == 0 && fake_parked_count(s->r.w, TD_OUTCOME_RETRY) == 0 &&
           !fake_unclean(s->r.w);
}

static size_t effect_place(const struct sim *s, const struct id *id)
{
    for (size_t i = 0; i < fake_effects_count(s->r.w); i++) {
        if (strcmp(fake_effect_id(s->r.w, i), id->name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static void check_order(struct sim *s, const struct id *later)
{
    if (s->r.o.order != TDI_ORDER_BLOCK || s->r.o.handler_driver != &fake_inside_driver ||
        fake_outcome(s->r.w, later->name) != TD_OUTCOME_EFFECT) {
        return;
    }
    for (const struct id *o = s->ids; o < later; o++) {
        if (!same_key(o, later)) {
            continue;
        }
        if (!finished(s, o)) {
            fail_sim(s, "took effect past an unfinished one:", later->name);
        }
        bool may_pass = s->r.o.on_dead == TDI_ON_DEAD_RELEASE && o->was_dead;
        if (!may_pass && fake_outcome(s->r.w, o->name) == TD_OUTCOME_EFFECT &&
            effect_place(s, o) > effect_place(s, later)) {
            fail_sim(s, "took effect before an earlier one:", later->name);
        }
    }
}

static bool behind_a_dead_one(const struct sim *s, const struct id *id)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct id *o = &s->ids[i];
        const struct fake_parked *a = fake_parked_of(s->r.w, o->name);
        const struct fake_parked *b = fake_parked_of(s->r.w, id->name);
        if (a != NULL && same_key(o, id) && a->outcome == TD_OUTCOME_DEAD && a->blocks_key &&
            a->arrival < b->arrival) {
            return true;
        }
    }
    return false;
}

static void check_end(struct sim *s)
{
    bool inside = s->r.o.handler_driver == &fake_inside_driver;
    if (fake_inbox_count(s->r.w) != s->count) {
        fail_sim(s, "not as many outcomes as messages", "");
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct id *id = &s->ids[i];
        int effects = fake_effects(s->r.w, id->name);
        switch (fake_outcome(s->r.w, id->name)) {
        case TD_OUTCOME_EFFECT:
            if (inside && effects != 1) {
                fail_sim(s, "effect without effect:", id->name);
            }
            break;
        case TD_OUTCOME_DEAD:
        case TD_OUTCOME_DROPPED:
        case TD_OUTCOME_DISCARDED:
            if (inside && effects != 0) {
                fail_sim(s, "given up, yet it took effect:", id->name);
            }
            break;
        case TD_OUTCOME_BLOCKED:
            if (!behind_a_dead_one(s, id)) {
                fail_sim(s, "blocked behind nothing:", id->name);
            }
            break;
        case TD_OUTCOME_NONE:
        case TD_OUTCOME_RETRY:
            fail_sim(s, "not finished:", id->name);
            break;
        }
        if (id->poison && fake_kills(s->r.w, id->name) > 1 + ATTEMPTS * (1 + id->replays)) {
            fail_sim(s, "killed too often:", id->name);
        }
        check_order(s, id);
    }
}

/* ---- one schedule ---- */

static void run_schedule(uint64_t seed, bool trace)
{
    static const enum tdi_order orders[] = {TDI_ORDER_BLOCK, TDI_ORDER_BLOCK, TDI_ORDER_SKIP,
                                            TDI_ORDER_NONE};
    struct sim s = {.seed = seed, .faulty = true};
    s.r = rig_new(orders[seed % 4], seed / 4 % 2 == 1);
    s.r.o.on_dead = seed % 4 == 1 ? TDI_ON_DEAD_RELEASE : TDI_ON_DEAD_HOLD;
    s.r.o.breaker =
        (struct tdi_breaker_policy){.failures = 4, .share_percent = 50, .window_us = SECONDS(10)};
    s.r.o.prefetch = seed / 8 % 3 == 0 ? 3 : 0;
    s.r.o.drain_us = SECONDS(1);
    s.r.w->trace = trace;
    current = &s;
    tdi_random_seed(&s.r.w->random, seed);
    fake_decide(s.r.w, decide);
    s.r.w->random_permille = (unsigned)below(&s, 40);
    for (int i = 0; i < STEPS_FAULTY; i++) {
        if (chance(&s, 60)) {
            publish(&s);
        } else if (chance(&s, 20)) {
            disturb(&s);
        } else {
            go_on(&s);
        }
        check_effects(&s);
    }
    s.faulty = false;
    fake_no_faults(s.r.w);
    fake_resolve_pending(s.r.w, chance(&s, 500));
    if (trace) {
        printf("---- quiet\n");
    }
    int steps = 0;
    while (!at_rest(&s) && steps++ < STEPS_QUIET) {
        go_on(&s);
        check_effects(&s);
    }
    if (!at_rest(&s)) {
        fail_sim(&s, "never comes to rest", "");
    }
    check_end(&s);
    kill_one(&s, 0);
    kill_one(&s, 1);
    rig_free(&s.r);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    int64_t value = 0;
    return tdi_str_to_i64(tdi_str(getenv(name)), &value) && value >= 0 ? (uint64_t)value
                                                                       : otherwise;
}

static void random_schedules(void **state)
{
    (void)state;
    uint64_t first = number("TDI_RANDOM_SEED", 1);
    uint64_t count = number("TDI_RANDOM_COUNT", 2000);
    for (uint64_t i = 0; i < count; i++) {
        run_schedule(first + i, getenv("TDI_RANDOM_TRACE") != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
