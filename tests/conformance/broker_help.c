/* Helpers of tests of brokers. Must not know: any driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker_rig.h"

#define COLLECT_MAX 256

static td_time_us in_future(td_time_us us)
{
    struct td_clock c = tdi_clock_system();
    return tdi_mono(&c) + us;
}

struct td_broker *broker_open(struct broker_rig *r, enum td_broker_role role)
{
    struct td_broker_options o = {.role = role, .clock = tdi_clock_system()};
    struct td_error err = {0};
    struct td_broker *b = NULL;
    r->options(r, role, &o);
    enum td_err rc = tdi_broker_open(tdi_broker_driver(tdi_str(r->driver)), &o, &b, &err);
    if (rc != TD_OK) {
        fail_msg("open: %s", err.text);
    }
    return b;
}

void broker_declare(struct broker_rig *r, const struct td_topic *topics, size_t topics_count,
                    const struct td_queue *queues, size_t queues_count)
{
    struct td_topology w = {topics, topics_count, queues, queues_count};
    struct td_broker *b = broker_open(r, TD_BROKER_ADMIN);
    struct tdi_arena a;
    struct td_topology_difference *d = NULL;
    size_t n = 0;
    struct td_error err = {0};
    tdi_arena_init(&a, 0);
    if (b->driver->topology_apply(b, &w, &a, &d, &n, &err) != TD_OK) {
        fail_msg("topology_apply: %s", err.text);
    }
    tdi_arena_release(&a);
    tdi_broker_close(b);
}

void broker_declare_simple(struct broker_rig *r)
{
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q = {.consumer = TD_STR_LIT("shop.a"), .topic = TD_STR_LIT("orders")};
    broker_declare(r, &t, 1, &q, 1);
}

struct td_broker *broker_subscribe(struct broker_rig *r, const char *consumer, const char *topic,
                                   size_t prefetch)
{
    struct td_broker *b = broker_open(r, TD_BROKER_CONSUME);
    struct td_subscription s = {
        .consumer = tdi_str(consumer), .topic = tdi_str(topic), .prefetch = prefetch};
    struct td_error err = {0};
    if (b->driver->subscribe(b, &s, &err) != TD_OK) {
        fail_msg("subscribe: %s", err.text);
    }
    return b;
}

struct td_message broker_message(const char *id, const char *type, const char *body)
{
    return (struct td_message){
        .id = tdi_str(id),
        .source = TD_STR_LIT("shop"),
        .type = tdi_str(type),
        .time = INT64_C(1790000000000000),
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
        .body = {.data = body, .len = body != NULL ? strlen(body) : 0},
    };
}

void broker_collect(struct td_broker *b, struct td_published *ret, size_t count)
{
    struct td_published some[COLLECT_MAX];
    struct td_error err = {0};
    td_time_us deadline = in_future(BROKER_WAIT_US);
    size_t got = 0;
    while (got < count) {
        size_t n = 0;
        size_t max = count - got < COLLECT_MAX ? count - got : COLLECT_MAX;
        if (b->driver->collect(b, deadline, some, max, &n, &err) != TD_OK) {
            fail_msg("collect: %s", err.text);
        }
        if (n == 0) {
            fail_msg("only %zu of %zu answers came", got, count);
        }
        for (size_t i = 0; i < n; i++) {
            assert_true(some[i].token < count);
            ret[some[i].token] = some[i];
        }
        got += n;
    }
}

struct td_published broker_publish_item(struct td_broker *b, const struct td_publish *item)
{
    struct td_published answer = {0};
    struct td_error err = {0};
    size_t taken = 0;
    if (b->driver->submit(b, item, 1, &taken, &err) != TD_OK || taken != 1) {
        fail_msg("submit: %s", err.text);
    }
    broker_collect(b, &answer, 1);
    return answer;
}

struct td_published broker_publish(struct td_broker *b, const char *topic,
                                   const struct td_message *m)
{
    struct td_publish item = {.topic = tdi_str(topic), .message = m};
    return broker_publish_item(b, &item);
}

void broker_publish_many(struct td_broker *b, const char *topic, const char *type,
                         const char *prefix, size_t from, size_t count)
{
    char(*ids)[64] = calloc(count, sizeof(*ids));
    struct td_message *m = calloc(count, sizeof(*m));
    struct td_publish *items = calloc(count, sizeof(*items));
    struct td_published *answers = calloc(count, sizeof(*answers));
    struct td_error err = {0};
    size_t sent = 0;
    assert_true(ids != NULL && m != NULL && items != NULL && answers != NULL);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(ids[i], sizeof(ids[i]), "%s%zu", prefix, from + i);
        m[i] = broker_message(ids[i], type, "{\"n\":1}");
        items[i] = (struct td_publish){.topic = tdi_str(topic), .message = &m[i], .token = i};
    }
    while (sent < count) {
        size_t taken = 0;
        assert_int_equal(b->driver->submit(b, items + sent, count - sent, &taken, &err), TD_OK);
        for (size_t i = 0; i < taken; i++) {
            items[sent + i].token = i;
        }
        /* Tokens of one round run from 0, so that answers can be found. */
        for (size_t i = sent + taken; i < count; i++) {
            items[i].token = i - sent - taken;
        }
        assert_true(taken > 0);
        broker_collect(b, answers, taken);
        for (size_t i = 0; i < taken; i++) {
            assert_int_equal(answers[i].result, TD_PUBLISH_ACCEPTED);
        }
        sent += taken;
    }
    free(ids);
    free(m);
    free(items);
    free(answers);
}

struct td_delivery *broker_fetch(struct td_broker *b, struct tdi_arena *a, size_t count)
{
    struct td_delivery *all = tdi_arena_array(a, count, sizeof(*all));
    struct td_error err = {0};
    td_time_us deadline = in_future(BROKER_WAIT_US);
    struct td_clock clock = tdi_clock_system();
    size_t got = 0;
    assert_non_null(all);
    while (got < count) {
        struct td_fetch f = {0};
        if (b->driver->fetch(b, count - got, deadline, a, &f, &err) != TD_OK) {
            fail_msg("fetch: %s", err.text);
        }
        assert_true(f.count <= count - got);
        for (size_t i = 0; i < f.count; i++) {
            all[got++] = f.deliveries[i];
        }
        if (f.count == 0 && (f.caught_up || tdi_mono(&clock) >= deadline)) {
            fail_msg("only %zu of %zu deliveries came", got, count);
        }
    }
    return all;
}

void broker_fetch_none(struct td_broker *b)
{
    struct tdi_arena a;
    struct td_fetch f = {0};
    struct td_error err = {0};
    tdi_arena_init(&a, 0);
    assert_int_equal(b->driver->fetch(b, 16, in_future(BROKER_QUIET_US), &a, &f, &err), TD_OK);
    assert_int_equal(f.count, 0);
    tdi_arena_release(&a);
}

static void settle(struct td_broker *b, const struct td_delivery *d, size_t count, bool ack)
{
    uint64_t *handles = calloc(count, sizeof(*handles));
    struct td_error err = {0};
    assert_non_null(handles);
    for (size_t i = 0; i < count; i++) {
        handles[i] = d[i].handle;
    }
    enum td_err rc =
        ack ? b->driver->ack(b, handles, count, &err) : b->driver->nack(b, handles, count, &err);
    free(handles);
    if (rc != TD_OK) {
        fail_msg("settle: %s", err.text);
    }
}

void broker_ack(struct td_broker *b, const struct td_delivery *d, size_t count)
{
    settle(b, d, count, true);
}

void broker_nack(struct td_broker *b, const struct td_delivery *d, size_t count)
{
    settle(b, d, count, false);
}

void broker_expect_id(const struct td_delivery *d, const char *prefix, size_t number)
{
    char id[64];
    (void)snprintf(id, sizeof(id), "%s%zu", prefix, number);
    assert_int_equal(d->message.id.len, strlen(id));
    assert_memory_equal(d->message.id.data, id, strlen(id));
}
