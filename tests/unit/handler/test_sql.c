/* The sql handler: which statements run, together or alone, and what their results mean. */
#include "sql_bench.h"

#include <string.h>

#include "base/str.h"
#include "handler/sql/classify.h"

static const char tables[] = "CREATE TABLE t(k UNIQUE, n CHECK (n < 100));"
                             "CREATE TABLE log(text)";

/* :k from /k, :n from /n. */
static void begin(struct sql_bench *b)
{
    sql_bench_init(b, tables);
    sql_bench_param(b, "k", "/k");
    sql_bench_param(b, "n", "/n");
}

static const char *count(struct sql_bench *b)
{
    return sql_bench_ask(b, "SELECT count(*) FROM t");
}

static const char *reason(struct sql_bench *b, size_t i)
{
    return sql_bench_cstr(b, b->verdicts[i].reason);
}

static void try_all(struct sql_bench *b, const struct td_message *messages, size_t n)
{
    struct td_error err = {.text = ""};
    if (sql_bench_try(b, messages, n, &err) != TD_OK) {
        fail_msg("%s", err.text);
    }
}

/* ---- rows ---- */

static void rows_0(void **state)
{
    (void)state;
    static const enum td_verdict_kind kinds[] = {TD_VERDICT_OK, TD_VERDICT_RETRY, TD_VERDICT_DEAD,
                                                 TD_VERDICT_DROP};
    for (size_t i = 0; i < 5; i++) {
        struct sql_bench b;
        begin(&b);
        sql_bench_step(&b, "UPDATE t SET n = :n WHERE k = :k", NULL);
        if (i < 4) {
            sql_bench_rows_0(&b, kinds[i]);
        }
        sql_bench_open(&b);
        struct td_message m = sql_bench_message("a", "{\"k\":1,\"n\":2}");
        struct td_verdict v = sql_bench_run(&b, &m);
        assert_int_equal(v.kind, i < 4 ? kinds[i] : TD_VERDICT_OK);
        assert_int_equal(v.code, v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE);
        assert_false(v.broken);
        if (v.kind != TD_VERDICT_OK) {
            assert_string_equal(reason(&b, 0), "statement 1 changed no row");
            assert_string_equal(sql_bench_cstr(&b, v.error_type), "rows");
        }
        assert_int_equal(sqlite3_exec(b.app, "INSERT INTO t VALUES (1, 1)", NULL, NULL, NULL),
                         SQLITE_OK);
        assert_int_equal(sql_bench_run(&b, &m).kind, TD_VERDICT_OK);
        assert_string_equal(sql_bench_ask(&b, "SELECT n FROM t"), "2");
        sql_bench_end(&b);
    }
}

static void rows_0_in_a_batch(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "UPDATE t SET n = :n WHERE k = :k", NULL);
    sql_bench_rows_0(&b, TD_VERDICT_RETRY);
    sql_bench_open(&b);
    assert_int_equal(sqlite3_exec(b.app, "INSERT INTO t VALUES (1, 1), (3, 3)", NULL, NULL, NULL),
                     SQLITE_OK);
    const struct td_message m[] = {sql_bench_message("a", "{\"k\":1,\"n\":5}"),
                                   sql_bench_message("a", "{\"k\":2,\"n\":5}"),
                                   sql_bench_message("a", "{\"k\":3,\"n\":5}")};
    try_all(&b, m, 3);
    assert_int_equal(b.done, 2);
    assert_int_equal(b.verdicts[0].kind, TD_VERDICT_OK);
    assert_int_equal(b.verdicts[1].kind, TD_VERDICT_RETRY);
    assert_string_equal(sql_bench_ask(&b, "SELECT sum(n) FROM t"), "4"); /* rolled back */
    sql_bench_end(&b);
}

/* ---- several statements ---- */

static void by_type(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO log(text) VALUES ('any ' || :k)", NULL);
    sql_bench_step(&b, "INSERT INTO log(text) VALUES ('paid ' || :k)", "order.paid");
    sql_bench_step(&b, "INSERT INTO log(text) VALUES ('order ' || :k)", "order.*");
    sql_bench_step(&b, "INSERT INTO log(text) VALUES ('deep ' || :k)", "order.#.deep");
    sql_bench_open(&b);
    const struct td_message m[] = {sql_bench_message("order.paid", "{\"k\":1}"),
                                   sql_bench_message("user.new", "{\"k\":2}"),
                                   sql_bench_message("order.sent", "{\"k\":3}"),
                                   sql_bench_message("order.a.deep", "{\"k\":4}")};
    try_all(&b, m, 4);
    assert_int_equal(b.done, 4);
    assert_string_equal(sql_bench_ask(&b, "SELECT group_concat(text) FROM log"),
                        "any 1,paid 1,order 1,any 2,any 3,order 3,any 4,deep 4");
    sql_bench_end(&b);
}

/* Nothing is to be done for this type, and that is done. */
static void no_statement_for_the_type(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO log(text) VALUES (:k)", "order.paid");
    sql_bench_open(&b);
    struct td_message m = sql_bench_message("user.new", "no JSON");
    assert_int_equal(sql_bench_run(&b, &m).kind, TD_VERDICT_OK);
    assert_int_equal(b.calls, 0);
    sql_bench_end(&b);
}

static void later_statement_fails(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO log(text) VALUES (:k)", NULL);
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", NULL);
    sql_bench_step(&b, "INSERT INTO log(text) VALUES ('after')", NULL);
    sql_bench_open(&b);
    const struct td_message m[] = {sql_bench_message("a", "{\"k\":1,\"n\":1}"),
                                   sql_bench_message("a", "{\"k\":2,\"n\":100}"),
                                   sql_bench_message("a", "{\"k\":3,\"n\":1}")};
    try_all(&b, m, 3);
    assert_int_equal(b.done, 2);
    assert_int_equal(b.calls, 5);
    assert_int_equal(b.verdicts[1].kind, TD_VERDICT_DEAD);
    assert_int_equal(b.verdicts[1].code, TD_DEAD_REJECTED);
    assert_string_equal(sql_bench_cstr(&b, b.verdicts[1].error_type), "23514");
    assert_non_null(strstr(reason(&b, 1), "CHECK constraint failed"));
    sql_bench_end(&b);
}

/* A verdict of drop ends the batch too: its first statement has run and must be undone. */
static void drop_ends_a_batch(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO log(text) VALUES (:k)", NULL);
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", NULL);
    sql_bench_classify(&b, "23505", TD_VERDICT_DROP);
    sql_bench_open(&b);
    const struct td_message m[] = {sql_bench_message("a", "{\"k\":1,\"n\":1}"),
                                   sql_bench_message("a", "{\"k\":1,\"n\":1}"),
                                   sql_bench_message("a", "{\"k\":3,\"n\":1}")};
    try_all(&b, m, 3);
    assert_int_equal(b.done, 2);
    assert_int_equal(b.verdicts[1].kind, TD_VERDICT_DROP);
    sql_bench_end(&b);
}

/* ---- batches ---- */

static void one_call_for_many(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", "a");
    sql_bench_step(&b, "INSERT INTO log(text) VALUES (:k)", "b");
    sql_bench_step(&b, "INSERT INTO log(text) VALUES ('c1')", "c");
    sql_bench_step(&b, "INSERT INTO log(text) VALUES ('c2')", "c");
    sql_bench_open(&b);
    static const char types[] = "aaabbacab";
    struct td_message m[9];
    for (size_t i = 0; i < 9; i++) {
        struct td_str type = tdi_arena_printf(&b.arena, "%c", types[i]);
        m[i] =
            sql_bench_message(type.data, tdi_arena_printf(&b.arena, "{\"k\":%zu,\"n\":1}", i).data);
    }
    try_all(&b, m, 9);
    assert_int_equal(b.done, 9);
    static const size_t rows[] = {3, 2, 1, 1, 1, 1, 1};
    assert_int_equal(b.calls, 7);
    assert_memory_equal(b.rows, rows, sizeof(rows));
    assert_string_equal(sql_bench_ask(&b, "SELECT group_concat(k) FROM t"), "0,1,2,5,7");
    assert_string_equal(sql_bench_ask(&b, "SELECT group_concat(text) FROM log"), "3,4,c1,c2,8");
    sql_bench_end(&b);
}

static void at_most_256_rows(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", NULL);
    sql_bench_open(&b);
    static struct td_message m[300];
    for (size_t i = 0; i < 300; i++) {
        m[i] = sql_bench_message("a", tdi_arena_printf(&b.arena, "{\"k\":%zu,\"n\":1}", i).data);
    }
    try_all(&b, m, 300);
    assert_int_equal(b.done, 300);
    assert_int_equal(b.calls, 2);
    assert_int_equal(b.rows[0], 256);
    assert_int_equal(b.rows[1], 44);
    assert_string_equal(count(&b), "300");
    sql_bench_end(&b);
}

/* Row 2 of 4 fails: the first has its verdict, the second is judged, the others have none. */
static void failing_row_in_the_middle(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", NULL);
    sql_bench_open(&b);
    const struct td_message m[] = {
        sql_bench_message("a", "{\"k\":1,\"n\":1}"), sql_bench_message("a", "{\"k\":1,\"n\":1}"),
        sql_bench_message("a", "{\"k\":3,\"n\":1}"), sql_bench_message("a", "{\"k\":4,\"n\":1}")};
    try_all(&b, m, 4);
    assert_int_equal(b.done, 2);
    assert_int_equal(b.verdicts[0].kind, TD_VERDICT_OK);
    assert_int_equal(b.verdicts[1].kind, TD_VERDICT_DEAD);
    assert_string_equal(sql_bench_cstr(&b, b.verdicts[1].error_type), "23505");
    assert_string_equal(reason(&b, 2), "?");
    assert_string_equal(count(&b), "0");
    sql_bench_end(&b);
}

/* The same, when the second has no values: what comes before it is run and judged all the same. */
static void unfit_message_in_the_middle(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", NULL);
    sql_bench_open(&b);
    const struct td_message m[] = {sql_bench_message("a", "{\"k\":1,\"n\":1}"),
                                   sql_bench_message("a", "{\"k\":2}"),
                                   sql_bench_message("a", "{\"k\":3,\"n\":1}")};
    try_all(&b, m, 3);
    assert_int_equal(b.done, 2);
    assert_int_equal(b.rows[0], 1);
    assert_int_equal(b.verdicts[0].kind, TD_VERDICT_OK);
    assert_int_equal(b.verdicts[1].code, TD_DEAD_SCHEMA);
    assert_string_equal(reason(&b, 1), "/n is missing, needed by :n");
    sql_bench_end(&b);
}

/* A failure that is classified as ok does not end the batch; the rows behind it run. */
static void failure_that_is_fine(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", NULL);
    sql_bench_classify(&b, "23505", TD_VERDICT_OK);
    sql_bench_open(&b);
    const struct td_message m[] = {sql_bench_message("a", "{\"k\":1,\"n\":1}"),
                                   sql_bench_message("a", "{\"k\":1,\"n\":2}"),
                                   sql_bench_message("a", "{\"k\":3,\"n\":3}")};
    try_all(&b, m, 3);
    assert_int_equal(b.done, 3);
    assert_int_equal(b.calls, 2);
    assert_string_equal(sql_bench_ask(&b, "SELECT group_concat(n) FROM t"), "1,3");
    sql_bench_end(&b);
}

/* ---- errors of the store ---- */

static void store_out_of_order(void **state)
{
    (void)state;
    static const enum td_err codes[] = {TD_ERR_UNAVAILABLE, TD_ERR_OUTCOME_UNKNOWN, TD_ERR_BUSY,
                                        TD_ERR_DISK_FULL, TD_ERR_CLOSED};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct sql_bench b;
        struct td_error err = {.text = ""};
        begin(&b);
        sql_bench_step(&b, "INSERT INTO t VALUES (:k, :n)", NULL);
        sql_bench_open(&b);
        const struct td_message m[] = {sql_bench_message("a", "{\"k\":1,\"n\":1}"),
                                       sql_bench_message("a", "{\"k\":2,\"n\":1}")};
        b.fail_with = codes[i];
        assert_int_equal(sql_bench_try(&b, m, 2, &err), codes[i]);
        assert_int_equal(err.code, codes[i]);
        assert_string_equal(err.text, "the store is out of order");
        assert_int_equal(b.done, 0);
        try_all(&b, m, 2);
        assert_string_equal(count(&b), "2");
        sql_bench_end(&b);
    }
}

/* A table that is not there yet is a matter of preparing, not of a message. */
static void wrong_statement(void **state)
{
    (void)state;
    struct sql_bench b;
    struct td_error err;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO missing VALUES (:k)", NULL);
    assert_int_equal(sql_bench_try_open(&b, &err), TD_OK);
    assert_int_equal(b.h->driver->prepare(b.h, b.store, &err), TD_ERR_STATEMENT);
    assert_string_equal(err.sqlstate, "42P01");
    assert_non_null(strstr(err.text, "no such table: missing"));
    assert_int_equal(sqlite3_exec(b.app, "CREATE TABLE missing(k)", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(b.h->driver->prepare(b.h, b.store, &err), TD_OK);
    struct td_message m = sql_bench_message("a", "{\"k\":1}");
    assert_int_equal(sql_bench_run(&b, &m).kind, TD_VERDICT_OK);
    sql_bench_end(&b);
}

/* ---- options ---- */

static void wrong_options(void **state)
{
    (void)state;
    struct sql_bench b;
    struct td_error err;
    begin(&b);
    assert_int_equal(sql_bench_try_open(&b, &err), TD_ERR_CONFIG);
    assert_string_equal(err.text, "a sql handler needs 1 to 64 statements");
    sql_bench_step(&b, "INSERT INTO t VALUES (:k, ':no', /* :no */ :user)", NULL);
    assert_int_equal(sql_bench_try_open(&b, &err), TD_ERR_CONFIG);
    assert_string_equal(err.text,
                        "statement 1 uses :user, but params does not say where it comes from");
    b.o.steps_count = 0;
    sql_bench_step(&b, "SELECT :k", "order..paid");
    assert_int_equal(sql_bench_try_open(&b, &err), TD_ERR_CONFIG);
    assert_non_null(strstr(err.text, "statement 1: on: 'order..paid': "));
    b.o.steps_count = 0;
    struct td_str many = TD_STR_LIT("SELECT 1");
    for (int i = 0; i < 65; i++) {
        many = tdi_arena_printf(&b.arena, "%s, :p%d", many.data, i);
    }
    sql_bench_step(&b, many.data, NULL);
    assert_int_equal(sql_bench_try_open(&b, &err), TD_ERR_CONFIG);
    assert_string_equal(err.text, "statement 1 has more than 64 parameters");
    assert_null(b.h);
    sql_bench_end(&b);
}

static void params_by_name(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b);
    sql_bench_step(&b, "INSERT INTO t VALUES (:n, :k) ON CONFLICT DO UPDATE SET n = :n + :n", NULL);
    sql_bench_open(&b);
    const struct td_message m[] = {sql_bench_message("a", "{\"k\":7,\"n\":5}"),
                                   sql_bench_message("a", "{\"k\":8,\"n\":5}")};
    try_all(&b, m, 1);
    assert_string_equal(sql_bench_ask(&b, "SELECT k || ' ' || n FROM t"), "5 7");
    try_all(&b, m + 1, 1);
    assert_string_equal(sql_bench_ask(&b, "SELECT k || ' ' || n FROM t"), "5 10");
    sql_bench_end(&b);
}

/* ---- classification ---- */

static void classification(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        enum td_verdict_kind kind;
        bool broken;
        bool uncharged;
    } cases[] = {
        {"22001", TD_VERDICT_DEAD, false, false},  {"23505", TD_VERDICT_DEAD, false, false},
        {"23503", TD_VERDICT_RETRY, false, false}, {"40001", TD_VERDICT_RETRY, false, true},
        {"40P01", TD_VERDICT_RETRY, false, true},  {"08006", TD_VERDICT_RETRY, true, false},
        {"57014", TD_VERDICT_RETRY, true, false},  {"42P01", TD_VERDICT_RETRY, false, false},
        {"XX000", TD_VERDICT_RETRY, false, false}, {"", TD_VERDICT_RETRY, false, false},
        {"2", TD_VERDICT_RETRY, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct td_verdict v = tdd_sql_classify(cases[i].sqlstate, NULL, 0);
        assert_int_equal(v.kind, cases[i].kind);
        assert_int_equal(v.broken, cases[i].broken);
        assert_int_equal(v.uncharged, cases[i].uncharged);
        assert_int_equal(v.code, v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE);
    }
}

static void overrides(void **state)
{
    (void)state;
    const struct td_classify own[] = {
        {TD_STR_LIT("23"), TD_VERDICT_RETRY},   {TD_STR_LIT("23505"), TD_VERDICT_OK},
        {TD_STR_LIT("40001"), TD_VERDICT_DEAD}, {TD_STR_LIT("08"), TD_VERDICT_RETRY},
        {TD_STR_LIT("57014"), TD_VERDICT_DROP}, {TD_STR_LIT("235059"), TD_VERDICT_DEAD},
    };
    static const struct {
        const char *sqlstate;
        enum td_verdict_kind kind;
        bool broken;
        bool uncharged;
    } cases[] = {
        {"23505", TD_VERDICT_OK, false, false},    {"23514", TD_VERDICT_RETRY, false, false},
        {"23503", TD_VERDICT_RETRY, false, false}, /* the table's five characters are longer */
        {"40001", TD_VERDICT_DEAD, false, false},  {"40P01", TD_VERDICT_RETRY, false, true},
        {"08001", TD_VERDICT_RETRY, true, false},  {"57014", TD_VERDICT_DROP, false, false},
        {"57P01", TD_VERDICT_RETRY, true, false},  {"22012", TD_VERDICT_DEAD, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct td_verdict v =
            tdd_sql_classify(cases[i].sqlstate, own, sizeof(own) / sizeof(own[0]));
        assert_int_equal(v.kind, cases[i].kind);
        assert_int_equal(v.broken, cases[i].broken);
        assert_int_equal(v.uncharged, cases[i].uncharged);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_0),
        cmocka_unit_test(rows_0_in_a_batch),
        cmocka_unit_test(by_type),
        cmocka_unit_test(no_statement_for_the_type),
        cmocka_unit_test(later_statement_fails),
        cmocka_unit_test(drop_ends_a_batch),
        cmocka_unit_test(one_call_for_many),
        cmocka_unit_test(at_most_256_rows),
        cmocka_unit_test(failing_row_in_the_middle),
        cmocka_unit_test(unfit_message_in_the_middle),
        cmocka_unit_test(failure_that_is_fine),
        cmocka_unit_test(store_out_of_order),
        cmocka_unit_test(wrong_statement),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(params_by_name),
        cmocka_unit_test(classification),
        cmocka_unit_test(overrides),
    };
    return cmocka_run_group_tests_name("sql", tests, NULL, NULL);
}
