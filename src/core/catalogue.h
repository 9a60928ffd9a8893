/*
 * The catalogue: the topics of the configuration, and to which of them a message goes.
 *
 * Two relays of one outbox must agree which of them is responsible for a row, so the answers here
 * depend on nothing but the message and the file. Pure; must not know brokers, stores or clocks.
 */
#ifndef TDI_CORE_CATALOGUE_H
#define TDI_CORE_CATALOGUE_H

#include "tidings/error.h"
#include "tidings/message.h"
#include "tidings/store.h"

struct tdi_arena;

struct tdi_topic {
    struct td_str name;
    struct td_str broker;       /* name in the configuration */
    const struct td_str *types; /* patterns; none: messages get here only by naming the topic */
    size_t types_count;
    size_t max_bytes; /* largest body; 0: the broker's limit */
    bool key_required;
};

struct tdi_catalogue {
    const struct tdi_topic *topics; /* in the order of the file */
    size_t topics_count;
};

/* Where a message goes. */
struct tdi_route {
    const struct tdi_topic *topic; /* NULL: no topic takes it */
    const struct tdi_topic *other; /* a second topic that takes it too: a mistake of the file */
    enum td_dead_code dead; /* NONE: may be published. UNROUTABLE: topic is NULL. INVALID: two
                                      topics take it, or it has no key. TOO_LARGE */
};

/* Can this be a catalogue? CONFIG: two topics of one name, a pattern that is none, two topics that
 * could both take one type. The sentence names them. */
TD_NODISCARD enum td_err tdi_catalogue_check(const struct tdi_catalogue *c, struct td_error *err);

/* NULL: there is none. */
const struct tdi_topic *tdi_catalogue_find(const struct tdi_catalogue *c, struct td_str name);

/* The topic that the message names, else the one that takes its type. */
struct tdi_route tdi_catalogue_route(const struct tdi_catalogue *c, const struct td_message *m);

/* Whose it is: the broker of its topic (of the first, if two take it), else first_broker, the first
 * of the file. */
struct td_str tdi_route_broker(const struct tdi_route *route, struct td_str first_broker);

/* Why it is dead, one sentence without payload; absent if the arena is exhausted, or dead is NONE. */
struct td_str tdi_route_reason(const struct tdi_route *route, const struct td_message *m,
                               struct tdi_arena *a);

#endif
