/* The breaker by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "core/breaker.h"

#define S TD_SECOND_US

static struct tdi_random rnd;

static struct tdi_breaker breaker(int32_t failures)
{
    struct tdi_breaker b;
    struct tdi_breaker_policy p = tdi_breaker_default();
    p.failures = failures;
    tdi_random_seed(&rnd, 1);
    tdi_breaker_init(&b, &p);
    return b;
}

static void results(struct tdi_breaker *b, int broken, int good, td_time_us now)
{
    for (int i = 0; i < good; i++) {
        assert_false(tdi_breaker_result(b, false, now, &rnd));
    }
    for (int i = 0; i < broken; i++) {
        assert_false(tdi_breaker_result(b, true, now, &rnd));
    }
}

static void opens_by_number_and_share(void **state)
{
    (void)state;
    struct tdi_breaker b = breaker(20);
    results(&b, 10, 20, 0); /* 10 of 30, then 20 of 60 with successes between: never half */
    results(&b, 10, 20, S);
    assert_int_equal(b.state, TDI_BREAKER_CLOSED);
    b = breaker(20);
    results(&b, 10, 10, 0);
    results(&b, 9, 10, S);
    assert_int_equal(b.state, TDI_BREAKER_CLOSED);
    results(&b, 1, 0, S); /* 20 of 40 */
    assert_int_equal(b.state, TDI_BREAKER_OPEN);
}

static void results_outside_the_window_do_not_count(void **state)
{
    (void)state;
    struct tdi_breaker b = breaker(4);
    results(&b, 2, 0, 0);
    results(&b, 0, 1, S); /* not in a row */
    results(&b, 2, 0, 12 * S);
    assert_int_equal(b.state, TDI_BREAKER_CLOSED);
    results(&b, 2, 0, 13 * S);
    assert_int_equal(b.state, TDI_BREAKER_OPEN);
}

static void opens_after_a_row_whatever_the_time(void **state)
{
    (void)state;
    struct tdi_breaker b = breaker(3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(b.state, TDI_BREAKER_CLOSED);
        results(&b, 1, 0, i * 1000 * S);
    }
    assert_int_equal(b.state, TDI_BREAKER_OPEN);
}

static void probes_with_one_and_closes(void **state)
{
    (void)state;
    struct tdi_breaker b = breaker(1);
    assert_true(tdi_breaker_allows(&b, 0) == SIZE_MAX);
    results(&b, 1, 0, 0);
    assert_int_equal(tdi_breaker_allows(&b, 0), 0);
    assert_true(b.probe_at >= S / 2 && b.probe_at <= S);
    assert_int_equal(tdi_breaker_allows(&b, b.probe_at), 1);
    tdi_breaker_started(&b);
    assert_int_equal(tdi_breaker_allows(&b, S), 0);
    tdi_breaker_forgotten(&b); /* cancelled: another may probe */
    assert_int_equal(tdi_breaker_allows(&b, S), 1);
    tdi_breaker_started(&b);
    assert_false(tdi_breaker_result(&b, false, S, &rnd));
    assert_int_equal(b.state, TDI_BREAKER_CLOSED);
    assert_true(tdi_breaker_allows(&b, S) == SIZE_MAX);
}

static void failed_probe_doubles_the_delay(void **state)
{
    (void)state;
    struct tdi_breaker b = breaker(1);
    td_time_us now = 0;
    td_time_us delays[] = {1, 2, 4, 8, 16, 30, 30};
    results(&b, 1, 0, now);
    for (size_t i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
        assert_int_equal(b.delay_us, delays[i] * S);
        assert_true(b.probe_at - now >= delays[i] * S / 2 && b.probe_at - now <= delays[i] * S);
        now = b.probe_at;
        assert_int_equal(tdi_breaker_allows(&b, now), 1);
        tdi_breaker_started(&b);
        assert_true(tdi_breaker_result(&b, true, now, &rnd)); /* costs no attempt */
    }
    tdi_breaker_allows(&b, b.probe_at);
    tdi_breaker_result(&b, false, b.probe_at, &rnd);
    results(&b, 1, 0, now);
    assert_int_equal(b.delay_us, S); /* begins anew */
}

static void late_results_while_open(void **state)
{
    (void)state;
    struct tdi_breaker b = breaker(1);
    results(&b, 1, 0, 0);
    assert_true(tdi_breaker_result(&b, true, 1, &rnd));
    assert_false(tdi_breaker_result(&b, false, 1, &rnd));
    assert_int_equal(b.state, TDI_BREAKER_OPEN);
}

static void trips_at_once_even_without_a_limit(void **state)
{
    (void)state;
    struct tdi_breaker b = breaker(0);
    results(&b, 1000, 0, 0);
    assert_int_equal(b.state, TDI_BREAKER_CLOSED);
    tdi_breaker_trip(&b, 0, &rnd);
    assert_int_equal(b.state, TDI_BREAKER_OPEN);
    td_time_us at = b.probe_at;
    tdi_breaker_trip(&b, 1, &rnd);
    assert_int_equal(b.probe_at, at);
    assert_int_equal(tdi_breaker_allows(&b, at), 1);
    tdi_breaker_result(&b, false, at, &rnd);
    assert_int_equal(b.state, TDI_BREAKER_CLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_by_number_and_share),
        cmocka_unit_test(results_outside_the_window_do_not_count),
        cmocka_unit_test(opens_after_a_row_whatever_the_time),
        cmocka_unit_test(probes_with_one_and_closes),
        cmocka_unit_test(failed_probe_doubles_the_delay),
        cmocka_unit_test(late_results_while_open),
        cmocka_unit_test(trips_at_once_even_without_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
