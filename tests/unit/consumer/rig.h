/* A consumer in a world of fakes, and the loop that drives it on virtual time. */
#ifndef TESTS_CONSUMER_RIG_H
#define TESTS_CONSUMER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "consumer/consumer.h"
#include "fake/consumer_broker.h"
#include "fake/consumer_handler.h"
#include "fake/consumer_store.h"
#include "fake/consumer_world.h"

#define RIG_STEPS_MAX 200000 /* at one instant: more is a loop that waits for nothing */

struct rig {
    struct fake_world *w;
    struct tdi_consumer_options o;
    struct tdi_consumer *c;
};

/* retry: delays 1 s, 3 attempts, no jitter. The consumer is not made yet. */
struct rig rig_new(enum tdi_order order, bool outside);
void rig_free(struct rig *r);
struct tdi_consumer *rig_consumer(struct rig *r);
void rig_start(struct rig *r); /* makes r->c */
void rig_kill(struct rig *r);  /* kill -9: r->c is gone, nothing is given back */
/* One step of c, with what every step must keep. */
enum tdi_step rig_step(struct rig *r, struct tdi_consumer *c, td_time_us *ret_wake);
/* Until virtual time has passed, or the consumer has ended (true), or a run killed it (r->c NULL). */
bool rig_run(struct rig *r, td_time_us duration);
struct tdi_consumer_snapshot rig_snapshot(struct rig *r);

#define SECONDS(n) ((td_time_us)(n)*TD_SECOND_US)
#define MILLIS(n) ((td_time_us)(n)*TD_MILLISECOND_US)

#endif
