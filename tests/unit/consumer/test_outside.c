/* A handler outside the transaction: look, gate, start, poll, settle; the breaker. */
#include "rig.h"

#include <stdio.h>

static void assert_outcome(struct rig *r, const char *id, enum td_outcome outcome)
{
    assert_int_equal(fake_outcome(r->w, id), outcome);
}

static void publish_many(struct rig *r, int count, const char *key)
{
    for (int i = 0; i < count; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%d", i);
        fake_publish_key(r->w, id, key);
    }
}

static void calls_are_settled_and_acknowledged(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 100, NULL);
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = MILLIS(50)});
    rig_start(&r);
    rig_run(&r, SECONDS(3));
    for (int i = 0; i < 100; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%d", i);
        assert_outcome(&r, id, TD_OUTCOME_EFFECT);
        assert_int_equal(fake_runs(r.w, id), 1);
    }
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    assert_int_equal(rig_snapshot(&r).handled_total, 100);
    rig_free(&r);
}

static void one_call_of_a_key_at_a_time(void **state)
{
    (void)state;
    static const enum tdi_order orders[] = {TDI_ORDER_BLOCK, TDI_ORDER_SKIP};
    for (size_t i = 0; i < 2; i++) {
        struct rig r = rig_new(orders[i], true);
        publish_many(&r, 5, "k");
        fake_publish_key(r.w, "x0", "x");
        fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = SECONDS(1)});
        rig_start(&r);
        rig_run(&r, MILLIS(500));
        assert_int_equal(fake_running(r.w), 2);
        rig_run(&r, SECONDS(6));
        assert_int_equal(fake_log_count(r.w), 6);
        size_t at = 0;
        for (size_t k = 0; k < 6; k++) {
            char id[16];
            snprintf(id, sizeof(id), "m%zu", at);
            at += strcmp(fake_log_id(r.w, k), id) == 0 ? 1 : 0;
        }
        assert_int_equal(at, 5);
        rig_free(&r);
    }
}

static void failed_call_parks_its_followers(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 3, "k");
    fake_script(r.w, &(struct fake_script){
                         .id = "m0", .times = 1, .kind = TD_VERDICT_RETRY, .takes_us = 1000});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_outcome(&r, "m2", TD_OUTCOME_BLOCKED);
    assert_int_equal(fake_parked_of(r.w, "m0")->attempts, 1);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    rig_run(&r, SECONDS(5));
    assert_int_equal(fake_log_count(r.w), 4);
    assert_string_equal(fake_log_id(r.w, 1), "m0");
    assert_int_equal(fake_log_attempt(r.w, 1), 2);
    assert_string_equal(fake_log_id(r.w, 2), "m1");
    assert_string_equal(fake_log_id(r.w, 3), "m2");
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    assert_int_equal(rig_snapshot(&r).blocked_keys, 0);
    rig_free(&r);
}

static void known_is_not_called(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m0", "k"); /* while the first is being called */
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = SECONDS(1)});
    rig_start(&r);
    rig_run(&r, SECONDS(3));
    fake_publish_key(r.w, "m0", "k");
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_runs(r.w, "m0"), 1);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    assert_int_equal(rig_snapshot(&r).duplicates_total, 2);
    rig_free(&r);
}

static void known_unfinished_blocks_key(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    rig_start(&r);
    rig_run(&r, MILLIS(100));
    fake_park(r.w, "m0", "k", SECONDS(3));
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    rig_run(&r, SECONDS(5));
    assert_string_equal(fake_log_id(r.w, 0), "m0");
    assert_string_equal(fake_log_id(r.w, 1), "m1");
    rig_free(&r);
}

static void worker_wrote_inbox_row(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    fake_publish_key(r.w, "m0", "k");
    fake_park(r.w, "p0", "x", 0);
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 1, .worker_settles = true});
    fake_script(r.w, &(struct fake_script){.id = "p0", .times = 1, .worker_settles = true});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "p0", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_parked_of(r.w, "p0")->outcome, TD_OUTCOME_EFFECT);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    assert_int_equal(rig_snapshot(&r).handled_total, 2);
    assert_int_equal(rig_snapshot(&r).blocked_keys, 0);
    rig_free(&r);
}

static void worker_wrote_inbox_row_and_all_died(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    fake_park(r.w, "p0", "k", SECONDS(1));
    rig_start(&r);
    rig_run(&r, MILLIS(100));
    fake_publish_key(r.w, "m1", "k");
    rig_run(&r, MILLIS(500));
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    fake_store_worker_settles(r.w, "shop", "p0", 2);
    rig_run(&r, SECONDS(2));
    assert_int_equal(fake_runs(r.w, "p0"), 0);
    assert_int_equal(fake_parked_of(r.w, "p0")->outcome, TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_int_equal(rig_snapshot(&r).handled_total, 2);
    assert_int_equal(rig_snapshot(&r).blocked_keys, 0);
    rig_free(&r);
}

static void emitted_with_the_settlement(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    fake_publish_key(r.w, "m0", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 1, .emit = true});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_emitted(r.w), 1);
    rig_free(&r);
}

static void no_call_beyond_the_lease(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    fake_publish_key(r.w, "m0", "k");
    td_time_us wake = 0;
    while (fake_broker_waiting(r.w) == 1) {
        rig_step(&r, r.c, &wake);
    }
    /* The lease (10 s, twice the time-out) is not renewed any more. */
    fake_fail(r.w, "store.lease_renew", 1, TD_ERR_UNAVAILABLE)->times = -1;
    r.w->now += SECONDS(6); /* less than the time-out is left of it */
    rig_run(&r, SECONDS(10));
    assert_int_equal(fake_log_count(r.w), 0);
    fake_no_faults(r.w);
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void lost_lease_cancels_calls(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 3, NULL);
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = SECONDS(4)});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_running(r.w), 3);
    fake_steal_lease(r.w, SECONDS(5));
    rig_run(&r, SECONDS(2));
    assert_int_equal(fake_running(r.w), 0);
    assert_int_equal(fake_inbox_count(r.w), 0);
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_STANDBY);
    rig_free(&r);
}

static void calls_end_with_the_lease_while_the_store_is_down(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    r.o.handler.timeout_us = SECONDS(60); /* the lease: 120 s */
    publish_many(&r, 1, NULL);
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = SECONDS(1000)});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    fake_fail(r.w, "store.lease_renew", 1, TD_ERR_UNAVAILABLE)->times = -1;
    fake_fail(r.w, "store.open", 1, TD_ERR_UNAVAILABLE)->times = -1;
    rig_run(&r, SECONDS(100));
    assert_int_equal(fake_running(r.w), 1);
    rig_run(&r, SECONDS(30));
    assert_int_equal(fake_running(r.w), 0);
    rig_free(&r);
}

static void parked_calls_count_their_attempts(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 2, "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = -1, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, SECONDS(20));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_int_equal(fake_parked_of(r.w, "m0")->code, TD_DEAD_EXHAUSTED);
    assert_int_equal(fake_runs(r.w, "m0"), 3);
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_true(fake_replay(r.w, "m0", 2));
    fake_no_scripts(r.w);
    rig_run(&r, SECONDS(5));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void poison_found_outside_too(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 3, "k");
    fake_script(r.w, &(struct fake_script){.id = "m1", .times = -1, .kills = true});
    int kills = 0;
    for (int life = 0; life < 20; life++) {
        rig_start(&r);
        rig_run(&r, SECONDS(60));
        if (r.c != NULL) {
            break;
        }
        kills++;
    }
    assert_int_equal(kills, 4);
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_parked_of(r.w, "m1")->code, TD_DEAD_POISON);
    assert_outcome(&r, "m2", TD_OUTCOME_BLOCKED);
    rig_free(&r);
}

static void unfit_is_not_called(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    fake_publish(r.w, &(struct fake_publish){.id = "m0", .key = "k", .defect = "broken"});
    fake_publish_key(r.w, "m1", "k");
    fake_publish(r.w, &(struct fake_publish){.id = "m2", .published_at = TD_SECOND_US});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_parked_of(r.w, "m0")->code, TD_DEAD_INVALID);
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_int_equal(fake_parked_of(r.w, "m2")->code, TD_DEAD_STALE);
    assert_int_equal(fake_log_count(r.w), 0);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    rig_free(&r);
}

static void lost_broker_session_keeps_the_calls(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 3, "k");
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = SECONDS(2)});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    fake_broker_drop_sessions(r.w);
    rig_run(&r, SECONDS(10));
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%d", i);
        assert_outcome(&r, id, TD_OUTCOME_EFFECT);
        assert_int_equal(fake_runs(r.w, id), 1);
    }
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    rig_free(&r);
}

static void drain_lets_calls_end(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 2, "k");
    fake_park(r.w, "p0", "x", 0);
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = SECONDS(3)});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    tdi_consumer_stop(r.c);
    assert_true(rig_run(&r, SECONDS(10)));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_true(fake_broker_acked(r.w, 0));
    assert_outcome(&r, "m1", TD_OUTCOME_NONE);
    assert_outcome(&r, "p0", TD_OUTCOME_EFFECT);
    assert_true(fake_lease_free(r.w));
    rig_free(&r);
}

static void drain_deadline_cancels_calls(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    r.o.drain_us = SECONDS(2);
    publish_many(&r, 1, "k");
    fake_script(r.w, &(struct fake_script){.times = 1, .takes_us = SECONDS(4)});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    tdi_consumer_stop(r.c);
    assert_true(rig_run(&r, SECONDS(3)));
    assert_outcome(&r, "m0", TD_OUTCOME_NONE);
    assert_true(fake_lease_free(r.w));
    rig_kill(&r);
    rig_start(&r);
    rig_run(&r, SECONDS(5));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

/* ---- the breaker ---- */

static void breaker_no_dead_letters(void **state)
{
    (void)state;
    for (int outside = 0; outside < 2; outside++) {
        struct rig r = rig_new(TDI_ORDER_NONE, outside != 0);
        r.o.breaker = (struct tdi_breaker_policy){
            .failures = 5, .share_percent = 50, .window_us = SECONDS(10)};
        publish_many(&r, 200, NULL);
        fake_script(r.w,
                    &(struct fake_script){.times = -1, .kind = TD_VERDICT_RETRY, .broken = true});
        rig_start(&r);
        rig_run(&r, SECONDS(300)); /* many times longer than all attempts take */
        assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_DOWNSTREAM_DOWN);
        assert_true(rig_snapshot(&r).next_probe_at == TD_TIME_NONE ||
                    rig_snapshot(&r).next_probe_at >= r.w->now);
        assert_int_equal(fake_parked_count(r.w, TD_OUTCOME_DEAD), 0);
        assert_true(fake_parked_count(r.w, TD_OUTCOME_RETRY) <= 16);
        assert_true(fake_log_count(r.w) < 80); /* probes, and what ran before it opened */
        fake_no_scripts(r.w);
        rig_run(&r, SECONDS(60));
        assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_OK);
        for (int i = 0; i < 200; i++) {
            char id[16];
            snprintf(id, sizeof(id), "m%d", i);
            assert_outcome(&r, id, TD_OUTCOME_EFFECT);
        }
        assert_int_equal(fake_broker_unsettled(r.w), 0);
        rig_free(&r);
    }
}

static void breaker_probes_with_a_parked_message(void **state)
{
    (void)state;
    for (int outside = 0; outside < 2; outside++) {
        struct rig r = rig_new(TDI_ORDER_BLOCK, outside != 0);
        r.o.breaker = (struct tdi_breaker_policy){
            .failures = 2, .share_percent = 50, .window_us = SECONDS(10)};
        publish_many(&r, 1, "k"); /* nothing waits in the broker that could be the probe */
        fake_script(r.w,
                    &(struct fake_script){.times = -1, .kind = TD_VERDICT_RETRY, .broken = true});
        rig_start(&r);
        rig_run(&r, SECONDS(100));
        assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
        assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_DOWNSTREAM_DOWN);
        fake_no_scripts(r.w);
        rig_run(&r, SECONDS(90));
        assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
        assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_OK);
        rig_free(&r);
    }
}

static void worker_that_cannot_start_opens_the_breaker(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    publish_many(&r, 10, "k");
    fake_script(r.w, &(struct fake_script){.times = -1, .start_error = TD_ERR_UNAVAILABLE});
    rig_start(&r);
    rig_run(&r, MILLIS(400));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_DOWNSTREAM_DOWN);
    assert_int_equal(fake_inbox_count(r.w), 0);
    rig_run(&r, SECONDS(200));
    assert_int_equal(fake_inbox_count(r.w), 0);
    fake_no_scripts(r.w);
    rig_run(&r, SECONDS(40));
    assert_int_equal(fake_log_count(r.w), 10);
    assert_outcome(&r, "m9", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

/* The store refuses to write down that m1 waits: it must not become a failed run of its own. */
static void refused_follower_stays_behind_its_head(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, true);
    rig_start(&r);
    rig_run(&r, MILLIS(100));
    fake_park(r.w, "m0", "k", SECONDS(60));
    fake_publish_key(r.w, "m0", "k");
    rig_run(&r, SECONDS(1));
    fake_fail(r.w, "store.inbox_settle", 1, TD_ERR_STATEMENT)->times = 3;
    fake_publish_key(r.w, "m1", "k");
    rig_run(&r, SECONDS(10));
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_int_equal(fake_runs(r.w, "m1"), 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_settled_and_acknowledged),
        cmocka_unit_test(one_call_of_a_key_at_a_time),
        cmocka_unit_test(failed_call_parks_its_followers),
        cmocka_unit_test(known_is_not_called),
        cmocka_unit_test(known_unfinished_blocks_key),
        cmocka_unit_test(worker_wrote_inbox_row),
        cmocka_unit_test(worker_wrote_inbox_row_and_all_died),
        cmocka_unit_test(emitted_with_the_settlement),
        cmocka_unit_test(no_call_beyond_the_lease),
        cmocka_unit_test(lost_lease_cancels_calls),
        cmocka_unit_test(calls_end_with_the_lease_while_the_store_is_down),
        cmocka_unit_test(parked_calls_count_their_attempts),
        cmocka_unit_test(poison_found_outside_too),
        cmocka_unit_test(unfit_is_not_called),
        cmocka_unit_test(lost_broker_session_keeps_the_calls),
        cmocka_unit_test(drain_lets_calls_end),
        cmocka_unit_test(drain_deadline_cancels_calls),
        cmocka_unit_test(breaker_no_dead_letters),
        cmocka_unit_test(breaker_probes_with_a_parked_message),
        cmocka_unit_test(worker_that_cannot_start_opens_the_breaker),
        cmocka_unit_test(refused_follower_stays_behind_its_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
