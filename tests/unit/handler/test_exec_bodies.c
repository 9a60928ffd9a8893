/* Bodies on their way to a worker: JSON token by token, everything else byte by byte. */
#include "exec_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

#define MIB (1024 * 1024)

static const char *begin(struct bench *b, const char *mode)
{
    bench_init(b, mode, "");
    const char *path = bench_path(b, "lines");
    b->command[3] = tdi_str(path);
    bench_open(b);
    return path;
}

static void deliver(struct bench *b, const struct td_message *m)
{
    struct td_error err = {.text = ""};
    struct td_run run = bench_run(b, m);
    enum td_err rc = b->h->driver->start(b->h, &run, &err);
    if (rc != TD_OK) {
        fail_msg("%s", err.text);
    }
    struct td_run_result r;
    do {
        r = bench_result(b);
        assert_int_equal(r.verdict.kind, TD_VERDICT_OK);
    } while (r.token != run.token);
}

/* The last line of the file, from `"data` on and without the end of event and line; absent: none. */
static struct td_str data_of(struct bench *b, const char *path)
{
    struct td_str all = bench_read(b, path);
    assert_true(all.len > 3);
    assert_memory_equal(all.data + all.len - 3, "}}\n", 3);
    size_t begin_at = all.len - 1;
    while (begin_at > 0 && all.data[begin_at - 1] != '\n') {
        begin_at--;
    }
    char *data = strstr(all.data + begin_at, "\"data");
    if (data == NULL || strncmp(data, "\"datacontenttype", 16) == 0) {
        data = data == NULL ? NULL : strstr(data + 16, "\"data");
    }
    if (data == NULL) {
        return TD_STR_NONE;
    }
    return (struct td_str){data, (size_t)(all.data + all.len - 3 - data)};
}

static void json_as_it_was(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *line;
    } cases[] = {
        {"{\"n\":12345678901234567890123,\"f\":1.10,\"e\":1E+2,\"z\":-0.0}",
         "{\"n\":12345678901234567890123,\"f\":1.10,\"e\":1E+2,\"z\":-0.0}"},
        {"{\"b\":1,\"a\":2,\"b\":3}", "{\"b\":1,\"a\":2,\"b\":3}"},
        {"{\n  \"a\" :\t[1,\r\n2]\n}\n", "{   \"a\" :\t[1,  2] } "},
        {"\"line\\nfeed \\u0000 \\ud83d\\ude00 \\/ \xc3\xa4\"",
         "\"line\\nfeed \\u0000 \\ud83d\\ude00 \\/ \xc3\xa4\""},
        {" null ", " null "},
        {"0", "0"},
    };
    struct bench b;
    const char *path = begin(&b, "raw");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        deliver(&b, bench_json(&b, cases[i].body));
        struct td_str expected = tdi_arena_printf(&b.arena, "\"data\":%s", cases[i].line);
        assert_text(&b, data_of(&b, path), expected.data);
    }
    bench_end(&b);
}

static void expect_base64(struct bench *b, const char *path, struct td_bytes body,
                          const char *content_type)
{
    struct td_message *m = bench_message(b, body);
    m->content_type = tdi_str(content_type);
    deliver(b, m);
    struct td_str data = data_of(b, path);
    assert_true(tdi_str_starts(data, "\"data_base64\":\""));
    struct td_str text = {data.data + 15, data.len - 16};
    unsigned char *bytes = tdi_arena_alloc(&b->arena, text.len);
    size_t len = SIZE_MAX;
    assert_true(tdi_base64_decode(text, bytes, &len));
    assert_int_equal(len, body.len);
    assert_memory_equal(bytes, body.data, len);
}

static void all_else_in_base64(void **state)
{
    (void)state;
    unsigned char every[256];
    char deep[400];
    for (size_t i = 0; i < 256; i++) {
        every[i] = (unsigned char)i;
    }
    memset(deep, '[', 200);
    memset(deep + 200, ']', 200);
    struct bench b;
    const char *path = begin(&b, "raw");
    expect_base64(&b, path, (struct td_bytes){every, 256}, NULL);
    expect_base64(&b, path, (struct td_bytes){every, 256}, "image/png");
    expect_base64(&b, path, (struct td_bytes){every, 1}, NULL);
    expect_base64(&b, path, (struct td_bytes){"", 0}, NULL);
    expect_base64(&b, path, (struct td_bytes){"{\"a\":1}", 7}, "application/xml");
    expect_base64(&b, path, (struct td_bytes){"{\"a\":1", 6}, "application/json");
    expect_base64(&b, path, (struct td_bytes){"\"\xff\"", 3}, "application/json");
    expect_base64(&b, path, (struct td_bytes){"\xef\xbb\xbf{}", 5}, "application/json");
    expect_base64(&b, path, (struct td_bytes){"1 2", 3}, "application/json");
    expect_base64(&b, path, (struct td_bytes){deep, 400}, "application/json");
    bench_end(&b);
}

static void json_types(void **state)
{
    (void)state;
    static const char *const types[] = {"application/json; charset=utf-8", "text/json",
                                        "Application/JSON", "application/vnd.shop+json"};
    struct bench b;
    const char *path = begin(&b, "raw");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct td_message *m = bench_json(&b, "[7]");
        m->content_type = tdi_str(types[i]);
        deliver(&b, m);
        assert_text(&b, data_of(&b, path), "\"data\":[7]");
    }
    bench_end(&b);
}

static void tombstone(void **state)
{
    (void)state;
    struct bench b;
    const char *path = begin(&b, "raw");
    deliver(&b, bench_message(&b, TD_BYTES_NONE));
    assert_null(data_of(&b, path).data);
    bench_end(&b);
}

static char *random_json(size_t bytes)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    uint32_t x = 1;
    text[0] = '"';
    for (size_t i = 1; i < bytes - 1; i++) {
        x = x * 1664525 + 1013904223;
        text[i] = (char)('a' + (x >> 24) % 26);
    }
    text[bytes - 1] = '"';
    return text;
}

static void large_body(void **state, const char *mode, size_t bytes)
{
    (void)state;
    struct bench b;
    const char *path = begin(&b, mode);
    char *text = random_json(bytes);
    deliver(&b, bench_message(&b, (struct td_bytes){text, bytes}));
    struct td_str data = data_of(&b, path);
    assert_int_equal(data.len, bytes + 7);
    assert_memory_equal(data.data + 7, text, bytes);
    free(text);
    bench_end(&b);
}

static void one_mebibyte(void **state)
{
    large_body(state, "raw", MIB);
}

/* The worker writes 2 MB before it reads: neither side may wait for the other for ever. */
static void both_write_much(void **state)
{
    large_body(state, "flood", MIB);
}

static void largest_body(void **state)
{
    large_body(state, "raw", TD_BODY_BYTES_MAX);
}

static void largest_bytes(void **state)
{
    (void)state;
    struct bench b;
    const char *path = begin(&b, "raw");
    unsigned char *bytes = calloc(1, TD_BODY_BYTES_MAX);
    assert_non_null(bytes);
    bytes[0] = 1;
    deliver(&b, bench_message(&b, (struct td_bytes){bytes, TD_BODY_BYTES_MAX}));
    struct td_str data = data_of(&b, path);
    assert_true(tdi_str_starts(data, "\"data_base64\":\"AQAA"));
    assert_int_equal(data.len, 15 + (TD_BODY_BYTES_MAX + 2) / 3 * 4 + 1);
    free(bytes);
    bench_end(&b);
}

/* Two that do not fit together: one waits for a later attempt, and no half line goes out. */
static void more_than_fits(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    const char *path = begin(&b, "raw, window 2");
    deliver(&b, bench_json(&b, "1"));
    char *text = random_json(TD_BODY_BYTES_MAX);
    struct td_message *m = bench_message(&b, (struct td_bytes){text, TD_BODY_BYTES_MAX});
    uint64_t tokens[2];
    for (size_t i = 0; i < 2; i++) {
        struct td_run run = bench_run(&b, m);
        tokens[i] = run.token;
        assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_OK);
    }
    struct td_run_result r = bench_result(&b);
    assert_int_equal(r.token, tokens[1]);
    assert_int_equal(r.verdict.kind, TD_VERDICT_RETRY);
    assert_true(r.verdict.uncharged);
    assert_text(&b, r.verdict.reason, "no memory to hand the message to a worker");
    deliver(&b, bench_json(&b, "2")); /* behind it, while the first is still being written */
    assert_text(&b, data_of(&b, path), "\"data\":2");
    free(text);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_as_it_was), cmocka_unit_test(all_else_in_base64),
        cmocka_unit_test(json_types),     cmocka_unit_test(tombstone),
        cmocka_unit_test(one_mebibyte),   cmocka_unit_test(both_write_much),
        cmocka_unit_test(largest_body),   cmocka_unit_test(largest_bytes),
        cmocka_unit_test(more_than_fits),
    };
    return cmocka_run_group_tests_name("exec_bodies", tests, NULL, NULL);
}
