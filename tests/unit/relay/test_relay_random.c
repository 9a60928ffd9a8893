/*
 * Random schedules of two processes over one outbox, from seeds: steps in any order, rows that
 * appear meanwhile, calls that fail in every way, kills, leases that end under their owner, answers
 * in any order, unknown outcomes, what closed sessions left processed late. The fakes check order,
 * durability, position and parking at every step; at the end nothing may be lost, and it must end. Rows
 * that died are replayed meanwhile.
 *
 * RELAY_SEED=n runs one seed, RELAY_SCHEDULES=n so many.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../fake/relay_letters.h"
#include "base/str.h"
#include "rig.h"

#define SCHEDULES 3000
#define ROWS 40
#define TROUBLED_ACTIONS 600
#define QUIET_STEPS_MAX 20000

struct schedule {
    struct rig *rig;
    struct tdi_random random;
    int faults_per_mille;   /* of driver calls */
    int refusals_per_mille; /* of the broker's answers */
    uint64_t seed;
};

static bool chance(struct schedule *s, int per_mille)
{
    return tdi_random_below(&s->random, 1000) < (uint64_t)per_mille;
}

static size_t pick(struct schedule *s, size_t count)
{
    return (size_t)tdi_random_below(&s->random, count);
}

/* ---- faults ----------------------------------------------------------------------------- */

static bool fault(void *ctx, int call, struct relay_plan *ret)
{
    static const struct {
        enum td_err code;
        enum td_err_class class_;
    } kinds[] = {
        {TD_ERR_BUSY, TD_CLASS_RETRY},
        {TD_ERR_UNAVAILABLE, TD_CLASS_RETRY},
        {TD_ERR_INTERRUPTED, TD_CLASS_RETRY},
        {TD_ERR_OUTCOME_UNKNOWN, TD_CLASS_UNKNOWN},
        {TD_ERR_OUTCOME_UNKNOWN, TD_CLASS_UNKNOWN},
        {TD_ERR_CLOSED, TD_CLASS_FATAL},
        {TD_ERR_IO, TD_CLASS_FATAL},
    };
    struct schedule *s = ctx;

    if (!chance(s, s->faults_per_mille)) {
        return false;
    }
    size_t k = pick(s, sizeof(kinds) / sizeof(kinds[0]));
    *ret = (struct relay_plan){.call = call,
                               .code = kinds[k].code,
                               .class_ = kinds[k].class_,
                               .done = kinds[k].class_ != TD_CLASS_RETRY && chance(s, 500)};
    return true;
}

static void judge(void *ctx, int64_t seq, struct relay_verdict *v)
{
    static const enum td_err faults[] = {TD_ERR_UNROUTABLE, TD_ERR_TOO_LARGE, TD_ERR_DENIED,
                                         TD_ERR_INVALID};
    struct schedule *s = ctx;

    (void)seq;
    if (!chance(s, s->refusals_per_mille)) {
        return;
    }
    switch (pick(s, 3)) {
    case 0:
        v->result = TD_PUBLISH_REFUSED;
        v->code = faults[pick(s, 4)];
        v->class_ = TD_CLASS_PERMANENT;
        break;
    case 1:
        v->result = TD_PUBLISH_REFUSED;
        v->code = TD_ERR_DISK_FULL;
        v->class_ = TD_CLASS_RETRY;
        break;
    default:
        v->result = TD_PUBLISH_UNKNOWN;
        v->stored = chance(s, 500);
    }
}

/* ---- actions ---------------------------------------------------------------------------- */

static void add_row(struct schedule *s)
{
    static const char *const keys[] = {"a", "b", "c", NULL};
    struct relay_row *row;

    if (s->rig->db.committed >= ROWS) {
        return;
    }
    if (chance(s, 100)) {
        row = relay_db_add(&s->rig->db, keys[pick(s, 4)], "far.away");
        row->foreign = true;
    } else if (chance(s, 100)) {
        relay_db_add(&s->rig->db, keys[pick(s, 4)], "no.topic");
    } else {
        row = relay_db_add(&s->rig->db, keys[pick(s, 4)], "order.paid");
        row->defect = chance(s, 50) ? "it has a defect" : NULL;
    }
}

static void end_lease_under_owner(struct schedule *s)
{
    s->rig->db.names[0].until = s->rig->time.mono;
}

static void restart(struct schedule *s, size_t process)
{
    rig_kill(s->rig, process);
    rig_start(s->rig, process);
}

static void replay_some(struct schedule *s)
{
    if (s->rig->db.committed > 0) {
        int64_t seq = 1 + (int64_t)pick(s, (size_t)s->rig->db.committed);
        relay_letter_replay(&s->rig->db, seq, 1 + (int32_t)pick(s, 3), (td_time_us)pick(s, 300000));
    }
}

static void answer_some(struct schedule *s, size_t process)
{
    struct relay_broker_client *c = &s->rig->p[process].broker;
    for (size_t n = pick(s, 4); n > 0 && relay_broker_in_flight(c) > 0; n--) {
        relay_broker_answer_at(c, pick(s, relay_broker_in_flight(c)));
        relay_broker_answer_at(c, 0);
    }
}

static void process_late(struct schedule *s)
{
    struct relay_world *w = &s->rig->world;

    if (w->late_count > 0) {
        relay_broker_late(w, pick(s, w->late_count));
    }
    if (chance(s, 100)) {
        w->late_count = 0; /* lost on the way */
    }
}

static void act(struct schedule *s)
{
    size_t process = pick(s, RIG_PROCESSES);

    switch (pick(s, 10)) {
    case 0:
        add_row(s);
        replay_some(s);
        break;
    case 1:
        answer_some(s, process);
        break;
    case 2:
        process_late(s);
        break;
    case 3:
        relay_time_pass(&s->rig->time, (td_time_us)pick(s, chance(s, 50) ? 20000000 : 100000));
        break;
    case 4:
        if (chance(s, 100)) {
            restart(s, process);
        } else if (chance(s, 100)) {
            end_lease_under_owner(s);
        }
        break;
    default:
        (void)rig_step(s->rig, process);
    }
}

/* ---- a schedule ------------------------------------------------------------------------- */

static struct schedule begin(uint64_t seed)
{
    struct schedule s = {.seed = seed};

    tdi_random_seed(&s.random, seed);
    s.rig = rig_new(seed % 2 == 0);
    tdi_random_seed(&s.rig->random, seed);
    s.faults_per_mille = (int[]){0, 20, 100}[pick(&s, 3)];
    s.refusals_per_mille = (int[]){0, 50, 200}[pick(&s, 3)];
    s.rig->options.window_rows = (size_t[]){3, 8, 64}[pick(&s, 3)];
    s.rig->options.read_rows = (size_t[]){1, 4, 64}[pick(&s, 3)];
    if (chance(&s, 300)) {
        s.rig->options.store_driver = &relay_store_driver_no_wait;
    }
    if (chance(&s, 300)) {
        s.rig->options.keep_us = 0;
    }
    s.rig->time.patient = false;
    s.rig->world.held = true;
    return s;
}

static void connect(struct schedule *s)
{
    s->rig->world.judge = judge;
    s->rig->world.ctx = s;
    for (size_t i = 0; i < RIG_PROCESSES; i++) {
        s->rig->p[i].store.faults.choose = fault;
        s->rig->p[i].store.faults.ctx = s;
        s->rig->p[i].broker.faults = s->rig->p[i].store.faults;
        s->rig->p[i].broker.pipeline_max = pick(s, 3);
        rig_start(s->rig, i);
    }
}

/* No more faults: all of it must end. */
static void quiet(struct schedule *s)
{
    struct rig *rig = s->rig;

    s->faults_per_mille = 0;
    s->refusals_per_mille = 0;
    rig->world.held = false;
    for (int i = 0; !rig_settled(rig) || !relay_letters_ended(&rig->db); i++) {
        enum tdi_step a = rig_step(rig, 0);
        enum tdi_step b = rig_step(rig, 1);
        if (i >= QUIET_STEPS_MAX) {
            fail_msg("it does not end");
        }
        relay_time_pass(&rig->time, a == TDI_STEP_WAIT && b == TDI_STEP_WAIT
                                        ? 100 * TD_MILLISECOND_US
                                        : TD_MILLISECOND_US);
    }
}

static void check_end(const struct rig *rig)
{
    for (int64_t i = 0; i < rig->db.committed; i++) {
        const struct relay_row *row = &rig->db.rows[i];
        if (row->foreign) {
            assert_int_equal(row->accepted + row->dead, 0);
        } else {
            assert_true(row->accepted > 0 || row->dead == 1);
        }
        assert_in_range(row->dead, 0, 1);
        assert_true(row->letter.outcome != TD_OUTCOME_EFFECT || row->letter.published > 0);
    }
}

static void run(uint64_t seed)
{
    struct schedule s = begin(seed);

    connect(&s);
    for (int i = 0; i < TROUBLED_ACTIONS; i++) {
        act(&s);
    }
    quiet(&s);
    check_end(s.rig);
    rig_free(s.rig);
}

static int64_t from_environment(const char *name)
{
    int64_t value = 0;
    const char *text = getenv(name);

    return text != NULL && tdi_str_to_i64(tdi_str(text), &value) ? value : 0;
}

static int tell_seed(void **state)
{
    print_message("last seed: RELAY_SEED=%" PRIu64 "\n", *(const uint64_t *)*state);
    return 0;
}

static void promises_hold_in_random_schedules(void **state)
{
    uint64_t *running = *state;
    int64_t one = from_environment("RELAY_SEED");
    int64_t count = from_environment("RELAY_SCHEDULES");

    count = count > 0 ? count : SCHEDULES;
    for (int64_t seed = one > 0 ? one : 1; seed <= (one > 0 ? one : count); seed++) {
        *running = (uint64_t)seed;
        run(*running);
    }
}

int main(void)
{
    uint64_t running = 0; /* the seed, for the report of a failure */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate_setup_teardown(promises_hold_in_random_schedules, NULL, tell_seed,
                                                 &running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
