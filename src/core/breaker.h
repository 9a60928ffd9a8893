/*
 * The breaker of one consumer: decides from the results of runs whether what the handler needs is
 * down, and when to try again. Pure: times (monotonic) and randomness are handed in.
 *
 *   closed     runs go; opens when, within `window_us`, at least `failures` results are broken and
 *              they are at least `share_percent` of all, or after `failures` broken ones in a row
 *   open       nothing runs until the probe time: 1 s, doubling to 30 s, with half jitter
 *   half open  exactly one run, the probe: success closes, a broken result opens for twice as long
 *
 * Invariant: at most TDI_BREAKER_BUCKETS counters however many results there are; a result is
 * forgotten between window_us and window_us * (1 + 1 / BUCKETS) after it.
 */
#ifndef TDI_CORE_BREAKER_H
#define TDI_CORE_BREAKER_H

#include "tidings/types.h"

struct tdi_random;

#define TDI_BREAKER_BUCKETS 10
#define TDI_BREAKER_DELAY_MIN_US (1 * TD_SECOND_US)
#define TDI_BREAKER_DELAY_MAX_US (30 * TD_SECOND_US)

struct tdi_breaker_policy {
    int32_t failures;      /* 0: never opens */
    int32_t share_percent; /* 1..100 */
    td_time_us window_us;
};

enum tdi_breaker_state {
    TDI_BREAKER_CLOSED,
    TDI_BREAKER_OPEN,
    TDI_BREAKER_HALF_OPEN,
};

struct tdi_breaker_bucket {
    int64_t slot; /* time / bucket length; another slot: the counters are void */
    int64_t all;
    int64_t broken;
};

struct tdi_breaker {
    struct tdi_breaker_policy policy;
    enum tdi_breaker_state state;
    struct tdi_breaker_bucket buckets[TDI_BREAKER_BUCKETS];
    int32_t in_row;      /* broken results since the last other one */
    td_time_us delay_us; /* of the opening that is going on, before jitter */
    td_time_us probe_at; /* OPEN: when to become half open */
    bool probing;        /* HALF_OPEN: the one run is going on */
};

/* 20 failures, 50 %, 10 s. */
struct tdi_breaker_policy tdi_breaker_default(void);
void tdi_breaker_init(struct tdi_breaker *b, const struct tdi_breaker_policy *policy);

/* How many runs may be started now: SIZE_MAX, 1 (a probe), or 0. OPEN becomes HALF_OPEN when its
 * time has come. */
size_t tdi_breaker_allows(struct tdi_breaker *b, td_time_us now);
/* A run is started. Matters when half open. */
void tdi_breaker_started(struct tdi_breaker *b);
/* A started run ended without a result (cancelled, session lost). */
void tdi_breaker_forgotten(struct tdi_breaker *b);
/* A result. true: the run costs no attempt, for the breaker was not closed when it came and the
 * result is broken. */
bool tdi_breaker_result(struct tdi_breaker *b, bool broken, td_time_us now, struct tdi_random *r);
/* Nothing can be started at all: open at once. */
void tdi_breaker_trip(struct tdi_breaker *b, td_time_us now, struct tdi_random *r);

#endif
