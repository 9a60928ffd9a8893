/* The check before publishing, copying, attributes and headers by name. */
#include "base/arena.h"
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

static char long_text[TD_HEADERS_BYTES_MAX + 2];

static struct td_str text_of_len(size_t len)
{
    memset(long_text, 'x', sizeof(long_text));
    return (struct td_str){.data = long_text, .len = len};
}

static void valid(const struct td_message *m)
{
    struct td_error err = {.code = TD_OK, .text = "untouched"};
    assert_int_equal(tdi_message_check(m, &err), TD_OK);
    assert_string_equal(err.text, "untouched");
    assert_int_equal(tdi_message_check(m, NULL), TD_OK);
}

static void wrong(const struct td_message *m, enum td_err code, const char *text)
{
    struct td_error err = {.code = TD_OK};
    assert_int_equal(tdi_message_check(m, &err), code);
    assert_int_equal(err.code, code);
    assert_string_equal(err.text, text);
    assert_int_equal(tdi_message_check(m, NULL), code);
}

static void small_and_full_are_valid(void **state)
{
    (void)state;
    struct td_message m = small_message();
    valid(&m);
    m = full_message();
    valid(&m);
}

static void required_attributes(void **state)
{
    (void)state;
    struct td_message m = small_message();
    m.id = TD_STR_NONE;
    wrong(&m, TD_ERR_INVALID, "the message has no id");
    m.id = TD_STR_LIT("");
    wrong(&m, TD_ERR_INVALID, "the message has no id");
    m.id = TD_STR_LIT("a b");
    wrong(&m, TD_ERR_INVALID, "the attribute id may hold only printable ASCII without spaces");
    m.id = TD_STR_LIT("\xc3\xa4");
    wrong(&m, TD_ERR_INVALID, "the attribute id may hold only printable ASCII without spaces");
    m.id = text_of_len(TD_ID_BYTES_MAX);
    valid(&m);
    m.id = text_of_len(TD_ID_BYTES_MAX + 1);
    wrong(&m, TD_ERR_LIMIT, "the attribute id has 129 bytes, more than 128");
    m = small_message();
    m.source = TD_STR_NONE;
    wrong(&m, TD_ERR_INVALID, "the message has no source");
    m = small_message();
    m.type = TD_STR_LIT("");
    wrong(&m, TD_ERR_INVALID, "the message has no type");
}

static void limits_of_texts(void **state)
{
    (void)state;
    const struct {
        size_t offset;
        size_t max;
        const char *text;
    } all[] = {
#define FIELD(f) offsetof(struct td_message, f)
        {FIELD(source), 255, "the attribute source has 256 bytes, more than 255"},
        {FIELD(type), 255, "the attribute type has 256 bytes, more than 255"},
        {FIELD(topic), 255, "the topic has 256 bytes, more than 255"},
        {FIELD(key), 256, "the attribute partitionkey has 257 bytes, more than 256"},
        {FIELD(content_type), 8192, "the attribute datacontenttype has 8193 bytes, more than 8192"},
        {FIELD(data_schema), 8192, "the attribute dataschema has 8193 bytes, more than 8192"},
        {FIELD(traceparent), 8192, "the attribute traceparent has 8193 bytes, more than 8192"},
        {FIELD(tracestate), 8192, "the attribute tracestate has 8193 bytes, more than 8192"},
        {FIELD(baggage), 8192, "the attribute baggage has 8193 bytes, more than 8192"},
        {FIELD(correlation_id), 8192, "the attribute correlationid has 8193 bytes, more than 8192"},
        {FIELD(causation_id), 8192, "the attribute causationid has 8193 bytes, more than 8192"},
        {FIELD(aggregate_type), 8192, "the attribute aggregatetype has 8193 bytes, more than 8192"},
        {FIELD(tenant), 8192, "the attribute tenant has 8193 bytes, more than 8192"},
        {FIELD(data_ref), 8192, "the attribute dataref has 8193 bytes, more than 8192"},
#undef FIELD
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct td_message m = small_message();
        struct td_str *field = (struct td_str *)(void *)((char *)&m + all[i].offset);
        *field = text_of_len(all[i].max);
        valid(&m);
        *field = text_of_len(all[i].max + 1);
        wrong(&m, TD_ERR_LIMIT, all[i].text);
        char text[80];
        const char *end = strstr(all[i].text, " has");
        *field = TD_STR_LIT("a\xff");
        snprintf(text, sizeof(text), "%.*s is not valid UTF-8", (int)(end - all[i].text),
                 all[i].text);
        wrong(&m, TD_ERR_INVALID, text);
        *field = TD_STR_LIT("a\0b");
        snprintf(text, sizeof(text), "%.*s holds a NUL character", (int)(end - all[i].text),
                 all[i].text);
        wrong(&m, TD_ERR_INVALID, text);
    }
}

static void times(void **state)
{
    (void)state;
    struct td_message m = small_message();
    assert_true(tdi_time_parse(TD_STR_LIT("9999-12-31T23:59:59.999999Z"), &m.time));
    assert_true(tdi_time_parse(TD_STR_LIT("0000-01-01T00:00:00Z"), &m.expires_at));
    valid(&m);
    m.time++;
    wrong(&m, TD_ERR_INVALID, "the attribute time is not within the years 0000 to 9999");
    m.time = 0;
    m.expires_at--;
    wrong(&m, TD_ERR_INVALID, "the attribute expirytime is not within the years 0000 to 9999");
    m.expires_at = INT64_MAX;
    wrong(&m, TD_ERR_INVALID, "the attribute expirytime is not within the years 0000 to 9999");
}

static void header_names(void **state)
{
    (void)state;
    const char *bad[] = {"", "X-a", "a b", "a:b", "a\"", "\xc3\xa4", "a\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct td_header headers[] = {{TD_STR_LIT("fine"), TD_STR_LIT("1")},
                                      {tdi_str(bad[i]), TD_STR_LIT("1")}};
        struct td_message m = small_message();
        m.headers = headers;
        m.headers_count = 2;
        wrong(&m, TD_ERR_INVALID,
              "the name of header 2 is not 1 to 255 lower-case letters, digits or characters of "
              "-_.!#$%&'*+^`|~");
    }
    struct td_header nul = {TD_STR_LIT("a\0b"), TD_STR_LIT("1")};
    struct td_message m = small_message();
    m.headers = &nul;
    m.headers_count = 1;
    assert_int_equal(tdi_message_check(&m, NULL), TD_ERR_INVALID);
    nul.name = text_of_len(255);
    valid(&m);
    nul.name = text_of_len(256);
    assert_int_equal(tdi_message_check(&m, NULL), TD_ERR_INVALID);
    nul.name = TD_STR_LIT("-_.!#$%&'*+^`|~09az");
    valid(&m);
}

static void header_values(void **state)
{
    (void)state;
    struct td_header h = {TD_STR_LIT("x-trace"), TD_STR_LIT("ok \xff")};
    struct td_message m = small_message();
    m.headers = &h;
    m.headers_count = 1;
    wrong(&m, TD_ERR_INVALID, "the value of header x-trace is not valid UTF-8");
    h.value = TD_STR_LIT("\xc0\xaf"); /* overlong */
    wrong(&m, TD_ERR_INVALID, "the value of header x-trace is not valid UTF-8");
    h.value = TD_STR_LIT("a\0b");
    wrong(&m, TD_ERR_INVALID, "the value of header x-trace holds a NUL character");
    h.value = TD_STR_LIT("line\nfeed\t\xf0\x9f\x98\x80");
    valid(&m);
    h.value = TD_STR_NONE;
    valid(&m);
    h.value = text_of_len(TD_HEADERS_BYTES_MAX - h.name.len);
    valid(&m);
    h.value.len++;
    wrong(&m, TD_ERR_LIMIT, "the headers have 65537 bytes, more than 65536");
    h.value.len = TD_HEADERS_BYTES_MAX + 1;
    wrong(&m, TD_ERR_LIMIT, "the value of header x-trace has 65537 bytes, more than 65536");
}

static void header_count(void **state)
{
    (void)state;
    struct td_header headers[TD_HEADERS_MAX + 1];
    for (size_t i = 0; i <= TD_HEADERS_MAX; i++) {
        headers[i] = (struct td_header){TD_STR_LIT("a"), TD_STR_LIT("b")};
    }
    struct td_message m = small_message();
    m.headers = headers;
    m.headers_count = TD_HEADERS_MAX;
    valid(&m);
    m.headers_count++;
    wrong(&m, TD_ERR_LIMIT, "the message has 129 headers, more than 128");
}

static void body_size(void **state)
{
    (void)state;
    struct td_message m = small_message();
    m.body = (struct td_bytes){.data = "x", .len = TD_BODY_BYTES_MAX}; /* not read */
    valid(&m);
    m.body.len++;
    wrong(&m, TD_ERR_LIMIT, "the body has 67108865 bytes, more than 67108864");
}

static void copies_are_deep(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    struct td_message m = full_message();
    struct td_message copy;
    assert_true(tdi_message_copy(&a, &m, &copy));
#define SAME_TEXT(f)                                                                               \
    do {                                                                                           \
        assert_true(tdi_str_eq(copy.f, m.f));                                                      \
        assert_ptr_not_equal(copy.f.data, m.f.data);                                               \
    } while (0)
    SAME_TEXT(id);
    SAME_TEXT(source);
    SAME_TEXT(type);
    SAME_TEXT(topic);
    SAME_TEXT(key);
    SAME_TEXT(content_type);
    SAME_TEXT(data_schema);
    SAME_TEXT(traceparent);
    SAME_TEXT(tracestate);
    SAME_TEXT(baggage);
    SAME_TEXT(correlation_id);
    SAME_TEXT(causation_id);
    SAME_TEXT(aggregate_type);
    SAME_TEXT(tenant);
    SAME_TEXT(data_ref);
    assert_int_equal(copy.headers_count, 3);
    assert_ptr_not_equal(copy.headers, m.headers);
    for (size_t i = 0; i < 3; i++) {
        SAME_TEXT(headers[i].name);
        SAME_TEXT(headers[i].value);
    }
    assert_int_equal(copy.time, m.time);
    assert_int_equal(copy.sequence, m.sequence);
    assert_int_equal(copy.aggregate_version, m.aggregate_version);
    assert_int_equal(copy.deliver_at, m.deliver_at);
    assert_int_equal(copy.expires_at, m.expires_at);
    assert_int_equal(copy.published_at, m.published_at);
    assert_int_equal(copy.body.len, 7);
    assert_ptr_not_equal(copy.body.data, m.body.data);
    assert_memory_equal(copy.body.data, "{\"a\":1}", 7);
    tdi_arena_release(&a);
}

static void copies_keep_what_is_absent(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    struct td_message m = small_message();
    struct td_message copy;
    m.tenant = TD_STR_LIT("");
    assert_true(tdi_message_copy(&a, &m, &copy));
    assert_null(copy.key.data);
    assert_null(copy.topic.data);
    assert_non_null(copy.tenant.data); /* empty is not absent */
    assert_null(copy.headers);
    assert_null(copy.body.data); /* a tombstone */
    m.body = (struct td_bytes){.data = "", .len = 0};
    assert_true(tdi_message_copy(&a, &m, &copy));
    assert_non_null(copy.body.data); /* an empty body */
    assert_int_equal(copy.body.len, 0);
    tdi_arena_release(&a);
}

static void copy_in_a_full_arena(void **state)
{
    (void)state;
    static const char big[100000] = "";
    struct td_message m = full_message();
    m.body = (struct td_bytes){.data = big, .len = sizeof(big)};
    struct tdi_arena a;
    tdi_arena_init(&a, 32768);
    struct td_message copy = small_message();
    assert_false(tdi_message_copy(&a, &m, &copy));
    assert_true(tdi_str_is(copy.id, "m-1") && copy.headers_count == 0); /* untouched */
    tdi_arena_release(&a);
}

static void headers_by_name(void **state)
{
    (void)state;
    struct td_message m = full_message();
    assert_true(tdi_str_is(tdi_message_header(&m, TD_STR_LIT("x-b")), "2")); /* the first */
    assert_null(tdi_message_header(&m, TD_STR_LIT("x-c")).data);
    assert_null(tdi_message_header(&m, TD_STR_LIT("X-B")).data);
}

static struct td_value attribute(const struct td_message *m, struct tdi_arena *a, const char *name)
{
    struct td_value v = {.type = TD_VALUE_BLOB};
    assert_true(tdi_message_attribute(m, tdi_str(name), a, &v));
    return v;
}

static void attributes_by_name(void **state)
{
    (void)state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    struct td_message m = full_message();
    const struct {
        const char *name;
        const char *value;
    } texts[] = {
        {"id", "m-1"},
        {"source", "shop"},
        {"type", "order.paid"},
        {"topic", "orders"},
        {"time", "2025-11-29T22:23:08.123456Z"},
        {"partitionkey", "user/7 \xe2\x82\xac"},
        {"key", "user/7 \xe2\x82\xac"},
        {"datacontenttype", "application/json; charset=utf-8"},
        {"dataschema", "https://schema.example/order/3"},
        {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        {"tracestate", "vendor=t61rcWkgMzE"},
        {"baggage", "userId=alice,serverNode=DF%2028"},
        {"correlationid", "c-1"},
        {"causationid", "m-0"},
        {"aggregatetype", "order"},
        {"tenant", "acme"},
        {"expirytime", "2025-11-30T22:23:08.000000Z"},
        {"dataref", "s3://bucket/object"},
        {"tidingspublishedat", "2025-11-29T22:23:08.200000Z"},
    };
    struct td_message small = small_message();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct td_value v = attribute(&m, &a, texts[i].name);
        assert_int_equal(v.type, TD_VALUE_TEXT);
        assert_true(tdi_str_is(v.text, texts[i].value));
        if (i > 2) {
            assert_int_equal(attribute(&small, &a, texts[i].name).type, TD_VALUE_NULL);
        }
    }
    struct td_value v = attribute(&m, &a, "sequence");
    assert_int_equal(v.type, TD_VALUE_INT);
    assert_int_equal(v.i, 4711);
    v = attribute(&m, &a, "aggregateversion");
    assert_int_equal(v.type, TD_VALUE_INT);
    assert_int_equal(v.i, 12);
    assert_int_equal(attribute(&small, &a, "sequence").type, TD_VALUE_NULL);
    assert_int_equal(attribute(&small, &a, "aggregateversion").type, TD_VALUE_NULL);
    const char *unknown[] = {"", "ID", "partition_key", "data", "headers", "idx", "i"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_false(tdi_message_attribute(&m, tdi_str(unknown[i]), &a, &v));
    }
    assert_false(tdi_message_attribute(&m, TD_STR_NONE, &a, &v));
    tdi_arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_and_full_are_valid),
        cmocka_unit_test(required_attributes),
        cmocka_unit_test(limits_of_texts),
        cmocka_unit_test(times),
        cmocka_unit_test(header_names),
        cmocka_unit_test(header_values),
        cmocka_unit_test(header_count),
        cmocka_unit_test(body_size),
        cmocka_unit_test(copies_are_deep),
        cmocka_unit_test(copies_keep_what_is_absent),
        cmocka_unit_test(copy_in_a_full_arena),
        cmocka_unit_test(headers_by_name),
        cmocka_unit_test(attributes_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
