/*
 * Conformance of a store, the consumer's side: parked rows and their schedule, followers and blocked
 * keys, history.
 */
#include "store_rig.h"

#include <stdio.h>
#include <string.h>

#define C CONSUMER

static void test_retry_until_it_works(void **state)
{
    struct store_world *w = *state;
    struct td_header headers[] = {{LIT("x-h"), LIT("v")}};
    struct td_message m = message_of("m", "order.paid", NULL, "\x01\x00\x02");
    m.body.len = 3;
    m.headers = headers;
    m.headers_count = 1;
    m.topic = LIT("orders");
    m.published_at = w->now - 7;
    struct td_claim claim = {.ref = {m.source, m.id}, .published_at = m.published_at};
    struct td_settle item = settle_of(&m, TD_OUTCOME_RETRY);
    item.due_after_us = TD_SECOND_US;
    item.code = TD_DEAD_REJECTED;
    item.reason = LIT("smtp 451");
    item.error_type = LIT("451");
    item.error_message = LIT("try later");
    item.handler = LIT("exec");
    item.origin = LIT("{\"broker\":\"main\"}");
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_ok(CALL(w->a, inbox_settle, LIT(C), 4, LIT(""), 0, &item, 1, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_true(item.settled);
    td_time_us first = w->now;

    struct td_parked_due ask = {.shard = 4};
    struct td_parked_batch b = due_with(w, w->b, ask, "");
    assert_int_equal(b.count, 0);
    assert_int_equal(b.next_due_us, first + TD_SECOND_US);
    ask.shard = 3;
    b = due_with(w, w->b, ask, "");
    assert_int_equal(b.next_due_us, TD_TIME_NONE);
    w->now += TD_SECOND_US;
    ask.shard = 4;
    b = due_with(w, w->b, ask, "");
    assert_int_equal(b.count, 1);
    const struct td_parked_row *r = &b.rows[0];
    assert_int_equal(r->attempts, 2);
    assert_int_equal(r->attempt_limit, 3);
    assert_int_equal(r->outcome, TD_OUTCOME_RETRY);
    assert_int_equal(r->first_failed_at, first);
    assert_int_equal(r->last_failed_at, first);
    assert_int_equal(r->code, TD_DEAD_REJECTED);
    assert_str(r->reason, "smtp 451");
    assert_str(r->error_type, "451");
    assert_str(r->error_message, "try later");
    assert_str(r->handler, "exec");
    assert_str(r->origin, "{\"broker\":\"main\"}");
    assert_str(r->message.id, "m");
    assert_str(r->message.source, "shop");
    assert_str(r->message.type, "order.paid");
    assert_str(r->message.topic, "orders");
    assert_null(r->message.key.data);
    assert_int_equal(r->message.time, m.time);
    assert_int_equal(r->message.published_at, m.published_at);
    assert_int_equal(r->message.headers_count, 1);
    assert_str(r->message.headers[0].value, "v");
    assert_int_equal(r->message.body.len, 3);
    assert_memory_equal(r->message.body.data, "\x01\x00\x02", 3);
    /* Leased: nobody else gets it, and the attempt is committed. */
    assert_ask("SELECT outcome || attempts FROM tidings_inbox", "retry2");
    assert_int_equal(due_with(w, w->a, ask, "").count, 0);

    struct td_settle good = verdict_of(r, TD_OUTCOME_EFFECT);
    settle_alone(w, w->a, C, &good);
    assert_true(good.settled);
    assert_ask(OUTCOMES, "effect");
    assert_ask("SELECT body IS NULL AND body_dropped FROM tidings_parked", "1");
    assert_ask("SELECT json_array_length(history) FROM tidings_parked", "1");
    w->now += 3600 * TD_SECOND_US;
    b = due_with(w, w->a, ask, "");
    assert_int_equal(b.count, 0);
    assert_int_equal(b.next_due_us, TD_TIME_NONE);
}

static void test_exhausted(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", "k", "{}");
    struct td_message n = message_of("n", "order.paid", "k", "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 2);
    (void)deliver(w, w->a, C, &n, TD_OUTCOME_BLOCKED, 2);
    struct td_parked_batch b = due_now(w, w->a);
    assert_int_equal(b.rows[0].attempts, 2);
    struct td_settle item = verdict_of(&b.rows[0], TD_OUTCOME_RETRY);
    settle_alone(w, w->a, C, &item);
    b = due_now(w, w->a);
    assert_int_equal(b.count, 0);
    assert_int_equal(b.dead_count, 1);
    assert_int_equal(b.dead[0].code, TD_DEAD_EXHAUSTED);
    assert_str(b.dead[0].reason, "smtp 451");
    assert_int_equal(b.dead[0].attempts, 2);
    assert_true(b.dead[0].key_blocked);
    assert_ask(OUTCOMES, "dead,blocked");
    assert_ask("SELECT attempts FROM tidings_inbox WHERE id = 'm'", "2");
}

static void test_exhausted_releases_if_asked(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", "k", "{}");
    struct td_message n = message_of("n", "order.paid", "k", "{}");
    struct td_parked_due ask = {.release_on_dead = true};
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 1);
    (void)deliver(w, w->a, C, &n, TD_OUTCOME_BLOCKED, 5);
    struct td_parked_batch b = due_with(w, w->a, ask, "");
    assert_int_equal(b.dead_count, 1);
    assert_true(b.dead[0].key_blocked);
    assert_ask(OUTCOMES, "dead,retry");
    b = due_with(w, w->a, ask, "");
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "n");
    struct td_settle item = verdict_of(&b.rows[0], TD_OUTCOME_EFFECT);
    settle_alone(w, w->a, C, &item);
    assert_false(item.key_blocked);
    assert_false(key_is_blocked(w, "k"));
}

static void test_poison(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", NULL, "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 2);
    assert_int_equal(due_now(w, w->a).count, 1);
    w->now += 31 * TD_SECOND_US; /* no verdict */
    struct td_parked_batch b = due_now(w, w->b);
    assert_int_equal(b.count, 0);
    assert_int_equal(b.dead_count, 1);
    assert_int_equal(b.dead[0].code, TD_DEAD_POISON);
    assert_ask("SELECT outcome || attempts FROM tidings_inbox", "dead2");
}

/* A row that may have killed its process is not run beside others. */
static void test_suspects_come_alone(void **state)
{
    struct store_world *w = *state;
    const char *ids[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) {
        struct td_message m = message_of(ids[i], "t", NULL, "{}");
        struct td_settle item = settle_of(&m, TD_OUTCOME_RETRY);
        item.claimed = false;
        item.attempts = 0;
        item.attempt_limit = 2;
        item.unfinished_run = i == 1 || i == 2;
        settle_alone(w, w->a, C, &item);
        w->now += 1;
    }
    struct td_parked_batch b = due_now(w, w->a);
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "a");
    assert_int_equal(b.rows[0].attempts, 1);
    b = due_now(w, w->a);
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "b");
    /* It was no failed run. */
    assert_str(b.rows[0].history, "[]");
    assert_int_equal(b.rows[0].first_failed_at, TD_TIME_NONE);
    b = due_now(w, w->a);
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "c");
    struct td_settle item = verdict_of(&b.rows[0], TD_OUTCOME_RETRY);
    settle_alone(w, w->a, C, &item);
    /* With a verdict it is like any other: d and c together. */
    b = due_now(w, w->a);
    assert_int_equal(b.count, 2);
    w->now += 40 * TD_SECOND_US;
    /* All four runs ended without a verdict; a and b have one left, c and d: one each, c none. */
    b = due_now(w, w->a);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.rows[0].attempts, 2);
}

static void test_return(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", NULL, "{}");
    struct td_message_ref ref = {m.source, m.id};
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 3);
    assert_int_equal(due_now(w, w->a).count, 1);
    assert_ok(CALL(w->a, parked_return, LIT(C), &ref, 1, &w->err));
    struct td_parked_batch b = due_now(w, w->a);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.rows[0].attempts, 3);
    assert_ok(CALL(w->a, parked_return, LIT(C), &ref, 1, &w->err));
    b = due_now(w, w->a);
    assert_int_equal(b.dead_count, 1);
    assert_int_equal(b.dead[0].code, TD_DEAD_EXHAUSTED);
    /* What is not leased is left alone. */
    assert_ok(CALL(w->a, parked_return, LIT(C), &ref, 1, &w->err));
    assert_ask(OUTCOMES, "dead");
}

static void test_followers_go_by_arrival(void **state)
{
    struct store_world *w = *state;
    const char *ids[] = {"z", "y", "x", "w"};
    struct td_message m[4];
    for (size_t i = 0; i < 4; i++) {
        m[i] = message_of(ids[i], "t", "k", "{}");
        m[i].time -= (td_time_us)i * TD_SECOND_US;
        (void)deliver(w, w->a, C, &m[i], i == 0 ? TD_OUTCOME_RETRY : TD_OUTCOME_BLOCKED, 9);
    }
    assert_true(key_is_blocked(w, "k"));
    assert_false(key_is_blocked(w, "other"));
    for (size_t i = 0; i < 4; i++) {
        struct td_parked_batch b = due_now(w, w->a);
        assert_int_equal(b.count, 1);
        assert_str(b.rows[0].message.id, ids[i]);
        struct td_settle item = verdict_of(&b.rows[0], TD_OUTCOME_EFFECT);
        item.release_next = true;
        settle_alone(w, w->a, C, &item);
        assert_int_equal(item.next_released, i < 3);
        assert_int_equal(item.key_blocked, i < 3);
    }
    assert_false(key_is_blocked(w, "k"));
}

/* An operator ended the head while the follower was on its way. */
static void test_blocked_without_a_head(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", "k", "{}");
    struct td_message n = message_of("n", "t", "k", "{}");
    struct td_settle item = deliver(w, w->a, C, &m, TD_OUTCOME_BLOCKED, 9);
    assert_true(item.key_blocked);
    assert_ask(OUTCOMES, "retry");
    /* Now there is one, so the next is blocked indeed. */
    item = deliver(w, w->a, C, &n, TD_OUTCOME_BLOCKED, 9);
    assert_ask(OUTCOMES, "retry,blocked");
    struct td_parked_batch b = due_now(w, w->a);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.rows[0].attempts, 1);
    assert_str(b.rows[0].history, "[]");
}

static void test_dead_that_holds_and_dead_that_does_not(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", "k", "{}");
    struct td_message n = message_of("n", "t", "k2", "{}");
    struct td_message o = message_of("o", "t", "k2", "{}");
    struct td_settle item = deliver(w, w->a, C, &m, TD_OUTCOME_DEAD, 1);
    assert_true(item.key_blocked);
    assert_true(key_is_blocked(w, "k"));
    item = settle_of(&n, TD_OUTCOME_DEAD);
    item.claimed = false;
    item.blocks_key = false;
    settle_alone(w, w->a, C, &item);
    assert_false(item.key_blocked);
    assert_false(key_is_blocked(w, "k2"));
    (void)deliver(w, w->a, C, &o, TD_OUTCOME_BLOCKED, 9);
    assert_ask("SELECT outcome FROM tidings_inbox WHERE id = 'o'", "retry");
}

static void test_keys_of_one_shard(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", "k", "{}");
    struct td_settle item = settle_of(&m, TD_OUTCOME_RETRY);
    struct td_str *keys = NULL;
    size_t count = 9;
    item.claimed = false;
    item.blocks_key = true;
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_settle, LIT(C), 2, LIT(""), 0, &item, 1, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_false(key_is_blocked(w, "k"));
    assert_ok(CALL(w->b, parked_keys, LIT(C), 2, &w->arena, &keys, &count, &w->err));
    assert_int_equal(count, 1);
    assert_ok(CALL(w->b, parked_keys, LIT("shop.mail"), 2, &w->arena, &keys, &count, &w->err));
    assert_int_equal(count, 0);
}

static void test_fence_of_the_shard(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", "k", "{}");
    struct td_lease old;
    struct td_lease lease;
    struct td_claim claim = {.ref = {m.source, m.id}, .published_at = TD_TIME_NONE};
    struct td_settle item = settle_of(&m, TD_OUTCOME_RETRY);
    struct td_parked_batch batch;
    assert_ok(CALL(w->a, lease_take, LIT("c:0"), TD_SECOND_US, &old, &w->err));
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 9);
    struct td_parked_due ask = {.fence = old.fence};
    assert_int_equal(due_with(w, w->a, ask, "c:0").count, 1);
    w->now += 2 * TD_SECOND_US;
    assert_ok(CALL(w->b, lease_take, LIT("c:0"), TD_SECOND_US, &lease, &w->err));
    assert_ok(CALL(w->a, begin, &w->err));
    assert_err(CALL(w->a, inbox_claim, LIT(C), LIT("c:0"), old.fence, &claim, 1, &w->err),
               TD_ERR_FENCED);
    assert_err(CALL(w->a, inbox_settle, LIT(C), 0, LIT("c:0"), old.fence, &item, 1, &w->err),
               TD_ERR_FENCED);
    assert_ok(CALL(w->a, finish, false, &w->err));
    /* The new owner need not wait for the row lease of the old one. */
    ask.fence = lease.fence;
    struct td_parked_batch b = due_with(w, w->b, ask, "c:0");
    assert_int_equal(b.count, 1);
    assert_int_equal(b.rows[0].attempts, 3);
    assert_int_equal(due_with(w, w->b, ask, "c:0").count, 0);
    w->now += 60 * TD_SECOND_US;
    ask.fence = old.fence;
    ask.consumer = LIT(C);
    ask.max = 1;
    assert_err(CALL(w->a, parked_due, LIT("c:0"), &ask, &w->arena, &batch, &w->err), TD_ERR_FENCED);
    assert_ask("SELECT attempts FROM tidings_inbox", "3");
}

static void test_history_is_bounded(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", NULL, "{}");
    char reason[400];
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 1000);
    memset(reason, 'x', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    for (int i = 0; i < 30; i++) {
        struct td_parked_batch b = due_now(w, w->a);
        assert_int_equal(b.count, 1);
        struct td_settle item = verdict_of(&b.rows[0], TD_OUTCOME_RETRY);
        item.reason = i < 25 ? LIT("short") : tdi_str(reason);
        settle_alone(w, w->a, C, &item);
    }
    assert_ask("SELECT length(history) <= 4096 AND json_array_length(history) = 20 "
               "FROM tidings_parked",
               "1");
    assert_ask("SELECT json_extract(history, '$[19].attempt') || json_extract(history, "
               "'$[19].result') FROM tidings_parked",
               "31retry");
}

/* A worker wrote the effect in its own transaction and died before its answer. */
static void test_effect_of_a_worker_that_died(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", "k", "{}");
    struct td_message n = message_of("n", "t", "k", "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 2);
    (void)deliver(w, w->a, C, &n, TD_OUTCOME_BLOCKED, 9);
    assert_int_equal(due_now(w, w->a).count, 1);
    w->rig->app(w, "UPDATE tidings_inbox SET outcome = 'effect' WHERE id = 'm' AND attempts = 2");
    w->now += 31 * TD_SECOND_US;
    struct td_parked_batch b = due_now(w, w->b);
    assert_int_equal(b.count, 0);
    assert_int_equal(b.dead_count, 0);
    assert_int_equal(b.done_count, 1);
    assert_int_equal(b.done[0].outcome, TD_OUTCOME_EFFECT);
    assert_true(b.done[0].key_blocked);
    /* Its follower is due, and its own story is over. */
    b = due_now(w, w->b);
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "n");
    assert_ask("SELECT body_dropped FROM tidings_parked WHERE id = 'm'", "1");
    assert_ask(OUTCOMES, "effect,retry");
}

int main(void)
{
    static const struct store_rig *const rigs[] = {&store_rig_sqlite};
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        TEST(test_retry_until_it_works),
        TEST(test_exhausted),
        TEST(test_exhausted_releases_if_asked),
        TEST(test_poison),
        TEST(test_effect_of_a_worker_that_died),
        TEST(test_suspects_come_alone),
        TEST(test_return),
        TEST(test_followers_go_by_arrival),
        TEST(test_blocked_without_a_head),
        TEST(test_dead_that_holds_and_dead_that_does_not),
        TEST(test_keys_of_one_shard),
        TEST(test_fence_of_the_shard),
        TEST(test_history_is_bounded),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
        world_use(rigs[i]);
        failed += cmocka_run_group_tests_name(rigs[i]->name, tests, NULL, NULL);
    }
    return failed;
}
