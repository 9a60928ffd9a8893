/* Parked rows: attempts, dead letters, replay, poison, the window after an unclean end. */
#include "rig.h"

#include <stdio.h>

static void assert_outcome(struct rig *r, const char *id, enum td_outcome outcome)
{
    assert_int_equal(fake_outcome(r->w, id), outcome);
}

static void retries_until_it_works(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    /* The batch, alone, and the second run fail. */
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 3, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_RETRYING);
    rig_run(&r, SECONDS(3));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_attempts(r.w, "m0"), 3);
    assert_int_equal(fake_effects(r.w, "m0"), 1);
    assert_int_equal(rig_snapshot(&r).retried_total, 2);
    assert_int_equal(rig_snapshot(&r).handled_total, 1);
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_OK);
    rig_free(&r);
}

static void exhausted_dead(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = -1, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, SECONDS(10));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_int_equal(fake_parked_of(r.w, "m0")->code, TD_DEAD_EXHAUSTED);
    assert_int_equal(fake_attempts(r.w, "m0"), 3);
    assert_int_equal(fake_runs(r.w, "m0"), 4); /* the batch, then three attempts */
    assert_int_equal(fake_effects(r.w, "m0"), 0);
    rig_free(&r);
}

static void one_attempt_is_no_retry(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    r.o.retry.attempts = 1;
    fake_publish_key(r.w, "m0", NULL);
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = -1, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_int_equal(fake_parked_of(r.w, "m0")->code, TD_DEAD_EXHAUSTED);
    rig_free(&r);
}

static void wish_of_the_handler_wins(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_publish_key(r.w, "m0", NULL);
    fake_script(r.w,
                &(struct fake_script){
                    .id = "m0", .times = 2, .kind = TD_VERDICT_RETRY, .after_us = SECONDS(30)});
    rig_start(&r);
    rig_run(&r, SECONDS(29));
    assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
    rig_run(&r, SECONDS(3));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void verdictless_end_is_poison(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_publish_key(r.w, "m0", NULL);
    fake_script(r.w, &(struct fake_script){
                         .id = "m0", .times = -1, .kind = TD_VERDICT_RETRY, .verdictless = true});
    rig_start(&r);
    rig_run(&r, SECONDS(10));
    assert_int_equal(fake_parked_of(r.w, "m0")->code, TD_DEAD_POISON);
    rig_free(&r);
}

static void attempts_committed_before_run(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_park(r.w, "m0", NULL, 0);
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 1, .kills = true});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_null(r.c);
    assert_int_equal(fake_attempts(r.w, "m0"), 2); /* although the run was rolled back */
    assert_int_equal(fake_effects(r.w, "m0"), 0);
    rig_free(&r);
}

static void replay_runs_again(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 4, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, SECONDS(10));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_true(fake_replay(r.w, "m0", 3));
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_attempts(r.w, "m0"), 4); /* never goes down */
    assert_string_equal(fake_effect_id(r.w, 0), "m0");
    rig_free(&r);
}

static void expired_letter_is_run_when_replayed(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_publish(r.w, &(struct fake_publish){.id = "m0", .expires_at = r.w->now + SECONDS(2)});
    fake_script(r.w, &(struct fake_script){
                         .id = "m0", .times = 2, .kind = TD_VERDICT_RETRY, .after_us = SECONDS(4)});
    rig_start(&r);
    rig_run(&r, SECONDS(6));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_int_equal(fake_parked_of(r.w, "m0")->code, TD_DEAD_EXPIRED);
    assert_true(fake_replay(r.w, "m0", 3));
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void discarded_during_the_run_has_no_effect(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_park(r.w, "m0", NULL, 0);
    rig_start(&r);
    td_time_us wake = 0;
    while (fake_attempts(r.w, "m0") < 2) { /* until it is leased */
        rig_step(&r, r.c, &wake);
    }
    assert_true(fake_discard(r.w, "m0"));
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_DISCARDED);
    assert_int_equal(fake_effects(r.w, "m0"), 0);
    assert_int_equal(rig_snapshot(&r).handled_total, 0);
    rig_free(&r);
}

static void parked_commit_failure_is_charged_to_the_one(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_park(r.w, "m0", NULL, 0);
    fake_park(r.w, "m1", NULL, 0);
    fake_park(r.w, "m2", NULL, 0);
    fake_script(r.w, &(struct fake_script){.id = "m1", .times = 2, .bad_commit = true});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m1", TD_OUTCOME_RETRY);
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_effects(r.w, "m0"), 1);
    assert_int_equal(fake_attempts(r.w, "m1"), 2);
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void uncharged_parked_run_costs_no_attempt(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_park(r.w, "m0", NULL, 0);
    fake_script(r.w, &(struct fake_script){
                         .id = "m0", .times = 6, .kind = TD_VERDICT_RETRY, .uncharged = true});
    rig_start(&r);
    rig_run(&r, SECONDS(5));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_attempts(r.w, "m0"), 8);
    assert_int_equal(fake_parked_of(r.w, "m0")->attempt_limit, 9);
    rig_free(&r);
}

static void store_outage_costs_no_attempt(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_park(r.w, "m0", NULL, 0);
    rig_start(&r);
    /* The session breaks at the COMMIT of each run, more often than the row has attempts left; the
     * COMMITs between them give the attempt back. */
    for (int nth = 1; nth <= 9; nth += 2) {
        fake_fail(r.w, "store.commit", nth, TD_ERR_CLOSED);
    }
    rig_run(&r, SECONDS(30));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_effects(r.w, "m0"), 1);
    rig_free(&r);
}

static void live_and_parked_take_turns(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    for (int i = 0; i < 300; i++) {
        char id[16];
        snprintf(id, sizeof(id), "p%d", i);
        fake_park(r.w, id, NULL, 0);
        snprintf(id, sizeof(id), "m%d", i);
        fake_publish_key(r.w, id, NULL);
    }
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_effects_count(r.w), 600);
    size_t first_live = 0;
    while (fake_effect_id(r.w, first_live)[0] == 'p') {
        first_live++;
    }
    assert_int_equal(first_live, 64); /* one lease, then live ones */
    rig_free(&r);
}

/* ---- after an unclean end ---- */

static void poison_found_and_neighbours_not_charged(void **state)
{
    (void)state;
    static const enum tdi_order orders[] = {TDI_ORDER_NONE, TDI_ORDER_SKIP, TDI_ORDER_BLOCK};
    for (size_t i = 0; i < 3; i++) {
        struct rig r = rig_new(orders[i], false);
        fake_publish_key(r.w, "m0", "a");
        fake_publish_key(r.w, "bad", "b");
        fake_publish_key(r.w, "m1", "c");
        fake_publish_key(r.w, "m2", "a");
        fake_publish_key(r.w, "m3", "b"); /* behind the poisoned one */
        fake_script(r.w, &(struct fake_script){.id = "bad", .times = -1, .kills = true});
        int kills = 0;
        for (int life = 0; life < 20; life++) {
            rig_start(&r);
            rig_run(&r, SECONDS(15));
            if (r.c != NULL) {
                break;
            }
            kills++;
        }
        assert_int_equal(kills, 1 + 3); /* the first delivery is free, then its attempts */
        assert_outcome(&r, "bad", TD_OUTCOME_DEAD);
        assert_int_equal(fake_parked_of(r.w, "bad")->code, TD_DEAD_POISON);
        for (int m = 0; m < 3; m++) {
            char id[16];
            snprintf(id, sizeof(id), "m%d", m);
            assert_outcome(&r, id, TD_OUTCOME_EFFECT);
            assert_int_equal(fake_effects(r.w, id), 1);
            assert_true(fake_attempts(r.w, id) <= 1);
        }
        assert_outcome(&r, "m3",
                       orders[i] == TDI_ORDER_BLOCK ? TD_OUTCOME_BLOCKED : TD_OUTCOME_EFFECT);
        assert_false(fake_unclean(r.w));
        assert_int_equal(fake_broker_unsettled(r.w), 0);
        rig_free(&r);
    }
}

static void window_parks_before_it_runs(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    fake_script(r.w, &(struct fake_script){.id = "m1", .times = 1, .kills = true});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_null(r.c);
    fake_publish_key(r.w, "m2", "k"); /* never delivered before: not of the window */
    rig_start(&r);
    td_time_us wake = 0;
    while (fake_parked_of(r.w, "m1") == NULL) {
        rig_step(&r, r.c, &wake);
    }
    assert_int_equal(fake_parked_of(r.w, "m0")->outcome, TD_OUTCOME_RETRY);
    assert_int_equal(fake_parked_of(r.w, "m0")->attempts, 0);
    assert_true(fake_parked_of(r.w, "m0")->alone);
    assert_int_equal(fake_parked_of(r.w, "m1")->outcome, TD_OUTCOME_BLOCKED);
    assert_true(fake_parked_of(r.w, "m1")->alone);
    assert_true(fake_unclean(r.w));
    rig_run(&r, SECONDS(15));
    assert_false(fake_unclean(r.w));
    assert_string_equal(fake_effect_id(r.w, 0), "m0");
    assert_string_equal(fake_effect_id(r.w, 1), "m1");
    assert_string_equal(fake_effect_id(r.w, 2), "m2");
    rig_free(&r);
}

static void window_in_skip_mode_keeps_order_until_the_first_run(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_SKIP, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 1, .kills = true});
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 1, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT); /* m0 has stepped aside */
    assert_false(fake_parked_of(r.w, "m0")->blocks_key);
    assert_int_equal(rig_snapshot(&r).blocked_keys, 0);
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void unclean_mark_survives_clean_handover(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 1, .kills = true});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    /* The next owner is stopped before it has fetched anything. */
    rig_start(&r);
    td_time_us wake = 0;
    while (fake_fence(r.w) < 2) {
        rig_step(&r, r.c, &wake);
    }
    for (int i = 0; i < 5; i++) {
        rig_step(&r, r.c, &wake);
    }
    tdi_consumer_stop(r.c);
    assert_true(rig_run(&r, SECONDS(1)));
    rig_kill(&r);
    assert_true(fake_lease_free(r.w));
    assert_true(fake_unclean(r.w));
    /* The one after it still parks m0 first. */
    rig_start(&r);
    while (fake_outcome(r.w, "m0") == TD_OUTCOME_NONE) {
        rig_step(&r, r.c, &wake);
    }
    assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
    assert_true(fake_parked_of(r.w, "m0")->alone);
    rig_free(&r);
}

static void run_that_ends_the_session_is_charged(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_publish_key(r.w, "m0", NULL);
    fake_publish_key(r.w, "bad", NULL);
    fake_script(r.w, &(struct fake_script){.id = "bad", .times = -1, .error = TD_ERR_CLOSED});
    rig_start(&r);
    rig_run(&r, SECONDS(60));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "bad", TD_OUTCOME_DEAD);
    assert_int_equal(fake_parked_of(r.w, "bad")->code, TD_DEAD_POISON);
    assert_true(fake_runs(r.w, "bad") <= 4);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retries_until_it_works),
        cmocka_unit_test(exhausted_dead),
        cmocka_unit_test(one_attempt_is_no_retry),
        cmocka_unit_test(wish_of_the_handler_wins),
        cmocka_unit_test(verdictless_end_is_poison),
        cmocka_unit_test(attempts_committed_before_run),
        cmocka_unit_test(replay_runs_again),
        cmocka_unit_test(expired_letter_is_run_when_replayed),
        cmocka_unit_test(discarded_during_the_run_has_no_effect),
        cmocka_unit_test(parked_commit_failure_is_charged_to_the_one),
        cmocka_unit_test(uncharged_parked_run_costs_no_attempt),
        cmocka_unit_test(store_outage_costs_no_attempt),
        cmocka_unit_test(live_and_parked_take_turns),
        cmocka_unit_test(poison_found_and_neighbours_not_charged),
        cmocka_unit_test(window_parks_before_it_runs),
        cmocka_unit_test(window_in_skip_mode_keeps_order_until_the_first_run),
        cmocka_unit_test(unclean_mark_survives_clean_handover),
        cmocka_unit_test(run_that_ends_the_session_is_charged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
