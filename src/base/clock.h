/* The machine's clock as a struct td_clock, and the randomness that is handed in. */
#ifndef TDI_BASE_CLOCK_H
#define TDI_BASE_CLOCK_H

#include "tidings/types.h"

struct td_clock tdi_clock_system(void);

static inline td_time_us tdi_wall(const struct td_clock *c)
{
    return c->wall(c->ctx);
}

static inline td_time_us tdi_mono(const struct td_clock *c)
{
    return c->mono(c->ctx);
}

/* xoshiro256**; not for secrets. One thread at a time. */
struct tdi_random {
    uint64_t s[4];
};

void tdi_random_seed(struct tdi_random *r, uint64_t seed); /* repeatable */
bool tdi_random_seed_system(struct tdi_random *r);         /* from getrandom(2) */
uint64_t tdi_random_u64(struct tdi_random *r);
/* Even over 0..bound-1; bound 0 gives 0. */
uint64_t tdi_random_below(struct tdi_random *r, uint64_t bound);

#endif
