/* Conformance of a store, the relay's side: positions, settling, dead rows, rebasing, purging. */
#include "store_rig.h"

#include <stdio.h>
#include <string.h>

static void test_positions(void **state)
{
    struct store_world *w = *state;
    struct td_position p;
    struct td_outbox_row *rows = NULL;
    struct td_relay_stats stats;
    assert_err(CALL(w->a, relay_position, LIT("shop.main"), &w->arena, &p, &w->err),
               TD_ERR_NOT_FOUND);
    assert_ok(CALL(w->a, relay_stats, LIT("shop.main"), &stats, &w->err));
    assert_false(stats.declared);
    assert_ok(CALL(w->a, relay_declare, LIT("shop.main"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("shop.main"), &w->arena, &p, &w->err));
    assert_int_equal(p.data.len, 0);
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body, created_at) VALUES "
                   "('a', '1', 1780000000000001), ('a', '2', 1780000000000002), "
                   "('a', '3', 1780000000000003)");
    assert_ok(CALL(w->a, relay_stats, LIT("shop.main"), &stats, &w->err));
    assert_int_equal(stats.pending, 3);
    assert_int_equal(stats.oldest_pending_us, INT64_C(1780000000000001));

    int64_t fence = own_lease(w, w->a, "shop.main");
    assert_int_equal(read_rows(w, &p, 2, &rows), 2);
    struct td_relay_settle settle = settle_up_to("shop.main", fence, rows, 2);
    assert_ok(CALL(w->a, relay_settle, &settle, &w->err));
    assert_ok(CALL(w->b, relay_position, LIT("shop.main"), &w->arena, &p, &w->err));
    assert_int_equal(p.order, rows[1].position.order);
    assert_int_equal(p.data.len, rows[1].position.data.len);
    assert_memory_equal(p.data.data, rows[1].position.data.data, p.data.len);
    assert_ptr_equal(rows[0].position.data.data, rows[1].position.data.data); /* one for all */
    assert_ok(CALL(w->a, relay_stats, LIT("shop.main"), &stats, &w->err));
    assert_true(stats.declared);
    assert_int_equal(stats.pending, 1);
    assert_int_equal(stats.published_total, 2);
    assert_int_equal(stats.oldest_pending_us, INT64_C(1780000000000003));

    /* Never back, and again is harmless. */
    assert_ok(CALL(w->a, relay_declare, LIT("shop.main"), &w->err));
    settle.position = rows[0].position;
    assert_err(CALL(w->a, relay_settle, &settle, &w->err), TD_ERR_CONFLICT);
    assert_ok(CALL(w->b, relay_position, LIT("shop.main"), &w->arena, &p, &w->err));
    assert_int_equal(p.order, rows[1].position.order);

    /* A new one starts where its slowest sibling is. */
    assert_ok(CALL(w->a, relay_declare, LIT("shop.other"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("shop.other"), &w->arena, &p, &w->err));
    assert_int_equal(p.order, rows[1].position.order);

    struct td_published_row *published = NULL;
    size_t count = 0;
    assert_ok(CALL(w->a, published_find, rows[0].message.sequence, &w->arena, &published, &count,
                   &w->err));
    assert_int_equal(count, 1);
    assert_str(published[0].relay, "shop.main");
    assert_str(published[0].evidence, "confirmed");
    assert_int_equal(published[0].published, 2);
    assert_int_equal(published[0].at, w->now);
    assert_ok(CALL(w->a, published_find, rows[1].message.sequence + 1, &w->arena, &published,
                   &count, &w->err));
    assert_int_equal(count, 0);
}

static void test_settle_is_fenced(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1')");
    int64_t old = own_lease(w, w->a, "r");
    assert_int_equal(read_rows(w, &p, 2, &rows), 1);
    w->now += 11 * TD_SECOND_US;
    int64_t fence = own_lease(w, w->b, "r");
    assert_int_equal(fence, old + 1);
    struct td_relay_dead dead = {&rows[0].message, TD_DEAD_UNROUTABLE, LIT("no topic takes a")};
    struct td_relay_settle settle = settle_up_to("r", old, rows, 1);
    settle.dead = &dead;
    settle.dead_count = 1;
    assert_err(CALL(w->a, relay_settle, &settle, &w->err), TD_ERR_FENCED);
    assert_int_equal(w->err.class_, TD_CLASS_RETRY);
    assert_ask("SELECT count(*) FROM tidings_parked", "0");
    assert_ask("SELECT count(*) FROM tidings_published", "0");
    assert_ok(CALL(w->a, relay_position, LIT("r"), &w->arena, &p, &w->err));
    assert_int_equal(p.order, 0);
}

static void test_dead_rows(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    struct td_inbox_state look;
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
    w->rig->app(w, "INSERT INTO tidings_outbox(id, type, partition_key, body, deliver_at) "
                   "VALUES ('i-1', 'stock.low', 'k', x'00ff', 1990000000000001)");
    assert_int_equal(read_rows(w, &p, 2, &rows), 1);
    struct td_relay_dead dead = {&rows[0].message, TD_DEAD_UNROUTABLE, LIT("no topic takes it")};
    struct td_relay_settle settle = settle_up_to("r", own_lease(w, w->a, "r"), rows, 1);
    settle.dead = &dead;
    settle.dead_count = 1;
    settle.published = 0;
    assert_ok(CALL(w->a, relay_settle, &settle, &w->err));
    struct td_message_ref ref = {LIT("shop"), LIT("i-1")};
    assert_ok(CALL(w->b, inbox_look, LIT("relay:r"), &ref, 1, &look, &w->err));
    assert_int_equal(look.outcome, TD_OUTCOME_DEAD);
    assert_true(look.parked);

    struct td_parked_filter filter = {.with_body = true};
    struct td_parked_row *parked = NULL;
    int64_t cursor = 0;
    size_t count = 0;
    assert_ok(CALL(w->b, parked_scan, &filter, &cursor, 10, &w->arena, &parked, &count, &w->err));
    assert_int_equal(count, 1);
    assert_str(parked[0].consumer, "relay:r");
    assert_int_equal(parked[0].code, TD_DEAD_UNROUTABLE);
    assert_str(parked[0].reason, "no topic takes it");
    assert_str(parked[0].message.type, "stock.low");
    assert_int_equal(parked[0].message.deliver_at, INT64_C(1990000000000001));
    assert_int_equal(parked[0].message.sequence, rows[0].message.sequence);
    assert_int_equal(parked[0].message.body.len, 2);
    assert_memory_equal(parked[0].message.body.data, "\x00\xff", 2);
    assert_false(parked[0].blocks_key);

    /* After a rebase it comes again: its row is known and stays. */
    assert_ok(CALL(w->a, lease_release, LIT("r"), settle.fence, &w->err));
    assert_ok(CALL(w->a, relay_rebase, LIT("r"), 0, &p, LIT("me"), &w->err));
    settle.fence = own_lease(w, w->a, "r");
    assert_ok(CALL(w->a, relay_settle, &settle, &w->err));
    assert_ask("SELECT count(*) FROM tidings_parked", "1");
}

/* What an application can write that no message can be. */
static void test_hostile_rows(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    static const struct {
        const char *sql;
        const char *defect; /* begins so */
    } cases[] = {
        {"(id, type, body) VALUES ('with space', 'a', 'x')", "id"},
        {"(id, type, body) VALUES ('', 'a', 'x')", "id"},
        {"(id, type, body) VALUES (x'ff00', 'a', 'x')", "id"},
        {"(id, type, body) VALUES (CAST(x'c3' AS TEXT), 'a', 'x')", "id"},
        {"(id, type, body) VALUES (printf('%0200d', 1), 'a', 'x')", "id"},
        {"(type, body, headers) VALUES ('a', 'x', '[1]')", "headers"},
        {"(type, body, headers) VALUES ('a', 'x', '{\"n\":1}')", "headers"},
        {"(type, body, headers) VALUES ('a', 'x', '{\"n\":')", "headers"},
        {"(type, body, headers) VALUES ('a', 'x', x'7b7d')", "headers"},
        {"(type, body, tenant) VALUES ('a', 'x', CAST(x'ff' AS TEXT))", "tenant"},
        {"(type, body, partition_key) VALUES ('a', 'x', printf('%0300d', 1))", "partition_key"},
        {"(type, body) VALUES ('a', 17)", "body"},
        {"(type, body) VALUES ('a', 1.5)", "body"},
        {"(type, body) VALUES (x'00', 'x')", "type"},
        {"(type, body, aggregate_version) VALUES ('a', 'x', 'v1')", "aggregate_version"},
    };
    const size_t count = sizeof(cases) / sizeof(cases[0]);
    for (size_t i = 0; i < count; i++) {
        char sql[300];
        (void)snprintf(sql, sizeof(sql), "INSERT INTO tidings_outbox%s", cases[i].sql);
        w->rig->app(w, sql);
    }
    w->rig->app(w, "INSERT INTO tidings_outbox(id, type, body) VALUES ('t-1', '', 'x')");
    w->rig->app(w, "INSERT INTO tidings_outbox(id, type, body) VALUES ('good', 'a', 'x')");
    assert_int_equal(read_rows(w, &p, 100, &rows), count + 2);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].defect.data == NULL || !tdi_str_starts(rows[i].defect, cases[i].defect)) {
            print_error("%s: %s\n", cases[i].sql, rows[i].defect.data);
        }
        assert_non_null(rows[i].defect.data);
        assert_true(tdi_str_starts(rows[i].defect, cases[i].defect));
        assert_true(tdi_str_is_id(rows[i].message.id, TD_ID_BYTES_MAX));
        assert_str(rows[i].message.source, "shop");
        assert_true(rows[i].message.body.len > 0);
    }
    assert_non_null(rows[count].defect.data);
    assert_str(rows[count].message.id, "t-1");
    assert_null(rows[count + 1].defect.data);

    /* Every one of them can be parked, and shown again. */
    struct td_relay_dead dead[32];
    for (size_t i = 0; i <= count; i++) {
        dead[i] = (struct td_relay_dead){&rows[i].message, TD_DEAD_INVALID, rows[i].defect};
    }
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
    struct td_relay_settle settle = settle_up_to("r", own_lease(w, w->a, "r"), rows, count + 2);
    settle.dead = dead;
    settle.dead_count = count + 1;
    assert_ok(CALL(w->a, relay_settle, &settle, &w->err));
    struct td_parked_filter filter = {.code = TD_DEAD_INVALID};
    struct td_parked_row *parked = NULL;
    int64_t cursor = 0;
    size_t found = 0;
    assert_ok(CALL(w->b, parked_scan, &filter, &cursor, 100, &w->arena, &parked, &found, &w->err));
    assert_int_equal(found, count + 1);
}

static void test_rebase(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    struct td_audit_row *audit = NULL;
    size_t count = 0;
    assert_err(CALL(w->b, relay_rebase, LIT("r"), 0, &p, LIT("me"), &w->err), TD_ERR_NOT_FOUND);
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1'), ('a', '2')");
    assert_int_equal(read_rows(w, &p, 2, &rows), 2);
    int64_t fence = own_lease(w, w->a, "r");
    assert_err(CALL(w->b, relay_rebase, LIT("r"), 0, &rows[1].position, LIT("me"), &w->err),
               TD_ERR_OWNED);
    assert_ok(CALL(w->a, lease_release, LIT("r"), fence, &w->err));
    assert_ok(CALL(w->b, relay_rebase, LIT("r"), 0, &rows[1].position, LIT("me"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("r"), &w->arena, &p, &w->err));
    assert_int_equal(p.order, rows[1].position.order);
    p = nowhere();
    assert_ok(CALL(w->b, relay_rebase, LIT("r"), 0, &p, LIT("me"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("r"), &w->arena, &p, &w->err));
    assert_int_equal(p.data.len, 0);
    assert_ask("SELECT group_concat(action || ' ' || actor || ' ' || consumer) FROM tidings_audit",
               "rebase me r,rebase me r");
    assert_ok(CALL(w->a, audit_find, LIT("nothing"), &w->arena, &audit, &count, &w->err));
    assert_int_equal(count, 0);
}

/* A halted owner keeps its lease; who rebases names its fence and takes it away. */
static void test_rebase_of_a_halted_relay(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    struct td_lease lease;
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1')");
    assert_int_equal(read_rows(w, &p, 2, &rows), 1);
    int64_t fence = own_lease(w, w->a, "r");
    assert_err(CALL(w->b, relay_rebase, LIT("r"), fence - 1, &p, LIT("me"), &w->err), TD_ERR_OWNED);
    assert_ok(CALL(w->a, lease_renew, LIT("r"), fence, TD_SECOND_US, LIT("{}"), &w->err));
    assert_ok(CALL(w->b, relay_rebase, LIT("r"), fence, &p, LIT("me"), &w->err));
    assert_err(CALL(w->a, lease_renew, LIT("r"), fence, TD_SECOND_US, LIT("{}"), &w->err),
               TD_ERR_FENCED);
    struct td_relay_settle settle = settle_up_to("r", fence, rows, 1);
    assert_err(CALL(w->a, relay_settle, &settle, &w->err), TD_ERR_FENCED);
    /* It is free: for the same owner, and for another one although the first still lives. */
    assert_ok(CALL(w->a, lease_take, LIT("r"), TD_SECOND_US, &lease, &w->err));
    assert_int_equal(lease.fence, fence + 2);
    assert_ok(CALL(w->b, relay_rebase, LIT("r"), lease.fence, &p, LIT("me"), &w->err));
    assert_ok(CALL(w->b, lease_take, LIT("r"), TD_SECOND_US, &lease, &w->err));
    assert_int_equal(lease.fence, fence + 4);
}

static void test_purge_waits_for_every_relay(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    size_t removed = 99;
    const td_time_us keep = 3600 * TD_SECOND_US;
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body, created_at) VALUES "
                   "('a', '1', 1780000000000000), ('a', '2', 1780000000000000), "
                   "('a', '3', 1789999999000000), ('a', '4', 1780000000000000)");
    /* Nobody has declared anything: nothing is covered. */
    assert_ok(CALL(w->a, outbox_purge, keep, 10, &removed, &w->err));
    assert_int_equal(removed, 0);
    assert_ok(CALL(w->a, relay_declare, LIT("r1"), &w->err));
    assert_int_equal(read_rows(w, &p, 10, &rows), 4);
    struct td_relay_settle settle = settle_up_to("r1", own_lease(w, w->a, "r1"), rows, 1);
    assert_ok(CALL(w->a, relay_settle, &settle, &w->err));
    /* r2 is declared now and starts beside r1; then r1 goes on alone. */
    assert_ok(CALL(w->a, relay_declare, LIT("r2"), &w->err));
    settle.position = rows[2].position;
    settle.from_seq = rows[1].message.sequence;
    settle.to_seq = rows[2].message.sequence;
    assert_ok(CALL(w->a, relay_settle, &settle, &w->err));
    assert_ok(CALL(w->a, outbox_purge, keep, 10, &removed, &w->err));
    assert_int_equal(removed, 1);
    assert_ask("SELECT group_concat(body, '') FROM tidings_outbox", "234");
    /* Evidence of rows that are all gone goes with them, not the rest. */
    assert_ask("SELECT count(*) FROM tidings_published", "1");
    settle.relay = LIT("r2");
    settle.fence = own_lease(w, w->b, "r2");
    assert_ok(CALL(w->b, relay_settle, &settle, &w->err));
    /* The third is too young, the fourth not covered. */
    assert_ok(CALL(w->a, outbox_purge, keep, 10, &removed, &w->err));
    assert_int_equal(removed, 1);
    assert_ask("SELECT group_concat(body, '') FROM tidings_outbox", "34");
    w->now += 2 * keep;
    assert_ok(CALL(w->a, outbox_purge, keep, 10, &removed, &w->err));
    assert_int_equal(removed, 1);
    assert_ask("SELECT group_concat(body, '') FROM tidings_outbox", "4");
}

static void test_purge_in_small_batches(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    size_t removed = 0;
    for (int i = 0; i < 5; i++) {
        w->rig->app(w, "INSERT INTO tidings_outbox(type, body, created_at) "
                       "VALUES ('a', '1', 1780000000000000)");
    }
    assert_ok(CALL(w->a, relay_declare, LIT("r1"), &w->err));
    assert_int_equal(read_rows(w, &p, 10, &rows), 5);
    struct td_relay_settle settle = settle_up_to("r1", own_lease(w, w->a, "r1"), rows, 5);
    assert_ok(CALL(w->a, relay_settle, &settle, &w->err));
    assert_ok(CALL(w->a, outbox_purge, TD_SECOND_US, 3, &removed, &w->err));
    assert_int_equal(removed, 3);
    assert_ok(CALL(w->a, outbox_purge, TD_SECOND_US, 3, &removed, &w->err));
    assert_int_equal(removed, 2);
    /* The next number is still a new one. */
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1')");
    p = rows[4].position;
    assert_int_equal(read_rows(w, &p, 10, &rows), 1);
}

int main(void)
{
    static const struct store_rig *const rigs[] = {&store_rig_sqlite};
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        TEST(test_positions),
        TEST(test_settle_is_fenced),
        TEST(test_dead_rows),
        TEST(test_hostile_rows),
        TEST(test_rebase),
        TEST(test_rebase_of_a_halted_relay),
        TEST(test_purge_waits_for_every_relay),
        TEST(test_purge_in_small_batches),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
        world_use(rigs[i]);
        failed += cmocka_run_group_tests_name(rigs[i]->name, tests, NULL, NULL);
    }
    return failed;
}
