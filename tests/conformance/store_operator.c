/* Conformance of a store: statements of handlers, and what an operator reads and does. */
#include "store_rig.h"

#include <string.h>

#define C "shop.points"
#define FULL(name) "shop." name

/* ---- statements ------------------------------------------------------------------------------ */

static int prepare(struct store_world *w, const char *sql, const struct td_str *names, size_t count)
{
    int handle = -1;
    struct td_statement statement = {.sql = tdi_str(sql), .names = names, .names_count = count};
    assert_ok(CALL(w->a, statement_prepare, &statement, &handle, &w->err));
    return handle;
}

static void refused(struct store_world *w, const char *sql, const char *sqlstate)
{
    int handle = -1;
    struct td_statement statement = {.sql = tdi_str(sql)};
    assert_err(CALL(w->a, statement_prepare, &statement, &handle, &w->err), TD_ERR_STATEMENT);
    if (strcmp(w->err.sqlstate, sqlstate) != 0) {
        print_error("%s: %s %s\n", sql, w->err.sqlstate, w->err.text);
    }
    assert_string_equal(w->err.sqlstate, sqlstate);
    assert_int_equal(w->err.class_, TD_CLASS_PERMANENT);
    assert_int_equal(handle, -1);
}

static struct td_value int_value(int64_t i)
{
    return (struct td_value){.type = TD_VALUE_INT, .i = i};
}

static struct td_value text_value(const char *text)
{
    return (struct td_value){.type = TD_VALUE_TEXT, .text = tdi_str(text)};
}

static void test_statement_rows(void **state)
{
    struct store_world *w = *state;
    const struct td_str names[] = {LIT("user"), LIT("amount"), LIT("unused")};
    int64_t changed[3] = {9, 9, 9};
    size_t failed = 99;
    w->rig->app(w, "CREATE TABLE points(user_id INTEGER, amount INTEGER)");
    int insert = prepare(w, "INSERT INTO points VALUES (:user, :amount);  -- one\n", names, 3);
    int update =
        prepare(w, "UPDATE points SET amount = amount + :amount WHERE user_id = :user", names, 3);
    int look = prepare(w, "SELECT 1 FROM points WHERE amount > :amount", names, 3);
    struct td_value rows[] = {int_value(1), int_value(10), int_value(0),
                              int_value(1), int_value(20), int_value(0),
                              int_value(7), int_value(30), int_value(0)};
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, statement_run, insert, rows, 3, changed, &failed, &w->err));
    assert_int_equal(changed[0], 1);
    assert_int_equal(changed[2], 1);
    assert_ok(CALL(w->a, statement_run, update, rows, 2, changed, &failed, &w->err));
    assert_int_equal(changed[0], 2);
    rows[0] = int_value(99);
    assert_ok(CALL(w->a, statement_run, update, rows, 1, changed, &failed, &w->err));
    assert_int_equal(changed[0], 0);
    assert_ok(CALL(w->a, statement_run, look, rows + 3, 1, changed, &failed, &w->err));
    assert_int_equal(changed[0], 3);
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_ask("SELECT group_concat(amount) FROM points", "40,50,30");
    assert_int_equal(failed, 99);
}

static void test_statement_values(void **state)
{
    struct store_world *w = *state;
    const struct td_str names[] = {LIT("v")};
    int64_t changed = 0;
    size_t failed = 0;
    w->rig->app(w, "CREATE TABLE v(v)");
    int insert = prepare(w, "INSERT INTO v VALUES (:v)", names, 1);
    struct td_value values[] = {
        {.type = TD_VALUE_NULL},
        {.type = TD_VALUE_INT, .i = INT64_MIN + 1},
        {.type = TD_VALUE_INT, .i = INT64_MIN},
        {.type = TD_VALUE_BOOL, .i = 1},
        {.type = TD_VALUE_DECIMAL, .text = LIT("123456789012345678901234567890.10")},
        {.type = TD_VALUE_TEXT, .text = LIT("")},
        {.type = TD_VALUE_TEXT, .text = LIT("Gr\xc3\xbc\xc3\x9f")},
        {.type = TD_VALUE_BLOB, .blob = {"\x00\x01", 2}},
        {.type = TD_VALUE_BLOB, .blob = {"", 0}},
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        assert_ok(CALL(w->a, begin, &w->err));
        assert_ok(CALL(w->a, statement_run, insert, &values[i], 1, &changed, &failed, &w->err));
        assert_ok(CALL(w->a, finish, true, &w->err));
    }
    assert_ask("SELECT group_concat(quote(v), ' ') FROM v",
               "NULL -9223372036854775807 -9223372036854775808 1 "
               "'123456789012345678901234567890.10' '' 'Gr\xc3\xbc\xc3\x9f' X'0001' X''");
}

static void test_statement_refused(void **state)
{
    struct store_world *w = *state;
    w->rig->app(w, "CREATE TABLE t(a)");
    refused(w, "", "42000");
    refused(w, " -- nothing\n", "42000");
    refused(w, "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", "42000");
    refused(w, "INSERT INTO", "42000");
    refused(w, "INSERT INTO nowhere VALUES (1)", "42P01");
    refused(w, "INSERT INTO t VALUES (:missing)", "42P02");
    refused(w, "INSERT INTO t VALUES (?)", "42P02");
    refused(w, "BEGIN", "42501");
    refused(w, "COMMIT", "42501");
    refused(w, "ROLLBACK", "42501");
    refused(w, "SAVEPOINT a", "42501");
    refused(w, "RELEASE a", "42501");
    refused(w, "ATTACH 'x' AS y", "42501");
    refused(w, "DETACH y", "42501");
    refused(w, "PRAGMA synchronous=OFF", "42501");
    refused(w, "VACUUM", "42501");
    refused(w, "/* c */ -- d\n vacuum into 'x'", "42501");
    refused(w, "INSERT INTO t VALUES (1); COMMIT", "42000");
    /* The guard is off again for the session's own statements. */
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, savepoint, &w->err));
    assert_ok(CALL(w->a, savepoint_end, true, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
}

static void run_fails(struct store_world *w, const char *sql, const char *sqlstate)
{
    int64_t changed = 0;
    size_t failed = 99;
    int handle = prepare(w, sql, NULL, 0);
    struct td_claim claim = {.ref = {LIT("shop"), tdi_str(sql)}, .published_at = TD_TIME_NONE};
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_ok(CALL(w->a, savepoint, &w->err));
    assert_err(CALL(w->a, statement_run, handle, NULL, 1, &changed, &failed, &w->err),
               TD_ERR_STATEMENT);
    if (strcmp(w->err.sqlstate, sqlstate) != 0) {
        print_error("%s: %s %s\n", sql, w->err.sqlstate, w->err.text);
    }
    assert_string_equal(w->err.sqlstate, sqlstate);
    assert_int_equal(failed, 0);
    /* Only the statement is undone: the transaction goes on. */
    assert_ok(CALL(w->a, savepoint_end, false, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
}

static void test_statement_sqlstates(void **state)
{
    struct store_world *w = *state;
    w->rig->app(w, "CREATE TABLE p(id INTEGER PRIMARY KEY, u TEXT UNIQUE, n TEXT NOT NULL, "
                   "c INTEGER CHECK (c > 0)); INSERT INTO p VALUES (1, 'u', 'n', 1);"
                   "CREATE TABLE f(p INTEGER REFERENCES p(id));"
                   "CREATE TRIGGER t BEFORE DELETE ON p BEGIN SELECT RAISE(ABORT, 'kept'); END");
    run_fails(w, "INSERT INTO p VALUES (1, 'v', 'n', 1)", "23505");
    run_fails(w, "INSERT INTO p VALUES (2, 'u', 'n', 1)", "23505");
    run_fails(w, "INSERT INTO p VALUES (3, 'w', NULL, 1)", "23502");
    run_fails(w, "INSERT INTO p VALUES (4, 'x', 'n', 0)", "23514");
    run_fails(w, "INSERT INTO p VALUES ('text', 'x', 'n', 1)", "22000");
    run_fails(w, "DELETE FROM p", "23000");
    run_fails(w, "SELECT json('{')", "42000");
    assert_ask("SELECT count(*) FROM tidings_inbox", "7");
    assert_ask("SELECT count(*) FROM p", "1");
}

static void test_statement_stops_at_the_failing_row(void **state)
{
    struct store_world *w = *state;
    const struct td_str names[] = {LIT("v")};
    struct td_value values[] = {text_value("a"), text_value("b"), text_value("a"), text_value("c")};
    int64_t changed[4] = {0};
    size_t failed = 99;
    w->rig->app(w, "CREATE TABLE v(v TEXT UNIQUE)");
    int insert = prepare(w, "INSERT INTO v VALUES (:v)", names, 1);
    assert_ok(CALL(w->a, begin, &w->err));
    assert_err(CALL(w->a, statement_run, insert, values, 4, changed, &failed, &w->err),
               TD_ERR_STATEMENT);
    assert_int_equal(failed, 2);
    assert_int_equal(changed[1], 1);
    assert_int_equal(changed[3], 0);
    assert_ok(CALL(w->a, finish, false, &w->err));
    assert_ask("SELECT count(*) FROM v", "0");
    assert_err(CALL(w->a, statement_run, insert, values, 1, changed, &failed, &w->err),
               TD_ERR_INTERNAL);
}

/* A statement that ends the transaction by its own means must not let the rest run outside of it. */
static void test_statement_that_rolls_back(void **state)
{
    struct store_world *w = *state;
    int64_t changed = 0;
    size_t failed = 0;
    struct td_claim claim = {.ref = {LIT("shop"), LIT("m")}, .published_at = TD_TIME_NONE};
    w->rig->app(w, "CREATE TABLE v(v TEXT UNIQUE); INSERT INTO v VALUES ('a')");
    int insert = prepare(w, "INSERT OR ROLLBACK INTO v VALUES ('a')", NULL, 0);
    assert_ok(CALL(w->a, begin, &w->err));
    assert_err(CALL(w->a, statement_run, insert, NULL, 1, &changed, &failed, &w->err),
               TD_ERR_STATEMENT);
    assert_err(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err), TD_ERR_UNAVAILABLE);
    assert_err(CALL(w->a, finish, true, &w->err), TD_ERR_UNAVAILABLE);
    assert_int_equal(w->err.class_, TD_CLASS_RETRY);
    assert_ask("SELECT count(*) FROM tidings_inbox", "0");
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
}

static void test_statement_without_end(void **state)
{
    struct store_world *w = *state;
    int64_t changed = 0;
    size_t failed = 99;
    int handle = prepare(w,
                         "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                         "SELECT count(*) FROM n",
                         NULL, 0);
    assert_ok(CALL(w->a, begin, &w->err));
    assert_err(CALL(w->a, statement_run, handle, NULL, 1, &changed, &failed, &w->err),
               TD_ERR_TIMEOUT);
    assert_int_equal(w->err.class_, TD_CLASS_RETRY);
    assert_string_equal(w->err.sqlstate, "57014");
    assert_int_equal(failed, 0);
    assert_ok(CALL(w->a, finish, false, &w->err));
    assert_ok(CALL(w->a, relay_declare, LIT("r"), &w->err));
}

/* ---- operator -------------------------------------------------------------------------------- */

static struct td_parked_row *scan(struct store_world *w, struct td_parked_filter filter,
                                  size_t *ret_count)
{
    struct td_parked_row *rows = NULL;
    int64_t cursor = 0;
    assert_ok(CALL(w->b, parked_scan, &filter, &cursor, 100, &w->arena, &rows, ret_count, &w->err));
    return rows;
}

static struct td_parked_change change_of(enum td_parked_change_kind kind, const char *id)
{
    return (struct td_parked_change){
        .kind = kind,
        .consumer = LIT(C),
        .ref = {LIT("shop"), tdi_str(id)},
        .attempts_more = 2,
        .reason = LIT("known bug"),
        .actor = LIT("me"),
    };
}

static bool apply(struct store_world *w, struct td_parked_change *change)
{
    assert_ok(CALL(w->b, parked_change, change, &w->err));
    return change->changed;
}

static void test_scan_filters(void **state)
{
    struct store_world *w = *state;
    size_t count = 0;
    struct td_message a = message_of("0192f1c7-1a00", "order.paid", "k", "{\"a\":1}");
    struct td_message b = message_of("0192f1c7-1b00", "order.paid", NULL, "{}");
    struct td_message c = message_of("0192f1c7-1", "stock.low", NULL, "{}");
    struct td_settle item;
    (void)deliver(w, w->a, C, &a, TD_OUTCOME_DEAD, 3);
    (void)deliver(w, w->a, FULL("mail"), &b, TD_OUTCOME_DEAD, 3);
    (void)deliver(w, w->a, FULL("mail"), &a, TD_OUTCOME_RETRY, 3);
    item = settle_of(&c, TD_OUTCOME_DEAD);
    item.claimed = false;
    item.attempts = 0;
    item.code = TD_DEAD_STALE;
    settle_alone(w, w->a, C, &item);

    struct td_parked_row *rows = scan(w, (struct td_parked_filter){.any_outcome = false}, &count);
    assert_int_equal(count, 3);
    assert_true(rows[0].arrival < rows[1].arrival && rows[1].arrival < rows[2].arrival);
    assert_null(rows[0].message.body.data);
    assert_str(rows[0].message.key, "k");
    rows = scan(w, (struct td_parked_filter){.any_outcome = true, .with_body = true}, &count);
    assert_int_equal(count, 4);
    assert_int_equal(rows[0].message.body.len, 7);
    (void)scan(w, (struct td_parked_filter){.consumer = LIT(C)}, &count);
    assert_int_equal(count, 2);
    (void)scan(w, (struct td_parked_filter){.consumer = LIT(C), .skip_stale = true}, &count);
    assert_int_equal(count, 1);
    (void)scan(w, (struct td_parked_filter){.code = TD_DEAD_STALE}, &count);
    assert_int_equal(count, 1);
    (void)scan(w, (struct td_parked_filter){.type = LIT("stock.low")}, &count);
    assert_int_equal(count, 1);
    /* Exact wins over prefix; a short one must be exact. */
    rows = scan(w, (struct td_parked_filter){.id = LIT("0192f1c7-1")}, &count);
    assert_int_equal(count, 1);
    assert_str(rows[0].message.id, "0192f1c7-1");
    (void)scan(w, (struct td_parked_filter){.id = LIT("0192f1c7-")}, &count);
    assert_int_equal(count, 3);
    (void)scan(w, (struct td_parked_filter){.id = LIT("0192f1c")}, &count);
    assert_int_equal(count, 0);
    (void)scan(w, (struct td_parked_filter){.id = LIT("0192f1c7-1a"), .any_outcome = true}, &count);
    assert_int_equal(count, 2);
}

static void test_scan_in_pages(void **state)
{
    struct store_world *w = *state;
    const char *ids[] = {"a", "b", "c", "d", "e"};
    struct td_parked_filter filter = {.any_outcome = false};
    struct td_parked_row *rows = NULL;
    int64_t cursor = 0;
    size_t count = 0;
    size_t seen = 0;
    for (size_t i = 0; i < 5; i++) {
        struct td_message m = message_of(ids[i], "t", NULL, "{}");
        (void)deliver(w, w->a, C, &m, TD_OUTCOME_DEAD, 3);
    }
    do {
        assert_ok(CALL(w->b, parked_scan, &filter, &cursor, 2, &w->arena, &rows, &count, &w->err));
        for (size_t i = 0; i < count; i++) {
            assert_str(rows[i].message.id, ids[seen]);
            seen++;
        }
    } while (count == 2);
    assert_int_equal(seen, 5);
}

static void test_replay(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", "k", "{\"v\":1}");
    struct td_parked_due ask = {.consumer = LIT(C), .max = 5, .lease_us = TD_SECOND_US};
    struct td_parked_batch batch;
    size_t count = 0;
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_DEAD, 1);
    struct td_parked_change change = change_of(TD_PARKED_REPLAY, "m");
    change.due_after_us = 5 * TD_SECOND_US;
    assert_true(apply(w, &change));
    /* While it is replayed it is not dead; a second replay finds it so. */
    assert_ask("SELECT outcome FROM tidings_inbox", "retry");
    (void)scan(w, (struct td_parked_filter){.any_outcome = false}, &count);
    assert_int_equal(count, 0);
    assert_false(apply(w, &change));
    assert_ok(CALL(w->a, parked_due, LIT(""), &ask, &w->arena, &batch, &w->err));
    assert_int_equal(batch.count, 0);
    w->now += 5 * TD_SECOND_US;
    assert_ok(CALL(w->a, parked_due, LIT(""), &ask, &w->arena, &batch, &w->err));
    assert_int_equal(batch.count, 1);
    assert_int_equal(batch.rows[0].attempts, 2);
    assert_int_equal(batch.rows[0].attempt_limit, 3);
    assert_non_null(strstr(batch.rows[0].history.data, "\"replay\""));
    assert_int_equal(batch.rows[0].message.body.len, 7);
    /* It comes back dead: attempts have grown, the limit has not shrunk. */
    struct td_settle item = settle_of(&m, TD_OUTCOME_DEAD);
    item.claimed = false;
    item.expected = TD_OUTCOME_RETRY;
    item.expected_attempts = 2;
    item.attempts = 2;
    item.attempt_limit = 1;
    item.code = TD_DEAD_EXHAUSTED;
    settle_alone(w, w->a, C, &item);
    assert_true(item.settled);
    assert_ask("SELECT attempts || '/' || attempt_limit || code FROM tidings_parked",
               "2/3exhausted");
    assert_ask("SELECT group_concat(action || actor || id) FROM tidings_audit", "replaymem");
}

static void test_discard(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", "k", "{\"v\":1}");
    struct td_message n = message_of("n", "t", "k", "{}");
    struct td_message o = message_of("o", "t", "k", "{}");
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_DEAD, 1);
    (void)deliver(w, w->a, C, &n, TD_OUTCOME_BLOCKED, 9);
    (void)deliver(w, w->a, C, &o, TD_OUTCOME_BLOCKED, 9);
    struct td_parked_change change = change_of(TD_PARKED_DISCARD, "m");
    change.reason = LIT("");
    assert_err(CALL(w->b, parked_change, &change, &w->err), TD_ERR_USAGE);
    /* One in the middle frees nobody: the head still holds the key. */
    change = change_of(TD_PARKED_DISCARD, "n");
    assert_true(apply(w, &change));
    assert_ask("SELECT group_concat(outcome) FROM tidings_inbox", "dead,discarded,blocked");
    change = change_of(TD_PARKED_DISCARD, "m");
    assert_true(apply(w, &change));
    assert_false(apply(w, &change));
    assert_ask("SELECT group_concat(outcome) FROM tidings_inbox", "discarded,discarded,retry");
    assert_ask("SELECT group_concat(outcome) FROM tidings_parked", "discarded,discarded,retry");
    /* The body is kept, with the story. */
    assert_ask("SELECT body FROM tidings_parked WHERE id = 'm'", "{\"v\":1}");
    assert_ask("SELECT json_extract(history, '$[1].reason') FROM tidings_parked WHERE id = 'm'",
               "known bug");
    struct td_audit_row *audit = NULL;
    size_t count = 0;
    assert_ok(CALL(w->a, audit_find, LIT("m"), &w->arena, &audit, &count, &w->err));
    assert_int_equal(count, 1);
    assert_str(audit[0].action, "discard");
    assert_str(audit[0].actor, "me");
    assert_str(audit[0].consumer, C);
    assert_str(audit[0].ref.source, "shop");
    assert_int_equal(audit[0].at, w->now);
    assert_non_null(strstr(audit[0].detail.data, "known bug"));
    /* What comes late finds it discarded. */
    struct td_claim claim = {.ref = {m.source, m.id}, .published_at = TD_TIME_NONE};
    assert_ok(CALL(w->a, begin, &w->err));
    assert_ok(CALL(w->a, inbox_claim, LIT(C), LIT(""), 0, &claim, 1, &w->err));
    assert_ok(CALL(w->a, finish, true, &w->err));
    assert_int_equal(claim.former.outcome, TD_OUTCOME_DISCARDED);
}

/* Discarded while a worker ran it: its verdict meets another outcome. */
static void test_discard_while_it_runs(void **state)
{
    struct store_world *w = *state;
    struct td_message m = message_of("m", "t", NULL, "{}");
    struct td_parked_due ask = {.consumer = LIT(C), .max = 5, .lease_us = TD_SECOND_US};
    struct td_parked_batch batch;
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_RETRY, 5);
    assert_ok(CALL(w->a, parked_due, LIT(""), &ask, &w->arena, &batch, &w->err));
    assert_int_equal(batch.count, 1);
    struct td_parked_change change = change_of(TD_PARKED_DISCARD, "m");
    assert_true(apply(w, &change));
    struct td_settle item = settle_of(&m, TD_OUTCOME_EFFECT);
    item.claimed = false;
    item.expected = TD_OUTCOME_RETRY;
    item.expected_attempts = 2;
    item.attempts = 2;
    settle_alone(w, w->a, C, &item);
    assert_false(item.settled);
    assert_int_equal(item.found.outcome, TD_OUTCOME_DISCARDED);
}

static void test_edit(void **state)
{
    struct store_world *w = *state;
    struct td_header headers[] = {{LIT("x-fixed"), LIT("yes")}};
    struct td_message m = message_of("m", "t", "k", "{\"v\":1}");
    size_t count = 0;
    (void)deliver(w, w->a, C, &m, TD_OUTCOME_DEAD, 1);
    struct td_parked_change change = change_of(TD_PARKED_EDIT, "m");
    change.set_body = true;
    change.body = (struct td_bytes){"\xff\x00", 2};
    change.revision = 99;
    assert_false(apply(w, &change));
    struct td_parked_row *rows = scan(w, (struct td_parked_filter){.with_body = true}, &count);
    change.revision = rows[0].revision;
    assert_true(apply(w, &change));
    assert_false(apply(w, &change)); /* the revision has moved on */
    rows = scan(w, (struct td_parked_filter){.with_body = true}, &count);
    assert_int_equal(rows[0].outcome, TD_OUTCOME_DEAD);
    assert_int_equal(rows[0].message.body.len, 2);
    assert_memory_equal(rows[0].message.body.data, "\xff\x00", 2);
    /* The first original stays, whatever comes after. */
    change = change_of(TD_PARKED_EDIT, "m");
    change.set_body = true;
    change.body = TD_BYTES_NONE;
    change.set_headers = true;
    change.headers = headers;
    change.headers_count = 1;
    assert_true(apply(w, &change));
    rows = scan(w, (struct td_parked_filter){.with_body = true}, &count);
    assert_null(rows[0].message.body.data);
    assert_int_equal(rows[0].message.headers_count, 1);
    assert_str(rows[0].message.headers[0].value, "yes");
    assert_str(rows[0].message.type, "t");
    assert_str(rows[0].message.key, "k");
    assert_ask("SELECT original_body FROM tidings_parked", "{\"v\":1}");
    /* Only dead ones. */
    change = change_of(TD_PARKED_REPLAY, "m");
    assert_true(apply(w, &change));
    change = change_of(TD_PARKED_EDIT, "m");
    change.set_body = true;
    assert_false(apply(w, &change));
    assert_ask("SELECT group_concat(action) FROM tidings_audit", "edit,edit,replay");
    change = change_of(TD_PARKED_REPLAY, "unknown");
    assert_false(apply(w, &change));
}

int main(void)
{
    static const struct store_rig *const rigs[] = {&store_rig_sqlite};
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        TEST(test_statement_rows),
        TEST(test_statement_values),
        TEST(test_statement_refused),
        TEST(test_statement_sqlstates),
        TEST(test_statement_stops_at_the_failing_row),
        TEST(test_statement_that_rolls_back),
        TEST(test_statement_without_end),
        TEST(test_scan_filters),
        TEST(test_scan_in_pages),
        TEST(test_replay),
        TEST(test_discard),
        TEST(test_discard_while_it_runs),
        TEST(test_edit),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
        world_use(rigs[i]);
        failed += cmocka_run_group_tests_name(rigs[i]->name, tests, NULL, NULL);
    }
    return failed;
}
