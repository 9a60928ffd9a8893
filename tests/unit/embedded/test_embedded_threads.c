/*
 * Many publishers, inside and over the socket, and consumers that settle, give back and leave, all at
 * once. Every id takes effect once, and those of one publisher in order.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emb_rig.h"

enum {
    PUBLISHERS = 4,
    EACH = 1500,
    QUEUES = 2,
    WINDOW = 200
};

static const char *const queue_names[QUEUES] = {"shop.a", "shop.b"};

struct publisher {
    struct emb_rig *e;
    size_t number;
    bool remote;
    pthread_t thread;
    const char *failed;
};

struct consumer {
    struct emb_rig *e;
    size_t queue;
    pthread_t thread;
    size_t next[PUBLISHERS]; /* number that must come next */
    size_t settled;
    const char *failed;
};

/* No cmocka asserts in threads: they jump. */
static struct td_broker *open_session(struct emb_rig *e, enum td_broker_role role, bool instance)
{
    struct td_broker_options o = {.location = tdi_str(e->dir),
                                  .role = role,
                                  .clock = tdi_clock_system(),
                                  .instance = instance ? e->instance : NULL};
    struct td_broker *b = NULL;
    return tdi_broker_open(tdi_broker_driver(TD_STR_LIT("embedded")), &o, &b, NULL) == TD_OK ? b
                                                                                             : NULL;
}

static void *publisher_main(void *arg)
{
    struct publisher *x = arg;
    struct td_clock clock = tdi_clock_system();
    static const char body[300] = "x";
    char(*ids)[24] = calloc(EACH, sizeof(*ids));
    struct td_message *m = calloc(EACH, sizeof(*m));
    struct td_broker *b = open_session(x->e, TD_BROKER_PUBLISH, !x->remote);
    size_t sent = 0;
    size_t done = 0;
    if (b == NULL || ids == NULL || m == NULL) {
        x->failed = "cannot open";
        return NULL;
    }
    while (done < EACH && x->failed == NULL) {
        while (sent < EACH && sent - done < WINDOW) {
            size_t taken = 0;
            (void)snprintf(ids[sent], sizeof(ids[sent]), "%zu-%zu", x->number, sent);
            m[sent] = broker_message(ids[sent], "order.paid", NULL);
            m[sent].body = (struct td_bytes){body, sizeof(body)};
            struct td_publish item = {.topic = TD_STR_LIT("orders"), .message = &m[sent]};
            if (b->driver->submit(b, &item, 1, &taken, NULL) != TD_OK) {
                x->failed = "submit";
            }
            if (taken == 0) {
                break;
            }
            sent++;
        }
        struct td_published got[64];
        size_t n = 0;
        if (b->driver->collect(b, tdi_mono(&clock) + BROKER_WAIT_US, got, 64, &n, NULL) != TD_OK ||
            n == 0) {
            x->failed = "collect";
        }
        for (size_t i = 0; i < n; i++) {
            if (got[i].result != TD_PUBLISH_ACCEPTED || got[i].duplicate) {
                x->failed = "refused";
            }
        }
        done += n;
    }
    tdi_broker_close(b);
    free(ids);
    free(m);
    return NULL;
}

/* What is acknowledged must be the next of its publisher; false: it is not. */
static bool count_one(struct consumer *x, const struct td_delivery *d)
{
    char id[32];
    char *end = NULL;
    (void)snprintf(id, sizeof(id), "%.*s", (int)d->message.id.len, d->message.id.data);
    size_t who = strtoul(id, &end, 10);
    size_t number = strtoul(end + 1, NULL, 10);
    if (who >= PUBLISHERS || x->next[who] != number) {
        return false;
    }
    x->next[who]++;
    x->settled++;
    return true;
}

static struct td_broker *open_consumer(struct consumer *x)
{
    struct td_broker *b = open_session(x->e, TD_BROKER_CONSUME, true);
    struct td_subscription s = {
        .consumer = tdi_str(queue_names[x->queue]), .topic = TD_STR_LIT("orders"), .prefetch = 128};
    if (b != NULL && b->driver->subscribe(b, &s, NULL) != TD_OK) {
        tdi_broker_close(b);
        b = NULL;
    }
    return b;
}

static void *consumer_main(void *arg)
{
    struct consumer *x = arg;
    struct td_clock clock = tdi_clock_system();
    struct tdi_random r;
    struct tdi_arena a;
    struct td_broker *b = open_consumer(x);
    tdi_random_seed(&r, x->queue + 1);
    tdi_arena_init(&a, 0);
    while (b != NULL && x->settled < (size_t)PUBLISHERS * EACH && x->failed == NULL) {
        struct td_fetch f = {0};
        tdi_arena_reset(&a);
        if (b->driver->fetch(b, 100, tdi_mono(&clock) + BROKER_WAIT_US, &a, &f, NULL) != TD_OK ||
            f.count == 0) {
            x->failed = "fetch";
            break;
        }
        /* A part is settled; the rest goes back to its place, by nack or by leaving. */
        size_t part = (size_t)tdi_random_below(&r, 4) == 0
                          ? (size_t)tdi_random_below(&r, f.count + 1)
                          : f.count;
        for (size_t i = 0; i < part && x->failed == NULL; i++) {
            if (!count_one(x, &f.deliveries[i])) {
                x->failed = "order";
            }
            if (b->driver->ack(b, &f.deliveries[i].handle, 1, NULL) != TD_OK) {
                x->failed = "ack";
            }
        }
        if (part < f.count && tdi_random_below(&r, 2) == 0) {
            tdi_broker_close(b);
            b = open_consumer(x);
        } else {
            for (size_t i = part; i < f.count; i++) {
                if (b->driver->nack(b, &f.deliveries[i].handle, 1, NULL) != TD_OK) {
                    x->failed = "nack";
                }
            }
        }
    }
    tdi_broker_close(b);
    tdi_arena_release(&a);
    return NULL;
}

static void everything_at_once(void **state)
{
    struct emb_rig e;
    struct publisher p[PUBLISHERS];
    struct consumer c[QUEUES];
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q[QUEUES + 1];
    (void)state;
    emb_rig_init(&e, NULL, true);
    emb_rig_start(&e, true);
    for (size_t i = 0; i < QUEUES; i++) {
        q[i] = (struct td_queue){.consumer = tdi_str(queue_names[i]), .topic = t.name};
    }
    broker_declare(&e.base, &t, 1, q, QUEUES);
    for (size_t i = 0; i < PUBLISHERS; i++) {
        p[i] = (struct publisher){.e = &e, .number = i, .remote = i % 2 == 1};
        assert_int_equal(pthread_create(&p[i].thread, NULL, publisher_main, &p[i]), 0);
    }
    for (size_t i = 0; i < QUEUES; i++) {
        c[i] = (struct consumer){.e = &e, .queue = i};
        assert_int_equal(pthread_create(&c[i].thread, NULL, consumer_main, &c[i]), 0);
    }
    /* The topology changes meanwhile. */
    q[QUEUES] = (struct td_queue){.consumer = TD_STR_LIT("shop.late"), .topic = t.name};
    broker_declare(&e.base, &t, 1, q, QUEUES + 1);
    for (size_t i = 0; i < PUBLISHERS; i++) {
        (void)pthread_join(p[i].thread, NULL);
    }
    for (size_t i = 0; i < QUEUES; i++) {
        (void)pthread_join(c[i].thread, NULL);
    }
    for (size_t i = 0; i < PUBLISHERS; i++) {
        if (p[i].failed != NULL) {
            fail_msg("publisher %zu: %s", i, p[i].failed);
        }
    }
    for (size_t i = 0; i < QUEUES; i++) {
        if (c[i].failed != NULL) {
            fail_msg("consumer %zu: %s", i, c[i].failed);
        }
        assert_int_equal(c[i].settled, PUBLISHERS * EACH);
    }
    emb_rig_stop(&e);
    emb_rig_start(&e, false);
    for (size_t i = 0; i < QUEUES; i++) {
        struct td_broker *b = broker_subscribe(&e.base, queue_names[i], "orders", 1);
        broker_fetch_none(b);
        tdi_broker_close(b);
    }
    emb_rig_end(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
