/* Live messages of a handler inside the transaction: batches, one by one, keys. */
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

static void batch_takes_effect_once(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    publish_many(&r, 100, "k");
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_effects_count(r.w), 100);
    for (size_t i = 0; i < 100; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%zu", i);
        assert_string_equal(fake_effect_id(r.w, i), id);
        assert_true(fake_broker_acked(r.w, i));
    }
    assert_int_equal(fake_commits(r.w), 1);
    assert_int_equal(rig_snapshot(&r).handled_total, 100);
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_OK);
    rig_free(&r);
}

static void duplicate_is_acknowledged_and_not_run(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m0", "k"); /* in the same batch */
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    fake_publish_key(r.w, "m0", "k"); /* and later */
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_runs(r.w, "m0"), 1);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    assert_int_equal(rig_snapshot(&r).duplicates_total, 2);
    rig_free(&r);
}

static void other_types_are_acknowledged_unseen(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    static const struct td_str types[] = {{"order.*", 7}};
    r.o.types = types;
    r.o.types_count = 1;
    fake_publish(r.w, &(struct fake_publish){.id = "m0", .type = "stock.low"});
    fake_publish(r.w, &(struct fake_publish){.id = "m1", .type = "order.paid"});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m0", TD_OUTCOME_NONE);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    rig_free(&r);
}

static void batch_failure_runs_singly(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "a");
    fake_publish_key(r.w, "m1", "b");
    fake_publish_key(r.w, "m2", "c");
    fake_script(r.w, &(struct fake_script){
                         .id = "m1", .times = 2, .kind = TD_VERDICT_DEAD, .code = TD_DEAD_SCHEMA});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m1", TD_OUTCOME_DEAD);
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_parked_of(r.w, "m1")->code, TD_DEAD_SCHEMA);
    assert_int_equal(fake_effects(r.w, "m1"), 0); /* what it wrote before it failed is undone */
    assert_int_equal(fake_effects(r.w, "m0"), 1);
    assert_int_equal(fake_effects(r.w, "m2"), 1);
    assert_int_equal(fake_commits(r.w), 1); /* one transaction with savepoints */
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    assert_int_equal(rig_snapshot(&r).dead_total, 1);
    rig_free(&r);
}

static void followers_parked_same_tx(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    fake_publish_key(r.w, "x0", "other");
    fake_publish_key(r.w, "m2", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_outcome(&r, "m2", TD_OUTCOME_BLOCKED);
    assert_outcome(&r, "x0", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_commits(r.w), 1);
    assert_int_equal(fake_parked_of(r.w, "m0")->attempts, 1);
    assert_int_equal(fake_parked_of(r.w, "m1")->attempts, 0);
    assert_int_equal(rig_snapshot(&r).blocked_keys, 1);
    /* A later one waits as well, and all go in order when the head has run. */
    fake_publish_key(r.w, "m3", "k");
    rig_run(&r, MILLIS(50));
    assert_outcome(&r, "m3", TD_OUTCOME_BLOCKED);
    rig_run(&r, SECONDS(5));
    const char *want[] = {"x0", "m0", "m1", "m2", "m3"};
    assert_int_equal(fake_effects_count(r.w), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(fake_effect_id(r.w, i), want[i]);
    }
    assert_int_equal(rig_snapshot(&r).blocked_keys, 0);
    rig_free(&r);
}

static void failure_at_commit_runs_singly(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    publish_many(&r, 3, NULL);
    fake_script(r.w, &(struct fake_script){.id = "m1", .times = 3, .bad_commit = true});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m1", TD_OUTCOME_RETRY);
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_effects(r.w, "m1"), 0);
    assert_int_equal(fake_parked_of(r.w, "m1")->attempts, 1);
    assert_string_equal(fake_parked_of(r.w, "m1")->reason, "a deferred constraint is violated");
    rig_run(&r, SECONDS(3));
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_effects(r.w, "m1"), 1);
    rig_free(&r);
}

static void budget_cuts_transaction(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    publish_many(&r, 256, NULL);
    /* 64 messages, a slice, take 32 ms: each slice is a transaction of its own. */
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = 500});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_effects_count(r.w), 256);
    assert_int_equal(fake_commits(r.w), 4);
    assert_int_equal(fake_largest_commit(r.w), 64);
    rig_free(&r);
}

static void singles_are_cut_at_the_budget(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    publish_many(&r, 60, NULL);
    fake_script(r.w, &(struct fake_script){.id = "m59", .times = 2, .kind = TD_VERDICT_DEAD});
    fake_script(r.w, &(struct fake_script){.times = -1, .takes_us = 1000});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_effects_count(r.w), 59);
    assert_int_equal(fake_commits(r.w), 3);
    assert_int_equal(fake_largest_commit(r.w), 20);
    rig_free(&r);
}

static void batch_is_limited(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    r.o.batch = 100;
    publish_many(&r, 250, NULL);
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_effects_count(r.w), 250);
    assert_int_equal(fake_largest_commit(r.w), 100);
    rig_free(&r);
}

static void known_unfinished_blocks_key(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    /* COMMIT of the parking is not answered, yet done. m1 is delivered together with m0. */
    fake_commit_unknown(r.w, 1, FAKE_COMMITTED);
    rig_run(&r, MILLIS(500));
    fake_publish_key(r.w, "m1", "k");
    rig_run(&r, MILLIS(300));
    assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    rig_run(&r, SECONDS(5));
    assert_string_equal(fake_effect_id(r.w, 0), "m0");
    assert_string_equal(fake_effect_id(r.w, 1), "m1");
    rig_free(&r);
}

/* The row of m0 is there although the marks in memory do not know it. */
static void known_row_marks_key_without_reload(void **state)
{
    (void)state;
    for (int singly = 0; singly < 2; singly++) {
        struct rig r = rig_new(TDI_ORDER_BLOCK, false);
        rig_start(&r);
        rig_run(&r, MILLIS(100));
        fake_park(r.w, "m0", "k", SECONDS(3));
        fake_publish_key(r.w, "m0", "k");
        fake_publish_key(r.w, "m1", "k");
        fake_publish_key(r.w, "x0", "x");
        fake_script(
            r.w, &(struct fake_script){.id = "x0", .times = singly * 2, .kind = TD_VERDICT_DEAD});
        rig_run(&r, SECONDS(1));
        assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
        fake_publish_key(r.w, "m2", "k"); /* and it stays so */
        rig_run(&r, SECONDS(1));
        assert_outcome(&r, "m2", TD_OUTCOME_BLOCKED);
        rig_run(&r, SECONDS(5));
        assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
        rig_free(&r);
    }
}

static void blocked_keys_survive_restart(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_DEAD});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_int_equal(rig_snapshot(&r).state, TDI_CONSUMER_BLOCKED);
    tdi_consumer_stop(r.c);
    assert_true(rig_run(&r, SECONDS(1)));
    rig_kill(&r);
    fake_publish_key(r.w, "m1", "k");
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_int_equal(fake_runs(r.w, "m1"), 0);
    rig_free(&r);
}

static void unknown_commit_retakes_shard(void **state)
{
    (void)state;
    static const enum fake_unknown hows[] = {FAKE_COMMITTED, FAKE_ROLLED_BACK, FAKE_LATE};
    for (size_t i = 0; i < 3; i++) {
        struct rig r = rig_new(TDI_ORDER_BLOCK, false);
        publish_many(&r, 3, "k");
        fake_commit_unknown(r.w, 1, hows[i]);
        rig_start(&r);
        rig_run(&r, SECONDS(2));
        assert_int_equal(fake_fence(r.w), 2);
        assert_int_equal(fake_effects_count(r.w), 3);
        for (int m = 0; m < 3; m++) {
            char id[16];
            snprintf(id, sizeof(id), "m%d", m);
            assert_string_equal(fake_effect_id(r.w, (size_t)m), id);
        }
        assert_int_equal(fake_broker_unsettled(r.w), 0);
        rig_free(&r);
    }
}

static void skip_steps_aside(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_SKIP, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_RETRY});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m0", TD_OUTCOME_RETRY);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_int_equal(rig_snapshot(&r).blocked_keys, 0);
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void hold_on_dead(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    publish_many(&r, 3, "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_DEAD});
    rig_start(&r);
    rig_run(&r, SECONDS(60));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_outcome(&r, "m2", TD_OUTCOME_BLOCKED);
    assert_true(fake_discard(r.w, "m0"));
    rig_run(&r, SECONDS(2)); /* seen although it came from another process */
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    assert_int_equal(rig_snapshot(&r).blocked_keys, 0);
    rig_free(&r);
}

static void release_on_dead(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    r.o.on_dead = TDI_ON_DEAD_RELEASE;
    publish_many(&r, 3, "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_RETRY});
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 1, .kind = TD_VERDICT_DEAD});
    rig_start(&r);
    rig_run(&r, MILLIS(900));
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    rig_run(&r, SECONDS(3));
    assert_outcome(&r, "m0", TD_OUTCOME_DEAD);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void dropped_and_emitted_in_the_transaction(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    publish_many(&r, 3, "k");
    fake_script(r.w, &(struct fake_script){.id = "m0", .times = 2, .kind = TD_VERDICT_DROP});
    fake_script(r.w, &(struct fake_script){.id = "m1", .times = 2, .emit = true});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m0", TD_OUTCOME_DROPPED);
    assert_outcome(&r, "m1", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_emitted(r.w), 1);
    assert_int_equal(fake_effects(r.w, "m0"), 0);
    assert_int_equal(fake_commits(r.w), 1);
    rig_free(&r);
}

static void unfit_goes_dead_without_a_run(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish(r.w, &(struct fake_publish){.id = "m0", .defect = "time is not a time"});
    fake_publish(r.w, &(struct fake_publish){.no_id = true, .body = "one"});
    fake_publish(r.w, &(struct fake_publish){.no_id = true, .body = "two"});
    fake_publish(r.w, &(struct fake_publish){.id = "m1", .expires_at = r.w->now - 1});
    fake_publish(r.w, &(struct fake_publish){.id = "m2", .expires_at = r.w->now + SECONDS(9)});
    fake_publish(r.w, &(struct fake_publish){.id = "m3 with spaces"});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_parked_of(r.w, "m0")->code, TD_DEAD_INVALID);
    assert_string_equal(fake_parked_of(r.w, "m0")->reason, "time is not a time");
    assert_int_equal(fake_parked_of(r.w, "m1")->code, TD_DEAD_EXPIRED);
    assert_outcome(&r, "m2", TD_OUTCOME_EFFECT);
    assert_int_equal(fake_parked_count(r.w, TD_OUTCOME_DEAD), 5);
    assert_int_equal(fake_log_count(r.w), 1);
    assert_int_equal(fake_broker_unsettled(r.w), 0);
    rig_free(&r);
}

static void defect_holds_its_key(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish(r.w, &(struct fake_publish){.id = "m0", .key = "k", .defect = "broken"});
    fake_publish_key(r.w, "m1", "k");
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m1", TD_OUTCOME_BLOCKED);
    assert_int_equal(fake_runs(r.w, "m1"), 0);
    rig_free(&r);
}

static void stale_goes_dead_and_is_not_run(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    r.o.inbox_keep_us = SECONDS(1000);
    fake_publish(r.w, &(struct fake_publish){.id = "old", .published_at = r.w->now - SECONDS(950)});
    fake_publish(r.w, &(struct fake_publish){.id = "new", .published_at = r.w->now - SECONDS(800)});
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    assert_int_equal(fake_parked_of(r.w, "old")->code, TD_DEAD_STALE);
    assert_int_equal(fake_runs(r.w, "old"), 0);
    assert_outcome(&r, "new", TD_OUTCOME_EFFECT);
    rig_free(&r);
}

static void stale_but_known_is_a_duplicate(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    fake_publish_key(r.w, "m0", NULL);
    rig_start(&r);
    rig_run(&r, SECONDS(1));
    fake_publish(r.w, &(struct fake_publish){.id = "m0", .published_at = TD_SECOND_US});
    rig_run(&r, SECONDS(1));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_int_equal(rig_snapshot(&r).duplicates_total, 1);
    rig_free(&r);
}

static void uncharged_stays_in_hand(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
    fake_publish_key(r.w, "m0", "k");
    fake_publish_key(r.w, "m1", "k");
    /* Five deadlocks, more than attempts. */
    fake_script(r.w, &(struct fake_script){
                         .id = "m0", .times = 5, .kind = TD_VERDICT_RETRY, .uncharged = true});
    rig_start(&r);
    rig_run(&r, SECONDS(2));
    assert_outcome(&r, "m0", TD_OUTCOME_EFFECT);
    assert_null(fake_parked_of(r.w, "m0"));
    assert_string_equal(fake_effect_id(r.w, 0), "m0");
    assert_string_equal(fake_effect_id(r.w, 1), "m1");
    rig_free(&r);
}

/* The store refuses to write down that m1 waits: it must not become a failed run of its own. */
static void refused_follower_stays_behind_its_head(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_BLOCK, false);
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
        cmocka_unit_test(batch_takes_effect_once),
        cmocka_unit_test(duplicate_is_acknowledged_and_not_run),
        cmocka_unit_test(other_types_are_acknowledged_unseen),
        cmocka_unit_test(batch_failure_runs_singly),
        cmocka_unit_test(followers_parked_same_tx),
        cmocka_unit_test(failure_at_commit_runs_singly),
        cmocka_unit_test(budget_cuts_transaction),
        cmocka_unit_test(singles_are_cut_at_the_budget),
        cmocka_unit_test(batch_is_limited),
        cmocka_unit_test(known_unfinished_blocks_key),
        cmocka_unit_test(known_row_marks_key_without_reload),
        cmocka_unit_test(blocked_keys_survive_restart),
        cmocka_unit_test(unknown_commit_retakes_shard),
        cmocka_unit_test(skip_steps_aside),
        cmocka_unit_test(hold_on_dead),
        cmocka_unit_test(release_on_dead),
        cmocka_unit_test(dropped_and_emitted_in_the_transaction),
        cmocka_unit_test(unfit_goes_dead_without_a_run),
        cmocka_unit_test(defect_holds_its_key),
        cmocka_unit_test(stale_goes_dead_and_is_not_run),
        cmocka_unit_test(stale_but_known_is_a_duplicate),
        cmocka_unit_test(uncharged_stays_in_hand),
        cmocka_unit_test(refused_follower_stays_behind_its_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
