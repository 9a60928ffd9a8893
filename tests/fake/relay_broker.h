/*
 * An in-memory broker for tests of the relay: it keeps nothing but what became of each row, and
 * checks each acceptance against the relay's promises (durable first, key order of first
 * publications, bytes unchanged). What a closed session left may still be processed, late.
 *
 * A world is shared by processes; each has a client, as in relay_store.h.
 */
#ifndef FAKE_RELAY_BROKER_H
#define FAKE_RELAY_BROKER_H

#include "relay_store.h"
#include "tidings/broker.h"

#define RELAY_PENDING_MAX 1024
#define RELAY_LATE_MAX 1024
#define RELAY_VERDICTS_MAX 16

enum relay_broker_call {
    RELAY_BROKER_OPEN,
    RELAY_BROKER_CLOSE,
    RELAY_BROKER_SUBMIT,
    RELAY_BROKER_COLLECT,
    RELAY_BROKER_CALLS,
};

/* The answer for a row, `times` times; then it is accepted. */
struct relay_verdict {
    int64_t seq;
    int times; /* 0: free */
    enum td_publish_result result;
    enum td_err code;
    enum td_err_class class_;
    bool stored; /* UNKNOWN: it was stored all the same */
};

struct relay_late {
    int64_t seq;
    int session;
    bool ordered;
    bool replay;
};

struct relay_world {
    struct relay_db *db;
    struct relay_time *time;
    bool held;     /* answers only by relay_broker_answer() */
    bool reversed; /* newest first (not in an ordered session) */
    struct relay_verdict verdicts[RELAY_VERDICTS_MAX];
    /* Optional: changes the answer for a row. */
    void (*judge)(void *ctx, int64_t seq, struct relay_verdict *v);
    void *ctx;
    struct relay_late late[RELAY_LATE_MAX];
    size_t late_count;
    int sessions;
};

struct relay_pending {
    uint64_t token;
    int64_t seq;
    bool replay;
    const struct td_message *message;
};

struct relay_broker_session;

struct relay_broker_client {
    struct relay_world *world;
    struct relay_faults faults;
    int calls[RELAY_BROKER_CALLS];
    int calls_total;
    int open;
    int interrupted;
    size_t pipeline_max;  /* submit takes no more than this in flight; 0: RELAY_PENDING_MAX */
    size_t in_flight_max; /* most that ever was */
    int submitted;        /* rows, all in all */
    struct relay_broker_session *session;
};

extern const struct td_broker_driver relay_broker_driver;         /* any order, one at a time */
extern const struct td_broker_driver relay_broker_driver_ordered; /* ORDERED_PIPELINE */

/* w: zeroed. */
void relay_world_init(struct relay_world *w, struct relay_db *db);
struct td_str relay_broker_location(struct relay_broker_client *c);
void relay_verdict(struct relay_world *w, int64_t seq, int times, enum td_publish_result result,
                   enum td_err code, enum td_err_class class_);
size_t relay_broker_in_flight(const struct relay_broker_client *c);
bool relay_broker_holds(const struct relay_broker_client *c, int64_t seq);
/* What its message says; 0: it is not in flight. */
td_time_us relay_broker_published_at(const struct relay_broker_client *c, int64_t seq);
/* Process one row that is in flight, by its verdict. false: it is not there, or in an ordered
 * session not the first. */
bool relay_broker_answer(struct relay_broker_client *c, int64_t seq);
bool relay_broker_answer_at(struct relay_broker_client *c, size_t index);
/* Process the i-th late row, if its session's order allows it. */
void relay_broker_late(struct relay_world *w, size_t index);

#endif
