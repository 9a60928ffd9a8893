/*
 * What is going on, gathered from stores, brokers and the reports that the owners of leases leave. Works
 * with and without a running program, and writes nothing.
 *
 * Whoever gathers opens the sessions; this part only asks them. Must not know: how it is printed.
 */
#ifndef TDI_OPS_STATUS_H
#define TDI_OPS_STATUS_H

#include "ops/plan.h"
#include "tidings/broker.h"
#include "tidings/store.h"

#define TDI_STATUS_UNKNOWN INT64_C(-1) /* a number that could not be had */

struct tdi_status_outbox {
    struct td_str name;
    struct td_str state;          /* "ok", "waiting", ..., "not running", "store down" */
    int64_t pending;              /* or UNKNOWN */
    td_time_us oldest_pending_us; /* how long the oldest waits; TD_TIME_NONE: none or unknown */
    int64_t published_total;
    int64_t rate_per_second;
    td_time_us drain_us; /* at this rate; TD_TIME_NONE: unknown */
    struct td_str owner; /* "HOST/PID"; absent: nobody */
    struct td_str last_error;
    int64_t dead; /* dead letters of the relay */
};

struct tdi_status_consumer {
    struct td_str name;
    struct td_str state;
    int64_t lag; /* waiting in the broker */
    int64_t in_flight;
    struct td_consumer_counts counts;
    bool counts_known;
    int64_t handled_total, duplicates_total;
    int64_t rate_per_second;
    td_time_us drain_us;
    td_time_us next_probe_at; /* TD_TIME_NONE: none */
    struct td_str owner;
    struct td_str last_error;
};

struct tdi_status_end {
    struct td_str name;
    bool up;
    struct td_str version;
    struct td_str text; /* what is wrong; absent: nothing */
    int64_t owner_pid;  /* brokers; 0: nobody */
    td_time_us since;   /* brokers: of the owner; TD_TIME_NONE: nobody or not known */
};

struct tdi_status {
    struct tdi_status_outbox *outboxes;
    size_t outboxes_count;
    struct tdi_status_consumer *consumers;
    size_t consumers_count;
    struct tdi_status_end *brokers;
    size_t brokers_count;
    struct tdi_status_end *stores;
    size_t stores_count;
};

/* A session that could not be opened is NULL and why says so. */
struct tdi_status_store {
    struct td_store *session;
    struct td_error why;
};
struct tdi_status_broker {
    struct td_broker *session;
    struct td_error why;
};

/* stores and brokers: by the numbers of the configuration. What cannot be asked is said in the result.
 * NOMEM otherwise. now: wall clock. */
enum td_err tdi_status_gather(const struct tdi_plan *plan, const struct tdi_status_store *stores,
                              const struct tdi_status_broker *brokers, td_time_us now,
                              struct tdi_arena *a, struct tdi_status *ret, struct td_error *err);

/* The fence of the relay's lease if its owner is alive and says that it is halted; else 0. */
int64_t tdi_status_halted(struct td_store *store, struct td_str relay, struct tdi_arena *a);

#endif
