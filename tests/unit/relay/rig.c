/* See rig.h. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct td_str orders_types[] = {{"order.*", 7}};
static const struct td_str mails_types[] = {{"mail.*", 6}, {"both.*", 6}};
static const struct td_str twins_types[] = {{"both.*", 6}};
static const struct td_str far_types[] = {{"far.*", 5}};

static const struct tdi_topic topics[] = {
    {.name = {"orders", 6},
     .broker = {"main", 4},
     .types = orders_types,
     .types_count = 1,
     .max_bytes = 1024},
    {.name = {"mails", 5}, .broker = {"main", 4}, .types = mails_types, .types_count = 2},
    {.name = {"twins", 5}, .broker = {"main", 4}, .types = twins_types, .types_count = 1},
    {.name = {"keyed", 5}, .broker = {"main", 4}, .key_required = true},
    {.name = {"tiny", 4}, .broker = {"main", 4}, .max_bytes = 4},
    {.name = {"far", 3}, .broker = {"other", 5}, .types = far_types, .types_count = 1},
};

struct rig *rig_new(bool ordered)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    rig->time = (struct relay_time){
        .mono = 1000 * TD_SECOND_US, .wall = 1700000000 * TD_SECOND_US, .patient = true};
    relay_db_init(&rig->db, &rig->time);
    relay_world_init(&rig->world, &rig->db);
    tdi_random_seed(&rig->random, 1);
    rig->catalogue = (struct tdi_catalogue){topics, sizeof(topics) / sizeof(topics[0])};
    rig->options = (struct tdi_relay_options){
        .name = TD_STR_LIT(RIG_RELAY),
        .service = TD_STR_LIT("shop"),
        .catalogue = &rig->catalogue,
        .broker_name = TD_STR_LIT("main"),
        .unmatched_ours = true,
        .store_driver = &relay_store_driver,
        .broker_driver = ordered ? &relay_broker_driver_ordered : &relay_broker_driver,
        .keep_us = TD_TIME_NONE,
        .clock = relay_time_clock(&rig->time),
        .random = &rig->random,
    };
    for (size_t i = 0; i < RIG_PROCESSES; i++) {
        rig->p[i].store.db = &rig->db;
        rig->p[i].store.id = (int)i + 1;
        rig->p[i].broker.world = &rig->world;
    }
    return rig;
}

void rig_start(struct rig *rig, size_t process)
{
    struct rig_process *p = &rig->p[process];
    struct td_error err;
    rig->options.store.location = relay_store_location(&p->store);
    rig->options.broker.location = relay_broker_location(&p->broker);
    assert_int_equal(tdi_relay_new(&rig->options, &p->relay, &err), TD_OK);
}

void rig_kill(struct rig *rig, size_t process)
{
    tdi_relay_free(rig->p[process].relay);
    rig->p[process].relay = NULL;
    assert_int_equal(rig->p[process].store.open, 0);
    assert_int_equal(rig->p[process].broker.open, 0);
}

void rig_free(struct rig *rig)
{
    char violation[sizeof(rig->db.violation)];
    for (size_t i = 0; i < RIG_PROCESSES; i++) {
        rig_kill(rig, i);
    }
    memcpy(violation, rig->db.violation, sizeof(violation));
    free(rig);
    assert_string_equal(violation, "");
}

enum tdi_step rig_step(struct rig *rig, size_t process)
{
    struct rig_process *p = &rig->p[process];
    int before = p->store.calls_total + p->broker.calls_total;
    enum tdi_step step = tdi_relay_step(p->relay, &p->wake);
    assert_in_range(p->store.calls_total + p->broker.calls_total - before, 0, 1);
    assert_string_equal(rig->db.violation, "");
    return step;
}

static void step_in_time(struct rig *rig)
{
    if (rig_step(rig, 0) == TDI_STEP_WAIT) {
        assert_true(rig->p[0].wake > rig->time.mono);
        relay_time_pass(&rig->time, rig->p[0].wake - rig->time.mono);
    }
}

void rig_until(struct rig *rig, rig_condition_fn condition)
{
    for (int i = 0; !condition(rig); i++) {
        assert_true(i < RIG_STEPS_MAX);
        step_in_time(rig);
    }
}

void rig_run_for(struct rig *rig, td_time_us us)
{
    td_time_us until = rig->time.mono + us;
    for (int i = 0; rig->time.mono < until; i++) {
        assert_true(i < RIG_STEPS_MAX);
        step_in_time(rig);
    }
}

int64_t rig_position(const struct rig *rig)
{
    return rig->db.names[0].position;
}

bool rig_settled(const struct rig *rig)
{
    return rig_position(rig) == rig->db.committed;
}

bool rig_idle(const struct rig *rig)
{
    return rig_settled(rig) && rig->p[0].store.calls[RELAY_STORE_WAIT] > 0 && !rig->db.woken;
}

struct tdi_relay_snapshot rig_snapshot(const struct rig *rig)
{
    struct tdi_relay_snapshot s;
    tdi_relay_snapshot(rig->p[0].relay, &s);
    return s;
}

enum tdi_relay_state rig_state(const struct rig *rig)
{
    return rig_snapshot(rig).state;
}
