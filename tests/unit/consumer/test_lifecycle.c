/* Start, lease, sessions, outages, drain, report. */
#include "rig.h"

#include <stdio.h>

static void assert_outcome(struct rig *r, const char *id, enum td_outcome outcome)
{
    assert_int_equal(fake_outcome(r->w, id), outcome);
}

static void starts_whatever_fails_first(void **state)
{
    (void)state;
    static const char *ops[] = {"store.open",       "handler.prepare",  "store.lease_take",
                                "store.lease_scan", "store.now",        "store.parked_keys",
                                "broker.open",      "broker.subscribe", "store.counts"};
    static const enum td_err codes[] = {TD_ERR_UNAVAILABLE, TD_ERR_CLOSED, TD_ERR_STATEMENT,
                                        TD_ERR_INTERRUPTED};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        for (size_t k = 0; k < sizeof(codes) / sizeof(codes[0]); k++) {
            struct rig r = rig_new(TDI_ORDER_BLOCK, false);
            fake_publish_key(r.w, "m0", "k");
            fake_fail(r.w, ops[i], 1, codes[k]);
            rig_start(&r);
            rig_run(&r, SECONDS(3));
            assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
            assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_OK);
            rig_free(&r);
        }
    }
}

static void state_says_what_is_down(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    struct fake_fault *f = fake_fail(r.w, "store.open", 1, TD_ERR_UNAVAILABLE);
    f->times = -1;
    rig_start(&r);
    rig_run(&r, SECONDS(5));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_STORE_DOWN);
    assert_string_equal(rig_snapshot(&r).last_error, "store.open fails as planned");
    *f =
        (struct fake_fault){.op = "broker.open", .nth = 1, .times = -1, .code = TD_ERR_UNAVAILABLE};
    rig_run(&r, SECONDS(30));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_BROKER_DOWN);
    fake_no_faults(r.w);
    rig_run(&r, SECONDS(30));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_OK);
    rig_free(&r);
}

static void lease_before_subscription(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_steal_lease(r.w, SECONDS(30));
    rig_start(&r);
    rig_run(&r, SECONDS(20));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_STANDBY);
    assert_int_equal(fake_broker_fetches(r.w), 0);
    rig_run(&r, SECONDS(15));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_OK);
    rig_free(&r);
}

static void fenced_forgets_and_stands_by(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    fake_steal_lease(r.w, SECONDS(5));
    fake_publish_key(r.w, "m0", "k");
    rig_run(&r, SECONDS(3));
    assert_outcome(&r, "m0", TD_OUTCOME_NONE);
    assert_int_equal(fake_effects_count(r.w), 0);
    assert_int_equal(fake_broker_waiting(r.w), 1); /* given back by closing the session */
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_STANDBY);
    rig_run(&r, SECONDS(5));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void no_transaction_after_the_lease(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    fake_publish_key(r.w, "m0", "k");
    td_time_us wake = 0;
    while (fake_broker_waiting(r.w) == 1) {
        rig_step(&r, r.c, &wake);
    }
    fake_fail(r.w, "store.lease_renew", 1, TD_ERR_UNAVAILABLE)->times = -1;
    r.w->now += SECONDS(60); /* the process stood still */
    rig_run(&r, SECONDS(5));
    assert_outcome(&r, "m0", TD_OUTCOME_NONE);
    fake_no_faults(r.w);
    rig_run(&r, SECONDS(15));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void store_outage_stops_fetch(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    r.o.prefetch = 4;
    for (int i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%d", i);
        fake_publish_key(r.w, id, "k");
    }
    fake_fail(r.w, "store.begin", 1, TD_ERR_DISK_FULL)->times = -1;
    rig_start(&r);
    rig_run(&r, SECONDS(8));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_STORE_DOWN);
    assert_int_equal(rig_snapshot(&r).in_flight, 4); /* kept, not given back */
    assert_int_equal(fake_broker_waiting(r.w), 16);
    size_t fetches = fake_broker_fetches(r.w);
    rig_run(&r, SECONDS(60));
    assert_int_equal(fake_broker_fetches(r.w), fetches);
    fake_no_faults(r.w);
    rig_run(&r, SECONDS(15));
    assert_int_equal(fake_effects_count(r.w), 20);
    assert_int_equal(fake_parked_count(r.w, TD_OUTCOME_DEAD), 0);
    for (size_t i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%zu", i);
        assert_string_equal(fake_effect_id(r.w, i), id);
    }
    rig_free(&r);
}

static void parked_goes_on_while_the_broker_is_down(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_park(r.w, "m0", "k", 0);
    fake_fail(r.w, "broker.open", 1, TD_ERR_UNAVAILABLE)->times = -1;
    rig_start(&r);
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void lost_broker_session_forgets_what_is_in_hand(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    rig_start(&r);
    fake_fail(r.w, "broker.ack", 1, TD_ERR_CLOSED);
    rig_run(&r, SECONDS(2));
    assert_int_equal(fake_effects_count(r.w), 2);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    assert_int_equal(rig_snapshot(&r).duplicates_total, 2);
    fake_broker_drop_sessions(r.w);
    fake_publish_key(r.w, "m2", "k");
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void pauses_at_the_limit_of_parked_rows(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    r.o.parked_max = 3;
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof(id), "p%d", i);
        fake_park(r.w, id, NULL, SECONDS(100 + i * 100));
    }
    rig_start(&r);
    rig_run(&r, SECONDS(2));
    fake_publish_key(r.w, "m0", NULL);
    rig_run(&r, SECONDS(10));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_PAUSED);
    assert_outcome(&r, "m0", TD_OUTCOME_NONE);
    rig_run(&r, SECONDS(100)); /* p0 runs */
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void drain_gives_the_lease_back(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    tdi_consumer_stop(r.c);
    fake_publish_key(r.w, "m1", "k");
    assert_true(rig_run(&r, SECONDS(1)));
    assert_true(fake_lease_free(r.w));
    assert_false(fake_unclean(r.w));
    assert_outcome(&r, "m1", TD_OUTCOME_NONE);
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_STOPPED);
    td_time_us wake = 0;
    assert_int_equal(tdi_consumer_step(r.c, &wake), TDI_STEP_ENDED);
    rig_free(&r);
}

/* Stop at every step of a working consumer: nothing is lost, nothing doubled. */
static void drain_at_any_step(void **state)
{
    (void)state;
    for (int at = 0; at < 40; at++) {
        struct rig r = rig_new(TDI_ORDER_BLOCK, false);
        fake_publish_key(r.w, "m0", "k");
        fake_publish_key(r.w, "m1", "k");
        fake_park(r.w, "p0", "x", 0);
        fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_RETRY});
        rig_start(&r);
        td_time_us wake = 0;
        for (int i = 0; i < at; i++) {
            rig_step(&r, r.c, &wake);
        }
        tdi_consumer_stop(r.c);
        assert_true(rig_run(&r, SECONDS(1)));
        assert_true(fake_fence(r.w) == 0 || fake_lease_free(r.w));
        rig_kill(&r);
        rig_start(&r);
        rig_run(&r, SECONDS(5));
        assert_int_equal(fake_effects_count(r.w), 3);
        assert_int_equal(fake_broker_unsettled(r.w), 0);
        assert_int_equal(fake_attempts(r.w, "p0"), at > 0 ? fake_attempts(r.w, "p0") : 2);
        assert_true(fake_parked_of(r.w, "p0")->attempt_limit - fake_attempts(r.w, "p0") >= 1);
        rig_free(&r);
    }
}

static void second_stop_leaves_at_once(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    fake_publish_key(r.w, "m0", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = -1, .takes_us = SECONDS(4)});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    tdi_consumer_stop(r.c);
    assert_false(rig_run(&r, SECONDS(1)));
    tdi_consumer_stop(r.c);
    td_time_us before = r.w->now;
    assert_true(rig_run(&r, SECONDS(1)));
    assert_int_equal(r.w->now, before);
    assert_false(fake_lease_free(r.w));
    rig_free(&r);
}

static void drain_ends_though_the_store_is_down(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    r.o.drain_us = SECONDS(3);
    fake_publish_key(r.w, "m0", "k");
    rig_start(&r);
    fake_fail(r.w, "store.begin", 1, TD_ERR_UNAVAILABLE)->times = -1;
    fake_fail(r.w, "store.lease_renew", 1, TD_ERR_UNAVAILABLE)->times = -1;
    fake_fail(r.w, "store.lease_release", 1, TD_ERR_UNAVAILABLE)->times = -1;
    rig_run(&r, SECONDS(2));
    tdi_consumer_stop(r.c);
    assert_true(rig_run(&r, SECONDS(5)));
    rig_free(&r);
}

static void stop_before_the_lease(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_steal_lease(r.w, SECONDS(1000));
    rig_start(&r);
    rig_run(&r, SECONDS(5));
    tdi_consumer_stop(r.c);
    assert_true(rig_run(&r, SECONDS(1)));
    assert_false(fake_lease_free(r.w));
    rig_free(&r);
}

static void totals_go_on_over_restarts(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_set_report(r.w, "{\"handled_total\":41,\"dead_total\":5,\"duplicates_total\":2,"
                         "\"retried_total\":9}");
    fake_publish_key(r.w, "m0", "k");
    rig_start(&r);
    rig_run(&r, SECONDS(3));
    assert_int_equal(rig_snapshot(&r).handled_total, 42);
    assert_int_equal(rig_snapshot(&r).dead_total, 5);
    assert_int_equal(rig_snapshot(&r).duplicates_total, 2);
    assert_int_equal(rig_snapshot(&r).retried_total, 9);
    assert_non_null(strstr(fake_report(r.w), "\"handled_total\":42"));
    assert_non_null(strstr(fake_report(r.w), "\"state\":\"ok\""));
    assert_non_null(strstr(fake_report(r.w), "\"last_error\":null"));
    rig_kill(&r);
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(rig_snapshot(&r).handled_total, 42);
    rig_free(&r);
}

static void malformed_report_starts_at_zero(void **state)
{
    (void)state;
    static const char *reports[] = {"", "{", "[]", "{\"handled_total\":\"x\"}",
                                    "{\"handled_total\":-4}"};
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        struct rig r = rig_new(TDI_ORDER_BLOCK, false);
        fake_set_report(r.w, reports[i]);
        rig_start(&r);
        rig_run(&r, SECONDS(1));
        assert_int_equal(rig_snapshot(&r).handled_total, 0);
        rig_free(&r);
    }
}

static void idle_consumer_writes_little(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    r.o.lease_ttl_us = SECONDS(60);
    rig_start(&r);
    rig_run(&r, SECONDS(10));
    int64_t before = r.w->calls;
    rig_run(&r, SECONDS(60));
    /* Each half second: parked_due and fetch; the lease every 20 s. */
    assert_true(r.w->calls - before <= 260);
    rig_free(&r);
}

static void interrupted_calls_are_made_again(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    static const char *ops[] = {"store.begin",  "store.inbox_claim", "handler.run",
                                "store.commit", "broker.ack",        "broker.fetch"};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        fake_fail(r.w, ops[i], 1, TD_ERR_INTERRUPTED);
    }
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_effects(r.w, "m0"), 1);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_whatever_fails_first),
        cmocka_unit_test(state_says_what_is_down),
        cmocka_unit_test(lease_before_subscription),
        cmocka_unit_test(fenced_forgets_and_stands_by),
        cmocka_unit_test(no_transaction_after_the_lease),
        cmocka_unit_test(store_outage_stops_fetch),
        cmocka_unit_test(parked_goes_on_while_the_broker_is_down),
        cmocka_unit_test(lost_broker_session_forgets_what_is_in_hand),
        cmocka_unit_test(pauses_at_the_limit_of_parked_rows),
        cmocka_unit_test(drain_gives_the_lease_back),
        cmocka_unit_test(drain_at_any_step),
        cmocka_unit_test(second_stop_leaves_at_once),
        cmocka_unit_test(drain_ends_though_the_store_is_down),
        cmocka_unit_test(stop_before_the_lease),
        cmocka_unit_test(totals_go_on_over_restarts),
        cmocka_unit_test(malformed_report_starts_at_zero),
        cmocka_unit_test(idle_consumer_writes_little),
        cmocka_unit_test(interrupted_calls_are_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
