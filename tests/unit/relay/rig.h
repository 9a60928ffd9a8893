/*
 * A relay over the fakes: time, database, broker and up to two processes. Everything is on the
 * heap; every step is checked to make at most one driver call.
 */
#ifndef TEST_RELAY_RIG_H
#define TEST_RELAY_RIG_H

#include "../../fake/relay_broker.h"
#include "../../fake/relay_store.h"
#include "base/clock.h"
#include "relay/relay.h"

#define RIG_RELAY "shop.main"
#define RIG_PROCESSES 2
#define RIG_STEPS_MAX 20000

struct rig_process {
    struct relay_store_client store;
    struct relay_broker_client broker;
    struct tdi_relay *relay;
    td_time_us wake; /* the last WAIT */
};

struct rig {
    struct relay_time time;
    struct relay_db db;
    struct relay_world world;
    struct tdi_random random;
    struct tdi_catalogue catalogue;
    struct tdi_relay_options options; /* change before rig_start() */
    struct rig_process p[RIG_PROCESSES];
};

struct rig *rig_new(bool ordered);
void rig_free(struct rig *rig); /* fails the test if the fakes saw a violation */
void rig_start(struct rig *rig, size_t process);
void rig_kill(struct rig *rig, size_t process); /* free without stop */
enum tdi_step rig_step(struct rig *rig, size_t process);

/* Step the first process (time passes with WAIT) until the condition holds; fails the test when it
 * does not within RIG_STEPS_MAX steps. */
typedef bool (*rig_condition_fn)(const struct rig *rig);
void rig_until(struct rig *rig, rig_condition_fn condition);
bool rig_settled(const struct rig *rig); /* the position is behind the last row */
bool rig_idle(const struct rig *rig); /* the first process waits in the store, or returned WAIT */
/* Step the first process for so long (virtual time). */
void rig_run_for(struct rig *rig, td_time_us us);
enum tdi_relay_state rig_state(const struct rig *rig);
int64_t rig_position(const struct rig *rig);
struct tdi_relay_snapshot rig_snapshot(const struct rig *rig);

#endif
