/*
 * The relay: publishes the rows of one outbox that belong to one broker, in key order, and moves
 * the position over what is settled. A loop of steps over a store and a broker session.
 *
 * Promises (architecture.md, reliability.md):
 *   - a row is on disk before it is published (outbox_durable() before submit())
 *   - the position covers only rows that are accepted, parked as dead letters of this relay, or
 *     another broker's; dead rows are parked in the transaction that moves the position past them
 *   - a later row of a key is submitted only when the earlier one is accepted (or submitted before
 *     it, in an ordered pipeline), or when the transaction that parked it is committed
 *   - an outcome that is not known is tried again in a new session under the same id
 *   - whose lease has passed by its own clock submits and settles nothing
 *
 * Must not know: which drivers there are, configuration files, threads of the program.
 */
#ifndef TDI_RELAY_RELAY_H
#define TDI_RELAY_RELAY_H

#include "core/catalogue.h"
#include "core/step.h"
#include "tidings/broker.h"
#include "tidings/store.h"

struct tdi_log;
struct tdi_random;

#define TDI_RELAY_WINDOW_ROWS 2048
#define TDI_RELAY_READ_ROWS 512
#define TDI_RELAY_READ_BYTES (4 * 1024 * 1024)
#define TDI_RELAY_LEASE_TTL_US (15 * TD_SECOND_US)
#define TDI_RELAY_POSITION_INTERVAL_US (50 * TD_MILLISECOND_US)
#define TDI_RELAY_POLL_US (200 * TD_MILLISECOND_US)
#define TDI_RELAY_CONFIRM_TIMEOUT_US (30 * TD_SECOND_US)
#define TDI_RELAY_DRAIN_US (20 * TD_SECOND_US)

/* Everything is borrowed and must outlive the relay. Numbers that are 0 take the default above. */
struct tdi_relay_options {
    struct td_str name;    /* "OUTBOX.BROKER": position, lease and dead letters */
    struct td_str service; /* source of rows that have none */
    const struct tdi_catalogue *catalogue;
    struct td_str broker_name; /* ours are the rows of its topics... */
    bool unmatched_ours;       /* ...and those of no topic: the first of the file */

    const struct td_store_driver *store_driver;
    struct td_store_options store;
    const struct td_broker_driver *broker_driver;
    struct td_broker_options broker; /* the role is set here */

    td_time_us keep_us; /* rows are purged so long after they are covered;
                                               TD_TIME_NONE: never */
    td_time_us lease_ttl_us;
    td_time_us position_interval_us; /* between two position writes under load */
    td_time_us poll_us;              /* the timer under the waker, at most */
    td_time_us confirm_timeout_us;   /* no answer of the broker for so long: unknown */
    td_time_us drain_us;             /* tdi_relay_stop() waits so long for answers */
    size_t window_rows;              /* read and not settled, at most */
    size_t read_rows;                /* of one read */
    size_t read_bytes;

    struct td_clock clock;
    struct tdi_random *random;
    struct tdi_log *log; /* NULL: silent */
};

enum tdi_relay_state {
    TDI_RELAY_OK,
    TDI_RELAY_WAITING, /* starting, or the broker takes nothing at the moment (a full queue) */
    TDI_RELAY_BROKER_DOWN,
    TDI_RELAY_STORE_DOWN,
    TDI_RELAY_HALTED,  /* needs a person; last_error says what for */
    TDI_RELAY_STANDBY, /* another process owns it */
    TDI_RELAY_NOT_RUNNING,
};

struct tdi_relay_snapshot {
    enum tdi_relay_state state;
    int64_t published_total; /* accepted and covered by the position, since init */
    int64_t rate_per_second; /* of the last second or so */
    int64_t pending;         /* rows past the position, -1: not known */
    td_time_us
        oldest_pending_us;      /* when the first of them was made, TD_TIME_NONE: none, not known */
    int64_t dead;               /* rows parked as dead by this process */
    int64_t in_flight;          /* at the broker, no answer yet */
    int64_t fence;              /* 0: no lease */
    int64_t position;           /* order of the stored position */
    int64_t owner_pid;          /* STANDBY: who has it, 0: not on this machine */
    struct td_error last_error; /* code TD_OK: none yet; stays when it is over */
    td_time_us last_error_at;   /* wall clock */
};

struct tdi_relay;

const char *tdi_relay_state_name(enum tdi_relay_state s); /* "ok", "broker down", ... */

/**
 * Make a relay. Opens nothing yet.
 *
 * Errors:    USAGE options are wrong; NOMEM
 * Ownership: @p o is copied, what it points to is borrowed; *ret_relay is the caller's
 * Threads:   any
 * Blocking:  none
 */
TD_NODISCARD enum td_err tdi_relay_new(const struct tdi_relay_options *o,
                                       struct tdi_relay **ret_relay, struct td_error *err);

/**
 * Give everything back. Without tdi_relay_stop() before, it is as if the process had died: nothing
 * is settled and the lease is left to end. NULL is fine.
 *
 * Errors:    none
 * Ownership: takes @p r
 * Threads:   no other thread may use @p r any more
 * Blocking:  as long as the drivers' close
 */
void tdi_relay_free(struct tdi_relay *r);

/**
 * Do the next thing: at most one driver call.
 *
 * @param ret_wake  with WAIT: when to call again, in clock.mono
 *
 * Errors:    none; trouble is state (tdi_relay_snapshot)
 * Ownership: none
 * Threads:   one at a time
 * Blocking:  as long as one slot of a driver, at most a second when nothing happens
 */
enum tdi_step tdi_relay_step(struct tdi_relay *r, td_time_us *ret_wake);

/**
 * Ask for the end. First call: take no more, settle what is in flight (within drain_us), store the
 * position, release the lease. Second call: leave at once. Go on calling tdi_relay_step() until
 * ENDED.
 *
 * Errors:    none
 * Ownership: none
 * Threads:   any
 * Blocking:  none
 */
void tdi_relay_stop(struct tdi_relay *r);

/**
 * Make a step that blocks in a driver return soon.
 *
 * Errors:    none
 * Ownership: none
 * Threads:   any
 * Blocking:  none
 */
void tdi_relay_interrupt(struct tdi_relay *r);

/**
 * How it goes, as of the last step.
 *
 * Errors:    none
 * Ownership: @p ret is the caller's
 * Threads:   any
 * Blocking:  none
 */
void tdi_relay_snapshot(struct tdi_relay *r, struct tdi_relay_snapshot *ret);

#endif
