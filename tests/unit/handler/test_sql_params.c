/* Parameters of the sql handler: types on their way into a real database, and what has no value. */
#include "sql_bench.h"

#include <string.h>

#include "base/str.h"

static const char insert[] = "INSERT INTO t(v) VALUES (:v)";
static const char typed[] = "SELECT typeof(v) || ' ' || quote(v) FROM t";

/* One parameter :v from `from`. */
static void begin(struct sql_bench *b, const char *from)
{
    sql_bench_init(b, "CREATE TABLE t(v)");
    sql_bench_step(b, insert, NULL);
    sql_bench_param(b, "v", from);
}

/* What lands in the table for a body. */
static const char *lands(struct sql_bench *b, const char *body)
{
    struct td_message m = sql_bench_message("a", body);
    struct td_verdict v = sql_bench_run(b, &m);
    if (v.kind != TD_VERDICT_OK) {
        fail_msg("%s", sql_bench_cstr(b, v.reason));
    }
    const char *found = sql_bench_ask(b, typed);
    assert_int_equal(sqlite3_exec(b->app, "DELETE FROM t", NULL, NULL, NULL), SQLITE_OK);
    return found;
}

static void expect_schema(struct sql_bench *b, const char *body, const char *reason)
{
    struct td_message m = sql_bench_message("a", body);
    struct td_verdict v = sql_bench_run(b, &m);
    assert_int_equal(v.kind, TD_VERDICT_DEAD);
    assert_int_equal(v.code, TD_DEAD_SCHEMA);
    assert_string_equal(sql_bench_cstr(b, v.reason), reason);
    assert_string_equal(sql_bench_cstr(b, v.error_type), "schema");
    assert_int_equal(b->calls, 0); /* nothing was run */
    assert_string_equal(sql_bench_ask(b, "SELECT count(*) FROM t"), "0");
}

static void types(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *lands;
    } cases[] = {
        {"0", "integer 0"},
        {"-0", "integer 0"},
        {"9223372036854775807", "integer 9223372036854775807"},
        {"-9223372036854775808", "integer -9223372036854775808"},
        {"9223372036854775808", "text '9223372036854775808'"},
        {"12345678901234567890.123456789", "text '12345678901234567890.123456789'"},
        {"1.10", "text '1.10'"},
        {"1e2", "text '1e2'"},
        {"-0.0", "text '-0.0'"},
        {"true", "integer 1"},
        {"false", "integer 0"},
        {"null", "null NULL"},
        {"\"\"", "text ''"},
        {"\"x'y\"", "text 'x''y'"},
        {"\"123\"", "text '123'"},
        {"\"\\u00e4\\n\\ud83d\\ude00\"", "text '\xc3\xa4\n\xf0\x9f\x98\x80'"},
        {"{\"b\": 1.0, \"a\":[ ]}", "text '{\"b\": 1.0, \"a\":[ ]}'"},
        {"[1,\n2]", "text '[1,\n2]'"},
    };
    struct sql_bench b;
    begin(&b, "/v");
    sql_bench_open(&b);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct td_str body = tdi_arena_printf(&b.arena, "{\"x\":[],\"v\":%s}", cases[i].json);
        assert_string_equal(lands(&b, body.data), cases[i].lands);
    }
    sql_bench_end(&b);
}

static void nul_in_a_string(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b, "/v");
    sql_bench_open(&b);
    struct td_message m = sql_bench_message("a", "{\"v\":\"a\\u0000b\"}");
    assert_int_equal(sql_bench_run(&b, &m).kind, TD_VERDICT_OK);
    assert_string_equal(sql_bench_ask(&b, "SELECT typeof(v) || hex(CAST(v AS BLOB)) FROM t"),
                        "text610062");
    sql_bench_end(&b);
}

/* An application's column with an exact type of its own keeps the digits too. */
static void decimals_in_typed_columns(void **state)
{
    (void)state;
    struct sql_bench b;
    sql_bench_init(&b, "CREATE TABLE t(v TEXT, i INTEGER)");
    sql_bench_step(&b, "INSERT INTO t(v, i) VALUES (:v, :v)", NULL);
    sql_bench_param(&b, "v", "/v");
    sql_bench_open(&b);
    assert_string_equal(lands(&b, "{\"v\":0.1000}"), "text '0.1000'");
    sql_bench_end(&b);
}

static void pointers(void **state)
{
    (void)state;
    static const struct {
        const char *pointer;
        const char *body;
        const char *lands;
    } cases[] = {
        {"/", "{\"\":1,\"v\":2}", "integer 1"},
        {"/~1", "{\"/\":1}", "integer 1"},
        {"/~0", "{\"~\":1}", "integer 1"},
        {"/~01", "{\"~1\":1,\"/\":2}", "integer 1"},
        {"/a~1b/c~0d", "{\"a/b\":{\"c~d\":1}}", "integer 1"},
        {"/a/1/b", "{\"a\":[0,{\"b\":7}]}", "integer 7"},
        {"/a/0", "{\"a\":{\"0\":7}}", "integer 7"},
        {"//", "{\"\":{\"\":7}}", "integer 7"},
        {"/v", "{\"v\":1,\"v\":2}", "integer 2"},
        {"", " 7 ", "integer 7"},
        {"", "\"whole\"", "text 'whole'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sql_bench b;
        begin(&b, cases[i].pointer);
        sql_bench_open(&b);
        assert_string_equal(lands(&b, cases[i].body), cases[i].lands);
        sql_bench_end(&b);
    }
}

static void missing_is_dead(void **state)
{
    (void)state;
    struct sql_bench b;
    sql_bench_init(&b, "CREATE TABLE t(v)");
    sql_bench_step(&b, "INSERT INTO t(v) VALUES (:user)", NULL);
    sql_bench_param(&b, "user", "/user_id");
    sql_bench_open(&b);
    expect_schema(&b, "{\"user\":1}", "/user_id is missing, needed by :user");
    expect_schema(&b, "[1]", "/user_id is missing, needed by :user");
    expect_schema(&b, "7", "/user_id is missing, needed by :user");
    expect_schema(&b, NULL, "/user_id is missing, needed by :user"); /* a tombstone */
    expect_schema(&b, "",
                  "/user_id cannot be read: the body is not JSON: the text is empty, at byte "
                  "0, needed by :user");
    struct td_message m = sql_bench_message("a", "{\"user_id\":1");
    struct td_verdict v = sql_bench_run(&b, &m);
    assert_int_equal(v.kind, TD_VERDICT_DEAD);
    assert_int_equal(v.code, TD_DEAD_SCHEMA);
    assert_non_null(
        strstr(sql_bench_cstr(&b, v.reason), "/user_id cannot be read: the body is not"));
    expect_schema(&b, "{\"user_id\":\"\\ud800\"}",
                  "/user_id holds half of a surrogate pair, needed by :user");
    sql_bench_end(&b);
}

static void missing_is_null(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b, "/v");
    b.o.params_missing_null = true;
    sql_bench_open(&b);
    assert_string_equal(lands(&b, "{}"), "null NULL");
    assert_string_equal(lands(&b, NULL), "null NULL");
    assert_string_equal(lands(&b, "{\"v\":0}"), "integer 0");
    struct td_message m = sql_bench_message("a", "no JSON");
    assert_int_equal(sql_bench_run(&b, &m).code, TD_DEAD_SCHEMA); /* wrong, not missing */
    sql_bench_end(&b);
}

static void attributes(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        const char *lands;
    } cases[] = {
        {"$id", "text 'm1'"},
        {"$source", "text 'service:shop'"},
        {"$type", "text 'a'"},
        {"$key", "text 'k'"},
        {"$partitionkey", "text 'k'"},
        {"$topic", "text 'orders'"},
        {"$time", "text '1970-01-01T00:00:01.500000Z'"},
        {"$sequence", "integer 12"},
        {"$datacontenttype", "text 'text/plain'"},
        {"$dataschema", "null NULL"},
        {"$traceparent", "null NULL"},
        {"$correlationid", "text 'c'"},
        {"$causationid", "null NULL"},
        {"$aggregatetype", "null NULL"},
        {"$aggregateversion", "null NULL"},
        {"$tenant", "text ''"},
        {"$expirytime", "null NULL"},
        {"$dataref", "null NULL"},
        {"$header.x-user", "text '7'"},
        {"$header.x-empty", "text ''"},
        {"$body", "text 'hello'"},
        {"$consumer", "text 'shop.points'"},
        {"$attempt", "integer 4"},
    };
    const struct td_header headers[] = {{TD_STR_LIT("x-empty"), TD_STR_LIT("")},
                                        {TD_STR_LIT("x-user"), TD_STR_LIT("7")},
                                        {TD_STR_LIT("x-user"), TD_STR_LIT("8")}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sql_bench b;
        begin(&b, cases[i].from);
        sql_bench_open(&b);
        struct td_message m = sql_bench_message("a", "hello");
        m.key = TD_STR_LIT("k");
        m.topic = TD_STR_LIT("orders");
        m.time = 1500000;
        m.sequence = 12;
        m.content_type = TD_STR_LIT("text/plain");
        m.correlation_id = TD_STR_LIT("c");
        m.tenant = TD_STR_LIT("");
        m.headers = headers;
        m.headers_count = 3;
        assert_int_equal(sql_bench_run(&b, &m).kind, TD_VERDICT_OK);
        assert_string_equal(sql_bench_ask(&b, typed), cases[i].lands);
        sql_bench_end(&b);
    }
}

static void missing_header(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b, "$header.x-user");
    sql_bench_open(&b);
    expect_schema(&b, "{}", "$header.x-user is missing, needed by :v");
    sql_bench_end(&b);
    begin(&b, "$header.x-user");
    b.o.params_missing_null = true;
    sql_bench_open(&b);
    assert_string_equal(lands(&b, "{}"), "null NULL");
    sql_bench_end(&b);
}

static void whole_body(void **state)
{
    (void)state;
    struct sql_bench b;
    begin(&b, "$body");
    sql_bench_open(&b);
    assert_string_equal(lands(&b, NULL), "null NULL");
    assert_string_equal(lands(&b, ""), "text ''");
    assert_string_equal(lands(&b, "\xff\x01"), "blob X'FF01'");
    assert_string_equal(lands(&b, "{ }"), "text '{ }'");
    sql_bench_end(&b);
}

static void wrong_sources(void **state)
{
    (void)state;
    static const char *const sources[] = {"v",   "$",    "$nothing", "$header.", "$header",
                                          "/a~", "/a~2", "$Key",     "$ key",    "$deliver_at"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        struct sql_bench b;
        struct td_error err;
        begin(&b, sources[i]);
        assert_int_equal(sql_bench_try_open(&b, &err), TD_ERR_CONFIG);
        struct td_str text = tdi_arena_printf(
            &b.arena,
            "parameter v: '%s' is not a /pointer into the body, a $attribute or $header.NAME",
            sources[i]);
        assert_string_equal(err.text, text.data);
        sql_bench_end(&b);
    }
}

/* Memory that runs out is an error of ours: no NULL, and no message is dead for it. */
static void no_memory(void **state)
{
    (void)state;
    static const char *const froms[] = {"$time", "/v", "/w~0", "/v"};
    static const char *const bodies[] = {"{\"v\":1}", "{\"v\":\"\\u0041\\u0042\"}", "{\"w~\":1}",
                                         "{}"};
    for (size_t i = 0; i < 4; i++) {
        struct sql_bench b;
        struct td_error err;
        begin(&b, froms[i]);
        sql_bench_open(&b);
        struct td_message m = sql_bench_message("a", bodies[i]);
        m.time = 0;
        bool refused = false, worked = false;
        for (size_t bytes = 0; bytes < 64 * 1024 && !worked; bytes += 256) {
            struct td_run run = {.message = &m, .consumer = b.o.consumer, .attempt = 1};
            struct tdi_arena tight;
            struct td_verdict v = {.kind = TD_VERDICT_DROP};
            size_t done = 0;
            tdi_arena_init(&tight, bytes + 1);
            assert_int_equal(b.spy.begin(b.store, &err), TD_OK);
            enum td_err rc = b.h->driver->run(b.h, b.store, &run, 1, &tight, &v, &done, &err);
            assert_true(rc == TD_OK || rc == TD_ERR_NOMEM);
            refused = refused || rc == TD_ERR_NOMEM;
            worked = rc == TD_OK;
            if (worked) {
                assert_int_equal(v.kind, i == 3 ? TD_VERDICT_DEAD : TD_VERDICT_OK);
            }
            assert_int_equal(b.spy.finish(b.store, false, &err), TD_OK);
            tdi_arena_release(&tight);
        }
        assert_true(refused && worked);
        sql_bench_end(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),
        cmocka_unit_test(nul_in_a_string),
        cmocka_unit_test(decimals_in_typed_columns),
        cmocka_unit_test(pointers),
        cmocka_unit_test(missing_is_dead),
        cmocka_unit_test(missing_is_null),
        cmocka_unit_test(attributes),
        cmocka_unit_test(missing_header),
        cmocka_unit_test(whole_body),
        cmocka_unit_test(wrong_sources),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests_name("sql_params", tests, NULL, NULL);
}
