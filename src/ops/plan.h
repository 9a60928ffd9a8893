/*
 * What a configuration amounts to: its relays, its catalogue, the topology that its brokers need. One
 * place, so that init, check, run and status can never disagree about names. Pure.
 */
#ifndef TDI_OPS_PLAN_H
#define TDI_OPS_PLAN_H

#include "config/config.h"
#include "core/catalogue.h"
#include "tidings/broker.h"

struct tdi_plan_relay {
    struct td_str name;       /* OUTBOX.BROKER: position, lease, dead letters */
    struct td_str short_name; /* OUTBOX where there is one broker */
    struct td_str consumer;   /* relay:NAME, as its dead letters are filed */
    const struct tdi_config_outbox *outbox;
    const struct tdi_config_broker *broker;
    bool unmatched_ours; /* rows of no topic are its */
};

struct tdi_plan {
    const struct tdi_config *config;
    struct tdi_plan_relay *relays; /* outbox by outbox, in the order of the file */
    size_t relays_count;
    struct tdi_catalogue catalogue;
};

/* NOMEM. Everything lives in the arena. */
enum td_err tdi_plan_make(const struct tdi_config *config, struct tdi_arena *a,
                          struct tdi_plan *ret, struct td_error *err);

/* Topics and queues of one broker. */
enum td_err tdi_plan_topology(const struct tdi_plan *plan, const struct tdi_config_broker *broker,
                              struct tdi_arena *a, struct td_topology *ret, struct td_error *err);

/* By full or short name; NULL: none. */
const struct tdi_plan_relay *tdi_plan_relay_find(const struct tdi_plan *plan, struct td_str name);

/* "relay:shop.main" -> "relay:shop", "shop.points" -> "points"; what is not of this file stays. */
struct td_str tdi_plan_short(const struct tdi_plan *plan, struct td_str consumer,
                             struct tdi_arena *a);
/* The reverse, for names that a person gave; names that are not of this file stay. */
struct td_str tdi_plan_full(const struct tdi_plan *plan, struct td_str name);

#endif
