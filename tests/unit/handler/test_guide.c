/* The workers of docs/guide/workers.md do what the page says. */
#include "exec_bench.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "handler/registry.h"
#include "store/registry.h"

/* Write the n-th Python block of the page to a file. */
static const char *extract(struct bench *b, int n)
{
    const char *at = bench_read(b, GUIDE).data;
    for (int i = 0; i < n; i++) {
        at = strstr(at, "```python\n");
        assert_non_null(at);
        at += strlen("```python\n");
    }
    const char *end = strstr(at, "```\n");
    assert_non_null(end);
    const char *path = bench_path(b, "worker.py");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(at, 1, (size_t)(end - at), f), (size_t)(end - at));
    assert_int_equal(fclose(f), 0);
    return path;
}

static void begin(struct bench *b, int block, const char *argument)
{
    bench_init(b, NULL, NULL);
    b->command[1] = tdi_str(extract(b, block));
    b->command[2] = argument == NULL ? TD_STR_NONE : tdi_str(bench_path(b, argument));
    b->o.command_count = argument == NULL ? 2 : 3;
    bench_open(b);
}

static struct td_verdict deliver(struct bench *b, const struct td_message *m, int32_t attempt)
{
    struct td_error err = {.text = ""};
    struct td_run run = bench_run(b, m);
    run.attempt = attempt;
    assert_int_equal(b->h->driver->start(b->h, &run, &err), TD_OK);
    return bench_result(b).verdict;
}

static void whole_worker(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, 1, NULL);

    struct td_verdict v = bench_do(&b, "{\"order\":\"o-1\",\"total\":49.90}");
    assert_int_equal(v.kind, TD_VERDICT_OK);
    assert_int_equal(v.emit_count, 1);
    assert_text(&b, v.emit[0].type, "mail.sent");
    bench_await_log(&b, "sending a mail for m0 run 1");

    v = deliver(&b, bench_message(&b, (struct td_bytes){"\xff\xfe", 2}), 1);
    assert_int_equal(v.kind, TD_VERDICT_DEAD);
    assert_text(&b, v.reason, "2 bytes that are not JSON");

    assert_int_equal(deliver(&b, bench_message(&b, TD_BYTES_NONE), 1).kind, TD_VERDICT_DROP);

    v = bench_do(&b, "{}");
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_text(&b, v.reason, "KeyError('order')");

    bench_push(&b, 11 * TD_SECOND_US);
    bench_quiet(&b); /* a ping */
    assert_int_equal(bench_do(&b, "{\"order\":\"o-2\"}").kind, TD_VERDICT_OK);
    tdi_handler_close(b.h, bench_now(&b) + 20 * TD_SECOND_US);
    b.h = NULL;
    assert_int_equal(bench_logged(&b, "WARN"), 0);
    bench_end(&b);
}

/* ---- once ---- */

static struct td_store *make_store(struct bench *b, const char *path)
{
    struct td_store *store = NULL;
    const struct td_store_driver *driver = tdi_store_driver(TD_STR_LIT("sqlite"));
    struct td_error err = {.text = ""};
    static struct tdi_random random;
    tdi_random_seed(&random, 1);
    const struct td_store_options o = {
        .location = tdi_str(path),
        .service = TD_STR_LIT("shop"),
        .clock = b->clock,
        .random = &random,
        .create = true,
        .schema_any = true,
    };
    if (tdi_store_open(driver, &o, &store, &err) != TD_OK ||
        driver->migrate(store, &err) != TD_OK) {
        fail_msg("%s", err.text);
    }
    return store;
}

static void expect(sqlite3 *db, const char *sql, const char *expected)
{
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(s, 0), expected);
    sqlite3_finalize(s);
}

static void set_row(sqlite3 *db, const char *outcome, int attempts)
{
    char sql[200];
    snprintf(sql, sizeof(sql),
             "INSERT OR REPLACE INTO tidings_inbox(consumer, source, id, outcome, attempts)"
             " VALUES ('shop.mail', 'service:shop', 'm0', '%s', %d)",
             outcome, attempts);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static void effect_is_once(void **state)
{
    (void)state;
    static const char row[] = "SELECT outcome || ' ' || attempts FROM tidings_inbox";
    static const char points[] = "SELECT total(amount) || ' ' || count(*) FROM points";
    struct bench b;
    sqlite3 *db = NULL;
    begin(&b, 2, "shop.db");
    struct td_store *store = make_store(&b, b.command[2].data);
    assert_int_equal(sqlite3_open(b.command[2].data, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE points(order_id, amount CHECK (amount < 100))",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    const struct td_message *m = bench_json(&b, "{\"points\":5}");
    const struct td_message *bad = bench_json(&b, "{\"points\":100}"); /* of the same id */

    /* Fails: nothing of it stays, the row neither. */
    struct td_verdict v = deliver(&b, bad, 1);
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_non_null(strstr(bench_cstr(&b, v.reason), "CHECK constraint failed"));
    expect(db, "SELECT count(*) FROM tidings_inbox", "0");

    /* Parked by us, its second run is under way; what comes of the first one is out of date. */
    set_row(db, "retry", 2);
    assert_int_equal(deliver(&b, m, 1).kind, TD_VERDICT_OK);
    expect(db, points, "0.0 0");
    assert_int_equal(deliver(&b, bad, 2).kind, TD_VERDICT_RETRY);
    expect(db, row, "retry 2");
    assert_int_equal(deliver(&b, m, 2).kind, TD_VERDICT_OK);
    expect(db, points, "5.0 1");
    expect(db, row, "effect 2");

    /* Again, and as a later run: once is once. */
    assert_int_equal(deliver(&b, m, 2).kind, TD_VERDICT_OK);
    assert_int_equal(deliver(&b, m, 1).kind, TD_VERDICT_OK);
    assert_int_equal(deliver(&b, m, 3).kind, TD_VERDICT_OK);
    expect(db, points, "5.0 1");

    /* What a person gave up is not done. */
    static const char *const others[] = {"dead", "discarded", "dropped", "blocked"};
    for (size_t i = 0; i < 4; i++) {
        set_row(db, others[i], 2);
        assert_int_equal(deliver(&b, m, 2).kind, TD_VERDICT_OK);
        expect(db, points, "5.0 1");
    }

    /* A fresh one: the row that the settlement of an ok expects. */
    assert_int_equal(sqlite3_exec(db, "DELETE FROM tidings_inbox", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(deliver(&b, m, 1).kind, TD_VERDICT_OK);
    expect(db, points, "10.0 2");
    expect(db, row, "effect 1");
    sqlite3_close(db);
    tdi_store_close(store);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_worker),
        cmocka_unit_test(effect_is_once),
    };
    return cmocka_run_group_tests_name("guide", tests, NULL, NULL);
}
