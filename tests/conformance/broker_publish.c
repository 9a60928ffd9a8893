/* Broker suite: publishing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker_rig.h"

static void confirms_and_delivers_in_order(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 5000);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 3000);
    struct td_delivery *d = broker_fetch(c, &a, 3000);
    for (size_t i = 0; i < 3000; i++) {
        broker_expect_id(&d[i], "m", i);
        assert_false(d[i].redelivered);
    }
    broker_ack(c, d, 3000);
    broker_fetch_none(c);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void fans_out_by_pattern(void **state)
{
    struct broker_rig *r = *state;
    struct td_str one[] = {TD_STR_LIT("order.*")};
    struct td_str any[] = {TD_STR_LIT("invoice.#"), TD_STR_LIT("order.paid")};
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q[] = {
        {.consumer = TD_STR_LIT("shop.one"), .topic = t.name, .types = one, .types_count = 1},
        {.consumer = TD_STR_LIT("shop.any"), .topic = t.name, .types = any, .types_count = 2},
        {.consumer = TD_STR_LIT("shop.all"), .topic = t.name},
    };
    static const char *const types[] = {"order.paid", "invoice", "order.paid.late", "invoice.a.b"};
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare(r, &t, 1, q, 3);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < 4; i++) {
        char id[8];
        (void)snprintf(id, sizeof(id), "t%zu", i);
        struct td_message m = broker_message(id, types[i], "{}");
        assert_int_equal(broker_publish(p, "orders", &m).result, TD_PUBLISH_ACCEPTED);
    }
    static const char *const queue[] = {"shop.one", "shop.any", "shop.all"};
    static const size_t wanted[3][4] = {{0}, {0, 1, 3}, {0, 1, 2, 3}};
    static const size_t counts[3] = {1, 3, 4};
    for (size_t k = 0; k < 3; k++) {
        struct td_broker *c = broker_subscribe(r, queue[k], "orders", 16);
        struct td_delivery *d = broker_fetch(c, &a, counts[k]);
        for (size_t i = 0; i < counts[k]; i++) {
            broker_expect_id(&d[i], "t", wanted[k][i]);
        }
        broker_fetch_none(c);
        broker_ack(c, d, counts[k]);
        tdi_broker_close(c);
    }
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void unroutable_is_an_answer(void **state)
{
    struct broker_rig *r = *state;
    struct td_str type[] = {TD_STR_LIT("order.*")};
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q = {
        .consumer = TD_STR_LIT("shop.a"), .topic = t.name, .types = type, .types_count = 1};
    broker_declare(r, &t, 1, &q, 1);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_message m = broker_message("x1", "order.paid", "{}");
    struct td_published a = broker_publish(p, "nowhere", &m);
    assert_int_equal(a.result, TD_PUBLISH_REFUSED);
    assert_int_equal(a.code, TD_ERR_UNROUTABLE);
    assert_int_equal(a.class_, TD_CLASS_PERMANENT);
    struct td_message n = broker_message("x2", "invoice.paid", "{}");
    a = broker_publish(p, "orders", &n);
    assert_int_equal(a.result, TD_PUBLISH_REFUSED);
    assert_int_equal(a.code, TD_ERR_UNROUTABLE);
    /* An unroutable id is not remembered: in a topic that takes it, it is new. */
    a = broker_publish(p, "orders", &m);
    assert_int_equal(a.result, TD_PUBLISH_ACCEPTED);
    assert_false(a.duplicate);
    tdi_broker_close(p);
}

static void drops_duplicates(void **state)
{
    struct broker_rig *r = *state;
    struct td_topic t[] = {{.name = TD_STR_LIT("orders")}, {.name = TD_STR_LIT("other")}};
    struct td_queue q[] = {{.consumer = TD_STR_LIT("shop.a"), .topic = t[0].name},
                           {.consumer = TD_STR_LIT("shop.b"), .topic = t[1].name}};
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare(r, t, 2, q, 2);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    if ((p->driver->caps & TD_BROKER_DEDUPES) == 0) {
        tdi_broker_close(p);
        tdi_arena_release(&a);
        skip();
    }
    struct td_message m = broker_message("same", "order.paid", "{}");
    /* Twice in one submit, then again. */
    struct td_publish both[] = {{.topic = t[0].name, .message = &m, .token = 0},
                                {.topic = t[0].name, .message = &m, .token = 1}};
    struct td_published got[2];
    size_t taken = 0;
    assert_int_equal(p->driver->submit(p, both, 2, &taken, NULL), TD_OK);
    assert_int_equal(taken, 2);
    broker_collect(p, got, 2);
    assert_int_equal(got[0].result, TD_PUBLISH_ACCEPTED);
    assert_false(got[0].duplicate);
    assert_int_equal(got[1].result, TD_PUBLISH_ACCEPTED);
    assert_true(got[1].duplicate);
    assert_true(broker_publish(p, "orders", &m).duplicate);
    /* Identity is source, topic and id. */
    assert_false(broker_publish(p, "other", &m).duplicate);
    struct td_message n = m;
    n.source = TD_STR_LIT("shop2");
    assert_false(broker_publish(p, "orders", &n).duplicate);
    /* A replay passes the window by. */
    struct td_publish again = {.topic = t[0].name, .message = &m, .replay = true};
    struct td_published answer = broker_publish_item(p, &again);
    assert_int_equal(answer.result, TD_PUBLISH_ACCEPTED);
    assert_false(answer.duplicate);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 16);
    struct td_delivery *d = broker_fetch(c, &a, 3);
    assert_true(tdi_str_is(d[0].message.source, "shop"));
    assert_true(tdi_str_is(d[1].message.source, "shop2"));
    assert_true(tdi_str_is(d[2].message.id, "same"));
    broker_fetch_none(c);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void duplicates_are_known_after_a_restart(void **state)
{
    struct broker_rig *r = *state;
    if (r->restart == NULL) {
        skip();
    }
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    bool dedupes = (p->driver->caps & TD_BROKER_DEDUPES) != 0;
    struct td_message m = broker_message("same", "order.paid", "{}");
    assert_false(broker_publish(p, "orders", &m).duplicate);
    tdi_broker_close(p);
    r->restart(r);
    p = broker_open(r, TD_BROKER_PUBLISH);
    assert_int_equal(broker_publish(p, "orders", &m).duplicate, dedupes);
    tdi_broker_close(p);
}

static void max_bytes_lets_exactly_that_many_through(void **state)
{
    struct broker_rig *r = *state;
    struct td_topic t = {.name = TD_STR_LIT("orders"), .max_bytes = 1000};
    struct td_queue q = {.consumer = TD_STR_LIT("shop.a"), .topic = t.name};
    static char body[1001];
    memset(body, 'x', sizeof(body));
    broker_declare(r, &t, 1, &q, 1);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_message m = broker_message("big", "order.paid", NULL);
    m.body = (struct td_bytes){.data = body, .len = 1001};
    struct td_published a = broker_publish(p, "orders", &m);
    assert_int_equal(a.result, TD_PUBLISH_REFUSED);
    assert_int_equal(a.code, TD_ERR_TOO_LARGE);
    assert_int_equal(a.class_, TD_CLASS_PERMANENT);
    m.body.len = 1000;
    a = broker_publish(p, "orders", &m);
    assert_int_equal(a.result, TD_PUBLISH_ACCEPTED);
    assert_false(a.duplicate); /* a refused id is not remembered */
    tdi_broker_close(p);
}

static void invalid_messages_are_refused(void **state)
{
    struct broker_rig *r = *state;
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_message bad[] = {
        broker_message("with space", "order.paid", "{}"),
        broker_message("", "order.paid", "{}"),
        broker_message("x", "", "{}"),
        broker_message("y", "order.paid", "{}"),
    };
    bad[3].tenant = TD_STR_LIT("\xff\xfe");
    for (size_t i = 0; i < 4; i++) {
        struct td_published a = broker_publish(p, "orders", &bad[i]);
        assert_int_equal(a.result, TD_PUBLISH_REFUSED);
        assert_int_equal(a.code, TD_ERR_INVALID);
        assert_int_equal(a.class_, TD_CLASS_PERMANENT);
    }
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 16);
    broker_fetch_none(c);
    tdi_broker_close(c);
    tdi_broker_close(p);
}

static void bodies_arrive_unchanged(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    size_t large = 1024 * 1024;
    char *big = malloc(large);
    assert_non_null(big);
    for (size_t i = 0; i < large; i++) {
        big[i] = (char)(unsigned char)(i * 31 % 251);
    }
    struct td_bytes bodies[] = {
        {.data = "{\"a\": 1.50}", .len = 11},
        {.data = "a\0b\0", .len = 4},
        {.data = "\xff\xfe\x80", .len = 3},
        {.data = "", .len = 0},
        {.data = NULL, .len = 0},
        {.data = big, .len = large},
    };
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < 6; i++) {
        char id[8];
        (void)snprintf(id, sizeof(id), "b%zu", i);
        struct td_message m = broker_message(id, "order.paid", NULL);
        m.body = bodies[i];
        assert_int_equal(broker_publish(p, "orders", &m).result, TD_PUBLISH_ACCEPTED);
    }
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 16);
    struct td_delivery *d = broker_fetch(c, &a, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(d[i].message.body.len, bodies[i].len);
        assert_int_equal(d[i].message.body.data == NULL, bodies[i].data == NULL);
        if (bodies[i].len > 0) {
            assert_memory_equal(d[i].message.body.data, bodies[i].data, bodies[i].len);
        }
        assert_int_equal(d[i].defect.len, 0);
    }
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
    free(big);
}

static void attributes_arrive(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_header h[] = {{TD_STR_LIT("x-one"), TD_STR_LIT("1")},
                            {TD_STR_LIT("x-two"), TD_STR_LIT("\xc3\xa4 \"quoted\"")}};
    struct td_message m = broker_message("attr", "order.paid", "{}");
    m.key = TD_STR_LIT("customer/17");
    m.sequence = 42;
    m.content_type = TD_STR_LIT("application/json");
    m.traceparent = TD_STR_LIT("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    m.correlation_id = TD_STR_LIT("c-1");
    m.aggregate_type = TD_STR_LIT("order");
    m.aggregate_version = 7;
    m.headers = h;
    m.headers_count = 2;
    struct td_clock clock = tdi_clock_system();
    td_time_us before = tdi_wall(&clock);
    assert_int_equal(broker_publish(p, "orders", &m).result, TD_PUBLISH_ACCEPTED);
    struct td_message own = broker_message("own", "order.paid", "{}");
    own.published_at = INT64_C(1600000000000000);
    assert_int_equal(broker_publish(p, "orders", &own).result, TD_PUBLISH_ACCEPTED);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 16);
    struct td_delivery *d = broker_fetch(c, &a, 2);
    const struct td_message *g = &d[0].message;
    assert_true(tdi_str_eq(g->id, m.id));
    assert_true(tdi_str_eq(g->source, m.source));
    assert_true(tdi_str_eq(g->type, m.type));
    assert_true(tdi_str_is(g->topic, "orders"));
    assert_true(tdi_str_eq(g->key, m.key));
    assert_int_equal(g->time, m.time);
    assert_int_equal(g->sequence, 42);
    assert_true(tdi_str_eq(g->content_type, m.content_type));
    assert_true(tdi_str_eq(g->traceparent, m.traceparent));
    assert_true(tdi_str_eq(g->correlation_id, m.correlation_id));
    assert_true(tdi_str_eq(g->aggregate_type, m.aggregate_type));
    assert_int_equal(g->aggregate_version, 7);
    assert_int_equal(g->headers_count, 2);
    assert_true(tdi_str_eq(g->headers[0].name, h[0].name));
    assert_true(tdi_str_eq(g->headers[1].value, h[1].value));
    assert_true(g->published_at >= before && g->published_at <= tdi_wall(&clock));
    assert_true(d[0].origin.len > 0);
    assert_int_equal(d[1].message.published_at, own.published_at);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void a_refusal_breaks_the_pipeline(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    if ((p->driver->caps & TD_BROKER_ORDERED_PIPELINE) == 0) {
        tdi_broker_close(p);
        tdi_arena_release(&a);
        skip();
    }
    char ids[5][8];
    struct td_message m[5];
    struct td_publish items[5];
    for (size_t i = 0; i < 5; i++) {
        (void)snprintf(ids[i], sizeof(ids[i]), "p%zu", i);
        m[i] = broker_message(ids[i], "order.paid", "{}");
        items[i] = (struct td_publish){.topic = TD_STR_LIT("orders"), .message = &m[i], .token = i};
    }
    items[2].topic = TD_STR_LIT("nowhere");
    struct td_published got[6];
    size_t taken = 0;
    /* The last one comes in a later submit, before anything was collected. */
    assert_int_equal(p->driver->submit(p, items, 4, &taken, NULL), TD_OK);
    assert_int_equal(taken, 4);
    assert_int_equal(p->driver->submit(p, items + 4, 1, &taken, NULL), TD_OK);
    assert_int_equal(taken, 1);
    broker_collect(p, got, 5);
    assert_int_equal(got[0].result, TD_PUBLISH_ACCEPTED);
    assert_int_equal(got[1].result, TD_PUBLISH_ACCEPTED);
    assert_int_equal(got[2].code, TD_ERR_UNROUTABLE);
    for (size_t i = 3; i < 5; i++) {
        assert_int_equal(got[i].result, TD_PUBLISH_REFUSED);
        assert_int_equal(got[i].class_, TD_CLASS_RETRY);
        assert_int_not_equal(got[i].code, TD_ERR_UNROUTABLE);
    }
    /* All is collected, so the session is whole again; what was refused is new. */
    for (size_t i = 3; i < 5; i++) {
        struct td_published again = broker_publish(p, "orders", &m[i]);
        assert_int_equal(again.result, TD_PUBLISH_ACCEPTED);
        assert_false(again.duplicate);
    }
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 16);
    struct td_delivery *d = broker_fetch(c, &a, 4);
    static const size_t wanted[] = {0, 1, 3, 4};
    for (size_t i = 0; i < 4; i++) {
        broker_expect_id(&d[i], "p", wanted[i]);
    }
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void a_broken_pipeline_stays_so_until_all_is_collected(void **state)
{
    struct broker_rig *r = *state;
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    if ((p->driver->caps & TD_BROKER_ORDERED_PIPELINE) == 0) {
        tdi_broker_close(p);
        skip();
    }
    struct td_message m[3] = {broker_message("q0", "order.paid", "{}"),
                              broker_message("q1", "order.paid", "{}"),
                              broker_message("q2", "order.paid", "{}")};
    struct td_publish items[3];
    for (size_t i = 0; i < 3; i++) {
        items[i] = (struct td_publish){.topic = TD_STR_LIT("orders"), .message = &m[i], .token = i};
    }
    items[0].topic = TD_STR_LIT("nowhere");
    struct td_published got[3];
    struct td_clock clock = tdi_clock_system();
    size_t taken = 0;
    size_t n = 0;
    assert_int_equal(p->driver->submit(p, items, 2, &taken, NULL), TD_OK);
    assert_int_equal(p->driver->collect(p, tdi_mono(&clock) + BROKER_WAIT_US, got, 1, &n, NULL),
                     TD_OK);
    assert_int_equal(n, 1);
    /* One answer is still out, so this one is later in the broken pipeline. */
    assert_int_equal(p->driver->submit(p, items + 2, 1, &taken, NULL), TD_OK);
    size_t left = 2;
    while (left > 0) {
        assert_int_equal(
            p->driver->collect(p, tdi_mono(&clock) + BROKER_WAIT_US, got, left, &n, NULL), TD_OK);
        assert_true(n > 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(got[i].result, TD_PUBLISH_REFUSED);
            assert_int_equal(got[i].class_, TD_CLASS_RETRY);
        }
        left -= n;
    }
    assert_int_equal(broker_publish(p, "orders", &m[2]).result, TD_PUBLISH_ACCEPTED);
    tdi_broker_close(p);
}

static void a_full_pipeline_takes_no_more(void **state)
{
    struct broker_rig *r = *state;
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_message m = broker_message("same", "order.paid", "{}");
    struct td_publish item = {.topic = TD_STR_LIT("orders"), .message = &m};
    size_t total = 0;
    size_t taken = 1;
    while (taken > 0 && total < 1000000) {
        assert_int_equal(p->driver->submit(p, &item, 1, &taken, NULL), TD_OK);
        total += taken;
        item.token = total;
    }
    assert_true(total > 0 && total < 1000000);
    struct td_published *got = calloc(total, sizeof(*got));
    assert_non_null(got);
    broker_collect(p, got, total);
    assert_int_equal(got[total - 1].result, TD_PUBLISH_ACCEPTED);
    free(got);
    item.token = 0;
    assert_int_equal(p->driver->submit(p, &item, 1, &taken, NULL), TD_OK);
    assert_int_equal(taken, 1);
    tdi_broker_close(p);
}

const struct broker_test broker_publish_tests[] = {
    {"confirms and delivers in order", confirms_and_delivers_in_order},
    {"fans out by pattern", fans_out_by_pattern},
    {"unroutable is an answer", unroutable_is_an_answer},
    {"drops duplicates", drops_duplicates},
    {"duplicates are known after a restart", duplicates_are_known_after_a_restart},
    {"max_bytes lets exactly that many through", max_bytes_lets_exactly_that_many_through},
    {"invalid messages are refused", invalid_messages_are_refused},
    {"bodies arrive unchanged", bodies_arrive_unchanged},
    {"attributes arrive", attributes_arrive},
    {"a refusal breaks the pipeline", a_refusal_breaks_the_pipeline},
    {"a broken pipeline stays so until all is collected",
     a_broken_pipeline_stays_so_until_all_is_collected},
    {"a full pipeline takes no more", a_full_pipeline_takes_no_more},
    {NULL, NULL},
};
