/* The lines of the worker protocol without workers: right ones, wrong ones, and hostile ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "handler/exec/protocol.h"

static struct tdi_arena arena;

static int setup(void **state)
{
    (void)state;
    tdi_arena_init(&arena, 64 * 1024 * 1024);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tdi_arena_release(&arena);
    return 0;
}

static struct tdd_exec_line read_line(const char *text)
{
    struct tdd_exec_line line;
    tdd_exec_read_line(tdi_str(text), &arena, &line);
    return line;
}

static void hello(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t protocol;
        int64_t window;
    } cases[] = {
        {"{\"hello\":{\"protocol\":1}}", 1, 1},
        {" { \"hello\" : { \"window\" : 4 , \"name\" : [ { } ] , \"protocol\" : 1 } } ", 1, 4},
        {"{\"hello\":{\"protocol\":1,\"window\":64}}", 1, 64},
        {"{\"hello\":{\"protocol\":1,\"window\":65}}", 1, 64},
        {"{\"hello\":{\"protocol\":1,\"window\":9223372036854775807}}", 1, 64},
        {"{\"hello\":{}}", 0, 1},
        {"{\"version\":[1,{}],\"hello\":{\"protocol\":2},\"more\":null}", 2, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tdd_exec_line line = read_line(cases[i].text);
        assert_int_equal(line.kind, TDD_EXEC_HELLO);
        assert_int_equal(line.number, cases[i].protocol);
        assert_int_equal(line.window, cases[i].window);
    }
}

static void answers(void **state)
{
    (void)state;
    struct tdd_exec_line line = read_line(
        "{\"result\":\"re\\u0074ry\",\"reason\":\"a\\tb\",\"delivery\":9223372036854775807,"
        "\"after_seconds\":0.25,\"emit\":[{\"type\":\"x\"}],\"x\":{\"delivery\":1}}");
    assert_int_equal(line.kind, TDD_EXEC_ANSWER);
    assert_int_equal(line.number, INT64_MAX);
    assert_true(line.result_valid);
    assert_int_equal(line.result, TD_VERDICT_RETRY);
    assert_true(tdi_str_is(line.reason, "a\tb"));
    assert_int_equal(line.after_us, 250000);
    assert_true(tdi_str_is(line.emit, "[{\"type\":\"x\"}]"));

    line = read_line("{\"delivery\":0,\"result\":\"ok\",\"reason\":null,\"emit\":null,"
                     "\"after_seconds\":null}");
    assert_int_equal(line.kind, TDD_EXEC_ANSWER);
    assert_null(line.reason.data);
    assert_null(line.emit.data);
    assert_int_equal(line.after_us, 0);

    line = read_line("{\"delivery\":1}");
    assert_int_equal(line.kind, TDD_EXEC_ANSWER);
    assert_false(line.result_valid);

    line = read_line("{\"pong\":3}");
    assert_int_equal(line.kind, TDD_EXEC_PONG);
    assert_int_equal(line.number, 3);
}

static void seconds(void **state)
{
    (void)state;
    static const struct {
        const char *number;
        td_time_us us;
    } cases[] = {
        {"0", 0},
        {"30", 30000000},
        {"1e3", 1000000000},
        {"1.5", 1500000},
        {"31536000", INT64_C(31536000000000)},
        {"0.0000001", 0},
    };
    char text[120];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text), "{\"delivery\":1,\"result\":\"retry\",\"after_seconds\":%s}",
                 cases[i].number);
        struct tdd_exec_line line = read_line(text);
        assert_int_equal(line.kind, TDD_EXEC_ANSWER);
        assert_int_equal(line.after_us, cases[i].us);
    }
    static const char *const wrong[] = {"-1", "\"1\"", "true", "1e999", "31536001", "[1]"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text), "{\"delivery\":1,\"result\":\"retry\",\"after_seconds\":%s}",
                 wrong[i]);
        assert_int_equal(read_line(text).kind, TDD_EXEC_STRAY);
    }
}

static void strays(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {"", "it is not JSON"},
        {"hello", "it is not JSON"},
        {"{\"delivery\":1,\"result\":\"ok\"", "it is not JSON"},
        {"{\"delivery\":1}{}", "it is not JSON"},
        {"[{\"delivery\":1}]", "it is not a JSON object"},
        {"7", "it is not a JSON object"},
        {"{}", "it is not of the protocol"},
        {"{\"result\":\"ok\"}", "it is not of the protocol"},
        {"{\"delivery\":\"1\"}", "a member has a wrong form"},
        {"{\"delivery\":-1}", "a member has a wrong form"},
        {"{\"delivery\":1.0}", "a member has a wrong form"},
        {"{\"delivery\":9223372036854775808}", "a member has a wrong form"},
        {"{\"delivery\":[1]}", "a member has a wrong form"},
        {"{\"pong\":{}}", "a member has a wrong form"},
        {"{\"hello\":1}", "a member has a wrong form"},
        {"{\"hello\":{\"protocol\":\"1\"}}", "a member has a wrong form"},
        {"{\"hello\":{\"protocol\":1,\"window\":0}}", "a member has a wrong form"},
        {"{\"delivery\":1,\"reason\":\"\\ud800\"}", "a member has a wrong form"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tdd_exec_line line = read_line(cases[i].text);
        assert_int_equal(line.kind, TDD_EXEC_STRAY);
        assert_string_equal(line.why, cases[i].why);
    }
}

/* ---- hostile lines: nothing but memory errors could fail here, and they do under ASan ---- */

static const struct td_message cause = {
    .id = {"m1", 2},
    .source = {"s", 1},
    .time = TD_TIME_NONE,
    .sequence = TD_NUMBER_NONE,
    .aggregate_version = TD_NUMBER_NONE,
    .deliver_at = TD_TIME_NONE,
    .expires_at = TD_TIME_NONE,
    .published_at = TD_TIME_NONE,
};

/* The line from memory of exactly its size. What it says must hold together. */
static void swallow(const char *bytes, size_t len)
{
    struct tdi_arena a;
    struct tdd_exec_line line;
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    tdi_arena_init(&a, 1024 * 1024);
    tdd_exec_read_line((struct td_str){copy, len}, &a, &line);
    assert_true(line.kind != TDD_EXEC_STRAY || line.why != NULL);
    assert_true(line.kind != TDD_EXEC_HELLO || (line.window >= 1 && line.window <= 64));
    assert_true(tdi_utf8_valid(line.reason));
    if (line.emit.data != NULL) {
        struct td_run run = {.message = &cause, .consumer = TD_STR_LIT("c")};
        struct td_message *events = NULL;
        struct td_error err = {.text = ""};
        size_t n = 0;
        enum td_err rc = tdd_exec_read_emit(line.emit, &run, &a, &events, &n, &err);
        assert_true(rc == TD_OK ? events != NULL && n <= TDD_EXEC_EMIT_MAX : err.text[0] != '\0');
        for (size_t i = 0; rc == TD_OK && i < n; i++) {
            assert_int_equal(events[i].id.len, 36);
            assert_false(tdi_str_empty(events[i].type));
        }
    }
    tdi_arena_release(&a);
    free(copy);
}

static const char *const seeds[] = {
    "{\"hello\":{\"protocol\":1,\"window\":8,\"name\":\"w\"}}",
    "{\"pong\":12}",
    "{\"delivery\":17,\"result\":\"retry\",\"reason\":\"a \\\"b\\\" \\ud83d\\ude00 \xc3\xa4\","
    "\"after_seconds\":3.5e1}",
    "{\"delivery\":1,\"result\":\"ok\",\"emit\":[{\"type\":\"a.b\",\"partitionkey\":\"k\",\"topic\":"
    "\"t\",\"data\":{\"x\":[1,2]},\"headers\":{\"h\":\"v\"}},{\"type\":\"c\",\"data_base64\":"
    "\"AP8=\",\"datacontenttype\":\"x/y\",\"dataschema\":\"s\"}]}",
};

static void every_prefix(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof(seeds) / sizeof(seeds[0]); s++) {
        for (size_t len = 0; len <= strlen(seeds[s]); len++) {
            swallow(seeds[s], len);
        }
    }
}

static void every_byte_changed(void **state)
{
    (void)state;
    static const unsigned char values[] = {0,   '"', '\\', '{', '}', '[',  ']',  ':',  ',',
                                           '0', '-', 'e',  'n', ' ', 0x7f, 0x80, 0xc3, 0xff};
    char line[512];
    for (size_t s = 0; s < sizeof(seeds) / sizeof(seeds[0]); s++) {
        size_t len = strlen(seeds[s]);
        assert_true(len < sizeof(line));
        for (size_t at = 0; at < len; at++) {
            for (size_t v = 0; v < sizeof(values); v++) {
                memcpy(line, seeds[s], len);
                line[at] = (char)values[v];
                swallow(line, len);
            }
            memcpy(line, seeds[s], at);
            memcpy(line + at, seeds[s] + at + 1, len - at - 1);
            swallow(line, len - 1);
        }
    }
}

static void random_splices(void **state)
{
    (void)state;
    struct tdi_random r;
    char line[1024];
    tdi_random_seed(&r, 20261129);
    for (int round = 0; round < 20000; round++) {
        size_t len = 0;
        for (int part = 0; part < 3; part++) {
            const char *seed = seeds[tdi_random_below(&r, sizeof(seeds) / sizeof(seeds[0]))];
            size_t from = tdi_random_below(&r, strlen(seed));
            size_t n = tdi_random_below(&r, strlen(seed) - from + 1);
            memcpy(line + len, seed + from, n);
            len += n;
        }
        swallow(line, len);
    }
}

static void deep_and_wide(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, TDD_EXEC_LINE_MAX);
    tdi_buf_add_cstr(&b, "{\"delivery\":1,\"result\":\"ok\",\"emit\":");
    for (int i = 0; i < 100000; i++) {
        tdi_buf_add_char(&b, '[');
    }
    swallow(b.data, b.len);
    tdi_buf_clear(&b);
    tdi_buf_add_cstr(&b,
                     "{\"delivery\":1,\"result\":\"ok\",\"emit\":[{\"type\":\"a\",\"headers\":{");
    for (int i = 0; i < 1000; i++) {
        tdi_buf_printf(&b, "%s\"h%d\":\"v\"", i > 0 ? "," : "", i);
    }
    tdi_buf_add_cstr(&b, "}}]}");
    swallow(b.data, b.len);
    tdi_buf_release(&b);
}

/* What is written can be read as one line of JSON, whatever the message holds. */
static void written_lines_are_json(void **state)
{
    (void)state;
    static const char hostile[] = "a\"\n\x01\xff\\";
    const struct td_str evil = {hostile, sizeof(hostile) - 1};
    const struct td_header headers[] = {{evil, evil}};
    struct td_message m = cause;
    struct tdi_buf b;
    m.id = m.source = m.type = m.key = m.content_type = m.traceparent = evil;
    m.headers = headers;
    m.headers_count = 1;
    m.body = (struct td_bytes){hostile, sizeof(hostile) - 1};
    struct td_run run = {.message = &m, .consumer = evil, .attempt = INT32_MAX, .fence = INT64_MAX};
    tdi_buf_init(&b, 65536);
    tdd_exec_write_hello(&b, evil, 1);
    tdd_exec_write_ping(&b, INT64_MAX);
    tdd_exec_write_delivery(&b, INT64_MAX, &run, INT64_C(1999999));
    tdd_exec_write_shutdown(&b);
    assert_false(b.failed);
    assert_non_null(strstr(b.data, "\"deadline_seconds\":1.999,"));
    assert_non_null(strstr(b.data, "\"timeout_seconds\":0.000"));
    size_t at = 0;
    int lines = 0;
    while (at < b.len) {
        const char *end = memchr(b.data + at, '\n', b.len - at);
        assert_non_null(end);
        struct td_str line = {b.data + at, (size_t)(end - b.data) - at};
        assert_true(tdi_json_valid(line, NULL, NULL));
        at += line.len + 1;
        lines++;
    }
    assert_int_equal(lines, 4);
    tdi_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello),
        cmocka_unit_test(answers),
        cmocka_unit_test(seconds),
        cmocka_unit_test(strays),
        cmocka_unit_test(every_prefix),
        cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(random_splices),
        cmocka_unit_test(deep_and_wide),
        cmocka_unit_test(written_lines_are_json),
    };
    return cmocka_run_group_tests_name("exec_protocol", tests, setup, teardown);
}
