/*
 * The broker interface: the transport between services. A driver is one
 * `static const struct td_broker_driver`.
 *
 * Rules common to all slots: as in store.h. In addition
 *   - Sessions are for publishing or for consuming, never both.
 *   - What submit() took may be held by pointer until collect() settles it; a message and its body
 *     must live until then. Closing the session settles everything as UNKNOWN.
 *   - ACCEPTED means durable in every queue that the message was routed to.
 *   - Where sessions share one owner (embedded), instance_open() makes the owner; sessions in this
 *     process are given the instance, sessions elsewhere reach it by themselves.
 *
 * Must not know: stores, handlers, configuration files.
 */
#ifndef TIDINGS_BROKER_H
#define TIDINGS_BROKER_H

#include "tidings/error.h"
#include "tidings/message.h"
#include "tidings/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tdi_arena;
struct tdi_random;
struct td_broker;
struct td_broker_instance; /* opaque; the driver's */

#define TD_BROKER_ABI 1

enum td_broker_cap {
    /* After a failure everything later in that session is refused too, so that many messages of
     * one key may be in flight. */
    TD_BROKER_ORDERED_PIPELINE = 1 << 0,
    TD_BROKER_CUMULATIVE_ACK = 1 << 1, /* ack of a handle covers all earlier ones of the shard */
    TD_BROKER_OFFSETS = 1 << 2,        /* acks end as one offset a shard: the caller may still ack
                                          in any order, the driver stores the low-water mark */
    TD_BROKER_DELAY = 1 << 3,
    TD_BROKER_REQUEUE = 1 << 4, /* nack(requeue) of one message */
    TD_BROKER_SHARDS = 1 << 5,  /* assigns shards and takes them away */
    TD_BROKER_REDELIVERED_MARK = 1 << 6,
    TD_BROKER_REDELIVERS_IN_ORDER = 1 << 7,
    TD_BROKER_DEDUPES = 1 << 8, /* a second publish of an id within its window is dropped */
};

enum td_broker_role {
    TD_BROKER_PUBLISH,
    TD_BROKER_CONSUME,
    TD_BROKER_ADMIN, /* topology, lag */
};

struct td_broker_options {
    struct td_str location; /* directory or URL */
    struct td_str service;
    enum td_broker_role role;
    struct td_broker_instance *instance; /* of this process, or NULL */
    struct td_str vfs;                   /* embedded: as in struct td_store_options */
    struct td_clock clock;
    struct tdi_random *random;
    td_time_us operation_timeout_us; /* 0: 5 s */
    bool create;                     /* make what is missing (init only) */
    bool threads;                    /* instance_open: run writer and syncs in own threads; false:
                                        whoever waits in collect() or fetch() does the steps */
};

struct td_broker_info {
    struct td_str version;
    struct td_str identity;
    struct td_str warnings; /* sentences, one a line; empty: none */
    size_t body_bytes_max;
    size_t header_bytes_max;
    int64_t owner_pid;      /* embedded: who owns it now; 0: nobody or not known */
    td_time_us owner_since; /* and since when; TD_TIME_NONE: not known */
};

/* ---- topology --------------------------------------------------------------------------- */

struct td_topic {
    struct td_str name;
    size_t max_bytes;        /* largest body; 0: the broker's limit */
    td_time_us retention_us; /* 0: the broker's */
    int32_t partitions;      /* 0: the broker's */
};

struct td_queue {
    struct td_str consumer; /* full name, SERVICE.NAME */
    struct td_str topic;
    const struct td_str *types; /* patterns; none: everything */
    size_t types_count;
    bool ordered;
};

struct td_topology {
    const struct td_topic *topics;
    size_t topics_count;
    const struct td_queue *queues;
    size_t queues_count;
};

enum td_topology_kind {
    TD_TOPOLOGY_MISSING_TOPIC,
    TD_TOPOLOGY_MISSING_QUEUE,
    TD_TOPOLOGY_CHANGED_BINDING,
    TD_TOPOLOGY_EXTRA_TOPIC, /* exists, not in the file; never removed by apply */
    TD_TOPOLOGY_EXTRA_QUEUE, /* likewise; depth says what waits in it */
};

struct td_topology_difference {
    enum td_topology_kind kind;
    struct td_str name;
    int64_t depth;
    struct td_str text; /* one sentence */
};

/* ---- publishing ------------------------------------------------------------------------- */

struct td_publish {
    struct td_str topic;
    const struct td_message *message;
    bool replay;    /* an operator's: passes the dedupe window by */
    uint64_t token; /* the caller's; comes back in td_published */
};

enum td_publish_result {
    TD_PUBLISH_ACCEPTED,
    TD_PUBLISH_REFUSED, /* certainly not stored; code and class say why */
    TD_PUBLISH_UNKNOWN,
};

struct td_published {
    uint64_t token;
    enum td_publish_result result;
    bool duplicate;   /* ACCEPTED: the broker had it already */
    enum td_err code; /* REFUSED: UNROUTABLE, TOO_LARGE, DENIED, INVALID are the row's
                                    own fault; all others are RETRY */
    enum td_err_class class_;
    uint64_t evidence; /* a number of the broker: sequence, offset, delivery tag */
};

/* ---- consuming -------------------------------------------------------------------------- */

struct td_subscription {
    struct td_str consumer; /* full name; the queue or group */
    struct td_str topic;
    size_t prefetch;       /* unsettled deliveries at most */
    size_t prefetch_bytes; /* likewise, bodies; 0: 16 MiB */
    int32_t shard;         /* ordered consumers without TD_BROKER_SHARDS: 0 */
};

struct td_delivery {
    uint64_t handle; /* for ack and nack, until the session ends */
    int32_t shard;
    bool redelivered;          /* may have been delivered before */
    struct td_message message; /* topic set; published_at as far as the broker knows it */
    struct td_str defect;      /* not empty: no valid envelope; why. Body and what there is of
                                    attributes are set all the same */
    struct td_str origin;      /* JSON: {"broker","topic","partition","offset"} */
};

enum td_shard_event_kind {
    TD_SHARD_ASSIGNED,
    TD_SHARD_REVOKED,   /* settle what is in hand before `deadline_us`, then forget it */
    TD_SHARD_CANCELLED, /* the subscription is gone; open a new session */
};

struct td_shard_event {
    enum td_shard_event_kind kind;
    int32_t shard;
    td_time_us deadline_us;
};

struct td_fetch {
    struct td_delivery *deliveries;
    size_t count;
    struct td_shard_event *events;
    size_t events_count;
    bool caught_up; /* nothing more waits in the broker at this moment */
};

struct td_lag {
    struct td_str consumer;
    int32_t shard;
    int64_t waiting; /* not delivered yet */
    int64_t in_flight;
    td_time_us oldest_us; /* publication time of the oldest, or TD_TIME_NONE */
};

/* ---- the driver ------------------------------------------------------------------------- */

struct td_broker_driver {
    uint32_t abi;
    uint32_t struct_size;
    const char *name;
    uint32_t caps; /* enum td_broker_cap */
    size_t session_size;

    /* Optional pair. OWNED: another process is the owner (err->text names it). */
    enum td_err (*instance_open)(const struct td_broker_options *o,
                                 struct td_broker_instance **ret_instance, struct td_error *err);
    /* Stops taking, settles what was taken, syncs, gives the files back. All sessions must be
     * closed. NULL is fine. */
    void (*instance_close)(struct td_broker_instance *instance);
    /* NULL, or why the instance stopped by itself (a failed sync is final). */
    enum td_err (*instance_health)(struct td_broker_instance *instance, struct td_error *err);

    /* A session of the role in the options; b is zeroed and has its driver set. */
    enum td_err (*open)(struct td_broker *b, const struct td_broker_options *o,
                        struct td_error *err);
    /* Give everything back. Never fails; takes half-open ones. */
    void (*close)(struct td_broker *b);
    /* From any thread: make the slot that is running return TD_ERR_INTERRUPTED soon. */
    void (*interrupt)(struct td_broker *b);
    /* Version, identity, limits, and what an operator should be warned of. */
    enum td_err (*info)(struct td_broker *b, struct tdi_arena *a, struct td_broker_info *ret_info,
                        struct td_error *err);

    /* What exists against what is wanted. Changes nothing. */
    enum td_err (*topology_diff)(struct td_broker *b, const struct td_topology *wanted,
                                 struct tdi_arena *a, struct td_topology_difference **ret,
                                 size_t *ret_count, struct td_error *err);
    /* Add what is missing, change bindings; removes nothing. Returns what it did. */
    enum td_err (*topology_apply)(struct td_broker *b, const struct td_topology *wanted,
                                  struct tdi_arena *a, struct td_topology_difference **ret,
                                  size_t *ret_count, struct td_error *err);

    /* Take the first *ret_taken of count items (0 when the pipeline is full). Does not wait. */
    enum td_err (*submit)(struct td_broker *b, const struct td_publish *items, size_t count,
                          size_t *ret_taken, struct td_error *err);
    /* Settled items in any order, at most max; waits until one is there or until the deadline
     * (clock.mono). A lost session settles all as UNKNOWN first and fails with CLOSED after. */
    enum td_err (*collect)(struct td_broker *b, td_time_us deadline_us, struct td_published *ret,
                           size_t max, size_t *ret_count, struct td_error *err);

    /* Begin deliveries to this session. */
    enum td_err (*subscribe)(struct td_broker *b, const struct td_subscription *sub,
                             struct td_error *err);
    /* At most max deliveries; waits until something is there or until the deadline. Deliveries
     * live in the arena. */
    enum td_err (*fetch)(struct td_broker *b, size_t max, td_time_us deadline_us,
                         struct tdi_arena *a, struct td_fetch *ret_fetch, struct td_error *err);
    /* Settled by the consumer. May be carried out later; a lost ack is a redelivery. */
    enum td_err (*ack)(struct td_broker *b, const uint64_t *handles, size_t count,
                       struct td_error *err);
    /* Not settled: delivered again, to anybody, in order where REDELIVERS_IN_ORDER. */
    enum td_err (*nack)(struct td_broker *b, const uint64_t *handles, size_t count,
                        struct td_error *err);
    /* Stop and resume deliveries without leaving. shard -1: all. */
    enum td_err (*pause)(struct td_broker *b, int32_t shard, bool paused, struct td_error *err);
    /* Optional, with TD_BROKER_SHARDS: after TD_SHARD_REVOKED, what was in hand of the shard is
     * settled or forgotten and the broker may give it away. Without this call the driver gives it
     * away at the event's deadline. */
    enum td_err (*shard_release)(struct td_broker *b, int32_t shard, struct td_error *err);
    /* How far a consumer is behind, an entry for each shard. */
    enum td_err (*lag)(struct td_broker *b, struct td_str consumer, struct tdi_arena *a,
                       struct td_lag **ret, size_t *ret_count, struct td_error *err);
    /* Optional: go back (or forward) in a kept history. */
    enum td_err (*seek)(struct td_broker *b, int32_t shard, int64_t offset, td_time_us time_us,
                        struct td_error *err);
};

struct td_broker {
    const struct td_broker_driver *driver;
};

#ifdef __cplusplus
}
#endif

#endif
