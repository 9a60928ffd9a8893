/* See rig.h. */
#include "rig.h"

struct rig rig_new(enum tdi_order order, bool outside)
{
    struct rig r = {.w = fake_world_new(7)};
    struct td_clock clock = fake_clock(r.w);
    r.o = (struct tdi_consumer_options){
        .name = TD_STR_LIT("shop.points"),
        .topic = TD_STR_LIT("orders"),
        .order = order,
        .retry = {.delays = {TD_SECOND_US},
                  .delays_count = 1,
                  .max_delay_us = 3600 * TD_SECOND_US,
                  .factor = 2,
                  .attempts = 3,
                  .jitter = TDI_JITTER_NONE},
        .store_driver = &fake_store_driver,
        .broker_driver = &fake_broker_driver,
        .handler_driver = outside ? &fake_outside_driver : &fake_inside_driver,
        .clock = clock,
        .random = &r.w->random,
    };
    r.o.store.clock = clock;
    r.o.broker.clock = clock;
    r.o.handler.clock = clock;
    r.o.handler.timeout_us = outside ? 5 * TD_SECOND_US : 0;
    return r;
}

void rig_free(struct rig *r)
{
    tdi_consumer_free(r->c);
    fake_world_free(r->w);
}

struct tdi_consumer *rig_consumer(struct rig *r)
{
    struct tdi_consumer *c = NULL;
    struct td_error err = {0};
    assert_int_equal(tdi_consumer_new(&r->o, &c, &err), TD_OK);
    return c;
}

void rig_start(struct rig *r)
{
    assert_null(r->c);
    r->c = rig_consumer(r);
}

void rig_kill(struct rig *r)
{
    tdi_consumer_free(r->c);
    r->c = NULL;
}

enum tdi_step rig_step(struct rig *r, struct tdi_consumer *c, td_time_us *ret_wake)
{
    int64_t calls = r->w->calls;
    int64_t opens = r->w->calls_of_open;
    enum tdi_step s = tdi_consumer_step(c, ret_wake);
    /* One call of a driver; a failed open and its close count as one. */
    int64_t extra = r->w->calls_of_open - opens == 2 ? 1 : 0;
    assert_true(r->w->calls - calls - extra <= 1);
    *ret_wake += FAKE_START_US;
    return s;
}

bool rig_run(struct rig *r, td_time_us duration)
{
    td_time_us end = r->w->now + duration;
    int steps = 0;
    while (r->c != NULL) {
        td_time_us wake = 0;
        td_time_us before = r->w->now;
        enum tdi_step s = rig_step(r, r->c, &wake);
        if (fake_take_kill(r->w)) {
            rig_kill(r);
            return false;
        }
        if (s == TDI_STEP_ENDED) {
            return true;
        }
        if (s == TDI_STEP_WAIT) {
            if (wake >= end || r->w->now >= end) {
                r->w->now = end > r->w->now ? end : r->w->now;
                return false;
            }
            r->w->now = wake > r->w->now ? wake : r->w->now;
        }
        steps = r->w->now > before ? 0 : steps + 1;
        assert_true(steps < RIG_STEPS_MAX);
    }
    return false;
}

struct tdi_consumer_snapshot rig_snapshot(struct rig *r)
{
    struct tdi_consumer_snapshot s;
    tdi_consumer_snapshot(r->c, &s);
    return s;
}
