/*
 * One world of fakes for tests of a consumer: virtual time, randomness, planned and random faults,
 * a store, a broker and a handler in memory. Many consumer objects may live in one world; a process
 * that is killed is an object that is freed.
 *
 * A fake finds its world through clock.ctx of the options that it is opened with.
 */
#ifndef TESTS_FAKE_CONSUMER_WORLD_H
#define TESTS_FAKE_CONSUMER_WORLD_H

#include "base/clock.h"
#include "tidings/broker.h"
#include "tidings/handler.h"
#include "tidings/store.h"

#define FAKE_MESSAGES_MAX 640
#define FAKE_FAULTS_MAX 32
#define FAKE_START_US (1800000000 * TD_SECOND_US)

struct fake_store_data;
struct fake_broker_data;
struct fake_handler_data;

/* How an unanswered COMMIT ended. */
enum fake_unknown {
    FAKE_COMMITTED,
    FAKE_ROLLED_BACK,
    FAKE_LATE, /* committed by the old backend when somebody takes the lease, or never */
};

struct fake_fault {
    const char *op; /* "store.begin", "broker.fetch", ... */
    int nth;        /* calls until it happens; 1: the next */
    int times;      /* how often in a row; -1: from then on */
    enum td_err code;
    enum td_err_class class_;
    bool unknown; /* store.commit: as in how */
    enum fake_unknown how;
};

struct fake_world {
    td_time_us now; /* both clocks; mono = now - FAKE_START_US */
    struct tdi_random random;
    struct fake_fault faults[FAKE_FAULTS_MAX];
    size_t faults_count;
    unsigned random_permille; /* random faults at each call */
    int64_t calls;            /* of drivers, so far */
    int64_t calls_of_open;    /* of these: open, and the close that follows a failed one */
    bool trace;
    struct fake_store_data *store;
    struct fake_broker_data *broker;
    struct fake_handler_data *handler;
};

struct fake_world *fake_world_new(uint64_t seed);
void fake_world_free(struct fake_world *w);
struct td_clock fake_clock(struct fake_world *w);
struct fake_world *fake_world_of(const struct td_clock *clock);

/* Plan a fault. Returns it, for further fields. */
struct fake_fault *fake_fail(struct fake_world *w, const char *op, int nth, enum td_err code);
struct fake_fault *fake_commit_unknown(struct fake_world *w, int nth, enum fake_unknown how);
void fake_no_faults(struct fake_world *w);

/* Every fake calls this first. true: the call fails, *err is filled; *ret_fault: the plan, or NULL
 * if the fault is random. */
bool fake_call(struct fake_world *w, const char *op, struct td_error *err,
               const struct fake_fault **ret_fault);

/* printf for a trace of one run, on when w->trace. */
void fake_say(struct fake_world *w, const char *fmt, ...) TD_PRINTF(2, 3);

#endif
