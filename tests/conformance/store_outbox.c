/* Conformance of a store: what is written to the outbox is what is read, in order; the waker. */
#include "store_rig.h"

#include <pthread.h>
#include <string.h>

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
    struct td_message m[2] = {message_of("same", "a", NULL, "1"),
                              message_of("same", "a", NULL, "2")};
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
    assert_int_equal(w->err.class_, TD_CLASS_PERMANENT);
    assert_non_null(strstr(w->err.text, "rebase"));
    /* A position of another database. */
    char other[64];
    assert_in_range(p.data.len, 1, sizeof(other));
    memcpy(other, p.data.data, p.data.len);
    other[p.data.len - 1] = other[p.data.len - 1] == 'x' ? 'y' : 'x';
    p.data.data = other;
    assert_err(CALL(w->b, outbox_read, &p, 2, 100, &w->arena, &rows, &count, &w->err),
               TD_ERR_REBUILT);
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

/* What was committed before anybody watched must not be slept over. */
static void test_first_wait_does_not_sleep(void **state)
{
    struct store_world *w = *state;
    bool woken = false;
    if ((w->rig->driver->caps & TD_STORE_WAKER) == 0) {
        skip();
    }
    w->rig->app(w, "INSERT INTO tidings_outbox(type, body) VALUES ('a', '1')");
    assert_ok(CALL(w->b, wait, in_us(w, 20 * TD_SECOND_US), &woken, &w->err));
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
    assert_err(CALL(w->b, wait, in_us(w, 60 * TD_SECOND_US), &woken, &w->err), TD_ERR_INTERRUPTED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    w->b->driver->interrupt(w->b);
    assert_err(CALL(w->b, wait, in_us(w, 60 * TD_SECOND_US), &woken, &w->err), TD_ERR_INTERRUPTED);
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
        TEST(test_times_are_checked_at_insert),
        TEST(test_rebuilt_table),
        TEST(test_find),
        TEST(test_wait_wakes),
        TEST(test_first_wait_does_not_sleep),
        TEST(test_wait_is_interrupted),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
        world_use(rigs[i]);
        failed += cmocka_run_group_tests_name(rigs[i]->name, tests, NULL, NULL);
    }
    return failed;
}
