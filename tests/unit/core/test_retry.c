/* Delays between runs: tiers, exponential growth, jitter, wishes, overflow. */
#include "base/clock.h"
#include "core/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S TD_SECOND_US

static struct tdi_random seeded(void)
{
    struct tdi_random r;
    tdi_random_seed(&r, 7);
    return r;
}

static struct tdi_retry_policy plain(void)
{
    struct tdi_retry_policy p = tdi_retry_default();
    p.jitter = TDI_JITTER_NONE;
    return p;
}

static void defaults(void **state)
{
    (void)state;
    struct tdi_retry_policy p = tdi_retry_default();
    assert_int_equal(p.delays_count, 0);
    assert_int_equal(p.initial_us, S);
    assert_true(p.factor > 1.999 && p.factor < 2.001);
    assert_int_equal(p.max_delay_us, 3600 * S);
    assert_int_equal(p.attempts, 8);
    assert_int_equal(p.jitter, TDI_JITTER_FULL);
}

static void exponential(void **state)
{
    (void)state;
    struct tdi_random r = seeded();
    struct tdi_retry_policy p = plain();
    assert_int_equal(tdi_retry_delay(&p, 1, 0, &r), 1 * S);
    assert_int_equal(tdi_retry_delay(&p, 2, 0, &r), 2 * S);
    assert_int_equal(tdi_retry_delay(&p, 3, 0, &r), 4 * S);
    assert_int_equal(tdi_retry_delay(&p, 12, 0, &r), 2048 * S);
    assert_int_equal(tdi_retry_delay(&p, 13, 0, &r), 3600 * S);
    assert_int_equal(tdi_retry_delay(&p, 0, 0, &r), 1 * S);
    assert_int_equal(tdi_retry_delay(&p, -5, 0, &r), 1 * S);
    p.factor = 1;
    assert_int_equal(tdi_retry_delay(&p, 1000000, 0, &r), 1 * S);
    p.factor = 1.5;
    assert_int_equal(tdi_retry_delay(&p, 3, 0, &r), 2250000);
}

static void tiers(void **state)
{
    (void)state;
    struct tdi_random r = seeded();
    struct tdi_retry_policy p = plain();
    p.delays[0] = 10 * S;
    p.delays[1] = 60 * S;
    p.delays[2] = 7200 * S; /* not capped: it was written down */
    p.delays_count = 3;
    assert_int_equal(tdi_retry_delay(&p, 1, 0, &r), 10 * S);
    assert_int_equal(tdi_retry_delay(&p, 2, 0, &r), 60 * S);
    assert_int_equal(tdi_retry_delay(&p, 3, 0, &r), 7200 * S);
    assert_int_equal(tdi_retry_delay(&p, 4, 0, &r), 7200 * S);
    assert_int_equal(tdi_retry_delay(&p, INT32_MAX, 0, &r), 7200 * S);
    p.delays[0] = -5;
    assert_int_equal(tdi_retry_delay(&p, 1, 0, &r), 0);
}

static void wishes(void **state)
{
    (void)state;
    struct tdi_random r = seeded();
    struct tdi_retry_policy p = tdi_retry_default(); /* full jitter does not touch a wish */
    assert_int_equal(tdi_retry_delay(&p, 1, 30 * S, &r), 30 * S);
    assert_int_equal(tdi_retry_delay(&p, 5, 1, &r), 1);
    assert_int_equal(tdi_retry_delay(&p, 1, INT64_MAX, &r), 3600 * S);
    p.max_delay_us = 5 * S;
    assert_int_equal(tdi_retry_delay(&p, 1, 30 * S, &r), 5 * S);
    p.max_delay_us = 0;
    assert_int_equal(tdi_retry_delay(&p, 1, INT64_MAX, &r), 3600 * S);
    p.jitter = TDI_JITTER_NONE;
    assert_int_equal(tdi_retry_delay(&p, 1, -1, &r), 1 * S); /* no wish */
}

static void full_jitter(void **state)
{
    (void)state;
    struct tdi_random r = seeded();
    struct tdi_retry_policy p = tdi_retry_default();
    p.initial_us = 9;
    unsigned seen[10] = {0};
    for (int i = 0; i < 10000; i++) {
        td_time_us d = tdi_retry_delay(&p, 1, 0, &r);
        assert_true(d >= 0 && d <= 9);
        seen[d]++;
    }
    for (size_t i = 0; i < 10; i++) {
        assert_true(seen[i] > 800 && seen[i] < 1200); /* even, both ends included */
    }
}

static void overflow(void **state)
{
    (void)state;
    struct tdi_random r = seeded();
    struct tdi_retry_policy p = plain();
    p.factor = 100;
    p.max_delay_us = INT64_MAX;
    assert_int_equal(tdi_retry_delay(&p, INT32_MAX, 0, &r), INT64_MAX);
    p.initial_us = INT64_MAX;
    assert_int_equal(tdi_retry_delay(&p, 1, 0, &r), INT64_MAX);
    p.jitter = TDI_JITTER_FULL;
    assert_true(tdi_retry_delay(&p, 1, 0, &r) >= 0);
    p.jitter = TDI_JITTER_NONE;
    p.initial_us = 0;
    assert_int_equal(tdi_retry_delay(&p, INT32_MAX, 0, &r), 0);
    p.initial_us = -1;
    assert_int_equal(tdi_retry_delay(&p, 3, 0, &r), 0);
    p.initial_us = S;
    p.factor = 0; /* out of range: as 1 */
    assert_int_equal(tdi_retry_delay(&p, 3, 0, &r), S);
    p.attempts = INT32_MAX;
    p.max_delay_us = INT64_MAX;
    p.factor = 2;
    assert_int_equal(tdi_retry_span(&p), INT64_MAX);
}

static void span(void **state)
{
    (void)state;
    struct tdi_retry_policy p = tdi_retry_default();
    assert_int_equal(tdi_retry_span(&p), (1 + 2 + 4 + 8 + 16 + 32 + 64) * S);
    p.attempts = 1;
    assert_int_equal(tdi_retry_span(&p), 0);
    p.attempts = 0;
    assert_int_equal(tdi_retry_span(&p), 0);
    p.attempts = 15;
    assert_int_equal(tdi_retry_span(&p), 4095 * S + 2 * 3600 * S);
    p.delays[0] = 10 * S;
    p.delays[1] = 60 * S;
    p.delays_count = 2;
    p.attempts = 4;
    assert_int_equal(tdi_retry_span(&p), (10 + 60 + 60) * S);
    p.attempts = 1000000;
    assert_int_equal(tdi_retry_span(&p), (10 + INT64_C(999998) * 60) * S);
}

static void backoff(void **state)
{
    (void)state;
    struct tdi_random r = seeded();
    const td_time_us full[] = {100, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    for (int failures = 0; failures < 10; failures++) {
        td_time_us d = full[failures] * TD_MILLISECOND_US;
        td_time_us low = INT64_MAX;
        td_time_us high = 0;
        for (int i = 0; i < 2000; i++) {
            td_time_us b = tdi_backoff(failures, &r);
            low = b < low ? b : low;
            high = b > high ? b : high;
        }
        assert_true(low >= d / 2 && low < d * 6 / 10);
        assert_true(high <= d && high > d * 9 / 10);
    }
    assert_true(tdi_backoff(INT32_MAX, &r) <= 10 * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults), cmocka_unit_test(exponential), cmocka_unit_test(tiers),
        cmocka_unit_test(wishes),   cmocka_unit_test(full_jitter), cmocka_unit_test(overflow),
        cmocka_unit_test(span),     cmocka_unit_test(backoff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
