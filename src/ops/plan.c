/* Names and topology that follow from a configuration. */
#include "ops/plan.h"

#include "base/arena.h"
#include "base/str.h"

static enum td_err out_of_memory(struct td_error *err)
{
    return td_error_set(err, TD_ERR_NOMEM, "no memory for the plan of the configuration");
}

static bool has_topic(const struct tdi_config *c, const struct tdi_config_broker *b)
{
    for (size_t i = 0; i < c->topics_count; i++) {
        if (c->topics[i].broker == b) {
            return true;
        }
    }
    return false;
}

static bool add_relay(struct tdi_plan *plan, const struct tdi_config_outbox *o,
                      const struct tdi_config_broker *b, struct tdi_arena *a)
{
    const struct tdi_config *c = plan->config;
    struct tdi_plan_relay *r = &plan->relays[plan->relays_count];
    bool first = b == &c->brokers[0];
    if (!first && !has_topic(c, b)) {
        return true; /* no row can ever be its */
    }
    r->outbox = o;
    r->broker = b;
    r->unmatched_ours = first;
    r->name = tdi_arena_printf(a, "%s.%s", o->name.data, b->name.data);
    r->short_name = c->brokers_count == 1 ? o->name : r->name;
    r->consumer = tdi_arena_printf(a, "relay:%s", r->name.data != NULL ? r->name.data : "");
    plan->relays_count++;
    return r->name.data != NULL && r->consumer.data != NULL;
}

static bool make_catalogue(struct tdi_plan *plan, struct tdi_arena *a)
{
    const struct tdi_config *c = plan->config;
    struct tdi_topic *topics = tdi_arena_array(a, c->topics_count, sizeof(*topics));
    for (size_t i = 0; topics != NULL && i < c->topics_count; i++) {
        topics[i] = (struct tdi_topic){
            .name = c->topics[i].name,
            .broker = c->topics[i].broker->name,
            .types = c->topics[i].types,
            .types_count = c->topics[i].types_count,
            .max_bytes = (size_t)c->topics[i].max_bytes,
            .key_required = c->topics[i].key_required,
        };
    }
    plan->catalogue = (struct tdi_catalogue){topics, c->topics_count};
    return topics != NULL;
}

enum td_err tdi_plan_make(const struct tdi_config *config, struct tdi_arena *a,
                          struct tdi_plan *ret, struct td_error *err)
{
    struct tdi_plan plan = {.config = config};
    plan.relays =
        tdi_arena_array(a, config->outboxes_count * config->brokers_count, sizeof(*plan.relays));
    if (plan.relays == NULL || !make_catalogue(&plan, a)) {
        return out_of_memory(err);
    }
    for (size_t o = 0; o < config->outboxes_count; o++) {
        for (size_t b = 0; b < config->brokers_count; b++) {
            if (!add_relay(&plan, &config->outboxes[o], &config->brokers[b], a)) {
                return out_of_memory(err);
            }
        }
    }
    *ret = plan;
    return TD_OK;
}

enum td_err tdi_plan_topology(const struct tdi_plan *plan, const struct tdi_config_broker *broker,
                              struct tdi_arena *a, struct td_topology *ret, struct td_error *err)
{
    const struct tdi_config *c = plan->config;
    struct td_topic *topics = tdi_arena_array(a, c->topics_count, sizeof(*topics));
    struct td_queue *queues = tdi_arena_array(a, c->consumers_count, sizeof(*queues));
    size_t topics_count = 0, queues_count = 0;
    if (topics == NULL || queues == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < c->topics_count; i++) {
        if (c->topics[i].broker == broker) {
            topics[topics_count++] = (struct td_topic){
                .name = c->topics[i].name,
                .max_bytes = (size_t)c->topics[i].max_bytes,
                .retention_us = c->topics[i].retention_us,
                .partitions = c->topics[i].partitions,
            };
        }
    }
    for (size_t i = 0; i < c->consumers_count; i++) {
        const struct tdi_config_consumer *consumer = &c->consumers[i];
        if (consumer->topic->broker == broker) {
            queues[queues_count++] = (struct td_queue){
                .consumer = consumer->full_name,
                .topic = consumer->topic->name,
                .types = consumer->types,
                .types_count = consumer->types_count,
                .ordered = consumer->order != TDI_ORDER_NONE,
            };
        }
    }
    *ret = (struct td_topology){topics, topics_count, queues, queues_count};
    return TD_OK;
}

const struct tdi_plan_relay *tdi_plan_relay_find(const struct tdi_plan *plan, struct td_str name)
{
    for (size_t i = 0; i < plan->relays_count; i++) {
        if (tdi_str_eq(plan->relays[i].name, name) ||
            tdi_str_eq(plan->relays[i].short_name, name)) {
            return &plan->relays[i];
        }
    }
    return NULL;
}

struct td_str tdi_plan_short(const struct tdi_plan *plan, struct td_str consumer,
                             struct tdi_arena *a)
{
    for (size_t i = 0; i < plan->relays_count; i++) {
        if (tdi_str_eq(plan->relays[i].consumer, consumer)) {
            return tdi_arena_printf(a, "relay:%s", plan->relays[i].short_name.data);
        }
    }
    for (size_t i = 0; i < plan->config->consumers_count; i++) {
        if (tdi_str_eq(plan->config->consumers[i].full_name, consumer)) {
            return plan->config->consumers[i].name;
        }
    }
    return consumer;
}

struct td_str tdi_plan_full(const struct tdi_plan *plan, struct td_str name)
{
    if (tdi_str_starts(name, "relay:")) {
        struct td_str bare = {name.data + 6, name.len - 6};
        const struct tdi_plan_relay *r = tdi_plan_relay_find(plan, bare);
        return r != NULL ? r->consumer : name;
    }
    const struct tdi_config_consumer *c = tdi_config_consumer_find(plan->config, name);
    return c != NULL ? c->full_name : name;
}
