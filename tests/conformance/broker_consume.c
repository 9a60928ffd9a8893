/* Broker suite: consuming. */
#include <string.h>

#include "broker_rig.h"

static void an_ack_is_final(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 20);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 64);
    struct td_delivery *d = broker_fetch(c, &a, 20);
    broker_ack(c, d, 12);
    tdi_broker_close(c);
    c = broker_subscribe(r, "shop.a", "orders", 64);
    d = broker_fetch(c, &a, 8);
    for (size_t i = 0; i < 8; i++) {
        broker_expect_id(&d[i], "m", 12 + i);
    }
    broker_fetch_none(c);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void redelivers_in_order_after_close(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    if ((p->driver->caps & TD_BROKER_REDELIVERS_IN_ORDER) == 0) {
        tdi_broker_close(p);
        tdi_arena_release(&a);
        skip();
    }
    broker_publish_many(p, "orders", "order.paid", "m", 0, 30);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 20);
    struct td_delivery *d = broker_fetch(c, &a, 20);
    /* Holes in between. */
    broker_ack(c, d + 3, 2);
    broker_ack(c, d + 10, 1);
    tdi_broker_close(c);
    c = broker_subscribe(r, "shop.a", "orders", 64);
    d = broker_fetch(c, &a, 27);
    size_t at = 0;
    for (size_t i = 0; i < 30; i++) {
        if (i == 3 || i == 4 || i == 10) {
            continue;
        }
        broker_expect_id(&d[at], "m", i);
        if ((c->driver->caps & TD_BROKER_REDELIVERED_MARK) != 0) {
            assert_int_equal(d[at].redelivered, i < 20);
        }
        at++;
    }
    broker_fetch_none(c);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void nack_puts_back_in_place(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    if ((p->driver->caps & TD_BROKER_REQUEUE) == 0) {
        tdi_broker_close(p);
        tdi_arena_release(&a);
        skip();
    }
    broker_publish_many(p, "orders", "order.paid", "m", 0, 10);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 6);
    struct td_delivery *d = broker_fetch(c, &a, 6);
    broker_nack(c, d + 4, 1);
    broker_nack(c, d + 1, 2);
    broker_ack(c, d, 1);
    struct td_delivery *e = broker_fetch(c, &a, 4);
    bool in_order = (c->driver->caps & TD_BROKER_REDELIVERS_IN_ORDER) != 0;
    static const size_t wanted[] = {1, 2, 4, 6};
    for (size_t i = 0; i < 4 && in_order; i++) {
        broker_expect_id(&e[i], "m", wanted[i]);
        assert_int_equal(e[i].redelivered, i < 3);
    }
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void prefetch_limits_what_is_in_hand(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 10);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 3);
    struct td_delivery *d = broker_fetch(c, &a, 3);
    broker_fetch_none(c);
    broker_ack(c, d, 2);
    struct td_delivery *e = broker_fetch(c, &a, 2);
    broker_expect_id(&e[0], "m", 3);
    broker_fetch_none(c);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void prefetch_bytes_limit_but_one_always_goes(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    static char body[1000];
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    static const char *const ids[] = {"n0", "n1", "n2", "n3"};
    for (size_t i = 0; i < 4; i++) {
        struct td_message m = broker_message(ids[i], "order.paid", NULL);
        m.body = (struct td_bytes){.data = body, .len = i == 3 ? 1000 : 400};
        assert_int_equal(broker_publish(p, "orders", &m).result, TD_PUBLISH_ACCEPTED);
    }
    struct td_broker *c = broker_open(r, TD_BROKER_CONSUME);
    struct td_subscription s = {.consumer = TD_STR_LIT("shop.a"),
                                .topic = TD_STR_LIT("orders"),
                                .prefetch = 64,
                                .prefetch_bytes = 900};
    assert_int_equal(c->driver->subscribe(c, &s, NULL), TD_OK);
    struct td_delivery *d = broker_fetch(c, &a, 2);
    broker_fetch_none(c);
    broker_ack(c, d, 2);
    d = broker_fetch(c, &a, 1);
    broker_expect_id(&d[0], "n", 2);
    broker_fetch_none(c);
    broker_ack(c, d, 1);
    d = broker_fetch(c, &a, 1); /* larger than the limit, alone */
    broker_expect_id(&d[0], "n", 3);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void handles_of_others_are_refused(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_error err = {0};
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 4);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 2);
    struct td_broker *o = broker_subscribe(r, "shop.a", "orders", 2);
    struct td_delivery *d = broker_fetch(c, &a, 2);
    struct td_delivery *e = broker_fetch(o, &a, 2);
    /* All or none: the second handle is not ours, so the first stays in hand. */
    uint64_t mixed[] = {d[0].handle, e[0].handle};
    assert_int_not_equal(c->driver->ack(c, mixed, 2, &err), TD_OK);
    assert_true(err.text[0] != '\0');
    broker_ack(c, d, 2);
    uint64_t again = d[0].handle;
    assert_int_not_equal(c->driver->ack(c, &again, 1, &err), TD_OK);
    assert_int_not_equal(c->driver->nack(c, &again, 1, &err), TD_OK);
    tdi_broker_close(o);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void sessions_of_one_queue_compete(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    bool seen[40] = {false};
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "1", 10, 40);
    struct td_broker *c[2] = {broker_subscribe(r, "shop.a", "orders", 5),
                              broker_subscribe(r, "shop.a", "orders", 5)};
    for (size_t round = 0; round < 8; round++) {
        struct td_delivery *d = broker_fetch(c[round % 2], &a, 5);
        for (size_t i = 0; i < 5; i++) {
            int64_t n = 0;
            assert_true(tdi_str_to_i64(d[i].message.id, &n));
            assert_true(n >= 110 && n < 150);
            assert_false(seen[n - 110]);
            seen[n - 110] = true;
        }
        broker_ack(c[round % 2], d, 5);
    }
    broker_fetch_none(c[0]);
    broker_fetch_none(c[1]);
    tdi_broker_close(c[0]);
    tdi_broker_close(c[1]);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void a_large_backlog_comes_in_order(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    enum {
        COUNT = 5000,
        STEP = 250
    };
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    /* Nobody consumes yet, so it waits in the broker. */
    broker_publish_many(p, "orders", "order.paid", "m", 0, COUNT);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", STEP);
    for (size_t at = 0; at < COUNT; at += STEP) {
        tdi_arena_reset(&a);
        struct td_delivery *d = broker_fetch(c, &a, STEP);
        for (size_t i = 0; i < STEP; i++) {
            broker_expect_id(&d[i], "m", at + i);
        }
        broker_ack(c, d, STEP);
        /* New ones come while the old ones are read. */
        broker_publish_many(p, "orders", "order.paid", "m", COUNT + at / STEP, 1);
    }
    struct td_delivery *d = broker_fetch(c, &a, COUNT / STEP);
    for (size_t i = 0; i < COUNT / STEP; i++) {
        broker_expect_id(&d[i], "m", COUNT + i);
    }
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void one_that_is_held_blocks_nothing(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 101);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 1);
    struct td_delivery *held = broker_fetch(c, &a, 1);
    for (size_t round = 0; round < 10; round++) {
        broker_publish_many(p, "orders", "order.paid", "m", 1 + round * 100, 100);
        struct td_delivery *d = broker_fetch(c, &a, 100);
        broker_expect_id(&d[99], "m", 100 + round * 100);
        broker_ack(c, d, 100);
    }
    broker_nack(c, held, 1);
    struct td_delivery *d = broker_fetch(c, &a, 1);
    broker_expect_id(d, "m", 0);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void pause_stops_deliveries(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 64);
    assert_int_equal(c->driver->pause(c, -1, true, NULL), TD_OK);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 3);
    broker_fetch_none(c);
    assert_int_equal(c->driver->pause(c, -1, false, NULL), TD_OK);
    (void)broker_fetch(c, &a, 3);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void subscribing_to_nothing_is_an_error(void **state)
{
    struct broker_rig *r = *state;
    struct td_error err = {0};
    broker_declare_simple(r);
    struct td_broker *c = broker_open(r, TD_BROKER_CONSUME);
    struct td_subscription s = {
        .consumer = TD_STR_LIT("shop.none"), .topic = TD_STR_LIT("orders"), .prefetch = 1};
    assert_int_equal(c->driver->subscribe(c, &s, &err), TD_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "shop.none"));
    tdi_broker_close(c);
}

static void interrupt_ends_a_wait(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_fetch f;
    struct td_error err = {0};
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 1);
    c->driver->interrupt(c);
    assert_int_equal(c->driver->fetch(c, 1, TD_TIME_NONE, &a, &f, &err), TD_ERR_INTERRUPTED);
    broker_fetch_none(c);
    tdi_broker_close(c);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_published got;
    size_t n = 0;
    p->driver->interrupt(p);
    assert_int_equal(p->driver->collect(p, TD_TIME_NONE, &got, 1, &n, &err), TD_ERR_INTERRUPTED);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void what_is_not_acknowledged_outlives_the_broker(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    if (r->restart == NULL) {
        skip();
    }
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 100);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 60);
    struct td_delivery *d = broker_fetch(c, &a, 60);
    broker_ack(c, d, 30);
    tdi_broker_close(c);
    tdi_broker_close(p);
    r->restart(r);
    c = broker_subscribe(r, "shop.a", "orders", 100);
    d = broker_fetch(c, &a, 70);
    for (size_t i = 0; i < 70; i++) {
        broker_expect_id(&d[i], "m", 30 + i);
        if ((c->driver->caps & TD_BROKER_REDELIVERED_MARK) != 0) {
            assert_int_equal(d[i].redelivered, i < 30);
        }
    }
    broker_fetch_none(c);
    tdi_broker_close(c);
    tdi_arena_release(&a);
}

const struct broker_test broker_consume_tests[] = {
    {"an ack is final", an_ack_is_final},
    {"redelivers in order after close", redelivers_in_order_after_close},
    {"nack puts back in place", nack_puts_back_in_place},
    {"prefetch limits what is in hand", prefetch_limits_what_is_in_hand},
    {"prefetch bytes limit, but one always goes", prefetch_bytes_limit_but_one_always_goes},
    {"handles of others are refused", handles_of_others_are_refused},
    {"sessions of one queue compete", sessions_of_one_queue_compete},
    {"a large backlog comes in order", a_large_backlog_comes_in_order},
    {"one that is held blocks nothing", one_that_is_held_blocks_nothing},
    {"pause stops deliveries", pause_stops_deliveries},
    {"subscribing to nothing is an error", subscribing_to_nothing_is_an_error},
    {"interrupt ends a wait", interrupt_ends_a_wait},
    {"what is not acknowledged outlives the broker", what_is_not_acknowledged_outlives_the_broker},
    {NULL, NULL},
};
