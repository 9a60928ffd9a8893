/* One owner at a time: taking, renewing, losing the lease; what others see of the owner. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "rig.h"

static void add(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++) {
        relay_db_add(&rig->db, "a", "order.paid");
    }
}

static struct relay_name *lease(struct rig *rig)
{
    return relay_db_name(&rig->db, RIG_RELAY);
}

static bool is_standby(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_STANDBY;
}

static bool one_in_flight(const struct rig *rig)
{
    return relay_broker_in_flight(&rig->p[0].broker) > 0;
}

static bool is_fenced(const struct rig *rig)
{
    return is_standby(rig) && rig->p[0].broker.open == 0;
}

static bool no_renewal(void *ctx, int call, struct relay_plan *ret)
{
    (void)ctx;
    *ret = (struct relay_plan){call, 0, TD_ERR_UNAVAILABLE, TD_CLASS_RETRY, false};
    return call == RELAY_STORE_RENEW;
}

static void who_does_not_own_it_stands_by(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    lease(rig)->owner = 77;
    lease(rig)->fence = 4;
    lease(rig)->until = rig->time.mono + 60 * TD_SECOND_US;
    rig_start(rig, 0);
    rig_until(rig, is_standby);
    rig_run_for(rig, 30 * TD_SECOND_US);
    assert_int_equal(rig->p[0].broker.calls_total, 0);
    assert_int_equal(rig_snapshot(rig).owner_pid, 77);
    assert_in_range(rig->p[0].store.calls[RELAY_STORE_TAKE], 29, 32);
    lease(rig)->owner = 0; /* released */
    td_time_us then = rig->time.mono;
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then < 2 * TD_SECOND_US);
    assert_int_equal(rig_snapshot(rig).fence, 5);
    assert_int_equal(rig_snapshot(rig).owner_pid, 0);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    rig_free(rig);
}

static void a_stale_fence_forgets_everything_in_hand(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 3);
    rig->world.held = true;
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    lease(rig)->fence++;
    lease(rig)->owner = 2;
    lease(rig)->until = rig->time.mono + 10 * TD_SECOND_US;
    rig->world.held = false;
    rig_until(rig, is_fenced);
    assert_int_equal(rig_position(rig), 0);
    assert_int_equal(rig_snapshot(rig).fence, 0);
    assert_int_equal(rig->p[0].broker.submitted, 3);
    rig_until(rig, rig_settled);
    assert_int_equal(rig->p[0].broker.submitted, 6); /* read and sent again, as the next owner */
    assert_int_equal(lease(rig)->fence, 3);
    rig_free(rig);
}

static void whose_lease_has_passed_submits_and_settles_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    add(rig, 2); /* of one key: the second waits for the first */
    rig->world.held = true;
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    rig->p[0].store.faults.choose = no_renewal;
    td_time_us until = rig->time.mono + TDI_RELAY_LEASE_TTL_US + TD_SECOND_US;
    while (rig->time.mono < until) {
        rig_run_for(rig, TD_MILLISECOND_US);
        if (rig->time.mono > lease(rig)->until) {
            rig->world.held = false; /* answers come when the lease is over */
        }
    }
    rig_run_for(rig, TD_SECOND_US);
    assert_int_equal(rig->p[0].broker.submitted, 1);
    assert_int_equal(rig->db.settlements, 0);
    rig->p[0].store.faults.choose = NULL;
    rig_until(rig, rig_settled); /* nobody took over: renewed, and what is in hand counts */
    assert_int_equal(rig->p[0].broker.submitted, 2);
    assert_int_equal(lease(rig)->fence, 1);
    rig_free(rig);
}

/* Two rows of a key, the first in flight: answered at `end`, the second must not go any more. */
static void assert_it_is_over_at(struct rig *rig, td_time_us end)
{
    rig->p[0].store.faults.choose = no_renewal;
    while (rig->time.mono <= end) {
        rig_run_for(rig, TD_MILLISECOND_US);
    }
    assert_true(rig->time.mono < end + 3 * TD_SECOND_US);
    assert_int_equal(rig->p[0].broker.submitted, 1);
    rig->world.held = false;
    for (int i = 0; i < 20; i++) {
        rig_step(rig, 0);
    }
    assert_int_equal(rig->p[0].broker.submitted, 1);
    rig->p[0].store.faults.choose = NULL;
    memset(rig->p[0].store.slow_us, 0, sizeof(rig->p[0].store.slow_us));
    rig_until(rig, rig_settled);
    assert_int_equal(rig->p[0].broker.submitted, 2);
}

static void the_lease_counts_from_before_it_was_asked_for(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    rig->world.held = true;
    rig->options.lease_ttl_us = 60 * TD_SECOND_US;
    rig->options.confirm_timeout_us = 1000 * TD_SECOND_US;
    rig->p[0].store.slow_us[RELAY_STORE_TAKE] = 15 * TD_SECOND_US;
    add(rig, 2);
    rig_start(rig, 0);
    td_time_us asked = rig->time.mono;
    rig->p[0].store.faults.choose = no_renewal;
    rig_until(rig, one_in_flight);
    assert_it_is_over_at(rig, asked + 60 * TD_SECOND_US);
    rig_free(rig);
}

static void a_slow_renewal_counts_from_before_too(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    rig->world.held = true;
    rig->options.lease_ttl_us = 60 * TD_SECOND_US;
    rig->options.confirm_timeout_us = 1000 * TD_SECOND_US;
    add(rig, 2);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    rig->p[0].store.slow_us[RELAY_STORE_RENEW] = 15 * TD_SECOND_US;
    int renewals = rig->p[0].store.calls[RELAY_STORE_RENEW];
    td_time_us asked = rig->time.mono;
    while (rig->p[0].store.calls[RELAY_STORE_RENEW] == renewals) {
        asked = rig->time.mono;
        rig_run_for(rig, 1);
    }
    assert_it_is_over_at(rig, asked + 60 * TD_SECOND_US);
    rig_free(rig);
}

static void it_is_renewed_at_a_third(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_run_for(rig, 10 * TD_SECOND_US);
    int before = rig->p[0].store.calls[RELAY_STORE_RENEW];
    rig_run_for(rig, 100 * TD_SECOND_US); /* idle: nothing new to report */
    assert_in_range(rig->p[0].store.calls[RELAY_STORE_RENEW] - before, 19, 21);
    assert_int_equal(lease(rig)->fence, 1);
    assert_true(lease(rig)->until > rig->time.mono);
    rig_free(rig);
}

static void a_busy_relay_reports_once_a_second(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_run_for(rig, TD_SECOND_US);
    int before = rig->p[0].store.calls[RELAY_STORE_RENEW];
    td_time_us until = rig->time.mono + 20 * TD_SECOND_US;
    while (rig->time.mono < until) {
        add(rig, 1);
        rig_run_for(rig, 20 * TD_MILLISECOND_US);
    }
    assert_in_range(rig->p[0].store.calls[RELAY_STORE_RENEW] - before, 18, 21);
    rig_free(rig);
}

static void assert_member(const char *json, const char *pointer, const char *value)
{
    struct tdi_arena *none = NULL;
    struct tdi_json_token t;
    struct td_error err = {.code = TD_OK};

    assert_int_equal(tdi_json_pointer(tdi_str(json), tdi_str(pointer), none, &t, &err), TD_OK);
    if (!tdi_str_is(t.raw, value)) {
        print_error("%s is %.*s, not %s\n", pointer, (int)t.raw.len, t.raw.data, value);
        fail();
    }
}

static void the_lease_row_tells_how_it_goes(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    lease(rig)->published_total = 1000; /* since init, by others */
    relay_db_add(&rig->db, "a", "no.topic");
    add(rig, 50);
    relay_verdict(&rig->world, 10, 3, TD_PUBLISH_REFUSED, TD_ERR_DISK_FULL, TD_CLASS_RETRY);
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    rig_run_for(rig, 1200 * TD_MILLISECOND_US);
    const char *report = lease(rig)->report;
    assert_member(report, "/state", "ok");
    assert_member(report, "/published_total", "1050");
    assert_member(report, "/pending", "0");
    assert_member(report, "/oldest_pending_seconds", "null");
    assert_member(report, "/drain_seconds", "0.000");
    assert_member(report, "/dead", "1");
    assert_member(report, "/in_flight", "0");
    assert_member(report, "/fence", "1");
    assert_member(report, "/position", "51");
    assert_non_null(strstr(report, "does not take messages at the moment"));
    rig->world.held = true;
    add(rig, 2);
    rig_run_for(rig, 5 * TD_SECOND_US);
    assert_member(report, "/pending", "2");
    assert_member(report, "/in_flight", "2");
    assert_non_null(strstr(report, "\"oldest_pending_seconds\":"));
    assert_null(strstr(report, "\"oldest_pending_seconds\":null"));
    rig_free(rig);
}

static void pending_is_counted_while_it_lags(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->options.window_rows = 10;
    rig->world.held = true;
    add(rig, 500);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    assert_int_equal(rig_snapshot(rig).pending, 500);
    add(rig, 100);
    rig_run_for(rig, 6 * TD_SECOND_US);
    assert_int_equal(rig_snapshot(rig).pending, 600);
    assert_int_equal(rig_snapshot(rig).oldest_pending_us, rig->db.rows[0].message.time);
    rig_free(rig);
}

static void the_rate_is_that_of_the_last_second(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    td_time_us until = rig->time.mono + 10 * TD_SECOND_US;
    while (rig->time.mono < until) {
        add(rig, 100);
        rig_run_for(rig, 10 * TD_MILLISECOND_US);
    }
    uint64_t rate = (uint64_t)rig->db.committed / 10;
    assert_in_range(rig_snapshot(rig).rate_per_second, rate * 8 / 10, rate * 12 / 10);
    rig_run_for(rig, 5 * TD_SECOND_US);
    assert_int_equal(rig_snapshot(rig).rate_per_second, 0);
    rig_free(rig);
}

static void a_second_process_takes_over(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 5);
    rig->world.held = true;
    rig_start(rig, 1);
    while (relay_broker_in_flight(&rig->p[1].broker) == 0) {
        rig_step(rig, 1);
    }
    rig_kill(rig, 1);
    rig->world.held = false;
    rig_start(rig, 0);
    td_time_us then = rig->time.mono;
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then <= TDI_RELAY_LEASE_TTL_US + 2 * TD_SECOND_US);
    assert_int_equal(lease(rig)->fence, 2);
    rig_free(rig);
}

static int count_lines(int fd, const char *part)
{
    char text[65536];
    ssize_t len = read(fd, text, sizeof(text) - 1);
    int lines = 0;

    text[len > 0 ? len : 0] = '\0';
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        lines++;
    }
    return lines;
}

static void only_changes_of_state_are_logged(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    rig->options.log = tdi_log_new(fds[1], TDI_LOG_INFO, TDI_LOG_JSON, false, rig->options.clock);
    add(rig, 500);
    rig_start(rig, 0);
    for (int i = 1; i <= RELAY_PLANS_MAX; i++) {
        relay_plan(&rig->p[0].broker.faults, RELAY_BROKER_OPEN, i, TD_ERR_UNAVAILABLE,
                   TD_CLASS_RETRY, false);
    }
    rig_until(rig, rig_settled);
    rig_run_for(rig, 60 * TD_SECOND_US);
    rig_kill(rig, 0);
    tdi_log_free(rig->options.log);
    rig->options.log = NULL;
    assert_int_equal(close(fds[1]), 0);
    assert_int_equal(count_lines(fds[0], "relay state changed"), 3); /* ok, broker down, ok */
    assert_int_equal(close(fds[0]), 0);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_does_not_own_it_stands_by),
        cmocka_unit_test(a_stale_fence_forgets_everything_in_hand),
        cmocka_unit_test(whose_lease_has_passed_submits_and_settles_nothing),
        cmocka_unit_test(the_lease_counts_from_before_it_was_asked_for),
        cmocka_unit_test(a_slow_renewal_counts_from_before_too),
        cmocka_unit_test(it_is_renewed_at_a_third),
        cmocka_unit_test(a_busy_relay_reports_once_a_second),
        cmocka_unit_test(the_lease_row_tells_how_it_goes),
        cmocka_unit_test(pending_is_counted_while_it_lags),
        cmocka_unit_test(the_rate_is_that_of_the_last_second),
        cmocka_unit_test(a_second_process_takes_over),
        cmocka_unit_test(only_changes_of_state_are_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
