/* The exec handler with real workers: hello, answers, emitted events, and lines that are none. */
#include "exec_bench.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "base/uuid.h"

static void begin(struct bench *b, const char *mode, const char *argument)
{
    bench_init(b, mode, argument);
    bench_open(b);
}

static void our_hello(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "first line", NULL);
    b.command[3] = tdi_str(bench_path(&b, "hello"));
    b.o.command_count = 4;
    b.o.timeout_us = 10500 * TD_MILLISECOND_US;
    bench_open(&b);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    assert_text(
        &b, bench_read(&b, bench_path(&b, "hello")),
        "{\"hello\":{\"protocol\":1,\"consumer\":\"shop.mail\",\"timeout_seconds\":10.500}}\n");
    bench_end(&b);
}

static void four_results(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);

    struct td_verdict v = bench_do(&b, "{\"result\":\"ok\"}");
    assert_int_equal(v.kind, TD_VERDICT_OK);
    assert_int_equal(v.code, TD_DEAD_NONE);
    assert_false(v.broken);

    v = bench_do(&b, "{\"result\":\"retry\",\"reason\":\"smtp 451\",\"after_seconds\":1.5}");
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_int_equal(v.after_us, 1500000);
    assert_text(&b, v.reason, "smtp 451");
    assert_text(&b, v.error_type, "worker");
    assert_true(v.broken);
    assert_false(v.uncharged);
    assert_false(v.verdictless);

    v = bench_do(&b, "{\"result\":\"dead\",\"reason\":\"no \\u00e4ddress\",\"after_seconds\":3}");
    assert_int_equal(v.kind, TD_VERDICT_DEAD);
    assert_int_equal(v.code, TD_DEAD_REJECTED);
    assert_int_equal(v.after_us, 0);
    assert_text(&b, v.reason,
                "no \xc3\xa4"
                "ddress");
    assert_false(v.broken);

    v = bench_do(&b, "{\"result\":\"drop\"}");
    assert_int_equal(v.kind, TD_VERDICT_DROP);
    assert_int_equal(v.code, TD_DEAD_NONE);
    assert_int_equal(bench_logged(&b, "WARN"), 0);
    bench_end(&b);
}

static void no_result(void **state)
{
    (void)state;
    static const char *const bodies[] = {"{\"result\":\"OK\"}", "{\"result\":true}", "{}",
                                         "{\"result\":null}"};
    struct bench b;
    begin(&b, "answers", NULL);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct td_verdict v = bench_do(&b, bodies[i]);
        assert_int_equal(v.kind, TD_VERDICT_RETRY);
        assert_text(&b, v.reason, "the worker's answer has no result of ok, retry, dead, drop");
        assert_true(v.broken);
        assert_false(v.uncharged);
    }
    bench_end(&b);
}

static void long_reason_is_cut(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    struct td_str letters = TD_STR_LIT("\xc3\xa4");
    for (int i = 0; i < 9; i++) {
        letters = tdi_arena_printf(&b.arena, "%s%s", letters.data, letters.data);
    }
    const char *body =
        tdi_arena_printf(&b.arena, "{\"result\":\"dead\",\"reason\":\"x%s\"}", letters.data).data;
    struct td_verdict v = bench_do(&b, body);
    assert_int_equal(v.reason.len, 399); /* 400 would be half a letter */
    assert_true(tdi_utf8_valid(v.reason));
    bench_end(&b);
}

static void what_the_worker_gets(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    begin(&b, "answers", NULL);
    struct td_message *m = bench_json(
        &b, "{\"do\":\"envelope\",\"of\":[\"id\",\"source\",\"type\",\"partitionkey\",\"headers\","
            "\"specversion\"]}");
    const struct td_header headers[] = {{TD_STR_LIT("x-a"), TD_STR_LIT("1\n\"")}};
    m->headers = headers;
    m->headers_count = 1;
    struct td_run run = bench_run(&b, m);
    run.attempt = 3;
    run.fence = 7;
    assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_OK);
    const char *reason = bench_cstr(&b, bench_result(&b).verdict.reason);
    const char *deadline = strstr(reason, "\"deadline\":");
    assert_non_null(deadline);
    double seconds = 0;
    assert_int_equal(sscanf(deadline, "\"deadline\":%lf", &seconds), 1);
    assert_true(seconds > 0 && seconds <= 30);
    assert_non_null(strstr(reason, "{\"attempt\":3,\"fence\":7,"));
    assert_non_null(strstr(reason,
                           "\"id\":\"m0\",\"source\":\"service:shop\",\"type\":\"order.paid\","
                           "\"partitionkey\":\"k1\",\"headers\":{\"x-a\":\"1\\n\\\"\"},"
                           "\"specversion\":\"1.0\"}"));
    bench_end(&b);
}

/* ---- emitted events ---- */

static void emitted(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    begin(&b, "answers", NULL);
    struct td_message *m = bench_json(
        &b,
        "{\"result\":\"ok\",\"emit\":[{\"type\":\"mail.sent\",\"partitionkey\":\"k2\",\"topic\":"
        "\"mails\",\"data\":{\"n\": 12345678901234567890},\"headers\":{\"x\":\"y\"}},{\"type\":"
        "\"raw\",\"data_base64\":\"AP8=\",\"datacontenttype\":\"image/png\"},{\"type\":\"none\"}]}");
    m->traceparent = TD_STR_LIT("00-trace");
    m->tenant = TD_STR_LIT("t1");
    char first[2][TDI_UUID_TEXT_LEN + 1] = {"", ""};
    for (int round = 0; round < 2; round++) {
        struct td_run run = bench_run(&b, m);
        assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_OK);
        struct td_verdict v = bench_result(&b).verdict;
        assert_int_equal(v.kind, TD_VERDICT_OK);
        assert_int_equal(v.emit_count, 3);
        const struct td_message *e = v.emit;
        assert_text(&b, e[0].type, "mail.sent");
        assert_text(&b, e[0].key, "k2");
        assert_text(&b, e[0].topic, "mails");
        assert_text(&b, e[0].causation_id, "m0");
        assert_text(&b, e[0].correlation_id, "m0");
        assert_text(&b, e[0].traceparent, "00-trace");
        assert_text(&b, e[0].tenant, "t1");
        assert_null(e[0].source.data);
        assert_int_equal(e[0].headers_count, 1);
        assert_text(&b, e[0].headers[0].value, "y");
        assert_non_null(strstr(bench_cstr(&b, (struct td_str){e[0].body.data, e[0].body.len}),
                               "12345678901234567890"));
        assert_int_equal(e[1].body.len, 2);
        assert_memory_equal(e[1].body.data, "\0\xff", 2);
        assert_text(&b, e[1].content_type, "image/png");
        assert_null(e[2].body.data);
        assert_null(e[2].key.data);
        assert_string_not_equal(bench_cstr(&b, e[0].id), bench_cstr(&b, e[1].id));
        snprintf(first[round], sizeof(first[round]), "%s", bench_cstr(&b, e[0].id));
    }
    assert_string_equal(first[0], first[1]);
    char expected[TDI_UUID_TEXT_LEN + 1];
    const struct td_str parts[] = {TD_STR_LIT("shop.mail"), TD_STR_LIT("service:shop"),
                                   TD_STR_LIT("m0"), TD_STR_LIT("0")};
    tdi_uuid5(parts, 4, expected);
    assert_string_equal(first[0], expected);
    assert_int_equal(first[0][14], '5');
    bench_end(&b);
}

static void emitted_keeps_the_conversation(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    begin(&b, "answers", NULL);
    struct td_message *m = bench_json(&b, "{\"result\":\"ok\",\"emit\":[{\"type\":\"a\"}]}");
    m->correlation_id = TD_STR_LIT("c0");
    struct td_run run = bench_run(&b, m);
    assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_OK);
    struct td_verdict v = bench_result(&b).verdict;
    assert_text(&b, v.emit[0].correlation_id, "c0");
    assert_text(&b, v.emit[0].causation_id, "m0");
    bench_end(&b);
}

static void emitted_without_effect_is_left_out(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    struct td_verdict v = bench_do(&b, "{\"result\":\"retry\",\"emit\":[{\"type\":\"a\"}]}");
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_int_equal(v.emit_count, 0);
    bench_end(&b);
}

static void wrong_events(void **state)
{
    (void)state;
    static const struct {
        const char *emit;
        const char *reason;
    } cases[] = {
        {"{}", "emit is not an array"},
        {"7", "emit is not an array"},
        {"[7]", "emit[0]: it is not an object"},
        {"[{\"type\":\"a\"},{}]", "emit[1]: the message has no type"},
        {"[{\"type\":7}]",
         "emit[0]: a member is none of type, partitionkey, topic, data, data_base64, "
         "datacontenttype, dataschema, headers, or has a wrong form"},
        {"[{\"type\":\"a\",\"partition_key\":\"k\"}]",
         "emit[0]: a member is none of type, partitionkey, topic, data, data_base64, "
         "datacontenttype, dataschema, headers, or has a wrong form"},
        {"[{\"type\":\"a\",\"data_base64\":\"%\"}]",
         "emit[0]: the member data_base64 is not base64"},
        {"[{\"type\":\"a\",\"data\":1,\"data_base64\":\"AA==\"}]",
         "emit[0]: both data and data_base64 are there"},
        {"[{\"type\":\"a\",\"headers\":{\"x\":1}}]",
         "emit[0]: the value of header 1 is not a string"},
    };
    struct bench b;
    begin(&b, "answers", NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[400];
        snprintf(body, sizeof(body), "{\"result\":\"ok\",\"emit\":%s}", cases[i].emit);
        struct td_verdict v = bench_do(&b, body);
        assert_int_equal(v.kind, TD_VERDICT_RETRY);
        assert_true(v.broken);
        assert_text(&b, v.reason, cases[i].reason);
    }
    bench_end(&b);
}

static void too_many_events(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    for (int count = 100; count <= 101; count++) {
        struct td_str body = TD_STR_LIT("{\"result\":\"ok\",\"emit\":[");
        for (int i = 0; i < count; i++) {
            body = tdi_arena_printf(&b.arena, "%s%s{\"type\":\"a\"}", body.data, i > 0 ? "," : "");
        }
        body = tdi_arena_printf(&b.arena, "%s]}", body.data);
        struct td_verdict v = bench_do(&b, body.data);
        if (count == 100) {
            assert_int_equal(v.kind, TD_VERDICT_OK);
            assert_int_equal(v.emit_count, 100);
        } else {
            assert_int_equal(v.kind, TD_VERDICT_RETRY);
            assert_text(&b, v.reason, "emit has more than 100 events");
        }
    }
    bench_end(&b);
}

/* ---- lines that are no answers ---- */

static void stray_lines(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_int_equal(bench_do(&b, "{\"do\":\"say\",\"text\":\"progress 1\\n\\n[1]\\n{}\\n"
                                  "{\\\"delivery\\\":\\\"x\\\"}\\n{\\\"delivery\\\"\\n\"}")
                         .kind,
                     TD_VERDICT_OK);
    assert_int_equal(bench_logged(&b, "stray line"), 6);
    assert_int_equal(bench_logged(&b, "progress"), 0); /* it may be a body */
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    bench_end(&b);
}

static void answer_in_pieces(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_text(&b, bench_do(&b, "{\"do\":\"say in pieces\"}").reason, "whole");
    bench_end(&b);
}

static void endless_line(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    struct td_verdict v = bench_do(&b, "{\"do\":\"endless line\"}");
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_text(&b, v.reason, "the worker wrote a line that is too long");
    assert_true(v.verdictless);
    bench_end(&b);
}

/* Twice as many bytes as one line may have, in short lines. */
static void many_lines(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "answers", NULL);
    b.o.log = NULL;
    bench_open(&b);
    assert_int_equal(bench_do(&b, "{\"do\":\"many lines\",\"count\":16384}").kind, TD_VERDICT_OK);
    bench_end(&b);
}

static void late_and_unknown_answers(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_text(&b, bench_do(&b, "{\"do\":\"answer twice\"}").reason, "first");
    assert_int_equal(bench_do(&b, "{\"do\":\"answer another\"}").kind, TD_VERDICT_OK);
    assert_int_equal(bench_logged(&b, "late or unknown answer ignored"), 2);
    bench_quiet(&b);
    bench_end(&b);
}

static void stderr_is_log(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_int_equal(
        bench_do(&b, "{\"do\":\"stderr\",\"text\":\"one\\ntwo \\u001b[31m\\nthree\"}").kind,
        TD_VERDICT_OK);
    bench_await_log(&b, "two");
    assert_int_equal(bench_logged(&b, "worker says"), 2);
    assert_int_equal(bench_logged(&b, "\033"), 0);
    assert_int_equal(bench_logged(&b, "consumer=shop.mail worker=1 text=one"), 1);
    bench_end(&b);
}

/* More than the buffer for one line, without a line feed. */
static void much_stderr(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    struct td_str x = TD_STR_LIT("0123456789");
    for (int i = 0; i < 15; i++) {
        x = tdi_arena_printf(&b.arena, "%s%s", x.data, x.data);
    }
    struct td_str body =
        tdi_arena_printf(&b.arena, "{\"do\":\"stderr\",\"text\":\"%s end\\n\"}", x.data);
    assert_int_equal(bench_do(&b, body.data).kind, TD_VERDICT_OK);
    bench_await_log(&b, " end\"");
    assert_int_equal(bench_do(&b, "{\"do\":\"stderr\",\"text\":\"still heard\\n\"}").kind,
                     TD_VERDICT_OK);
    bench_await_log(&b, "still heard");
    bench_end(&b);
}

/* ---- hello ---- */

static void no_hello(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "silent", NULL);
    bench_start(&b, "{}");
    bench_quiet(&b);
    bench_push(&b, 4900 * TD_MILLISECOND_US);
    bench_quiet(&b);
    bench_push(&b, 200 * TD_MILLISECOND_US);
    struct td_verdict v = bench_result(&b).verdict;
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_text(&b, v.reason, "the worker did not say hello within 5 s");
    assert_true(v.uncharged);
    assert_true(v.broken);
    bench_end(&b);
}

static void wrong_protocol(void **state)
{
    (void)state;
    static const char *const modes[] = {"protocol 2", "no protocol"};
    for (size_t i = 0; i < 2; i++) {
        struct bench b;
        begin(&b, modes[i], NULL);
        struct td_verdict v = bench_do(&b, "{}");
        assert_text(&b, v.reason,
                    i == 0 ? "the worker speaks protocol 2, not 1"
                           : "the worker speaks protocol 0, not 1");
        assert_true(v.uncharged);
        assert_true(v.broken);
        bench_end(&b);
    }
}

static void window(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "window", "3");
    assert_int_equal(b.h->driver->free_slots(b.h), 1); /* not known yet */
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    assert_int_equal(b.h->driver->free_slots(b.h), 3);
    struct td_error err;
    uint64_t tokens[3];
    for (size_t i = 0; i < 3; i++) {
        tokens[i] = bench_start(&b, "{\"result\":\"drop\"}");
        assert_int_equal(b.h->driver->free_slots(b.h), 2 - i);
    }
    struct td_run run = bench_run(&b, bench_json(&b, "{}"));
    assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_ERR_BUSY);
    for (size_t i = 0; i < 3; i++) {
        struct td_run_result r = bench_result(&b);
        assert_int_equal(r.token, tokens[i]);
        assert_int_equal(r.verdict.kind, TD_VERDICT_DROP);
    }
    bench_end(&b);
}

static void window_is_cut(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "window", "1000");
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    assert_int_equal(b.h->driver->free_slots(b.h), 64);
    bench_end(&b);
}

static void one_at_a_time_by_default(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    bench_init(&b, "answers", NULL);
    b.o.workers = 2;
    bench_open(&b);
    assert_int_equal(b.h->driver->free_slots(b.h), 2);
    bench_start(&b, "{\"result\":\"ok\"}");
    bench_start(&b, "{\"result\":\"ok\"}");
    assert_int_equal(b.h->driver->free_slots(b.h), 0);
    struct td_run run = bench_run(&b, bench_json(&b, "{}"));
    assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_ERR_BUSY);
    bench_result(&b);
    bench_result(&b);
    assert_int_equal(b.h->driver->free_slots(b.h), 2);
    bench_end(&b);
}

static void least_loaded_worker(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "window", "2");
    b.o.workers = 2;
    bench_open(&b);
    for (int round = 0; round < 3; round++) {
        bench_start(&b, "{\"do\":\"pid\"}");
        bench_start(&b, "{\"do\":\"pid\"}");
        const char *first = bench_cstr(&b, bench_result(&b).verdict.reason);
        const char *second = bench_cstr(&b, bench_result(&b).verdict.reason);
        assert_string_not_equal(first, second);
    }
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_hello),
        cmocka_unit_test(four_results),
        cmocka_unit_test(no_result),
        cmocka_unit_test(long_reason_is_cut),
        cmocka_unit_test(what_the_worker_gets),
        cmocka_unit_test(emitted),
        cmocka_unit_test(emitted_keeps_the_conversation),
        cmocka_unit_test(emitted_without_effect_is_left_out),
        cmocka_unit_test(wrong_events),
        cmocka_unit_test(too_many_events),
        cmocka_unit_test(stray_lines),
        cmocka_unit_test(answer_in_pieces),
        cmocka_unit_test(endless_line),
        cmocka_unit_test(many_lines),
        cmocka_unit_test(late_and_unknown_answers),
        cmocka_unit_test(stderr_is_log),
        cmocka_unit_test(much_stderr),
        cmocka_unit_test(no_hello),
        cmocka_unit_test(wrong_protocol),
        cmocka_unit_test(window),
        cmocka_unit_test(window_is_cut),
        cmocka_unit_test(one_at_a_time_by_default),
        cmocka_unit_test(least_loaded_worker),
    };
    return cmocka_run_group_tests_name("exec_answers", tests, NULL, NULL);
}
