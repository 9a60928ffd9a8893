/* Conformance of a store: leases, fences, the death of owners, and what a session is and refuses. */
#include "store_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TTL (10 * TD_SECOND_US)

static struct td_lease take(struct store_world *w, struct td_store *s, const char *name)
{
    struct td_lease lease = {.owner_pid = -1};
    assert_ok(CALL(s, lease_take, tdi_str(name), TTL, &lease, &w->err));
    return lease;
}

static enum td_err try_take(struct store_world *w, struct td_store *s, const char *name,
                            struct td_lease *ret)
{
    return CALL(s, lease_take, tdi_str(name), TTL, ret, &w->err);
}

static void test_take_and_release(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease = take(w, w->a, "r");
    struct td_lease other = {.owner_pid = 0};
    assert_int_equal(lease.fence, 1);
    assert_false(lease.unclean);
    assert_err(try_take(w, w->b, "r", &other), TD_ERR_OWNED);
    assert_int_equal(w->err.class_, TD_CLASS_RETRY);
    assert_int_equal(other.owner_pid, getpid());
    assert_ok(CALL(w->a, lease_release, LIT("r"), lease.fence, &w->err));
    other = take(w, w->b, "r");
    assert_int_equal(other.fence, 2);
    assert_false(other.unclean);
    /* Another name has nothing to do with it. */
    assert_int_equal(take(w, w->a, "q").fence, 1);
}

static void test_renew_and_expiry(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease = take(w, w->a, "r");
    struct td_lease other;
    w->now += TTL - 1;
    assert_ok(CALL(w->a, lease_renew, LIT("r"), lease.fence, TTL, LIT("{}"), &w->err));
    w->now += TTL - 1;
    assert_err(try_take(w, w->b, "r", &other), TD_ERR_OWNED);
    /* Alive, but its time has passed: a frozen process must not hold it for ever. */
    w->now += 1;
    other = take(w, w->b, "r");
    assert_int_equal(other.fence, lease.fence + 1);
    assert_true(other.unclean);
    assert_err(CALL(w->a, lease_renew, LIT("r"), lease.fence, TTL, LIT(""), &w->err),
               TD_ERR_FENCED);
    assert_err(CALL(w->a, lease_release, LIT("r"), lease.fence, &w->err), TD_ERR_FENCED);
    assert_err(CALL(w->a, lease_clear_unclean, LIT("r"), lease.fence, &w->err), TD_ERR_FENCED);
    assert_ok(CALL(w->b, lease_renew, LIT("r"), other.fence, TTL, LIT(""), &w->err));
    assert_err(try_take(w, w->a, "r", &lease), TD_ERR_OWNED);
}

static void test_released_lease_cannot_be_renewed(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease = take(w, w->a, "r");
    assert_ok(CALL(w->a, lease_release, LIT("r"), lease.fence, &w->err));
    assert_err(CALL(w->a, lease_renew, LIT("r"), lease.fence, TTL, LIT(""), &w->err),
               TD_ERR_FENCED);
    assert_err(CALL(w->a, lease_renew, LIT("never"), 1, TTL, LIT(""), &w->err), TD_ERR_FENCED);
}

static void test_dead_owner_is_replaced_at_once(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease = take(w, w->a, "r");
    world_kill(&w->a);
    struct td_lease other = take(w, w->b, "r");
    assert_int_equal(other.fence, lease.fence + 1);
    assert_true(other.unclean);
}

/* The mark lies in the row: a clean hand-over does not wash it off. */
static void test_unclean_mark_stays_until_cleared(void **state)
{
    struct store_world *w = *state;
    (void)take(w, w->a, "r");
    world_kill(&w->a);
    struct td_lease lease = take(w, w->b, "r");
    assert_true(lease.unclean);
    assert_ok(CALL(w->b, lease_release, LIT("r"), lease.fence, &w->err));
    w->a = world_open(w);
    lease = take(w, w->a, "r");
    assert_true(lease.unclean);
    assert_ok(CALL(w->a, lease_clear_unclean, LIT("r"), lease.fence, &w->err));
    assert_ok(CALL(w->a, lease_release, LIT("r"), lease.fence, &w->err));
    lease = take(w, w->b, "r");
    assert_false(lease.unclean);
    assert_int_equal(lease.fence, 4);
}

static void test_take_over_from_oneself(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease = take(w, w->a, "r");
    struct td_lease again = take(w, w->a, "r");
    assert_int_equal(again.fence, lease.fence + 1);
    assert_false(again.unclean);
    assert_err(CALL(w->a, lease_renew, LIT("r"), lease.fence, TTL, LIT(""), &w->err),
               TD_ERR_FENCED);
    assert_ok(CALL(w->a, lease_renew, LIT("r"), again.fence, TTL, LIT(""), &w->err));
}

/* A frozen owner keeps its liveness, but not the right to be taken for the new owner. */
static void test_frozen_owner_dies_later(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease;
    (void)take(w, w->a, "r");
    w->now += TTL;
    struct td_lease second = take(w, w->b, "r");
    world_kill(&w->a);
    /* Whatever the dead one held is free now; the second owner is alive all the same. */
    w->a = world_open(w);
    assert_err(try_take(w, w->a, "r", &lease), TD_ERR_OWNED);
    assert_ok(CALL(w->b, lease_renew, LIT("r"), second.fence, TTL, LIT(""), &w->err));
    assert_err(try_take(w, w->a, "r", &lease), TD_ERR_OWNED);
    world_kill(&w->b);
    lease = take(w, w->a, "r");
    assert_int_equal(lease.fence, second.fence + 1);
    w->b = world_open(w);
}

/* The loser wakes up and asks again: it must not keep what proves that an owner lives. */
static void test_frozen_owner_wakes_up(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease;
    (void)take(w, w->a, "r");
    w->now += TTL;
    struct td_lease second = take(w, w->b, "r");
    assert_err(try_take(w, w->a, "r", &lease), TD_ERR_OWNED);
    assert_ok(CALL(w->b, lease_renew, LIT("r"), second.fence, TTL, LIT(""), &w->err));
    world_kill(&w->b);
    lease = take(w, w->a, "r");
    assert_int_equal(lease.fence, second.fence + 1);
    assert_true(lease.unclean);
    w->b = world_open(w);
}

static void test_scan(void **state)
{
    struct store_world *w = *state;
    struct td_lease_state *list = NULL;
    size_t count = 9;
    assert_ok(CALL(w->b, lease_scan, &w->arena, &list, &count, &w->err));
    assert_int_equal(count, 0);
    struct td_lease one = take(w, w->a, "one");
    struct td_lease two = take(w, w->a, "two");
    assert_ok(
        CALL(w->a, lease_renew, LIT("one"), one.fence, TTL, LIT("{\"state\":\"ok\"}"), &w->err));
    /* An empty report leaves the last one. */
    w->now += 5;
    assert_ok(CALL(w->a, lease_renew, LIT("one"), one.fence, TTL, LIT(""), &w->err));
    assert_ok(CALL(w->a, lease_release, LIT("two"), two.fence, &w->err));
    assert_ok(CALL(w->b, lease_scan, &w->arena, &list, &count, &w->err));
    assert_int_equal(count, 2);
    assert_str(list[0].name, "one");
    assert_true(list[0].alive);
    assert_int_equal(list[0].owner_pid, getpid());
    assert_true(list[0].owner.len > 0);
    assert_str(list[0].report, "{\"state\":\"ok\"}");
    assert_int_equal(list[0].reported_at, w->now - 5);
    assert_false(list[0].unclean);
    assert_str(list[1].name, "two");
    assert_false(list[1].alive);
    assert_int_equal(list[1].owner.len, 0);
    /* The owner sees itself, too. */
    assert_ok(CALL(w->a, lease_scan, &w->arena, &list, &count, &w->err));
    assert_true(list[0].alive);
    world_kill(&w->a);
    assert_ok(CALL(w->b, lease_scan, &w->arena, &list, &count, &w->err));
    assert_false(list[0].alive);
}

static void test_many_leases(void **state)
{
    struct store_world *w = *state;
    struct td_lease lease;
    char name[32];
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "consumer:c:%d", i);
        assert_int_equal(take(w, w->a, name).fence, 1);
    }
    assert_err(try_take(w, w->b, "consumer:c:57", &lease), TD_ERR_OWNED);
    assert_ok(CALL(w->a, lease_release, LIT("consumer:c:57"), 1, &w->err));
    assert_int_equal(take(w, w->b, "consumer:c:57").fence, 2);
    assert_err(try_take(w, w->b, "consumer:c:58", &lease), TD_ERR_OWNED);
}

/* ---- sessions and transactions ----------------------------------------------------------------- */

static void test_info_and_now(void **state)
{
    struct store_world *w = *state;
    struct td_store_info one;
    struct td_store_info two;
    td_time_us now = 0;
    assert_ok(CALL(w->a, info, &w->arena, &one, &w->err));
    assert_ok(CALL(w->b, info, &w->arena, &two, &w->err));
    assert_true(one.version.len > 0);
    assert_true(one.identity.len > 0);
    assert_true(tdi_str_eq(one.identity, two.identity));
    assert_str(one.service, "shop");
    assert_int_equal(one.schema, one.schema_wanted);
    assert_ok(CALL(w->a, now, &now, &w->err));
    assert_int_equal(now, w->now);
}

static void test_migrate_is_repeatable(void **state)
{
    struct store_world *w = *state;
    struct td_store_info before;
    struct td_store_info after;
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', 'b')");
    assert_ok(CALL(w->a, info, &w->arena, &before, &w->err));
    assert_ok(w->b->driver->migrate(w->b, &w->err));
    assert_ok(w->a->driver->migrate(w->a, &w->err));
    assert_ok(CALL(w->a, info, &w->arena, &after, &w->err));
    assert_true(tdi_str_eq(before.identity, after.identity));
    assert_ask("SELECT count(*) FROM tidings_outbox", "1");
}

static void test_another_service_is_refused(void **state)
{
    struct store_world *w = *state;
    struct td_store *s = NULL;
    struct td_store_options o = w->options;
    o.service = LIT("stock");
    s = calloc(1, w->rig->driver->session_size);
    assert_non_null(s);
    s->driver = w->rig->driver;
    assert_err(w->rig->driver->open(s, &o, &w->err), TD_ERR_FOREIGN);
    assert_non_null(strstr(w->err.text, "'shop'"));
    assert_non_null(strstr(w->err.text, "'stock'"));
    assert_int_equal(w->err.class_, TD_CLASS_FATAL);
    w->rig->driver->close(s);
    free(s);
    /* No service: not checked. */
    o.service = LIT("");
    o.read_only = true;
    s = calloc(1, w->rig->driver->session_size);
    assert_non_null(s);
    s->driver = w->rig->driver;
    assert_ok(w->rig->driver->open(s, &o, &w->err));
    assert_err(CALL(s, begin, &w->err), TD_ERR_READ_ONLY);
    assert_err(CALL(s, relay_declare, LIT("r"), &w->err), TD_ERR_READ_ONLY);
    w->rig->driver->close(s);
    free(s);
}

static void test_two_sessions_contend(void **state)
{
    struct store_world *w = *state;
    if ((w->rig->driver->caps & TD_STORE_SERIAL_WRITER) == 0) {
        skip();
    }
    assert_ok(CALL(w->a, begin, &w->err));
    assert_err(CALL(w->b, begin, &w->err), TD_ERR_BUSY);
    assert_int_equal(w->err.class_, TD_CLASS_RETRY);
    assert_string_equal(w->err.sqlstate, "55P03");
    assert_err(CALL(w->b, relay_declare, LIT("r"), &w->err), TD_ERR_BUSY);
    assert_ok(CALL(w->a, finish, false, &w->err));
    assert_ok(CALL(w->b, begin, &w->err));
    assert_ok(CALL(w->b, finish, true, &w->err));
}

static void test_calls_outside_their_place(void **state)
{
    struct store_world *w = *state;
    struct td_claim claim = {.ref = {LIT("s"), LIT("i")}, .published_at = TD_TIME_NONE};
    assert_err(CALL(w->a, finish, true, &w->err), TD_ERR_INTERNAL);
    assert_err(CALL(w->a, savepoint, &w->err), TD_ERR_INTERNAL);
    assert_err(CALL(w->a, inbox_claim, LIT("c"), LIT(""), 0, &claim, 1, &w->err), TD_ERR_INTERNAL);
    assert_ok(CALL(w->a, begin, &w->err));
    assert_err(CALL(w->a, begin, &w->err), TD_ERR_INTERNAL);
    assert_err(CALL(w->a, savepoint_end, true, &w->err), TD_ERR_INTERNAL);
    assert_err(CALL(w->a, relay_declare, LIT("r"), &w->err), TD_ERR_INTERNAL);
    assert_ok(CALL(w->a, finish, false, &w->err));
}

static void test_close_rolls_back(void **state)
{
    struct store_world *w = *state;
    struct td_claim claim = {.ref = {LIT("s"), LIT("i")}, .published_at = TD_TIME_NONE};
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT("c"), LIT(""), 0, &claim, 1, &w->err));
    world_kill(&w->a);
    assert_ask("SELECT count(*) FROM tidings_inbox", "0");
    assert_ok(CALL(w->b, begin, &w->err));
    assert_ok(CALL(w->b, finish, true, &w->err));
}

int main(void)
{
    static const struct store_rig *const rigs[] = {&store_rig_sqlite};
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        TEST(test_take_and_release),
        TEST(test_renew_and_expiry),
        TEST(test_released_lease_cannot_be_renewed),
        TEST(test_dead_owner_is_replaced_at_once),
        TEST(test_unclean_mark_stays_until_cleared),
        TEST(test_take_over_from_oneself),
        TEST(test_frozen_owner_dies_later),
        TEST(test_frozen_owner_wakes_up),
        TEST(test_scan),
        TEST(test_many_leases),
        TEST(test_info_and_now),
        TEST(test_migrate_is_repeatable),
        TEST(test_another_service_is_refused),
        TEST(test_two_sessions_contend),
        TEST(test_calls_outside_their_place),
        TEST(test_close_rolls_back),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
        world_use(rigs[i]);
        failed += cmocka_run_group_tests_name(rigs[i]->name, tests, NULL, NULL);
    }
    return failed;
}
