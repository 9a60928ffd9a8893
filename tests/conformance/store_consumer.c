/*
 * Conformance of a store, the consumer's side: claiming and settling, parked rows and their
 * schedule, blocked keys, pruning.
 */
#include "store_rig.h"

#include <stdio.h>
#include <string.h>

#define C "shop.points"
#define OUTCOMES "SELECT group_concat(outcome) FROM (SELECT outcome FROM tidings_inbox ORDER BY id)"
/* The two tables never disagree about a message. */
#define DISAGREE                                                                                   \
    "SELECT count(*) FROM tidings_parked AS p JOIN tidings_inbox AS i USING (consumer, source, "   \
    "id) WHERE p.outcome <> i.outcome OR p.attempts <> i.attempts"

static struct td_parked_batch due_with(struct store_world *w, struct td_store *s,
                                       struct td_parked_due ask, const char *lease)
{
    struct td_parked_batch batch = {.count = 99};
    ask.consumer = LIT(C);
    ask.max = ask.max > 0 ? ask.max : 10;
    ask.lease_us = 30 * TD_SECOND_US;
    assert_ok(CALL(s, parked_due, tdi_str(lease), &ask, &w->arena, &batch, &w->err));
    assert_ask(DISAGREE, "0");
    return batch;
}

static struct td_parked_batch due(struct store_world *w, struct td_store *s)
{
    return due_with(w, s, (struct td_parked_due){.fence = 0}, "");
}

/* The settlement of a run that parked_due() gave out. */
static struct td_settle verdict(const struct td_parked_row *row, enum td_outcome outcome)
{
    struct td_settle item = settle_of(&row->message, outcome);
    item.claimed = false;
    item.expected = TD_OUTCOME_RETRY;
    item.expected_attempts = row->attempts;
    item.attempts = row->attempts;
    item.attempt_limit = row->attempt_limit;
    item.blocks_key = row->blocks_key;
    if (outcome == TD_OUTCOME_RETRY || outcome == TD_OUTCOME_DEAD) {
        item.code = TD_DEAD_EXHAUSTED;
        item.reason = LIT("smtp 451");
    }
    return item;
}

static bool key_is_blocked(struct store_world *w, const char *key)
{
    struct td_str *keys = NULL;
    size_t count = 0;
    bool found = false;
    assert_ok(CALL(w->b, parked_keys, LIT(C), 0, &w->arena, &keys, &count, &w->err));
    for (size_t i = 0; i < count; i++) {
        found = found || tdi_str_is(keys[i], key);
    }
    return found;
}

static void test_claim(void **state)
{
    struct store_world *w = *state;
    struct td_claim claims[3] = {
        {.ref = {LIT("shop"), LIT("m-1")}, .origin = LIT("{\"offset\":1}"), .published_at = 5},
        {.ref = {LIT("shop"), LIT("m-2")}, .published_at = TD_TIME_NONE},
        {.ref = {LIT("shop"), LIT("m-1")}, .published_at = TD_TIME_NONE},
    };
    struct td_inbox_row *rows = NULL;
    size_t count = 0;
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, claims, 3, &w->err));
    assert_int_equal(claims[0].former.outcome, TD_OUTCOME_NONE);
    assert_int_equal(claims[1].former.outcome, TD_OUTCOME_NONE);
    assert_int_equal(claims[2].former.outcome, TD_OUTCOME_EFFECT);
    assert_int_equal(claims[2].former.attempts, 1);
    assert_ok(CALL(w->a, finish, true, &w->err));
    /* Another consumer and another source have rows of their own. */
    claims[1].ref.source = LIT("stock");
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, claims + 1, 1, &w->err));
    assert_int_equal(claims[1].former.outcome, TD_OUTCOME_NONE);
    assert_ok(CALL(w->a, inbox_claim, LIT("shop.mail"), LIT(""), 0, claims, 1, &w->err));
    assert_int_equal(claims[0].former.outcome, TD_OUTCOME_NONE);
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_ok(CALL(w->b, inbox_find, LIT("m-1"), &w->arena, &rows, &count, &w->err));
    assert_int_equal(count, 2);
    assert_str(rows[0].consumer, "shop.mail");
    assert_str(rows[1].consumer, C);
    assert_str(rows[1].origin, "{\"offset\":1}");
    assert_int_equal(rows[1].published_at, 5);
    assert_int_equal(rows[1].outcome, TD_OUTCOME_EFFECT);
    assert_int_equal(rows[1].settled_at, w->now);
    assert_ok(CALL(w->b, inbox_find, LIT("m-2"), &w->arena, &rows, &count, &w->err));
    assert_int_equal(count, 2);
}

static void test_rollback_takes_the_claim_back(void **state)
{
    struct store_world *w = *state;
    struct td_claim claim = {.ref = {LIT("shop"), LIT("m")}, .published_at = TD_TIME_NONE};
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_ok(CALL(w->a, finish, false, &w->err));
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, savepoint, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_int_equal(claim.former.outcome, TD_OUTCOME_NONE);
    assert_ok(CALL(w->a, savepoint_end, false, &w->err));
    assert_ok(CALL(w->a, savepoint, &w->err));
    claim.ref.id = LIT("n");
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_ok(CALL(w->a, savepoint_end, true, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_ask("SELECT group_concat(id) FROM tidings_inbox", "n");
}

static void test_effect_leaves_no_parked_row(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", "k", "{}");
    struct td_inbox_state look;
    struct td_message_ref ref = {m.source, m.id};
    struct td_settle item = deliver(w, w->a, C, &m, TD_OUTCOME_EFFECT, 3);
    assert_false(item.key_blocked);
    assert_ask("SELECT outcome || attempts FROM tidings_inbox", "effect1");
    assert_ask("SELECT count(*) FROM tidings_parked", "0");
    assert_ok(CALL(w->b, inbox_look, LIT(C), &ref, 1, &look, &w->err));
    assert_int_equal(look.outcome, TD_OUTCOME_EFFECT);
    assert_false(look.parked);
    ref.id = LIT("unknown");
    assert_ok(CALL(w->b, inbox_look, LIT(C), &ref, 1, &look, &w->err));
    assert_int_equal(look.outcome, TD_OUTCOME_NONE);
}

static void test_drop(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", NULL, "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_DROPPED, 3);
    assert_ask(OUTCOMES, "dropped");
    assert_ask("SELECT count(*) FROM tidings_parked", "0");
}

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

    struct td_settle good = verdict(r, TD_OUTCOME_EFFECT);
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

static void test_expectations(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", NULL, "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 5);
    /* A second copy that was looked at before the first was parked. */
    struct td_settle late = settle_of(&m, TD_OUTCOME_RETRY);
    late.claimed = false;
    settle_alone(w, w->b, C, &late);
    assert_false(late.settled);
    assert_int_equal(late.found.outcome, TD_OUTCOME_RETRY);
    assert_int_equal(late.found.attempts, 1);
    assert_true(late.found.parked);

    /* p1 leases, stalls; p0 leases after the lease has passed; then p1 comes with its verdict. */
    struct td_parked_batch p1 = due(w, w->a);
    assert_int_equal(p1.count, 1);
    w->now += 31 * TD_SECOND_US;
    struct td_parked_batch p0 = due(w, w->b);
    assert_int_equal(p0.count, 1);
    assert_int_equal(p0.rows[0].attempts, p1.rows[0].attempts + 1);
    struct td_settle stalled = verdict(&p1.rows[0], TD_OUTCOME_DEAD);
    settle_alone(w, w->a, C, &stalled);
    assert_false(stalled.settled);
    assert_int_equal(stalled.found.attempts, p0.rows[0].attempts);
    assert_ask(OUTCOMES, "retry");
    struct td_settle good = verdict(&p0.rows[0], TD_OUTCOME_EFFECT);
    settle_alone(w, w->b, C, &good);
    assert_true(good.settled);
    /* The same verdict again is known. */
    settle_alone(w, w->b, C, &stalled);
    assert_false(stalled.settled);
    assert_int_equal(stalled.found.outcome, TD_OUTCOME_EFFECT);
    assert_false(stalled.found.parked);
}

static void test_without_a_claim(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", NULL, "{}");
    m.published_at = w->now - 9;
    struct td_settle item = settle_of(&m, TD_OUTCOME_EFFECT);
    item.claimed = false;
    item.origin = LIT("{}");
    settle_alone(w, w->a, C, &item);
    assert_true(item.settled);
    assert_ask("SELECT outcome || attempts || origin FROM tidings_inbox", "effect1{}");
    item.found.outcome = TD_OUTCOME_NONE;
    /* Effect found with the same attempts counts as done: it may have been a worker. */
    settle_alone(w, w->b, C, &item);
    assert_true(item.settled);
    item.attempts = 2;
    settle_alone(w, w->b, C, &item);
    assert_false(item.settled);
}

/* A worker writes the inbox row in its own transaction, with the defaults of the table. */
static void test_worker_writes_the_row(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", "k", "{}");
    struct td_message n = message_of("n", "order.paid", "k", "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 5);
    (void)deliver(w, w->a, C, &n, TD_OUTCOME_BLOCKED, 5);
    struct td_parked_batch b = due(w, w->a);
    assert_int_equal(b.count, 1);
    w->rig->app(w, "INSERT INTO tidings_inbox(consumer, source, id, outcome, attempts, settled_at)"
                   " VALUES('" C "', 'shop', 'm', 'effect', 2, 1780000000000000)"
                   " ON CONFLICT(consumer, source, id) DO UPDATE SET outcome = 'effect'"
                   " WHERE outcome = 'retry' AND attempts = 2");
    struct td_settle item = verdict(&b.rows[0], TD_OUTCOME_EFFECT);
    item.release_next = true;
    settle_alone(w, w->a, C, &item);
    assert_true(item.settled);
    assert_true(item.next_released);
    assert_ask("SELECT group_concat(outcome) FROM (SELECT outcome FROM tidings_parked "
               "ORDER BY arrival)",
               "effect,retry");
    assert_ask(DISAGREE, "0");
    w->rig->app(w, "INSERT INTO tidings_inbox(consumer, source, id, outcome) "
                   "VALUES('" C "', 'shop', 'o', 'effect')");
    assert_ask("SELECT attempts FROM tidings_inbox WHERE id = 'o'", "1");
}

static void test_exhausted(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", "k", "{}");
    struct td_message n = message_of("n", "order.paid", "k", "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 2);
    (void)deliver(w, w->a, C, &n, TD_OUTCOME_BLOCKED, 2);
    struct td_parked_batch b = due(w, w->a);
    assert_int_equal(b.rows[0].attempts, 2);
    struct td_settle item = verdict(&b.rows[0], TD_OUTCOME_RETRY);
    settle_alone(w, w->a, C, &item);
    b = due(w, w->a);
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
    struct td_settle item = verdict(&b.rows[0], TD_OUTCOME_EFFECT);
    settle_alone(w, w->a, C, &item);
    assert_false(item.key_blocked);
    assert_false(key_is_blocked(w, "k"));
}

static void test_poison(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", NULL, "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 2);
    assert_int_equal(due(w, w->a).count, 1);
    w->now += 31 * TD_SECOND_US; /* no verdict */
    struct td_parked_batch b = due(w, w->b);
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
    struct td_parked_batch b = due(w, w->a);
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "a");
    assert_int_equal(b.rows[0].attempts, 1);
    b = due(w, w->a);
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "b");
    /* It was no failed run. */
    assert_str(b.rows[0].history, "[]");
    assert_int_equal(b.rows[0].first_failed_at, TD_TIME_NONE);
    b = due(w, w->a);
    assert_int_equal(b.count, 1);
    assert_str(b.rows[0].message.id, "c");
    struct td_settle item = verdict(&b.rows[0], TD_OUTCOME_RETRY);
    settle_alone(w, w->a, C, &item);
    /* With a verdict it is like any other: d and c together. */
    b = due(w, w->a);
    assert_int_equal(b.count, 2);
    w->now += 40 * TD_SECOND_US;
    /* All four runs ended without a verdict; a and b have one left, c and d: one each, c none. */
    b = due(w, w->a);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.rows[0].attempts, 2);
}

static void test_return(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "order.paid", NULL, "{}");
    struct td_message_ref ref = {m.source, m.id};
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 3);
    assert_int_equal(due(w, w->a).count, 1);
    assert_ok(CALL(w->a, parked_return, LIT(C), &ref, 1, &w->err));
    struct td_parked_batch b = due(w, w->a);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.rows[0].attempts, 3);
    assert_ok(CALL(w->a, parked_return, LIT(C), &ref, 1, &w->err));
    b = due(w, w->a);
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
        struct td_parked_batch b = due(w, w->a);
        assert_int_equal(b.count, 1);
        assert_str(b.rows[0].message.id, ids[i]);
        struct td_settle item = verdict(&b.rows[0], TD_OUTCOME_EFFECT);
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
    struct td_parked_batch b = due(w, w->a);
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
    assert_err(CALL(w->a, parked_due, LIT("c:0"), &ask, &w->arena, &batch, &w->err),
               TD_ERR_FENCED);
    assert_ask("SELECT attempts FROM tidings_inbox", "3");
}

static void test_emit(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", NULL, "{}");
    struct td_message out[2] = {message_of("e-1", "points.given", "u", "1"),
                                message_of("e-2", "mail.wanted", NULL, "2")};
    struct td_settle item = settle_of(&m, TD_OUTCOME_EFFECT);
    item.claimed = false;
    item.emit = out;
    item.emit_count = 2;
    settle_alone(w, w->a, C, &item);
    assert_true(item.settled);
    assert_ask("SELECT group_concat(id || type) FROM tidings_outbox", "e-1points.given,e-2mail.wanted");
    /* Not settled, not emitted; rolled back, not emitted. */
    item.attempts = 7;
    out[0].id = LIT("e-3");
    settle_alone(w, w->a, C, &item);
    assert_false(item.settled);
    item.attempts = 1;
    item.ref.id = LIT("m-2");
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_settle, LIT(C), 0, LIT(""), 0, &item, 1, &w->err));
    assert_ok(CALL(w->a, finish, false, &w->err));
    assert_ask("SELECT count(*) FROM tidings_outbox", "2");
    /* An id that is out already is this very event. */
    settle_alone(w, w->a, C, &item);
    assert_true(item.settled);
    assert_ask("SELECT count(*) FROM tidings_outbox", "3");
}

static void test_batch_of_settlements(void **state)
{
    struct store_world *w = *state;
    struct td_message m[3] = {message_of("a", "t", "k", "{}"), message_of("b", "t", "k", "{}"),
                              message_of("c", "t", "k", "{}")};
    struct td_settle items[3];
    for (size_t i = 0; i < 3; i++) {
        items[i] = settle_of(&m[i], i == 0 ? TD_OUTCOME_RETRY : TD_OUTCOME_BLOCKED);
        items[i].claimed = false;
        items[i].blocks_key = true;
    }
    items[1].expected = TD_OUTCOME_DEAD; /* otherwise: no error, the others are settled */
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_settle, LIT(C), 0, LIT(""), 0, items, 3, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_true(items[0].settled);
    assert_false(items[1].settled);
    assert_true(items[2].settled);
    assert_ask(OUTCOMES, "retry,blocked");
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
        struct td_parked_batch b = due(w, w->a);
        assert_int_equal(b.count, 1);
        struct td_settle item = verdict(&b.rows[0], TD_OUTCOME_RETRY);
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

static void test_counts(void **state)
{
    struct store_world *w = *state;
    struct td_consumer_counts c;
    const char *ids[] = {"a", "b", "c", "d"};
    enum td_outcome outcomes[] = {TD_OUTCOME_RETRY, TD_OUTCOME_BLOCKED, TD_OUTCOME_DEAD,
                                  TD_OUTCOME_EFFECT};
    for (size_t i = 0; i < 4; i++) {
        struct td_message m = message_of(ids[i], "t", i == 2 ? "other" : "k", "{}");
        (void)deliver(w, w->a, C, &m, outcomes[i], 3);
    }
    assert_ok(CALL(w->b, counts, LIT(C), &c, &w->err));
    assert_int_equal(c.retrying, 1);
    assert_int_equal(c.blocked, 1);
    assert_int_equal(c.dead, 1);
    assert_int_equal(c.discarded, 0);
    assert_int_equal(c.inbox, 4);
    assert_int_equal(c.oldest_due_us, w->now);
    assert_ok(CALL(w->b, counts, LIT("shop.mail"), &c, &w->err));
    assert_int_equal(c.inbox, 0);
    assert_int_equal(c.oldest_due_us, TD_TIME_NONE);
}

static void test_prune(void **state)
{
    struct store_world *w = *state;
    size_t removed = 9;
    const td_time_us day = 86400 * TD_SECOND_US;
    const char *ids[] = {"a", "b", "c", "d", "e"};
    enum td_outcome outcomes[] = {TD_OUTCOME_RETRY, TD_OUTCOME_BLOCKED, TD_OUTCOME_DEAD,
                                  TD_OUTCOME_EFFECT, TD_OUTCOME_DROPPED};
    for (size_t i = 0; i < 5; i++) {
        struct td_message m = message_of(ids[i], "t", i == 2 ? "other" : "k", "{}");
        (void)deliver(w, w->a, C, &m, outcomes[i], 3);
    }
    /* Published later than it was settled, by some clock. */
    w->rig->app(w, "INSERT INTO tidings_inbox(consumer, source, id, outcome, settled_at, "
                   "published_at) SELECT consumer, source, 'f', 'effect', settled_at, settled_at + "
                   "864000000000 FROM tidings_inbox WHERE id = 'a'");
    w->now += 2 * day;
    assert_ok(CALL(w->a, inbox_prune, LIT(C), 3 * day, 90 * day, 10, &removed, &w->err));
    assert_int_equal(removed, 0);
    assert_ok(CALL(w->a, inbox_prune, LIT(C), day, 90 * day, 10, &removed, &w->err));
    assert_int_equal(removed, 2);
    assert_ask("SELECT group_concat(id, '') FROM tidings_inbox", "abcf");
    w->now += 365 * day;
    assert_ok(CALL(w->a, inbox_prune, LIT("shop.mail"), day, 90 * day, 10, &removed, &w->err));
    assert_int_equal(removed, 0);
    assert_ok(CALL(w->a, inbox_prune, LIT(C), day, 90 * day, 10, &removed, &w->err));
    assert_int_equal(removed, 1);
    assert_ask("SELECT group_concat(id, '') FROM tidings_inbox", "abc");
}

static void test_prune_in_batches_and_with_parked_rows(void **state)
{
    struct store_world *w = *state;
    const td_time_us day = 86400 * TD_SECOND_US;
    size_t removed = 0;
    char id[16];
    for (int i = 0; i < 7; i++) {
        (void)snprintf(id, sizeof(id), "m-%d", i);
        struct td_message m = message_of(id, "t", NULL, "{}");
        (void)deliver(w, w->a, C, &m, i < 5 ? TD_OUTCOME_EFFECT : TD_OUTCOME_DEAD, 3);
    }
    struct td_parked_change change = {.kind = TD_PARKED_DISCARD,
                                      .consumer = LIT(C),
                                      .ref = {LIT("shop"), LIT("m-5")},
                                      .reason = LIT("known bug"),
                                      .actor = LIT("me")};
    assert_ok(CALL(w->a, parked_change, &change, &w->err));
    assert_true(change.changed);
    w->now += 30 * day;
    size_t total = 0;
    for (int i = 0; i < 4; i++) {
        assert_ok(CALL(w->a, inbox_prune, LIT(C), day, 90 * day, 2, &removed, &w->err));
        assert_true(removed <= 2);
        total += removed;
    }
    assert_int_equal(total, 5);
    assert_ask("SELECT count(*) FROM tidings_parked", "2");
    w->now += 90 * day;
    total = 0;
    for (int i = 0; i < 3; i++) {
        assert_ok(CALL(w->a, inbox_prune, LIT(C), day, 90 * day, 2, &removed, &w->err));
        total += removed;
    }
    assert_int_equal(total, 1);
    assert_ask("SELECT group_concat(id) FROM tidings_parked", "m-6");
    assert_ask("SELECT group_concat(id) FROM tidings_inbox", "m-6");
}

int main(void)
{
    static const struct store_rig *const rigs[] = {&store_rig_sqlite};
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        TEST(test_claim),
        TEST(test_rollback_takes_the_claim_back),
        TEST(test_effect_leaves_no_parked_row),
        TEST(test_drop),
        TEST(test_retry_until_it_works),
        TEST(test_expectations),
        TEST(test_without_a_claim),
        TEST(test_worker_writes_the_row),
        TEST(test_exhausted),
        TEST(test_exhausted_releases_if_asked),
        TEST(test_poison),
        TEST(test_suspects_come_alone),
        TEST(test_return),
        TEST(test_followers_go_by_arrival),
        TEST(test_blocked_without_a_head),
        TEST(test_dead_that_holds_and_dead_that_does_not),
        TEST(test_keys_of_one_shard),
        TEST(test_fence_of_the_shard),
        TEST(test_emit),
        TEST(test_batch_of_settlements),
        TEST(test_history_is_bounded),
        TEST(test_counts),
        TEST(test_prune),
        TEST(test_prune_in_batches_and_with_parked_rows),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
        world_use(rigs[i]);
        failed += cmocka_run_group_tests_name(rigs[i]->name, tests, NULL, NULL);
    }
    return failed;
}
