/* Broker suite: topology, lag, info. */
#include <string.h>

#include "broker_rig.h"

static size_t diff(struct td_broker *b, const struct td_topology *w, struct tdi_arena *a,
                   struct td_topology_difference **ret)
{
    size_t n = 0;
    struct td_error err = {0};
    if (b->driver->topology_diff(b, w, a, ret, &n, &err) != TD_OK) {
        fail_msg("topology_diff: %s", err.text);
    }
    return n;
}

static size_t apply(struct td_broker *b, const struct td_topology *w, struct tdi_arena *a,
                    struct td_topology_difference **ret)
{
    size_t n = 0;
    struct td_error err = {0};
    if (b->driver->topology_apply(b, w, a, ret, &n, &err) != TD_OK) {
        fail_msg("topology_apply: %s", err.text);
    }
    return n;
}

static void apply_adds_what_is_missing_and_can_be_repeated(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_topology_difference *d = NULL;
    struct td_str paid[] = {TD_STR_LIT("order.paid")};
    struct td_topic t[] = {{.name = TD_STR_LIT("orders")}, {.name = TD_STR_LIT("bills")}};
    struct td_queue q[] = {{.consumer = TD_STR_LIT("shop.a"), .topic = t[0].name},
                           {.consumer = TD_STR_LIT("shop.b"),
                            .topic = t[1].name,
                            .types = paid,
                            .types_count = 1,
                            .ordered = true}};
    struct td_topology w = {t, 2, q, 2};
    tdi_arena_init(&a, 0);
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    size_t n = diff(b, &w, &a, &d);
    assert_int_equal(n, 4);
    assert_int_equal(d[0].kind, TD_TOPOLOGY_MISSING_TOPIC);
    assert_true(tdi_str_is(d[0].name, "orders"));
    assert_int_equal(d[2].kind, TD_TOPOLOGY_MISSING_QUEUE);
    assert_true(tdi_str_is(d[2].name, "shop.a"));
    for (size_t i = 0; i < n; i++) {
        assert_true(d[i].text.len > 0);
    }
    assert_int_equal(apply(b, &w, &a, &d), 4);
    assert_int_equal(diff(b, &w, &a, &d), 0);
    assert_int_equal(apply(b, &w, &a, &d), 0);
    tdi_broker_close(b);
    if (r->restart != NULL) {
        r->restart(r);
        b = broker_open(r, TD_BROKER_ADMIN);
        assert_int_equal(diff(b, &w, &a, &d), 0);
        tdi_broker_close(b);
    }
    tdi_arena_release(&a);
}

static void nothing_is_removed(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_topology_difference *d = NULL;
    struct td_topology none = {NULL, 0, NULL, 0};
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 3);
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(diff(b, &none, &a, &d), 2);
        assert_int_equal(d[0].kind, TD_TOPOLOGY_EXTRA_TOPIC);
        assert_int_equal(d[1].kind, TD_TOPOLOGY_EXTRA_QUEUE);
        assert_true(tdi_str_is(d[1].name, "shop.a"));
        assert_int_equal(d[1].depth, 3);
        assert_int_equal(apply(b, &none, &a, &d), 0);
    }
    tdi_broker_close(b);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void a_changed_binding_counts_from_then_on(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_topology_difference *d = NULL;
    struct td_str before[] = {TD_STR_LIT("order.paid")};
    struct td_str after[] = {TD_STR_LIT("order.sent")};
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q = {
        .consumer = TD_STR_LIT("shop.a"), .topic = t.name, .types = before, .types_count = 1};
    tdi_arena_init(&a, 0);
    broker_declare(r, &t, 1, &q, 1);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    struct td_message paid = broker_message("c0", "order.paid", "{}");
    struct td_message sent = broker_message("c1", "order.sent", "{}");
    assert_int_equal(broker_publish(p, "orders", &paid).result, TD_PUBLISH_ACCEPTED);
    assert_int_equal(broker_publish(p, "orders", &sent).code, TD_ERR_UNROUTABLE);
    q.types = after;
    struct td_topology w = {&t, 1, &q, 1};
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    assert_int_equal(diff(b, &w, &a, &d), 1);
    assert_int_equal(d[0].kind, TD_TOPOLOGY_CHANGED_BINDING);
    assert_int_equal(apply(b, &w, &a, &d), 1);
    assert_int_equal(diff(b, &w, &a, &d), 0);
    assert_int_equal(broker_publish(p, "orders", &sent).result, TD_PUBLISH_ACCEPTED);
    struct td_message late = broker_message("c2", "order.paid", "{}");
    assert_int_equal(broker_publish(p, "orders", &late).code, TD_ERR_UNROUTABLE);
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 8);
    struct td_delivery *g = broker_fetch(c, &a, 2); /* what was there stays */
    broker_expect_id(&g[1], "c", 1);
    tdi_broker_close(c);
    tdi_broker_close(b);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void a_wrong_topology_changes_nothing(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_topology_difference *d = NULL;
    size_t n = 0;
    struct td_error err = {0};
    struct td_str bad[] = {TD_STR_LIT("order.pa*")};
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q[] = {
        {.consumer = TD_STR_LIT("shop.a"), .topic = t.name, .types = bad, .types_count = 1},
        {.consumer = TD_STR_LIT("shop.b"), .topic = TD_STR_LIT("unknown")},
        {.consumer = TD_STR_LIT(""), .topic = t.name}};
    tdi_arena_init(&a, 0);
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    for (size_t i = 0; i < 3; i++) {
        struct td_topology w = {&t, 1, &q[i], 1};
        assert_int_not_equal(b->driver->topology_apply(b, &w, &a, &d, &n, &err), TD_OK);
        assert_true(err.text[0] != '\0');
    }
    struct td_topology good = {&t, 1, NULL, 0};
    assert_int_equal(diff(b, &good, &a, &d), 1);
    tdi_broker_close(b);
    tdi_arena_release(&a);
}

static struct td_lag lag_of(struct broker_rig *r, const char *consumer)
{
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    struct tdi_arena a;
    struct td_lag *lags = NULL;
    size_t n = 0;
    struct td_error err = {0};
    tdi_arena_init(&a, 0);
    if (b->driver->lag(b, tdi_str(consumer), &a, &lags, &n, &err) != TD_OK) {
        fail_msg("lag: %s", err.text);
    }
    assert_int_equal(n, 1);
    struct td_lag lag = lags[0];
    assert_true(tdi_str_is(lag.consumer, consumer));
    tdi_broker_close(b);
    tdi_arena_release(&a);
    return lag;
}

static void lag_counts_what_waits(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    broker_declare_simple(r);
    assert_int_equal(lag_of(r, "shop.a").waiting, 0);
    assert_int_equal(lag_of(r, "shop.a").oldest_us, TD_TIME_NONE);
    struct td_broker *p = broker_open(r, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < 3; i++) {
        static const char *const ids[] = {"l0", "l1", "l2"};
        struct td_message m = broker_message(ids[i], "order.paid", "{}");
        m.published_at = INT64_C(1700000000000000) + (int64_t)i;
        assert_int_equal(broker_publish(p, "orders", &m).result, TD_PUBLISH_ACCEPTED);
    }
    struct td_lag lag = lag_of(r, "shop.a");
    assert_int_equal(lag.waiting, 3);
    assert_int_equal(lag.in_flight, 0);
    assert_int_equal(lag.oldest_us, INT64_C(1700000000000000));
    struct td_broker *c = broker_subscribe(r, "shop.a", "orders", 2);
    struct td_delivery *d = broker_fetch(c, &a, 2);
    lag = lag_of(r, "shop.a");
    assert_int_equal(lag.waiting, 1);
    assert_int_equal(lag.in_flight, 2);
    assert_int_equal(lag.oldest_us, INT64_C(1700000000000002));
    broker_ack(c, d, 2);
    d = broker_fetch(c, &a, 1);
    broker_ack(c, d, 1);
    lag = lag_of(r, "shop.a");
    assert_int_equal(lag.waiting, 0);
    assert_int_equal(lag.in_flight, 0);
    assert_int_equal(lag.oldest_us, TD_TIME_NONE);
    tdi_broker_close(c);
    tdi_broker_close(p);
    tdi_arena_release(&a);
}

static void lag_of_nothing_is_an_error(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_lag *lags = NULL;
    size_t n = 1;
    tdi_arena_init(&a, 0);
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    assert_int_equal(b->driver->lag(b, TD_STR_LIT("shop.none"), &a, &lags, &n, NULL),
                     TD_ERR_NOT_FOUND);
    assert_int_equal(b->driver->lag(b, TD_STR_NONE, &a, &lags, &n, NULL), TD_OK);
    assert_int_equal(n, 0);
    tdi_broker_close(b);
    tdi_arena_release(&a);
}

static void info_says_what_it_is(void **state)
{
    struct broker_rig *r = *state;
    struct tdi_arena a;
    struct td_broker_info info = {0};
    struct td_error err = {0};
    tdi_arena_init(&a, 0);
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    assert_int_equal(b->driver->info(b, &a, &info, &err), TD_OK);
    assert_true(info.version.len > 0);
    assert_true(info.identity.len > 0);
    assert_true(info.body_bytes_max > 0);
    assert_int_equal(info.warnings.len, 0);
    tdi_broker_close(b);
    tdi_arena_release(&a);
}

const struct broker_test broker_topology_tests[] = {
    {"apply adds what is missing and can be repeated",
     apply_adds_what_is_missing_and_can_be_repeated},
    {"nothing is removed", nothing_is_removed},
    {"a changed binding counts from then on", a_changed_binding_counts_from_then_on},
    {"a wrong topology changes nothing", a_wrong_topology_changes_nothing},
    {"lag counts what waits", lag_counts_what_waits},
    {"lag of nothing is an error", lag_of_nothing_is_an_error},
    {"info says what it is", info_says_what_it_is},
    {NULL, NULL},
};
