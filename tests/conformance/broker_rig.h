/*
 * The suite that every broker driver must pass. A driver comes with a rig that starts an empty
 * broker for each test; what a driver does not claim (caps) is skipped.
 */
#ifndef BROKER_RIG_H
#define BROKER_RIG_H

/* cmocka needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/str.h"
#include "broker/registry.h"

struct broker_rig {
    const char *label; /* in the names of tests */
    const char *driver;
    void (*start)(struct broker_rig *r); /* a new, empty broker */
    void (*stop)(struct broker_rig *r);
    /* Optional: ends cleanly and comes back; all sessions are closed. */
    void (*restart)(struct broker_rig *r);
    void (*options)(struct broker_rig *r, enum td_broker_role role, struct td_broker_options *o);
    void *ctx;
};

#define BROKER_WAIT_US (20 * TD_SECOND_US)       /* for what must come */
#define BROKER_QUIET_US (50 * TD_MILLISECOND_US) /* for what must not come */

/* A session of the rig, or a failed test. */
struct td_broker *broker_open(struct broker_rig *r, enum td_broker_role role);
void broker_declare(struct broker_rig *r, const struct td_topic *topics, size_t topics_count,
                    const struct td_queue *queues, size_t queues_count);
/* Topic `orders` with the queue shop.a that takes everything. */
void broker_declare_simple(struct broker_rig *r);
struct td_broker *broker_subscribe(struct broker_rig *r, const char *consumer, const char *topic,
                                   size_t prefetch);

/* A valid message without optional attributes; the texts are borrowed. */
struct td_message broker_message(const char *id, const char *type, const char *body);
/* Submit one and wait for its answer. */
struct td_published broker_publish(struct td_broker *b, const char *topic,
                                   const struct td_message *m);
struct td_published broker_publish_item(struct td_broker *b, const struct td_publish *item);
/* Publish `count` messages id prefix0, prefix1, ... and expect all to be accepted. */
void broker_publish_many(struct td_broker *b, const char *topic, const char *type,
                         const char *prefix, size_t from, size_t count);
/* Collect exactly `count` answers, by token (0..count-1). */
void broker_collect(struct td_broker *b, struct td_published *ret, size_t count);

/* Exactly `count` deliveries, in order; they live in the arena. */
struct td_delivery *broker_fetch(struct td_broker *b, struct tdi_arena *a, size_t count);
void broker_fetch_none(struct td_broker *b);
void broker_ack(struct td_broker *b, const struct td_delivery *d, size_t count);
void broker_nack(struct td_broker *b, const struct td_delivery *d, size_t count);
void broker_expect_id(const struct td_delivery *d, const char *prefix, size_t number);

struct broker_test {
    const char *name;
    void (*run)(void **state); /* *state is the rig */
};
extern const struct broker_test broker_publish_tests[];
extern const struct broker_test broker_consume_tests[];
extern const struct broker_test broker_topology_tests[];

/* Runs all three lists, which end with a NULL name; the number of failed tests. */
int broker_suite(struct broker_rig *r);

#endif
