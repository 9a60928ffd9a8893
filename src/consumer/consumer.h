/*
 * The consumer: takes deliveries of one subscription from a broker, lets its handler work, and
 * settles each message in the store: effect, retry, blocked, dead or dropped. Also runs the parked
 * messages that are due.
 *
 * One object is one loop with one session of the store, one of the broker and one handler. It is
 * driven by tdi_consumer_step() from one thread (or a simulator); a step makes at most one call of a
 * driver. Whether it may work is decided by the lease "consumer:NAME:0": others stand by.
 *
 * Must not know: which drivers these are, configuration files, signals, threads.
 */
#ifndef TDI_CONSUMER_CONSUMER_H
#define TDI_CONSUMER_CONSUMER_H

#include "core/breaker.h"
#include "core/order.h"
#include "core/retry.h"
#include "core/step.h"
#include "tidings/broker.h"
#include "tidings/error.h"
#include "tidings/handler.h"
#include "tidings/store.h"

struct tdi_log;
struct tdi_random;
struct tdi_consumer; /* opaque */

/* Texts and arrays are borrowed and must live as long as the consumer. 0 takes the default. */
struct tdi_consumer_options {
    struct td_str name; /* full, SERVICE.NAME: inbox, queue */
    struct td_str topic;
    const struct td_str *types; /* patterns; none: everything. Others are acknowledged unseen */
    size_t types_count;
    enum tdi_order order;
    enum tdi_on_dead on_dead;
    struct tdi_retry_policy retry;
    struct tdi_breaker_policy breaker;
    size_t prefetch;            /* deliveries in hand at most; 256 */
    size_t prefetch_bytes;      /* likewise, bodies; 16 MiB */
    size_t batch;               /* messages of one transaction at most; 256 */
    td_time_us inbox_keep_us;   /* 14 days */
    td_time_us stale_after_us;  /* since publication; inbox_keep_us less a skew of a tenth, at
                                     most an hour */
    td_time_us parked_keep_us;  /* 90 days */
    int64_t parked_max;         /* rows; above it nothing is fetched; 1,000,000 */
    td_time_us lease_ttl_us;    /* 10 s; at least twice the time-out of an outside handler */
    td_time_us drain_us;        /* time for running calls to end at a stop; 20 s */
    td_time_us write_budget_us; /* a transaction takes no further work after it; 20 ms */

    const struct td_store_driver *store_driver;
    struct td_store_options store;
    const struct td_broker_driver *broker_driver;
    struct td_broker_options broker;
    const struct td_handler_driver *handler_driver;
    struct td_handler_options handler;

    struct td_clock clock;
    struct tdi_random *random;
    struct tdi_log *log; /* may be NULL */
};

enum tdi_consumer_state {
    TDI_CONSUMER_STARTING,
    TDI_CONSUMER_OK,
    TDI_CONSUMER_RETRYING,        /* some messages wait for their next run */
    TDI_CONSUMER_BLOCKED,         /* some keys wait for a person */
    TDI_CONSUMER_PAUSED,          /* too many parked messages */
    TDI_CONSUMER_DOWNSTREAM_DOWN, /* the breaker is open */
    TDI_CONSUMER_BROKER_DOWN,
    TDI_CONSUMER_STORE_DOWN,
    TDI_CONSUMER_STANDBY, /* another process has the lease */
    TDI_CONSUMER_STOPPED,
};

struct tdi_consumer_snapshot {
    enum tdi_consumer_state state;
    int64_t handled_total;    /* effect or dropped; totals count since init */
    int64_t duplicates_total; /* known messages, acknowledged and not run */
    int64_t retried_total;    /* runs that ended in retry */
    int64_t dead_total;
    int64_t in_flight; /* deliveries in hand and parked runs */
    int64_t blocked_keys;
    int64_t rate_milli;       /* handled per 1000 seconds, over the last seconds */
    td_time_us next_probe_at; /* DOWNSTREAM_DOWN: civil time, else TD_TIME_NONE */
    td_time_us last_error_at; /* civil time, or TD_TIME_NONE */
    char last_error[TD_ERROR_TEXT_MAX];
};

/* "ok", "retrying", "blocked", "paused", "downstream down", "broker down", "store down",
 * "standby", "starting", "stopped". */
const char *tdi_consumer_state_name(enum tdi_consumer_state state);

/* Opens the handler (CONFIG when it cannot work), nothing else; sessions are opened by steps. */
TD_NODISCARD enum td_err tdi_consumer_new(const struct tdi_consumer_options *o,
                                          struct tdi_consumer **ret_consumer, struct td_error *err);
/* Closes what is open, without giving back the lease unless the loop has ENDED. NULL is fine. */
void tdi_consumer_free(struct tdi_consumer *c);

/*
 * Do the next thing. AGAIN: there is more to do now; WAIT: nothing before *ret_wake (clock.mono)
 * unless something is delivered or interrupted; ENDED: stopped, only free may follow. A call of a
 * driver that waits (fetch, poll) waits inside the step, at most 500 ms.
 */
enum tdi_step tdi_consumer_step(struct tdi_consumer *c, td_time_us *ret_wake);

/* Any thread. First call: take nothing more, let running calls end until the drain deadline,
 * settle, acknowledge, give the lease back. Second call: leave at once. */
void tdi_consumer_stop(struct tdi_consumer *c);
/* Any thread: a step that waits returns soon. */
void tdi_consumer_interrupt(struct tdi_consumer *c);
/* Any thread. */
void tdi_consumer_snapshot(struct tdi_consumer *c, struct tdi_consumer_snapshot *ret);

#endif
