/* See breaker.h. */
#include "core/breaker.h"

#include <string.h>

#include "base/clock.h"

struct tdi_breaker_policy tdi_breaker_default(void)
{
    return (struct tdi_breaker_policy){
        .failures = 20,
        .share_percent = 50,
        .window_us = 10 * TD_SECOND_US,
    };
}

void tdi_breaker_init(struct tdi_breaker *b, const struct tdi_breaker_policy *policy)
{
    *b = (struct tdi_breaker){.policy = *policy, .state = TDI_BREAKER_CLOSED};
    for (size_t i = 0; i < TDI_BREAKER_BUCKETS; i++) {
        b->buckets[i].slot = INT64_MIN;
    }
}

static void close_breaker(struct tdi_breaker *b)
{
    struct tdi_breaker_policy policy = b->policy;
    tdi_breaker_init(b, &policy);
}

static void open_breaker(struct tdi_breaker *b, td_time_us now, struct tdi_random *r)
{
    b->delay_us = b->state == TDI_BREAKER_CLOSED ? TDI_BREAKER_DELAY_MIN_US : b->delay_us * 2;
    if (b->delay_us > TDI_BREAKER_DELAY_MAX_US) {
        b->delay_us = TDI_BREAKER_DELAY_MAX_US;
    }
    td_time_us half = b->delay_us / 2;
    b->probe_at = now + half + (td_time_us)tdi_random_below(r, (uint64_t)half + 1);
    b->state = TDI_BREAKER_OPEN;
    b->probing = false;
}

size_t tdi_breaker_allows(struct tdi_breaker *b, td_time_us now)
{
    if (b->state == TDI_BREAKER_OPEN && now >= b->probe_at) {
        b->state = TDI_BREAKER_HALF_OPEN;
        b->probing = false;
    }
    switch (b->state) {
    case TDI_BREAKER_CLOSED:
        return SIZE_MAX;
    case TDI_BREAKER_OPEN:
        return 0;
    case TDI_BREAKER_HALF_OPEN:
        return b->probing ? 0 : 1;
    }
    return 0;
}

void tdi_breaker_started(struct tdi_breaker *b)
{
    if (b->state == TDI_BREAKER_HALF_OPEN) {
        b->probing = true;
    }
}

void tdi_breaker_forgotten(struct tdi_breaker *b)
{
    b->probing = false;
}

/* Count into the bucket of `now`; true: the numbers say that it should open. */
static bool count_result(struct tdi_breaker *b, bool broken, td_time_us now)
{
    td_time_us length = b->policy.window_us / TDI_BREAKER_BUCKETS;
    int64_t slot = now / (length > 0 ? length : 1);
    struct tdi_breaker_bucket *bucket = &b->buckets[slot % TDI_BREAKER_BUCKETS];
    if (bucket->slot != slot) {
        *bucket = (struct tdi_breaker_bucket){.slot = slot};
    }
    bucket->all++;
    bucket->broken += broken ? 1 : 0;
    b->in_row = broken ? b->in_row + (b->in_row < INT32_MAX ? 1 : 0) : 0;

    int64_t all = 0;
    int64_t all_broken = 0;
    for (size_t i = 0; i < TDI_BREAKER_BUCKETS; i++) {
        if (b->buckets[i].slot > slot - TDI_BREAKER_BUCKETS) {
            all += b->buckets[i].all;
            all_broken += b->buckets[i].broken;
        }
    }
    return all_broken >= b->policy.failures && all_broken * 100 >= b->policy.share_percent * all;
}

bool tdi_breaker_result(struct tdi_breaker *b, bool broken, td_time_us now, struct tdi_random *r)
{
    switch (b->state) {
    case TDI_BREAKER_CLOSED: {
        bool many = count_result(b, broken, now);
        if (b->policy.failures > 0 && broken && (many || b->in_row >= b->policy.failures)) {
            open_breaker(b, now, r);
        }
        return false;
    }
    case TDI_BREAKER_OPEN:
        return broken; /* a run that was started before */
    case TDI_BREAKER_HALF_OPEN:
        if (broken) {
            open_breaker(b, now, r);
        } else {
            close_breaker(b);
        }
        return broken;
    }
    return false;
}

void tdi_breaker_trip(struct tdi_breaker *b, td_time_us now, struct tdi_random *r)
{
    if (b->state != TDI_BREAKER_OPEN) {
        open_breaker(b, now, r);
    }
}
