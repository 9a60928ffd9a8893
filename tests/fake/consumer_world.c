/* See consumer_world.h. */
#include "fake/consumer_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fake/consumer_broker.h"
#include "fake/consumer_handler.h"
#include "fake/consumer_store.h"

static td_time_us wall(void *ctx)
{
    return ((struct fake_world *)ctx)->now;
}

static td_time_us mono(void *ctx)
{
    return ((struct fake_world *)ctx)->now - FAKE_START_US;
}

struct td_clock fake_clock(struct fake_world *w)
{
    return (struct td_clock){.wall = wall, .mono = mono, .ctx = w};
}

struct fake_world *fake_world_of(const struct td_clock *clock)
{
    return clock->ctx;
}

struct fake_world *fake_world_new(uint64_t seed)
{
    struct fake_world *w = calloc(1, sizeof(*w));
    TDI_ASSERT(w != NULL);
    w->now = FAKE_START_US + TD_SECOND_US;
    tdi_random_seed(&w->random, seed);
    w->store = fake_store_data_new();
    w->broker = fake_broker_data_new();
    w->handler = fake_handler_data_new();
    return w;
}

void fake_world_free(struct fake_world *w)
{
    fake_store_data_free(w->store);
    fake_broker_data_free(w->broker);
    fake_handler_data_free(w->handler);
    free(w);
}

struct fake_fault *fake_fail(struct fake_world *w, const char *op, int nth, enum td_err code)
{
    TDI_ASSERT(w->faults_count < FAKE_FAULTS_MAX);
    struct fake_fault *f = &w->faults[w->faults_count++];
    *f = (struct fake_fault){
        .op = op, .nth = nth, .times = 1, .code = code, .class_ = td_err_class_of(code)};
    return f;
}

struct fake_fault *fake_commit_unknown(struct fake_world *w, int nth, enum fake_unknown how)
{
    struct fake_fault *f = fake_fail(w, "store.commit", nth, TD_ERR_OUTCOME_UNKNOWN);
    f->unknown = true;
    f->how = how;
    return f;
}

void fake_no_faults(struct fake_world *w)
{
    w->faults_count = 0;
    w->random_permille = 0;
}

/* Every plan of the operation counts every call, also those that another plan lets fail. */
static const struct fake_fault *planned(struct fake_world *w, const char *op)
{
    const struct fake_fault *found = NULL;
    for (size_t i = 0; i < w->faults_count; i++) {
        struct fake_fault *f = &w->faults[i];
        if (strcmp(f->op, op) != 0 || f->times == 0) {
            continue;
        }
        f->nth -= f->nth > 0 ? 1 : 0;
        if (f->nth == 0 && found == NULL) {
            f->times -= f->times > 0 ? 1 : 0;
            found = f;
        }
    }
    return found;
}

static bool is_store(const char *op)
{
    return strncmp(op, "store.", 6) == 0;
}

/* A random fault: mostly the peer is busy or away, now and then the session is over. */
static enum td_err random_fault(struct fake_world *w, const char *op)
{
    if (tdi_random_below(&w->random, 1000) >= w->random_permille) {
        return TD_OK;
    }
    if (strcmp(op, "handler.poll") == 0 || strcmp(op, "store.rollback") == 0) {
        return TD_OK;
    }
    switch (tdi_random_below(&w->random, is_store(op) ? 5 : 3)) {
    case 0:
        return TD_ERR_UNAVAILABLE;
    case 1:
        return strcmp(op, "handler.start") == 0 ? TD_ERR_UNAVAILABLE : TD_ERR_CLOSED;
    case 2:
        return TD_ERR_INTERRUPTED;
    case 3:
        return strcmp(op, "store.commit") == 0 ? TD_ERR_OUTCOME_UNKNOWN : TD_ERR_DISK_FULL;
    default:
        return strcmp(op, "store.commit") == 0 ? TD_ERR_STATEMENT : TD_ERR_BUSY;
    }
}

bool fake_call(struct fake_world *w, const char *op, struct td_error *err,
               const struct fake_fault **ret_fault)
{
    w->calls++;
    const struct fake_fault *f = planned(w, op);
    enum td_err code = f != NULL ? f->code : random_fault(w, op);
    if (ret_fault != NULL) {
        *ret_fault = f;
    }
    if (code == TD_OK) {
        return false;
    }
    td_error_set(err, code, "%s fails as planned", op);
    if (f != NULL) {
        err->class_ = f->class_;
    }
    fake_say(w, "%s fails: %s", op, td_err_name(code));
    return true;
}

void fake_say(struct fake_world *w, const char *fmt, ...)
{
    if (!w->trace) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    printf("%10.6f  ", (double)(w->now - FAKE_START_US) / 1e6);
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
}
