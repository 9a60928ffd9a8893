/* The envelope and the headers column as JSON, there and back. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"
#include "core/envelope.h"
#include "messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct tdi_arena arena;
    struct tdi_buf buf;
    struct td_message m; /* what was read */
    struct td_error err;
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    tdi_arena_init(&f.arena, 0);
    tdi_buf_init(&f.buf, 1 << 20);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tdi_arena_release(&f->arena);
    tdi_buf_release(&f->buf);
    return 0;
}

static void read_ok(struct fixture *f, const char *text, bool with_data)
{
    memset(&f->m, 0x5a, sizeof(f->m)); /* every field must be written */
    f->m.body = TD_BYTES_NONE;
    f->err.text[0] = '\0';
    enum td_err e = tdi_envelope_read(tdi_str(text), with_data, &f->arena, &f->m, &f->err);
    assert_string_equal(f->err.text, "");
    assert_int_equal(e, TD_OK);
}

static void read_wrong(struct fixture *f, const char *text, bool with_data, enum td_err code,
                       const char *why)
{
    f->m = small_message();
    f->m.id = TD_STR_LIT("untouched");
    assert_int_equal(tdi_envelope_read(tdi_str(text), with_data, &f->arena, &f->m, &f->err), code);
    assert_int_equal(f->err.code, code);
    assert_non_null(strstr(f->err.text, why));
    assert_true(tdi_str_is(f->m.id, "untouched"));
}

static void same_text(struct td_str a, struct td_str b)
{
    assert_int_equal(a.data == NULL, b.data == NULL);
    assert_int_equal(a.len, b.len);
    if (a.len > 0) {
        assert_memory_equal(a.data, b.data, a.len);
    }
}

/* All but topic and body. */
static void same_envelope(const struct td_message *a, const struct td_message *b)
{
    same_text(a->id, b->id);
    same_text(a->source, b->source);
    same_text(a->type, b->type);
    same_text(a->key, b->key);
    assert_int_equal(a->time, b->time);
    assert_int_equal(a->sequence, b->sequence);
    same_text(a->content_type, b->content_type);
    same_text(a->data_schema, b->data_schema);
    same_text(a->traceparent, b->traceparent);
    same_text(a->tracestate, b->tracestate);
    same_text(a->baggage, b->baggage);
    same_text(a->correlation_id, b->correlation_id);
    same_text(a->causation_id, b->causation_id);
    same_text(a->aggregate_type, b->aggregate_type);
    assert_int_equal(a->aggregate_version, b->aggregate_version);
    same_text(a->tenant, b->tenant);
    assert_int_equal(a->expires_at, b->expires_at);
    same_text(a->data_ref, b->data_ref);
    assert_int_equal(a->published_at, b->published_at);
    assert_int_equal(a->deliver_at, b->deliver_at);
    assert_int_equal(a->headers_count, b->headers_count);
    for (size_t i = 0; i < a->headers_count; i++) {
        same_text(a->headers[i].name, b->headers[i].name);
        same_text(a->headers[i].value, b->headers[i].value);
    }
}

/* Written and read back it is the same. */
static void round_trip(struct fixture *f, const struct td_message *m)
{
    tdi_buf_clear(&f->buf);
    tdi_envelope_write(&f->buf, m);
    assert_false(f->buf.failed);
    read_ok(f, f->buf.data, false);
    same_envelope(m, &f->m);
    assert_null(f->m.topic.data);
}

/* ---- writing ---------------------------------------------------------------------------- */

static void written_form(void **state)
{
    struct fixture *f = *state;
    struct td_message m = small_message();
    tdi_envelope_write(&f->buf, &m);
    assert_string_equal(f->buf.data, "{\"specversion\":\"1.0\",\"id\":\"m-1\",\"source\":\"shop\","
                                     "\"type\":\"order.paid\"}");
    tdi_buf_clear(&f->buf);
    m = full_message();
    tdi_envelope_write(&f->buf, &m);
    assert_string_equal(
        f->buf.data,
        "{\"specversion\":\"1.0\",\"id\":\"m-1\",\"source\":\"shop\",\"type\":\"order.paid\","
        "\"time\":\"2025-11-29T22:23:08.123456Z\",\"partitionkey\":\"user/7 \xe2\x82\xac\","
        "\"sequence\":\"4711\",\"datacontenttype\":\"application/json; charset=utf-8\","
        "\"dataschema\":\"https://schema.example/order/3\","
        "\"traceparent\":\"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\","
        "\"tracestate\":\"vendor=t61rcWkgMzE\",\"baggage\":\"userId=alice,serverNode=DF%2028\","
        "\"correlationid\":\"c-1\",\"causationid\":\"m-0\",\"aggregatetype\":\"order\","
        "\"aggregateversion\":12,\"tenant\":\"acme\","
        "\"expirytime\":\"2025-11-30T22:23:08.000000Z\",\"dataref\":\"s3://bucket/object\","
        "\"tidingspublishedat\":\"2025-11-29T22:23:08.200000Z\","
        "\"tidingsdeliverat\":\"2025-11-29T22:23:19.000000Z\","
        "\"headers\":{\"x-b\":\"2\",\"x-a\":\"\\\"quoted\\\" \\\\ \xc3\xa4\\n\",\"x-b\":\"\"}}");
}

static void open_form(void **state)
{
    struct fixture *f = *state;
    struct td_message m = full_message();
    tdi_envelope_write_open(&f->buf, &m);
    tdi_buf_add_cstr(&f->buf, ",\"data\":{\"a\":1}}");
    assert_true(tdi_json_valid(tdi_buf_str(&f->buf), NULL, NULL));
    read_ok(f, f->buf.data, true);
    same_envelope(&m, &f->m);
    assert_int_equal(f->m.body.len, 7);
}

static void invalid_messages_are_written_as_valid_json(void **state)
{
    struct fixture *f = *state;
    struct td_header h = {TD_STR_LIT("x\x01"), TD_STR_NONE};
    struct td_message m = small_message();
    m.id = TD_STR_NONE;
    m.key = TD_STR_LIT("a\xff"
                       "b");
    m.time = INT64_MAX;
    m.headers = &h;
    m.headers_count = 1;
    tdi_envelope_write(&f->buf, &m);
    assert_string_equal(f->buf.data,
                        "{\"specversion\":\"1.0\",\"source\":\"shop\",\"type\":\"order.paid\","
                        "\"partitionkey\":\"a\xef\xbf\xbd"
                        "b\",\"headers\":{\"x\\u0001\":\"\"}}");
}

static void a_full_buffer_is_marked(void **state)
{
    (void)state;
    struct tdi_buf small;
    tdi_buf_init(&small, 100);
    struct td_message m = full_message();
    tdi_envelope_write(&small, &m);
    assert_true(small.failed);
    tdi_buf_release(&small);
}

/* ---- there and back --------------------------------------------------------------------- */

static void round_trips(void **state)
{
    struct fixture *f = *state;
    struct td_message m = small_message();
    round_trip(f, &m);
    m = full_message();
    round_trip(f, &m);
    m.id = TD_STR_NONE; /* missing stays missing */
    round_trip(f, &m);
    m.tenant = TD_STR_LIT(""); /* empty stays empty */
    round_trip(f, &m);
}

static void numbers_round_trip(void **state)
{
    struct fixture *f = *state;
    const int64_t numbers[] = {INT64_MAX, INT64_MIN + 1, 0, -1, 1, 9, 10, -10, 999999999999999999};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct td_message m = small_message();
        m.sequence = numbers[i];
        m.aggregate_version = numbers[i];
        round_trip(f, &m);
        assert_int_equal(f->m.sequence, numbers[i]);
        assert_int_equal(f->m.aggregate_version, numbers[i]);
    }
}

static void times_round_trip(void **state)
{
    struct fixture *f = *state;
    const char *times[] = {"0000-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z",
                           "1969-12-31T23:59:59.999999Z", "2024-02-29T12:00:00.000001Z"};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        struct td_message m = small_message();
        assert_true(tdi_time_parse(tdi_str(times[i]), &m.time));
        m.expires_at = m.time;
        m.published_at = m.time;
        round_trip(f, &m);
    }
}

static void many_headers_round_trip(void **state)
{
    struct fixture *f = *state;
    struct td_header headers[TD_HEADERS_MAX + 1];
    char names[TD_HEADERS_MAX + 1][8];
    for (size_t i = 0; i <= TD_HEADERS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "h%zu", (i * 7) % 50); /* out of order, repeated */
        headers[i] = (struct td_header){tdi_str(names[i]), tdi_str(names[TD_HEADERS_MAX - i])};
    }
    struct td_message m = small_message();
    m.headers = headers;
    m.headers_count = TD_HEADERS_MAX;
    for (size_t i = 0; i < TD_HEADERS_MAX; i++) {
        headers[i].value = headers[i].name;
    }
    round_trip(f, &m);
    m.headers_count = TD_HEADERS_MAX + 1;
    tdi_buf_clear(&f->buf);
    tdi_envelope_write(&f->buf, &m);
    read_wrong(f, f->buf.data, false, TD_ERR_LIMIT, "more than 128 headers");
}

/* ---- reading ---------------------------------------------------------------------------- */

static void unknown_members(void **state)
{
    struct fixture *f = *state;
    read_ok(f,
            "{ \"Color\" : \"r\\u00e9d\", \"id\":\"1\", \"n\":-1.50e2, \"yes\":true, \"no\":false,"
            "\"nil\":null, \"list\":[1,{\"id\":\"x\"}], \"object\":{\"a\":{\"b\":[]}},"
            "\"headers\":{\"h\":\"1\"}, \"topic\":\"t\", \"color\":\"2\", \"specversion\":\"1.0\"}",
            false);
    const struct td_header expected[] = {
        {TD_STR_LIT("color"), TD_STR_LIT("r\xc3\xa9"
                                         "d")},
        {TD_STR_LIT("n"), TD_STR_LIT("-1.50e2")},
        {TD_STR_LIT("yes"), TD_STR_LIT("true")},
        {TD_STR_LIT("no"), TD_STR_LIT("false")},
        {TD_STR_LIT("h"), TD_STR_LIT("1")},
        {TD_STR_LIT("topic"), TD_STR_LIT("t")},
        {TD_STR_LIT("color"), TD_STR_LIT("2")},
    };
    struct td_message m = small_message();
    m.id = TD_STR_LIT("1");
    m.source = TD_STR_NONE;
    m.type = TD_STR_NONE;
    m.headers = expected;
    m.headers_count = sizeof(expected) / sizeof(expected[0]);
    same_envelope(&f->m, &m);
}

static void missing_and_null(void **state)
{
    struct fixture *f = *state;
    struct td_message m = small_message();
    m.id = TD_STR_NONE;
    m.source = TD_STR_NONE;
    m.type = TD_STR_NONE;
    read_ok(f, "{}", false);
    same_envelope(&f->m, &m);
    assert_null(f->m.headers);
    read_ok(f, " {\"id\":null,\"time\":null,\"sequence\":null,\"aggregateversion\":null} ", false);
    same_envelope(&f->m, &m);
}

static void keys_with_escapes(void **state)
{
    struct fixture *f = *state;
    read_ok(f, "{\"i\\u0064\":\"a\\/b\",\"\\u0074ype\":\"\\u0074\"}", false);
    assert_true(tdi_str_is(f->m.id, "a/b"));
    assert_true(tdi_str_is(f->m.type, "t"));
}

static void members_in_any_order(void **state)
{
    struct fixture *f = *state;
    read_ok(f,
            "{\"dataref\":\"d\",\"tenant\":\"t\",\"type\":\"y\",\"id\":\"i\",\"source\":\"s\","
            "\"id\":\"j\"}",
            false);
    assert_true(tdi_str_is(f->m.data_ref, "d"));
    assert_true(tdi_str_is(f->m.tenant, "t"));
    assert_true(tdi_str_is(f->m.type, "y"));
    assert_true(tdi_str_is(f->m.source, "s"));
    assert_true(tdi_str_is(f->m.id, "j")); /* the last counts, as everywhere */
    assert_int_equal(f->m.headers_count, 0);
}

static void other_forms_of_numbers_and_times(void **state)
{
    struct fixture *f = *state;
    read_ok(f,
            "{\"sequence\":17,\"aggregateversion\":\"18\","
            "\"time\":\"2025-11-29T23:23:08+01:00\"}",
            false);
    assert_int_equal(f->m.sequence, 17);
    assert_int_equal(f->m.aggregate_version, 18);
    assert_int_equal(f->m.time, INT64_C(1764454988000000));
    /* CloudEvents allows any text as a sequence. */
    read_ok(f, "{\"sequence\":\"A-17\"}", false);
    assert_int_equal(f->m.sequence, TD_NUMBER_NONE);
    assert_int_equal(f->m.headers_count, 1);
    assert_true(tdi_str_is(f->m.headers[0].name, "sequence"));
    assert_true(tdi_str_is(f->m.headers[0].value, "A-17"));
    read_ok(f, "{\"sequence\":\"-9223372036854775808\"}", false); /* TD_NUMBER_NONE itself */
    assert_true(
        tdi_str_is(tdi_message_header(&f->m, TD_STR_LIT("sequence")), "-9223372036854775808"));
}

static void wrong_envelopes(void **state)
{
    struct fixture *f = *state;
    const struct {
        const char *text;
        const char *why;
    } all[] = {
        {"", "not valid JSON: "},
        {"[]", "the attributes are not a JSON object"},
        {"\"x\"", "the attributes are not a JSON object"},
        {"null", "the attributes are not a JSON object"},
        {"{", "not valid JSON: "},
        {"{\"id\":\"1\"", "not valid JSON: "},
        {"{\"id\":\"1\"}x", "not valid JSON: "},
        {"{\"id\":\"1\",}", "not valid JSON: "},
        {"{\"id\":\"\xff\"}", "not valid JSON: "},
        {"{\"x\":{\"y\":[}}", "not valid JSON: "},
        {"{\"headers\":{\"a\":\"b\"}", "not valid JSON: "},
        {"{\"headers\":{\"a\":}}", "not valid JSON: "},
        {"{\"headers\":{a:1}}", "not valid JSON: "},
        {"{\"data\":[1}", "not valid JSON: "},
        {"{\"id\":1}", "the attribute id is not a string"},
        {"{\"type\":{}}", "the attribute type is not a string"},
        {"{\"specversion\":\"0.3\"}", "the attribute specversion is not \"1.0\""},
        {"{\"specversion\":1.0}", "the attribute specversion is not \"1.0\""},
        {"{\"specversion\":null}", "the attribute specversion is not \"1.0\""},
        {"{\"time\":\"yesterday\"}", "the attribute time is not a time as in RFC 3339"},
        {"{\"time\":1764454988}", "the attribute time is not a time as in RFC 3339"},
        {"{\"time\":\"9999-12-31T23:59:59-01:00\"}", "the attribute time is not a time"},
        {"{\"expirytime\":\"\"}", "the attribute expirytime is not a time"},
        {"{\"tidingspublishedat\":\"x\"}", "the attribute tidingspublishedat is not a time"},
        {"{\"aggregateversion\":1.5}", "the attribute aggregateversion is not an integer"},
        {"{\"aggregateversion\":9223372036854775808}", "is not an integer of 64 bits"},
        {"{\"aggregateversion\":-9223372036854775808}", "is not an integer of 64 bits"},
        {"{\"aggregateversion\":\"x\"}", "is not an integer of 64 bits"},
        {"{\"aggregateversion\":true}", "is not an integer of 64 bits"},
        {"{\"headers\":{\"a\":\"b\",\"c\":1}}", "the value of header 2 is not a string"},
        {"{\"headers\":{\"a\":null}}", "the value of header 1 is not a string"},
        {"{\"headers\":{\"a\":{}}}", "the value of header 1 is not a string"},
        {"{\"headers\":{\"a\":\"\xc3\"}}", "not valid JSON: "},
        {"{\"id\":\"\\ud800\"}", "a string holds half of a surrogate pair at byte 6"},
        {"{\"key\":\"a\\u0000b\"}", "a string holds a NUL character at byte 7"},
        {"{\"a\\u0000\":1}", "a string holds a NUL character at byte 1"},
        {"{\"headers\":{\"a\":\"\\u0000\"}}", "a string holds a NUL character at byte 16"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        read_wrong(f, all[i].text, false, TD_ERR_INVALID, all[i].why);
        read_wrong(f, all[i].text, true, TD_ERR_INVALID, all[i].why);
    }
    assert_int_equal(tdi_envelope_read(TD_STR_NONE, false, &f->arena, &f->m, NULL), TD_ERR_INVALID);
}

static void cut_anywhere_is_invalid(void **state)
{
    struct fixture *f = *state;
    struct td_message m = full_message();
    tdi_envelope_write(&f->buf, &m);
    for (size_t len = 0; len < f->buf.len; len++) {
        struct td_str cut = {.data = f->buf.data, .len = len};
        assert_int_equal(tdi_envelope_read(cut, true, &f->arena, &f->m, &f->err), TD_ERR_INVALID);
    }
}

static void no_memory(void **state)
{
    struct fixture *f = *state;
    struct tdi_arena small;
    static char text[40000];
    memset(text, 'a', sizeof(text));
    memcpy(text, "{\"id\":\"\\n", 9);
    memcpy(text + sizeof(text) - 3, "\"}", 3);
    tdi_arena_init(&small, 20000);
    assert_int_equal(tdi_envelope_read(tdi_str(text), false, &small, &f->m, &f->err), TD_ERR_NOMEM);
    tdi_arena_release(&small);
}

/* ---- the body --------------------------------------------------------------------------- */

static void body_is(struct fixture *f, const char *text, const char *body)
{
    read_ok(f, text, true);
    assert_non_null(f->m.body.data);
    assert_int_equal(f->m.body.len, strlen(body));
    assert_memory_equal(f->m.body.data, body, strlen(body));
}

static void json_bodies(void **state)
{
    struct fixture *f = *state;
    /* As it was written: numbers, order, duplicates, spaces. */
    body_is(f, "{\"data\": {\"b\" : 1.50,\n\"a\":1e2,\"a\":[ ]} ,\"id\":\"1\"}",
            "{\"b\" : 1.50,\n\"a\":1e2,\"a\":[ ]}");
    body_is(f, "{\"data\":[1, 2]}", "[1, 2]");
    body_is(f, "{\"data\":12.340}", "12.340");
    body_is(f, "{\"data\":true}", "true");
    body_is(f, "{\"data\":\"a\\u0062\"}", "\"a\\u0062\"");
    body_is(f, "{\"datacontenttype\":\"Application/Problem+JSON ; v=1\",\"data\":\"x\"}", "\"x\"");
}

static void text_bodies(void **state)
{
    struct fixture *f = *state;
    body_is(f, "{\"data\":\"a\\u0062\\n\",\"datacontenttype\":\"text/plain\"}", "ab\n");
    body_is(f, "{\"datacontenttype\":\"application/xml\",\"data\":\"\"}", "");
    body_is(f, "{\"datacontenttype\":\"text/plain\",\"data\":{\"a\":1}}", "{\"a\":1}");
    read_ok(f, "{\"datacontenttype\":\"text/plain\",\"data\":\"a\\u0000b\"}", true);
    assert_int_equal(f->m.body.len, 3);
    assert_memory_equal(f->m.body.data, "a\0b", 3);
    read_wrong(f, "{\"datacontenttype\":\"text/plain\",\"data\":\"\\udc00\"}", true, TD_ERR_INVALID,
               "surrogate");
}

static void base64_bodies(void **state)
{
    struct fixture *f = *state;
    body_is(f, "{\"data_base64\":\"aGVsbG8=\"}", "hello");
    body_is(f, "{\"data_base64\":\"Pz8\\/\",\"data\":null}", "?\?\?");
    body_is(f, "{\"data_base64\":\"\"}", "");
    read_ok(f, "{\"data_base64\":\"AP8A\"}", true);
    assert_int_equal(f->m.body.len, 3);
    assert_memory_equal(f->m.body.data, "\0\xff\0", 3);
    read_wrong(f, "{\"data_base64\":\"aGVsbG8\"}", true, TD_ERR_INVALID,
               "the member data_base64 is not base64");
    read_wrong(f, "{\"data_base64\":7}", true, TD_ERR_INVALID,
               "the member data_base64 is not a string");
    read_wrong(f, "{\"data_base64\":\"\",\"data\":1}", true, TD_ERR_INVALID,
               "both data and data_base64 are there");
}

static void tombstones(void **state)
{
    struct fixture *f = *state;
    const char *none[] = {"{}", "{\"data\":null}", "{\"data_base64\":null,\"data\":null}"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        f->m.body = (struct td_bytes){.data = "old", .len = 3};
        assert_int_equal(tdi_envelope_read(tdi_str(none[i]), true, &f->arena, &f->m, &f->err),
                         TD_OK);
        assert_null(f->m.body.data);
        assert_int_equal(f->m.body.len, 0);
    }
}

static void body_is_left_alone_without_data(void **state)
{
    struct fixture *f = *state;
    f->m.body = (struct td_bytes){.data = "old", .len = 3};
    assert_int_equal(tdi_envelope_read(TD_STR_LIT("{\"data\":{\"a\":1},\"data_base64\":7}"), false,
                                       &f->arena, &f->m, &f->err),
                     TD_OK);
    assert_int_equal(f->m.body.len, 3);
    assert_int_equal(f->m.headers_count, 0);
}

static void topic_of_a_structured_event(void **state)
{
    struct fixture *f = *state;
    read_ok(f, "{\"type\":\"a\",\"topic\":\"orders\",\"data\":{}}", true);
    assert_true(tdi_str_is(f->m.topic, "orders"));
    assert_int_equal(f->m.headers_count, 0);
    read_ok(f, "{\"type\":\"a\",\"topic\":\"orders\"}", false);
    assert_null(f->m.topic.data);
    assert_true(tdi_str_is(tdi_message_header(&f->m, TD_STR_LIT("topic")), "orders"));
}

static void json_media_types(void **state)
{
    (void)state;
    const char *json[] = {"application/json",
                          "APPLICATION/JSON",
                          "application/json;charset=x",
                          "application/json\t; x",
                          "text/json",
                          "application/vnd.a+json",
                          ""};
    for (size_t i = 0; i < sizeof(json) / sizeof(json[0]); i++) {
        assert_true(tdi_content_is_json(tdi_str(json[i])));
    }
    assert_true(tdi_content_is_json(TD_STR_NONE));
    const char *other[] = {"text/plain", "application/jsonx", "application/jso",      "json",
                           "+jsonx",     "text/plain;+json",  "application/json-seq", ";"};
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        assert_false(tdi_content_is_json(tdi_str(other[i])));
    }
}

/* ---- the headers column ----------------------------------------------------------------- */

static void headers_column(void **state)
{
    struct fixture *f = *state;
    struct td_header *h = NULL;
    size_t count = 99;
    assert_int_equal(tdi_headers_read(TD_STR_LIT(" {\"B\":\"1\", \"a\":\"\\u00e4\",\"b\":\"\"} "),
                                      &f->arena, &h, &count, &f->err),
                     TD_OK);
    assert_int_equal(count, 3);
    assert_true(tdi_str_is(h[0].name, "b") && tdi_str_is(h[0].value, "1"));
    assert_true(tdi_str_is(h[1].name, "a") && tdi_str_is(h[1].value, "\xc3\xa4"));
    assert_true(tdi_str_is(h[2].name, "b") && tdi_str_is(h[2].value, ""));
    tdi_headers_write(&f->buf, h, count);
    assert_string_equal(f->buf.data, "{\"b\":\"1\",\"a\":\"\xc3\xa4\",\"b\":\"\"}");
    tdi_buf_clear(&f->buf);
    tdi_headers_write(&f->buf, NULL, 0);
    assert_string_equal(f->buf.data, "{}");
    assert_int_equal(tdi_headers_read(TD_STR_LIT("{}"), &f->arena, &h, &count, &f->err), TD_OK);
    assert_int_equal(count, 0);
}

static void wrong_headers_columns(void **state)
{
    struct fixture *f = *state;
    struct td_header *h = NULL;
    size_t count = 99;
    const char *wrong[] = {"",
                           "[]",
                           "null",
                           "\"a\"",
                           "{\"a\":1}",
                           "{\"a\":null}",
                           "{\"a\":[]}",
                           "{\"a\":\"b\"",
                           "{\"a\":\"b\"}{}",
                           "{\"a\":\"\xff\"}",
                           "{\"a\"}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        f->err.text[0] = '\0';
        assert_int_equal(tdi_headers_read(tdi_str(wrong[i]), &f->arena, &h, &count, &f->err),
                         TD_ERR_INVALID);
        assert_true(strlen(f->err.text) > 10);
    }
    assert_null(h);
    assert_int_equal(count, 99);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(written_form),
        TEST(open_form),
        TEST(invalid_messages_are_written_as_valid_json),
        TEST(a_full_buffer_is_marked),
        TEST(round_trips),
        TEST(numbers_round_trip),
        TEST(times_round_trip),
        TEST(many_headers_round_trip),
        TEST(unknown_members),
        TEST(missing_and_null),
        TEST(keys_with_escapes),
        TEST(members_in_any_order),
        TEST(other_forms_of_numbers_and_times),
        TEST(wrong_envelopes),
        TEST(cut_anywhere_is_invalid),
        TEST(no_memory),
        TEST(json_bodies),
        TEST(text_bodies),
        TEST(base64_bodies),
        TEST(tombstones),
        TEST(body_is_left_alone_without_data),
        TEST(topic_of_a_structured_event),
        TEST(json_media_types),
        TEST(headers_column),
        TEST(wrong_headers_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
