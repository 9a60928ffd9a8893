#include "sql_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "handler/registry.h"
#include "store/registry.h"

static struct sql_bench *current; /* the spy has no place for a context */
static const struct td_store_driver *real;

static enum td_err spy_run(struct td_store *s, int handle, const struct td_value *values,
                           size_t rows, int64_t *ret_changed, size_t *ret_failed,
                           struct td_error *err)
{
    assert_true(current->calls < BENCH_CALLS_MAX);
    current->rows[current->calls++] = rows;
    if (current->fail_with != TD_OK) {
        enum td_err rc = current->fail_with;
        current->fail_with = TD_OK;
        return td_error_set(err, rc, "the store is out of order");
    }
    return real->statement_run(s, handle, values, rows, ret_changed, ret_failed, err);
}

void sql_bench_init(struct sql_bench *b, const char *sql)
{
    struct td_error err = {.text = ""};
    const char *tmp = getenv("TMPDIR");
    memset(b, 0, sizeof(*b));
    tdi_arena_init(&b->arena, 0);
    tdi_random_seed(&b->random, 1);
    snprintf(b->folder, sizeof(b->folder), "%s/tdXXXXXX",
             tmp != NULL && strlen(tmp) < 48 ? tmp : "/tmp");
    assert_non_null(mkdtemp(b->folder));
    snprintf(b->location, sizeof(b->location), "%s/shop.db", b->folder);
    const struct td_store_options o = {
        .location = tdi_str(b->location),
        .service = TD_STR_LIT("shop"),
        .clock = tdi_clock_system(),
        .random = &b->random,
        .create = true,
        .schema_any = true,
    };
    real = tdi_store_driver(TD_STR_LIT("sqlite"));
    assert_non_null(real);
    if (tdi_store_open(real, &o, &b->store, &err) != TD_OK ||
        real->migrate(b->store, &err) != TD_OK) {
        fail_msg("%s", err.text);
    }
    b->spy = *real;
    b->spy.statement_run = spy_run;
    b->store->driver = &b->spy;
    current = b;
    assert_int_equal(sqlite3_open(b->location, &b->app), SQLITE_OK);
    assert_int_equal(sqlite3_exec(b->app, sql, NULL, NULL, NULL), SQLITE_OK);
    b->o = (struct td_handler_options){
        .consumer = TD_STR_LIT("shop.points"),
        .steps = b->steps,
        .params = b->params,
        .classify = b->classify,
    };
}

void sql_bench_step(struct sql_bench *b, const char *run, const char *on)
{
    assert_true(b->o.steps_count < BENCH_MAX);
    b->steps[b->o.steps_count++] = (struct td_sql_step){.run = tdi_str(run), .on = tdi_str(on)};
}

void sql_bench_rows_0(struct sql_bench *b, enum td_verdict_kind kind)
{
    b->steps[b->o.steps_count - 1].rows_0_set = true;
    b->steps[b->o.steps_count - 1].rows_0 = kind;
}

void sql_bench_param(struct sql_bench *b, const char *name, const char *from)
{
    assert_true(b->o.params_count < BENCH_MAX);
    b->params[b->o.params_count++] = (struct td_param){tdi_str(name), tdi_str(from)};
}

void sql_bench_classify(struct sql_bench *b, const char *match, enum td_verdict_kind kind)
{
    assert_true(b->o.classify_count < BENCH_MAX);
    b->classify[b->o.classify_count++] = (struct td_classify){tdi_str(match), kind};
}

enum td_err sql_bench_try_open(struct sql_bench *b, struct td_error *err)
{
    return tdi_handler_open(tdi_handler_driver(TD_STR_LIT("sql")), &b->o, &b->h, err);
}

void sql_bench_open(struct sql_bench *b)
{
    struct td_error err = {.text = ""};
    if (sql_bench_try_open(b, &err) != TD_OK ||
        b->h->driver->prepare(b->h, b->store, &err) != TD_OK) {
        fail_msg("%s", err.text);
    }
    /* Everything it needs later is its own copy. */
    memset(b->steps, 0xff, sizeof(b->steps));
    memset(b->params, 0xff, sizeof(b->params));
    memset(b->classify, 0xff, sizeof(b->classify));
}

void sql_bench_end(struct sql_bench *b)
{
    char command[96];
    tdi_handler_close(b->h, 0);
    sqlite3_close(b->app);
    b->store->driver = real;
    tdi_store_close(b->store);
    tdi_arena_release(&b->arena);
    snprintf(command, sizeof(command), "rm -rf %s", b->folder);
    assert_int_equal(system(command), 0);
}

struct td_message sql_bench_message(const char *type, const char *body)
{
    return (struct td_message){
        .id = TD_STR_LIT("m1"),
        .source = TD_STR_LIT("service:shop"),
        .type = tdi_str(type),
        .time = TD_TIME_NONE,
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
        .body = {body, body != NULL ? strlen(body) : 0},
    };
}

enum td_err sql_bench_try(struct sql_bench *b, const struct td_message *messages, size_t count,
                          struct td_error *err)
{
    struct td_run runs[BENCH_CALLS_MAX];
    struct td_error why = {.text = ""};
    assert_true(count <= BENCH_CALLS_MAX);
    for (size_t i = 0; i < count; i++) {
        runs[i] = (struct td_run){
            .token = i,
            .message = &messages[i],
            .consumer = b->o.consumer,
            .attempt = 4,
        };
        b->verdicts[i] = (struct td_verdict){.kind = TD_VERDICT_DEAD, .reason = TD_STR_LIT("?")};
    }
    b->calls = 0;
    b->done = 0;
    assert_int_equal(real->begin(b->store, &why), TD_OK);
    enum td_err rc =
        b->h->driver->run(b->h, b->store, runs, count, &b->arena, b->verdicts, &b->done, err);
    bool good = rc == TD_OK && b->done == count;
    for (size_t i = 0; i < b->done; i++) {
        good = good && b->verdicts[i].kind == TD_VERDICT_OK;
    }
    if (real->finish(b->store, good, &why) != TD_OK) {
        fail_msg("%s", why.text);
    }
    return rc;
}

struct td_verdict sql_bench_run(struct sql_bench *b, const struct td_message *m)
{
    struct td_error err = {.text = ""};
    if (sql_bench_try(b, m, 1, &err) != TD_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(b->done, 1);
    return b->verdicts[0];
}

const char *sql_bench_ask(struct sql_bench *b, const char *sql)
{
    sqlite3_stmt *s = NULL;
    struct td_str text = TD_STR_LIT("(none)");
    if (sqlite3_prepare_v2(b->app, sql, -1, &s, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(b->app));
    }
    if (sqlite3_step(s) == SQLITE_ROW) {
        const char *value = (const char *)sqlite3_column_text(s, 0);
        text = tdi_arena_printf(&b->arena, "%s", value != NULL ? value : "NULL");
    }
    sqlite3_finalize(s);
    return text.data;
}

const char *sql_bench_cstr(struct sql_bench *b, struct td_str s)
{
    struct td_str copy;
    if (s.data == NULL) {
        return "(absent)";
    }
    assert_true(tdi_arena_str(&b->arena, s, &copy));
    return copy.data;
}
