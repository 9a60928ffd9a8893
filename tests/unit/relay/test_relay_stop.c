/* Stopping, interrupting, looking at it from other threads. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static void add(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++) {
        relay_db_add(&rig->db, "a", "order.paid");
    }
}

static bool one_in_flight(const struct rig *rig)
{
    return relay_broker_in_flight(&rig->p[0].broker) > 0;
}

static bool is_ok(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_OK;
}

static bool is_standby(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_STANDBY;
}

static bool is_halted(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_HALTED;
}

static bool store_is_down(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_STORE_DOWN;
}

static struct relay_name *lease(struct rig *rig)
{
    return relay_db_name(&rig->db, RIG_RELAY);
}

/* Steps until the end; how much time that took. */
static td_time_us run_to_the_end(struct rig *rig)
{
    td_time_us begin = rig->time.mono;

    for (int i = 0;; i++) {
        assert_true(i < RIG_STEPS_MAX);
        enum tdi_step step = rig_step(rig, 0);
        if (step == TDI_STEP_ENDED) {
            break;
        }
        if (step == TDI_STEP_WAIT) {
            relay_time_pass(&rig->time, rig->p[0].wake - rig->time.mono);
        }
    }
    assert_int_equal(rig->p[0].store.open, 0);
    assert_int_equal(rig->p[0].broker.open, 0);
    assert_int_equal(rig_state(rig), TDI_RELAY_NOT_RUNNING);
    assert_int_equal(rig_step(rig, 0), TDI_STEP_ENDED);
    return rig->time.mono - begin;
}

static void stopping_an_idle_relay_releases_the_lease(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 3);
    rig_start(rig, 0);
    rig_until(rig, rig_idle);
    tdi_relay_stop(rig->p[0].relay);
    run_to_the_end(rig);
    assert_int_equal(lease(rig)->owner, 0);
    assert_int_equal(rig_position(rig), 3);
    rig_free(rig);
}

static void a_drain_settles_what_is_in_flight_and_takes_no_more(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    rig->world.held = true;
    for (int i = 0; i < 4; i++) {
        relay_db_add(&rig->db, i == 3 ? "a" : NULL, "order.paid");
    }
    add(rig, 2); /* behind the fourth, in the window, not submitted */
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    tdi_relay_stop(rig->p[0].relay);
    add(rig, 5);
    rig->world.held = false;
    assert_true(run_to_the_end(rig) < TD_SECOND_US);
    assert_int_equal(rig_position(rig), 4);
    assert_int_equal(rig->p[0].broker.submitted, 4);
    assert_int_equal(lease(rig)->owner, 0);
    rig_free(rig);
}

static void a_drain_ends_at_its_deadline(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->world.held = true;
    add(rig, 3);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    assert_true(relay_broker_answer(&rig->p[0].broker, 1));
    tdi_relay_stop(rig->p[0].relay);
    td_time_us took = run_to_the_end(rig);
    assert_in_range(took, TDI_RELAY_DRAIN_US, TDI_RELAY_DRAIN_US + TD_SECOND_US);
    assert_int_equal(rig_position(rig), 1);
    assert_int_equal(lease(rig)->owner, 0);
    assert_true(rig->p[0].broker.calls[RELAY_BROKER_COLLECT] < 100); /* it does not spin */
    rig_free(rig);
}

static void a_drain_parks_its_dead_rows(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->world.held = true;
    add(rig, 2);
    relay_verdict(&rig->world, 2, 1, TD_PUBLISH_REFUSED, TD_ERR_DENIED, TD_CLASS_PERMANENT);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    tdi_relay_stop(rig->p[0].relay);
    rig->world.held = false;
    run_to_the_end(rig);
    assert_int_equal(rig_position(rig), 2);
    assert_int_equal(rig->db.rows[1].dead, 1);
    rig_free(rig);
}

static void a_drain_tries_a_settlement_again(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->world.held = true;
    add(rig, 2);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    tdi_relay_stop(rig->p[0].relay);
    rig->world.held = false;
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_SETTLE, 1, TD_ERR_BUSY, TD_CLASS_RETRY, false);
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_SETTLE, 2, TD_ERR_INTERRUPTED, TD_CLASS_RETRY,
               false);
    run_to_the_end(rig);
    assert_int_equal(rig_position(rig), 2);
    rig_free(rig);
}

static void the_second_stop_leaves_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->world.held = true;
    add(rig, 3);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    tdi_relay_stop(rig->p[0].relay);
    rig_step(rig, 0);
    tdi_relay_stop(rig->p[0].relay);
    assert_int_equal(run_to_the_end(rig), 0);
    assert_int_equal(rig_position(rig), 0);
    assert_int_equal(lease(rig)->owner, 1);
    rig_free(rig);
}

static void a_relay_without_a_lease_stops_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0); /* before the first step */
    tdi_relay_stop(rig->p[0].relay);
    assert_int_equal(run_to_the_end(rig), 0);
    rig_free(rig);

    rig = rig_new(true);
    lease(rig)->owner = 77;
    lease(rig)->until = rig->time.mono + 60 * TD_SECOND_US;
    rig_start(rig, 0);
    rig_until(rig, is_standby);
    tdi_relay_stop(rig->p[0].relay);
    assert_int_equal(run_to_the_end(rig), 0);
    assert_int_equal(lease(rig)->owner, 77);
    rig_free(rig);
}

static void a_halted_relay_stops_at_once_and_gives_its_lease_back(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->db.rebuilt = true;
    rig_start(rig, 0);
    rig_until(rig, is_halted);
    assert_int_equal(lease(rig)->owner, 1);
    tdi_relay_stop(rig->p[0].relay);
    assert_int_equal(run_to_the_end(rig), 0);
    assert_int_equal(lease(rig)->owner, 0);
    rig_free(rig);
}

static void a_relay_whose_store_is_down_stops_within_the_deadline(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_until(rig, is_ok);
    add(rig, 1);
    for (int i = 1; i <= RELAY_PLANS_MAX; i++) {
        relay_plan(&rig->p[0].store.faults, RELAY_STORE_SETTLE, i, TD_ERR_UNAVAILABLE,
                   TD_CLASS_RETRY, false);
    }
    rig_until(rig, store_is_down);
    tdi_relay_stop(rig->p[0].relay);
    assert_true(run_to_the_end(rig) <= TDI_RELAY_DRAIN_US + TD_SECOND_US);
    rig_free(rig);
}

static void an_interrupted_call_is_made_again(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    for (int call = 0; call < RELAY_STORE_CALLS; call++) {
        relay_plan(&rig->p[0].store.faults, call, 1, TD_ERR_INTERRUPTED, TD_CLASS_RETRY, false);
    }
    relay_plan(&rig->p[0].broker.faults, RELAY_BROKER_COLLECT, 1, TD_ERR_INTERRUPTED,
               TD_CLASS_RETRY, false);
    relay_plan(&rig->p[0].broker.faults, RELAY_BROKER_SUBMIT, 1, TD_ERR_INTERRUPTED, TD_CLASS_RETRY,
               false);
    td_time_us then = rig->time.mono;
    add(rig, 3);
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then < TD_SECOND_US);
    assert_int_equal(rig->p[0].broker.submitted, 3);
    assert_int_equal(rig_snapshot(rig).last_error.code, TD_OK);
    rig_free(rig);
}

static void interrupt_reaches_the_open_sessions(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    tdi_relay_interrupt(rig->p[0].relay); /* nothing is open */
    rig_until(rig, rig_idle);
    tdi_relay_interrupt(rig->p[0].relay);
    assert_int_equal(rig->p[0].store.interrupted, 1);
    assert_int_equal(rig->p[0].broker.interrupted, 1);
    rig_free(rig);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    struct tdi_relay *relay = NULL;
    struct td_error err;

    rig->options.name = TD_STR_NONE;
    assert_int_equal(tdi_relay_new(&rig->options, &relay, &err), TD_ERR_USAGE);
    rig->options.name = TD_STR_LIT(RIG_RELAY);
    rig->options.window_rows = 1000000;
    assert_int_equal(tdi_relay_new(&rig->options, &relay, &err), TD_ERR_USAGE);
    assert_null(relay);
    rig_free(rig);
}

/* ---- threads ---------------------------------------------------------------------------- */

struct worker {
    struct rig *rig;
    atomic_int steps;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    td_time_us wake = 0;

    while (tdi_relay_step(w->rig->p[0].relay, &wake) != TDI_STEP_ENDED) {
        atomic_fetch_add(&w->steps, 1);
        if (wake > w->rig->time.mono) {
            w->rig->time.mono = wake;
        }
    }
    return NULL;
}

static void other_threads_look_interrupt_and_stop(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    struct worker w = {.rig = rig};
    struct tdi_relay_snapshot s;
    pthread_t thread;

    add(rig, 3000);
    rig_start(rig, 0);
    assert_int_equal(pthread_create(&thread, NULL, work, &w), 0);
    do {
        tdi_relay_interrupt(rig->p[0].relay);
        tdi_relay_snapshot(rig->p[0].relay, &s);
        sched_yield();
    } while (s.published_total < 3000);
    tdi_relay_stop(rig->p[0].relay);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&w.steps) > 0);
    assert_int_equal(rig_position(rig), 3000);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopping_an_idle_relay_releases_the_lease),
        cmocka_unit_test(a_drain_settles_what_is_in_flight_and_takes_no_more),
        cmocka_unit_test(a_drain_ends_at_its_deadline),
        cmocka_unit_test(a_drain_parks_its_dead_rows),
        cmocka_unit_test(a_drain_tries_a_settlement_again),
        cmocka_unit_test(the_second_stop_leaves_at_once),
        cmocka_unit_test(a_relay_without_a_lease_stops_at_once),
        cmocka_unit_test(a_halted_relay_stops_at_once_and_gives_its_lease_back),
        cmocka_unit_test(a_relay_whose_store_is_down_stops_within_the_deadline),
        cmocka_unit_test(an_interrupted_call_is_made_again),
        cmocka_unit_test(interrupt_reaches_the_open_sessions),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(other_threads_look_interrupt_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
