/* Conformance of a store, the consumer's side: claiming, settling, emitting, counting, pruning. */
#include "store_rig.h"

#include <stdio.h>
#include <string.h>

#define C CONSUMER

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

/* What was claimed and undone again cannot be settled as if it had been written. */
static void test_undone_claim_is_not_settled(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", NULL, "{}");
    struct td_claim claim = {.ref = {m.source, m.id}, .published_at = TD_TIME_NONE};
    struct td_settle item = settle_of(&m, TD_OUTCOME_EFFECT);
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, savepoint, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_ok(CALL(w->a, savepoint_end, false, &w->err));
    assert_ok(CALL(w->a, inbox_settle, LIT(C), 0, LIT(""), 0, &item, 1, &w->err));
    assert_false(item.settled);
    assert_int_equal(item.found.outcome, TD_OUTCOME_NONE);
    /* Claimed again, behind the savepoint, it can. */
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_ok(CALL(w->a, inbox_settle, LIT(C), 0, LIT(""), 0, &item, 1, &w->err));
    assert_true(item.settled);
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_ask(OUTCOMES, "effect");
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
    struct td_parked_batch p1 = due_now(w, w->a);
    assert_int_equal(p1.count, 1);
    w->now += 31 * TD_SECOND_US;
    struct td_parked_batch p0 = due_now(w, w->b);
    assert_int_equal(p0.count, 1);
    assert_int_equal(p0.rows[0].attempts, p1.rows[0].attempts + 1);
    struct td_settle stalled = verdict_of(&p1.rows[0], TD_OUTCOME_DEAD);
    settle_alone(w, w->a, C, &stalled);
    assert_false(stalled.settled);
    assert_int_equal(stalled.found.attempts, p0.rows[0].attempts);
    assert_ask(OUTCOMES, "retry");
    struct td_settle good = verdict_of(&p0.rows[0], TD_OUTCOME_EFFECT);
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
    struct td_parked_batch b = due_now(w, w->a);
    assert_int_equal(b.count, 1);
    w->rig->app(w, "INSERT INTO tidings_inbox(consumer, source, id, outcome, attempts, settled_at)"
                   " VALUES('" C "', 'shop', 'm', 'effect', 2, 1780000000000000)"
                   " ON CONFLICT(consumer, source, id) DO UPDATE SET outcome = 'effect'"
                   " WHERE outcome = 'retry' AND attempts = 2");
    struct td_settle item = verdict_of(&b.rows[0], TD_OUTCOME_EFFECT);
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
    assert_ask("SELECT group_concat(id || type) FROM tidings_outbox",
               "e-1points.given,e-2mail.wanted");
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
        TEST(test_undone_claim_is_not_settled),
        TEST(test_effect_leaves_no_parked_row),
        TEST(test_drop),
        TEST(test_expectations),
        TEST(test_without_a_claim),
        TEST(test_worker_writes_the_row),
        TEST(test_emit),
        TEST(test_batch_of_settlements),
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
