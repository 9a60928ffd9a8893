/* What the fakes of store and broker share: virtual time, and faults that are planned or chosen. */
#ifndef FAKE_RELAY_FAULT_H
#define FAKE_RELAY_FAULT_H

#include "tidings/error.h"
#include "tidings/types.h"

#define RELAY_PLANS_MAX 16

/* ---- virtual time ----------------------------------------------------------------------- */

struct relay_time {
    td_time_us mono;
    td_time_us wall;
    bool patient; /* a slot that waits moves the time to its deadline */
};

struct td_clock relay_time_clock(struct relay_time *t);
void relay_time_pass(struct relay_time *t, td_time_us us);

/* ---- faults ----------------------------------------------------------------------------- */

/* The nth call from now of one kind fails; done: after it took effect. */
struct relay_plan {
    int call;
    int nth; /* 1: the next one; 0: free */
    enum td_err code;
    enum td_err_class class_;
    bool done;
};

struct relay_faults {
    struct relay_plan plans[RELAY_PLANS_MAX];
    /* Optional: asked at each call; true: it fails as *ret says. */
    bool (*choose)(void *ctx, int call, struct relay_plan *ret);
    void *ctx;
};

/* After this call, the nth of that kind fails. */
void relay_plan(struct relay_faults *f, int call, int nth, enum td_err code,
                enum td_err_class class_, bool done);
/* Counts down; true: this call fails. */
bool relay_fails(struct relay_faults *f, int call, struct relay_plan *ret);
enum td_err relay_failure(const struct relay_plan *p, struct td_error *err);

#endif
