/*
 * Where a message is and how it got there: hops gathered from outbox, relay, inbox, parked rows and audit
 * of every store. What was not recorded is said, not guessed.
 */
#ifndef TDI_OPS_TRACE_H
#define TDI_OPS_TRACE_H

#include "ops/plan.h"
#include "tidings/store.h"

#define TDI_TRACE_HOPS_MAX 512

struct tdi_trace_hop {
    struct td_str hop;      /* committed, published, delivered, attempt, parked, effect, dropped,
                               acknowledged, replayed, edited, discarded, dead */
    td_time_us at;          /* TD_TIME_NONE: not recorded */
    struct td_str where;    /* store, broker or consumer (short) */
    struct td_str evidence; /* one short line */
};

/* One message of a source and id; an id may have been used by several sources. */
struct tdi_trace {
    struct td_str source, id, type, key;
    struct tdi_trace_hop *hops; /* in order of time, unrecorded ones where they belong */
    size_t count;
    struct td_str now; /* waiting in outbox | in broker | retrying | blocked | dead | discarded |
                                   effect committed | dropped | unknown */
    bool found;
};

/* stores: open sessions by the number of the configuration, NULL where one could not be opened. */
enum td_err tdi_trace_gather(const struct tdi_plan *plan, struct td_store *const *stores,
                             struct td_str id, struct tdi_arena *a, struct tdi_trace *ret,
                             struct td_error *err);

#endif
