/*
 * Conformance of a store, the relay's side: reading in order, hostile rows, positions, settling,
 * purging, waking.
 */
#include "store_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct td_position nowhere(void)
{
    return (struct td_position){.len = 0};
}

static size_t read_rows(struct store_world *w, const struct td_position *after, size_t max,
                        struct td_outbox_row **ret)
{
    size_t count = 0;
    assert_ok(CALL(w->b, outbox_read, after, max, 1 << 20, &w->arena, ret, &count, &w->err));
    return count;
}

static int64_t own_lease(struct store_world *w, struct td_store *s, const char *name)
{
    struct td_lease lease;
    assert_ok(CALL(s, lease_take, tdi_str(name), 10 * TD_SECOND_US, &lease, &w->err));
    return lease.fence;
}

static struct td_relay_settle settle_up_to(const char *relay, int64_t fence,
                                           const struct td_outbox_row *rows, size_t count)
{
    return (struct td_relay_settle){
        .relay = tdi_str(relay),
        .fence = fence,
        .position = rows[count - 1].position,
        .from_seq = rows[0].message.sequence,
        .to_seq = rows[count - 1].message.sequence,
        .published = (int64_t)count,
        .evidence = LIT("confirmed"),
    };
}

static void test_minimal_row(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position from = nowhere();
    w->rig->app(w, "INSERT INTO tidings_outbox(type, partition_key, body) "
                   "VALUES ('order.paid', 'order-7', '{\"total\":1}')");
    assert_int_equal(read_rows(w, &from, 10, &rows), 1);
    assert_null(rows[0].defect.data);
    const struct td_message *m = &rows[0].message;
    assert_int_equal(m->id.len, 36);
    assert_int_equal(m->id.data[14], '7');
    assert_str(m->source, "shop");
    assert_str(m->type, "order.paid");
    assert_str(m->key, "order-7");
    assert_true(m->time > INT64_C(1500000000000000) && m->time < INT64_C(100000000000000000));
    assert_null(m->topic.data);
    assert_int_equal(m->body.len, 11);
    assert_memory_equal(m->body.data, "{\"total\":1}", 11);
    assert_int_equal(m->aggregate_version, TD_NUMBER_NONE);
    assert_int_equal(m->deliver_at, TD_TIME_NONE);
}

static void test_full_message_through_outbox_add(void **state)
{
    struct store_world *w = *state;
    struct td_header headers[] = {{LIT("x-one"), LIT("1")}, {LIT("x-two"), LIT("zwei \"2\"")}};
    struct td_message m = message_of("full-1", "order.paid", "k", "");
    struct td_outbox_row *rows = NULL;
    struct td_position from = nowhere();
    m.topic = LIT("orders");
    m.content_type = LIT("application/octet-stream");
    m.data_schema = LIT("urn:s:1");
    m.traceparent = LIT("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    m.correlation_id = LIT("c-1");
    m.causation_id = LIT("c-0");
    m.aggregate_type = LIT("order");
    m.aggregate_version = 42;
    m.tenant = LIT("t");
    m.expires_at = w->now + TD_SECOND_US;
    m.headers = headers;
    m.headers_count = 2;
    assert_ok(CALL(w->a, outbox_add, &m, 1, &w->err));
    assert_int_equal(read_rows(w, &from, 10, &rows), 1);
    const struct td_message *r = &rows[0].message;
    assert_null(rows[0].defect.data);
    assert_str(r->id, "full-1");
    assert_str(r->topic, "orders");
    assert_str(r->content_type, "application/octet-stream");
    assert_str(r->data_schema, "urn:s:1");
    assert_str(r->traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_str(r->correlation_id, "c-1");
    assert_str(r->causation_id, "c-0");
    assert_str(r->aggregate_type, "order");
    assert_int_equal(r->aggregate_version, 42);
    assert_str(r->tenant, "t");
    assert_int_equal(r->expires_at, w->now + TD_SECOND_US);
    assert_int_equal(r->time, m.time);
    assert_int_equal(r->headers_count, 2);
    assert_str(r->headers[1].name, "x-two");
    assert_str(r->headers[1].value, "zwei \"2\"");
    assert_non_null(r->body.data);
    assert_int_equal(r->body.len, 0);
}

static void test_outbox_add_is_all_or_nothing(void **state)
{
    struct store_world *w = *state;
    struct td_message m[2] = {message_of("same", "a", NULL, "1"), message_of("same", "a", NULL, "2")};
    assert_err(CALL(w->a, outbox_add, m, 2, &w->err), TD_ERR_CONFLICT);
    assert_int_equal(w->err.class_, TD_CLASS_PERMANENT);
    assert_ask("SELECT count(*) FROM tidings_outbox", "0");
}

static void check_body(struct store_world *w, const void *data, size_t len)
{
    struct td_message m = message_of("body-1", "a.b", NULL, NULL);
    struct td_outbox_row *rows = NULL;
    struct td_position from = nowhere();
    w->rig->app(w, "DELETE FROM tidings_outbox");
    m.body = (struct td_bytes){data, len};
    assert_ok(CALL(w->a, outbox_add, &m, 1, &w->err));
    assert_int_equal(read_rows(w, &from, 1, &rows), 1);
    assert_null(rows[0].defect.data);
    assert_int_equal(rows[0].message.body.len, len);
    if (data == NULL) {
        assert_null(rows[0].message.body.data);
    } else {
        assert_non_null(rows[0].message.body.data);
        assert_memory_equal(rows[0].message.body.data, data, len);
    }
}

static void test_body_bytes_unchanged(void **state)
{
    struct store_world *w = *state;
    static char big[1024 * 1024];
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = (char)tdi_random_u64(&w->random);
    }
    check_body(w, NULL, 0);
    check_body(w, "", 0);
    check_body(w, "\0", 1);
    check_body(w, "{\"a\":\0}", 7);
    check_body(w, "\xff\xfe\xc3", 3);
    check_body(w, "{\"\xc3\xa4\": 1.0e400}", 15);
    check_body(w, big, sizeof(big));
}

static void test_order_and_limits(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position from = nowhere();
    size_t count = 0;
    for (int i = 0; i < 5; i++) {
        w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '0123456789')");
    }
    assert_int_equal(read_rows(w, &from, 2, &rows), 2);
    assert_true(rows[0].message.sequence < rows[1].message.sequence);
    assert_true(rows[0].position.order < rows[1].position.order);
    from = rows[1].position;
    assert_int_equal(read_rows(w, &from, 10, &rows), 3);
    /* About 15 bytes: the second row passes the limit and is the last. */
    from = nowhere();
    assert_ok(CALL(w->a, outbox_read, &from, 10, 15, &w->arena, &rows, &count, &w->err));
    assert_int_equal(count, 2);
    assert_ok(CALL(w->a, outbox_read, &from, 10, 1, &w->arena, &rows, &count, &w->err));
    assert_int_equal(count, 1);
    from = rows[0].position;
    assert_int_equal(read_rows(w, &from, 10, &rows), 4);
}

static void test_uncommitted_is_not_seen(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position from = nowhere();
    w->rig->app(w, "BEGIN; INSERT INTO tidings_outbox(type, body) VALUES ('a', 'x')");
    assert_int_equal(read_rows(w, &from, 10, &rows), 0);
    w->rig->app(w, "COMMIT");
    assert_int_equal(read_rows(w, &from, 10, &rows), 1);
    assert_ok(CALL(w->b, outbox_durable, &w->err));
}

static void test_positions(void **state)
{
    struct store_world *w = *state;
    struct td_position p;
    struct td_outbox_row *rows = NULL;
    struct td_relay_stats stats;
    assert_err(CALL(w->a, relay_position, LIT("shop.main"), &p, &w->err), TD_ERR_NOT_FOUND);
    assert_ok(CALL(w->a, relay_stats, LIT("shop.main"), &stats, &w->err));
    assert_false(stats.declared);
    assert_ok(CALL(w->a, relay_declare, LIT("shop.main"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("shop.main"), &p, &w->err));
    assert_int_equal(p.len, 0);
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
    assert_ok(CALL(w->b, relay_position, LIT("shop.main"), &p, &w->err));
    assert_int_equal(p.order, rows[1].position.order);
    assert_int_equal(p.len, rows[1].position.len);
    assert_memory_equal(p.data, rows[1].position.data, p.len);
    assert_ok(CALL(w->a, relay_stats, LIT("shop.main"), &stats, &w->err));
    assert_true(stats.declared);
    assert_int_equal(stats.pending, 1);
    assert_int_equal(stats.published_total, 2);
    assert_int_equal(stats.oldest_pending_us, INT64_C(1780000000000003));

    /* Never back, and again is harmless. */
    assert_ok(CALL(w->a, relay_declare, LIT("shop.main"), &w->err));
    settle.position = rows[0].position;
    assert_err(CALL(w->a, relay_settle, &settle, &w->err), TD_ERR_CONFLICT);
    assert_ok(CALL(w->b, relay_position, LIT("shop.main"), &p, &w->err));
    assert_int_equal(p.order, rows[1].position.order);

    /* A new one starts where its slowest sibling is. */
    assert_ok(CALL(w->a, relay_declare, LIT("shop.other"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("shop.other"), &p, &w->err));
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
    assert_ok(CALL(w->a, relay_position, LIT("r"), &p, &w->err));
    assert_int_equal(p.order, 0);
}

static void test_dead_rows(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    struct td_inbox_state look;
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
    w->rig->app(w, "INSERT INTO tidings_outbox(id, type, partition_key, body) "
                   "VALUES ('i-1', 'stock.low', 'k', x'00ff')");
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
    assert_int_equal(parked[0].message.sequence, rows[0].message.sequence);
    assert_int_equal(parked[0].message.body.len, 2);
    assert_memory_equal(parked[0].message.body.data, "\x00\xff", 2);
    assert_false(parked[0].blocks_key);

    /* After a rebase it comes again: its row is known and stays. */
    assert_ok(CALL(w->a, lease_release, LIT("r"), settle.fence, &w->err));
    assert_ok(CALL(w->a, relay_rebase, LIT("r"), &p, LIT("me"), &w->err));
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

static void test_times_are_checked_at_insert(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("t", "a", NULL, "x");
    m.time = INT64_C(1780000000);
    assert_err(CALL(w->a, outbox_add, &m, 1, &w->err), TD_ERR_STATEMENT);
    assert_string_equal(w->err.sqlstate, "23514");
    assert_non_null(strstr(w->err.text, "microseconds"));
    m.time = INT64_C(1780000000000);
    assert_err(CALL(w->a, outbox_add, &m, 1, &w->err), TD_ERR_STATEMENT);
}

static void test_rebuilt_table(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    size_t count = 0;
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1'), ('a', '2')");
    assert_int_equal(read_rows(w, &p, 2, &rows), 2);
    p = rows[1].position;
    /* Purged rows are no reason to halt. */
    w->rig->app(w, "DELETE FROM tidings_outbox");
    assert_int_equal(read_rows(w, &p, 2, &rows), 0);
    w->rig->app(w, "DELETE FROM sqlite_sequence WHERE name = 'tidings_outbox'");
    assert_err(CALL(w->b, outbox_read, &p, 2, 100, &w->arena, &rows, &count, &w->err),
               TD_ERR_REBUILT);
    assert_int_equal(w->err.class_, TD_CLASS_FATAL);
    assert_non_null(strstr(w->err.text, "rebase"));
    /* A position of another database. */
    p.data[p.len - 1] = p.data[p.len - 1] == 'x' ? 'y' : 'x';
    assert_err(CALL(w->b, outbox_read, &p, 2, 100, &w->arena, &rows, &count, &w->err),
               TD_ERR_REBUILT);
}

static void test_rebase(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row *rows = NULL;
    struct td_position p = nowhere();
    struct td_audit_row *audit = NULL;
    size_t count = 0;
    assert_err(CALL(w->b, relay_rebase, LIT("r"), &p, LIT("me"), &w->err), TD_ERR_NOT_FOUND);
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1'), ('a', '2')");
    assert_int_equal(read_rows(w, &p, 2, &rows), 2);
    int64_t fence = own_lease(w, w->a, "r");
    assert_err(CALL(w->b, relay_rebase, LIT("r"), &rows[1].position, LIT("me"), &w->err),
               TD_ERR_OWNED);
    assert_ok(CALL(w->a, lease_release, LIT("r"), fence, &w->err));
    assert_ok(CALL(w->b, relay_rebase, LIT("r"), &rows[1].position, LIT("me"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("r"), &p, &w->err));
    assert_int_equal(p.order, rows[1].position.order);
    p = nowhere();
    assert_ok(CALL(w->b, relay_rebase, LIT("r"), &p, LIT("me"), &w->err));
    assert_ok(CALL(w->a, relay_position, LIT("r"), &p, &w->err));
    assert_int_equal(p.len, 0);
    assert_ask("SELECT group_concat(action || ' ' || actor || ' ' || consumer) FROM tidings_audit",
               "rebase me r,rebase me r");
    assert_ok(CALL(w->a, audit_find, LIT("nothing"), &w->arena, &audit, &count, &w->err));
    assert_int_equal(count, 0);
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

static void test_find(void **state)
{
    struct store_world *w = *state;
    struct td_outbox_row row;
    bool found = true;
    assert_ok(CALL(w->a, outbox_find, LIT("x-1"), &w->arena, &row, &found, &w->err));
    assert_false(found);
    w->rig->app(w, "INSERT INTO tidings_outbox(id, type, body) VALUES ('x-1', 'a', 'b')");
    assert_ok(CALL(w->a, outbox_find, LIT("x-1"), &w->arena, &row, &found, &w->err));
    assert_true(found);
    assert_str(row.message.type, "a");
}

static void *insert_later(void *arg)
{
    struct store_world *w = arg;
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1')");
    return NULL;
}

static td_time_us in_us(struct store_world *w, td_time_us us)
{
    return w->options.clock.mono(w->options.clock.ctx) + us;
}

static void test_wait_wakes(void **state)
{
    struct store_world *w = *state;
    bool woken = true;
    pthread_t thread;
    if ((w->rig->driver->caps & TD_STORE_WAKER) == 0) {
        skip();
    }
    /* Whatever was before, after some calls there is nothing more to wake for. */
    for (int i = 0; i < 100 && woken; i++) {
        assert_ok(CALL(w->b, wait, in_us(w, 1000), &woken, &w->err));
    }
    assert_false(woken);
    assert_int_equal(pthread_create(&thread, NULL, insert_later, w), 0);
    assert_ok(CALL(w->b, wait, in_us(w, 60 * TD_SECOND_US), &woken, &w->err));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(woken);
}

static void *interrupt_it(void *arg)
{
    struct td_store *s = arg;
    s->driver->interrupt(s);
    return NULL;
}

static void test_wait_is_interrupted(void **state)
{
    struct store_world *w = *state;
    bool woken = true;
    pthread_t thread;
    if (w->rig->driver->wait == NULL) {
        skip();
    }
    for (int i = 0; i < 100 && woken; i++) {
        assert_ok(CALL(w->b, wait, in_us(w, 1000), &woken, &w->err));
    }
    /* From another thread, and before the call. */
    assert_int_equal(pthread_create(&thread, NULL, interrupt_it, w->b), 0);
    assert_err(CALL(w->b, wait, in_us(w, 60 * TD_SECOND_US), &woken, &w->err),
               TD_ERR_INTERRUPTED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    w->b->driver->interrupt(w->b);
    assert_err(CALL(w->b, wait, in_us(w, 60 * TD_SECOND_US), &woken, &w->err),
               TD_ERR_INTERRUPTED);
    assert_ok(CALL(w->b, wait, in_us(w, 1000), &woken, &w->err));
    /* The session is as good as before. */
    assert_ok(CALL(w->b, relay_declare, LIT("r"), &w->err));
}

int main(void)
{
    static const struct store_rig *const rigs[] = {&store_rig_sqlite};
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        TEST(test_minimal_row),
        TEST(test_full_message_through_outbox_add),
        TEST(test_outbox_add_is_all_or_nothing),
        TEST(test_body_bytes_unchanged),
        TEST(test_order_and_limits),
        TEST(test_uncommitted_is_not_seen),
        TEST(test_positions),
        TEST(test_settle_is_fenced),
        TEST(test_dead_rows),
        TEST(test_hostile_rows),
        TEST(test_times_are_checked_at_insert),
        TEST(test_rebuilt_table),
        TEST(test_rebase),
        TEST(test_purge_waits_for_every_relay),
        TEST(test_purge_in_small_batches),
        TEST(test_find),
        TEST(test_wait_wakes),
        TEST(test_wait_is_interrupted),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
        world_use(rigs[i]);
        failed += cmocka_run_group_tests_name(rigs[i]->name, tests, NULL, NULL);
    }
    return failed;
}
