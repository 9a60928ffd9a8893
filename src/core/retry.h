/* Retry policy: how long until the next run. Pure; randomness is handed in. */
#ifndef TDI_CORE_RETRY_H
#define TDI_CORE_RETRY_H

#include "tidings/types.h"

struct tdi_random;

#define TDI_RETRY_DELAYS_MAX 32

enum tdi_jitter {
    TDI_JITTER_FULL, /* even over 0..delay */
    TDI_JITTER_NONE,
};

struct tdi_retry_policy {
    td_time_us delays[TDI_RETRY_DELAYS_MAX]; /* tiers; the last repeats */
    size_t delays_count;                     /* 0: exponential */
    td_time_us initial_us;
    double factor; /* 1..100 */
    td_time_us max_delay_us;
    int32_t attempts; /* runs in all, the first included; 1: no retry */
    enum tdi_jitter jitter;
};

/* Initial 1s, factor 2, max 1h, 8 attempts, full jitter. */
struct tdi_retry_policy tdi_retry_default(void);
/* Delay after `attempt` (1..) runs failed; wish_us > 0 (Retry-After) wins, capped by max_delay_us. */
td_time_us tdi_retry_delay(const struct tdi_retry_policy *p, int32_t attempt, td_time_us wish_us,
                           struct tdi_random *r);
/* Longest time from the first to the last run, without jitter. */
td_time_us tdi_retry_span(const struct tdi_retry_policy *p);

/* Backoff of a reconnecting loop: doubling from 100 ms to 10 s, half jitter. failures: 1.. */
td_time_us tdi_backoff(int failures, struct tdi_random *r);

#endif
