/*
 * A broker in memory: one queue, delivered in order of publication. What a closed session held is
 * delivered again, in order, marked as redelivered. The newest subscription is the active one and
 * ends older ones: a lease comes before a subscription, so the newest has the lease.
 */
#ifndef TESTS_FAKE_CONSUMER_BROKER_H
#define TESTS_FAKE_CONSUMER_BROKER_H

#include "fake/consumer_world.h"

extern const struct td_broker_driver fake_broker_driver;

struct fake_broker_data *fake_broker_data_new(void);
void fake_broker_data_free(struct fake_broker_data *b);

/* Texts are copied. key, type, defect NULL: absent. */
struct fake_publish {
    const char *id;
    const char *key;
    const char *type;   /* NULL: "order.paid" */
    const char *source; /* NULL: "shop" */
    const char *defect;
    const char *body;
    td_time_us published_at; /* 0: now */
    td_time_us expires_at;   /* 0: never */
    bool no_id;
};
void fake_publish(struct fake_world *w, const struct fake_publish *p);
void fake_publish_key(struct fake_world *w, const char *id, const char *key);

size_t fake_broker_waiting(const struct fake_world *w);   /* neither delivered nor acknowledged */
size_t fake_broker_unsettled(const struct fake_world *w); /* not acknowledged */
bool fake_broker_acked(const struct fake_world *w, size_t index);
/* The server ends all sessions. */
void fake_broker_drop_sessions(struct fake_world *w);
size_t fake_broker_fetches(const struct fake_world *w);

#endif
