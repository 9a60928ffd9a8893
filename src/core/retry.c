/*
 * Delays between runs. All arithmetic saturates: a policy from a configuration file, however odd,
 * gives a delay of 0 or more and never overflows.
 *
 * Must not know: clocks, messages, who waits.
 */
#include "core/retry.h"

#include "base/clock.h"

#define BACKOFF_FIRST_US (100 * TD_MILLISECOND_US)
#define BACKOFF_MAX_US (10 * TD_SECOND_US)
#define MAX_DELAY_DEFAULT_US (3600 * TD_SECOND_US)

/* From here on a span counts every delay as the longest: it is an upper bound, and slow factors
 * must not make it a long loop. */
#define SPAN_STEPS_MAX 100000

struct tdi_retry_policy tdi_retry_default(void)
{
    return (struct tdi_retry_policy){
        .initial_us = TD_SECOND_US,
        .factor = 2,
        .max_delay_us = MAX_DELAY_DEFAULT_US,
        .attempts = 8,
        .jitter = TDI_JITTER_FULL,
    };
}

static td_time_us not_negative(td_time_us t)
{
    return t > 0 ? t : 0;
}

/* Tiers have no longest delay of their own, so the default caps what a peer may wish. */
static td_time_us delay_cap(const struct tdi_retry_policy *p)
{
    return p->max_delay_us > 0 ? p->max_delay_us : MAX_DELAY_DEFAULT_US;
}

/* factor to the power n, by squaring; infinite when too large. */
static double power(double factor, int32_t n)
{
    double result = 1;
    for (int32_t rest = n; rest > 0; rest /= 2) {
        if (rest % 2 == 1) {
            result *= factor;
        }
        factor *= factor;
    }
    return result;
}

/* Without jitter. attempt: 1.. */
static td_time_us plain_delay(const struct tdi_retry_policy *p, int32_t attempt)
{
    size_t count = p->delays_count < TDI_RETRY_DELAYS_MAX ? p->delays_count : TDI_RETRY_DELAYS_MAX;
    if (count > 0) {
        size_t tier = (size_t)(attempt - 1);
        return not_negative(p->delays[tier < count ? tier : count - 1]);
    }
    td_time_us cap = delay_cap(p);
    double factor = p->factor >= 1 ? p->factor : 1;
    double delay = (double)not_negative(p->initial_us) * power(factor, attempt - 1);
    /* Written so that a NaN (0 times infinity) is 0 and infinity is the cap. */
    return delay >= (double)cap ? cap : delay > 0 ? (td_time_us)delay : 0;
}

td_time_us tdi_retry_delay(const struct tdi_retry_policy *p, int32_t attempt, td_time_us wish_us,
                           struct tdi_random *r)
{
    if (wish_us > 0) {
        td_time_us cap = delay_cap(p);
        return wish_us < cap ? wish_us : cap;
    }
    td_time_us delay = plain_delay(p, attempt > 1 ? attempt : 1);
    switch (p->jitter) {
    case TDI_JITTER_FULL:
        return (td_time_us)tdi_random_below(r, (uint64_t)delay + 1);
    case TDI_JITTER_NONE:
        break;
    }
    return delay;
}

static td_time_us add_times(td_time_us sum, td_time_us delay, int64_t times)
{
    td_time_us product = 0;
    td_time_us total = 0;
    if (__builtin_mul_overflow(delay, times, &product) ||
        __builtin_add_overflow(sum, product, &total)) {
        return INT64_MAX;
    }
    return total;
}

td_time_us tdi_retry_span(const struct tdi_retry_policy *p)
{
    td_time_us sum = 0;
    int32_t waits = p->attempts > 1 ? p->attempts - 1 : 0;
    int32_t steps = waits < SPAN_STEPS_MAX ? waits : SPAN_STEPS_MAX;
    for (int32_t i = 1; i <= steps; i++) {
        sum = add_times(sum, plain_delay(p, i), 1);
    }
    if (waits > steps) {
        td_time_us longest = p->delays_count > 0 ? plain_delay(p, steps) : delay_cap(p);
        sum = add_times(sum, longest, waits - steps);
    }
    return sum;
}

td_time_us tdi_backoff(int failures, struct tdi_random *r)
{
    td_time_us delay = BACKOFF_FIRST_US;
    for (int i = 1; i < failures && delay < BACKOFF_MAX_US; i++) {
        delay *= 2;
    }
    if (delay > BACKOFF_MAX_US) {
        delay = BACKOFF_MAX_US;
    }
    td_time_us half = delay / 2;
    return half + (td_time_us)tdi_random_below(r, (uint64_t)half + 1);
}
