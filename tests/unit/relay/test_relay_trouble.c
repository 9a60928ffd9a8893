/* What the relay does when the broker or the store fails: the three answers and their followers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static void add(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++) {
        relay_db_add(&rig->db, "a", "order.paid");
    }
}

static void fail_store(struct rig *rig, enum relay_store_call call, int nth, enum td_err code,
                       bool done)
{
    relay_plan(&rig->p[0].store.faults, (int)call, nth, code, td_err_class_of(code), done);
}

static void fail_broker(struct rig *rig, enum relay_broker_call call, int nth, enum td_err code)
{
    relay_plan(&rig->p[0].broker.faults, (int)call, nth, code, td_err_class_of(code), false);
}

static int accepted(const struct rig *rig)
{
    int sum = 0;
    for (int64_t i = 0; i < rig->db.committed; i++) {
        sum += rig->db.rows[i].accepted;
    }
    return sum;
}

static bool one_in_flight(const struct rig *rig)
{
    return relay_broker_in_flight(&rig->p[0].broker) > 0;
}

static bool is_running(const struct rig *rig)
{
    return rig->p[0].store.calls[RELAY_STORE_STATS] > 0 && rig_state(rig) == TDI_RELAY_OK;
}

static bool is_halted(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_HALTED;
}

/* Halted, and who looks at the lease row sees it. */
static bool is_told(const struct rig *rig)
{
    const struct relay_name *lease = &rig->db.names[0];
    return is_halted(rig) && lease->owner == 1 && lease->until > rig->time.mono &&
           strstr(lease->report, "\"state\":\"halted\"") != NULL;
}

static bool store_is_down(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_STORE_DOWN;
}

static bool broker_is_down(const struct rig *rig)
{
    return rig_state(rig) == TDI_RELAY_BROKER_DOWN;
}

/* ---- broker ----------------------------------------------------------------------------- */

static void an_unknown_outcome_is_tried_again_in_a_new_session(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig *rig = rig_new(i % 2 == 0);
        add(rig, 3);
        relay_verdict(&rig->world, 2, 1, TD_PUBLISH_UNKNOWN, TD_ERR_OUTCOME_UNKNOWN,
                      TD_CLASS_UNKNOWN);
        rig->world.verdicts[0].stored = i / 2 == 0;
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_OPEN], 2);
        assert_int_equal(rig->db.rows[1].accepted, i / 2 == 0 ? 2 : 1);
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
        rig_free(rig);
    }
}

static void a_lost_session_sends_everything_in_flight_again(void **state)
{
    (void)state;
    static const enum td_err codes[] = {TD_ERR_CLOSED, TD_ERR_OUTCOME_UNKNOWN, TD_ERR_UNAVAILABLE,
                                        TD_ERR_IO};
    for (size_t i = 0; i < 8; i++) {
        struct rig *rig = rig_new(i % 2 == 0);
        enum relay_broker_call call = i < 4 ? RELAY_BROKER_COLLECT : RELAY_BROKER_SUBMIT;
        add(rig, 5);
        fail_broker(rig, call, 1, codes[i / 2]);
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_OPEN], 2);
        assert_int_equal(accepted(rig), 5);
        rig_free(rig);
    }
}

static void a_second_copy_keeps_the_first_time_of_publication(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    rig->world.held = true;
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    td_time_us first = rig->time.wall;
    fail_broker(rig, RELAY_BROKER_COLLECT, 1, TD_ERR_CLOSED);
    rig->time.patient = false;
    while (rig->p[0].broker.calls[RELAY_BROKER_CLOSE] == 0) {
        rig_step(rig, 0);
    }
    relay_time_pass(&rig->time, 100 * TD_SECOND_US);
    while (relay_broker_in_flight(&rig->p[0].broker) == 0) {
        if (rig_step(rig, 0) == TDI_STEP_WAIT) {
            relay_time_pass(&rig->time, rig->p[0].wake - rig->time.mono);
        }
    }
    assert_int_equal(relay_broker_published_at(&rig->p[0].broker, 1), first);
    rig_free(rig);
}

static void no_answer_for_too_long_is_unknown(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 3);
    rig->world.held = true;
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    rig_run_for(rig, TDI_RELAY_CONFIRM_TIMEOUT_US - TD_SECOND_US);
    assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_CLOSE], 0);
    rig_run_for(rig, 2 * TD_SECOND_US);
    assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_CLOSE], 1);
    rig->world.held = false;
    rig_until(rig, rig_settled);
    rig_free(rig);
}

static void a_broker_that_is_down_is_asked_ever_less_often(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    for (int i = 0; i < RELAY_PLANS_MAX; i++) {
        fail_broker(rig, RELAY_BROKER_OPEN, i + 1, TD_ERR_UNAVAILABLE);
    }
    add(rig, 3);
    rig_start(rig, 0);
    rig_until(rig, broker_is_down);
    rig_run_for(rig, 60 * TD_SECOND_US);
    assert_in_range(rig->p[0].broker.calls[RELAY_BROKER_OPEN], 8, RELAY_PLANS_MAX);
    assert_int_equal(rig_snapshot(rig).pending, 3);
    rig_until(rig, rig_settled);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    rig_free(rig);
}

static bool always_closed(void *ctx, int call, struct relay_plan *ret)
{
    (void)ctx;
    *ret = (struct relay_plan){call, 0, TD_ERR_CLOSED, TD_CLASS_FATAL, false};
    return call == RELAY_BROKER_SUBMIT;
}

static void opening_alone_does_not_end_the_backoff(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->p[0].broker.faults.choose = always_closed;
    add(rig, 3);
    rig_start(rig, 0);
    rig_run_for(rig, 60 * TD_SECOND_US);
    assert_in_range(rig->p[0].broker.calls[RELAY_BROKER_OPEN], 8, 40);
    assert_int_equal(rig_state(rig), TDI_RELAY_BROKER_DOWN);
    rig_free(rig);
}

/* ---- store ------------------------------------------------------------------------------ */

static void a_store_that_fails_for_now_costs_nothing_in_hand(void **state)
{
    (void)state;
    static const enum relay_store_call calls[] = {RELAY_STORE_READ, RELAY_STORE_DURABLE,
                                                  RELAY_STORE_SETTLE};
    for (size_t i = 0; i < 3; i++) {
        struct rig *rig = rig_new(true);
        rig_start(rig, 0);
        rig_until(rig, is_running);
        add(rig, 5);
        for (int n = 1; n < 6; n++) {
            fail_store(rig, calls[i], n, TD_ERR_UNAVAILABLE, false);
        }
        rig_until(rig, store_is_down);
        rig_until(rig, rig_settled);
        assert_int_equal(accepted(rig), 5);
        assert_int_equal(rig->p[0].store.calls[RELAY_STORE_OPEN], 1);
        assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_OPEN], 1);
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
        rig_free(rig);
    }
}

static void a_moments_lock_is_no_trouble(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_until(rig, is_running);
    add(rig, 1);
    fail_store(rig, RELAY_STORE_SETTLE, 1, TD_ERR_BUSY, false);
    for (int i = 0; !rig_settled(rig); i++) {
        assert_true(i < 100);
        if (rig_step(rig, 0) == TDI_STEP_WAIT) {
            relay_time_pass(&rig->time, rig->p[0].wake - rig->time.mono);
        }
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    }
    rig_free(rig);
}

static bool a_settle_was_tried(const struct rig *rig)
{
    return rig->p[0].store.calls[RELAY_STORE_SETTLE] > 0;
}

static bool four_are_accepted(const struct rig *rig)
{
    return accepted(rig) == 4;
}

static void rows_go_on_while_another_has_the_write_lock(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_until(rig, is_running);
    add(rig, 1);
    for (int n = 1; n < 8; n++) {
        fail_store(rig, RELAY_STORE_SETTLE, n, TD_ERR_BUSY, false);
    }
    rig_until(rig, a_settle_was_tried);
    add(rig, 3);
    rig_until(rig, four_are_accepted);
    assert_int_equal(relay_db_name(&rig->db, RIG_RELAY)->published_total, 0);
    assert_int_equal(rig_snapshot(rig).last_error.code, TD_OK);
    rig_until(rig, rig_settled);
    assert_int_equal(relay_db_name(&rig->db, RIG_RELAY)->published_total, 4);
    rig_free(rig);
}

static void answers_are_collected_while_the_store_is_down(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_until(rig, is_running);
    add(rig, 1);
    rig->world.held = true;
    rig_until(rig, one_in_flight);
    for (int n = 1; n < 10; n++) {
        fail_store(rig, RELAY_STORE_READ, n, TD_ERR_UNAVAILABLE, false);
    }
    rig_until(rig, store_is_down);
    int before = rig->p[0].broker.calls[RELAY_BROKER_COLLECT];
    rig->world.held = false;
    rig_run_for(rig, TD_SECOND_US);
    assert_true(rig->p[0].broker.calls[RELAY_BROKER_COLLECT] > before);
    assert_int_equal(rig_snapshot(rig).in_flight, 0);
    rig_free(rig);
}

static void an_unknown_settlement_takes_the_lease_anew(void **state)
{
    (void)state;
    for (int done = 0; done < 2; done++) {
        struct rig *rig = rig_new(true);
        relay_db_add(&rig->db, "a", "no.topic");
        add(rig, 5);
        fail_store(rig, RELAY_STORE_SETTLE, 1, TD_ERR_OUTCOME_UNKNOWN, done == 1);
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        assert_int_equal(relay_db_name(&rig->db, RIG_RELAY)->fence, 2);
        assert_int_equal(rig_snapshot(rig).fence, 2);
        assert_int_equal(rig->p[0].store.calls[RELAY_STORE_OPEN], 2);
        assert_int_equal(rig->p[0].store.calls[RELAY_STORE_POSITION], 2);
        assert_int_equal(rig->db.rows[0].dead, 1);
        assert_int_equal(relay_db_name(&rig->db, RIG_RELAY)->published_total, 5);
        rig_free(rig);
    }
}

static void a_closed_store_session_is_opened_anew(void **state)
{
    (void)state;
    for (int call = RELAY_STORE_DECLARE; call < RELAY_STORE_BEGIN; call++) {
        struct rig *rig = rig_new(true);
        rig->options.keep_us = TD_SECOND_US;
        add(rig, 3);
        fail_store(rig, (enum relay_store_call)call, 1, TD_ERR_CLOSED, false);
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        rig_run_for(rig, 2 * TD_SECOND_US); /* wait, renew and purge have their turn */
        add(rig, 1);
        rig_until(rig, rig_settled);
        assert_int_equal(rig->p[0].store.calls[RELAY_STORE_OPEN],
                         call == RELAY_STORE_RELEASE ? 1 : 2);
        rig_free(rig);
    }
}

static void every_failing_call_heals(void **state)
{
    (void)state;
    static const enum td_err codes[] = {TD_ERR_BUSY,        TD_ERR_OUTCOME_UNKNOWN, TD_ERR_CLOSED,
                                        TD_ERR_INTERRUPTED, TD_ERR_FENCED,          TD_ERR_NOMEM};
    for (int call = 0; call < RELAY_STORE_CALLS; call++) {
        for (size_t c = 0; c < sizeof(codes) / sizeof(codes[0]); c++) {
            struct rig *rig = rig_new(c % 2 == 0);
            add(rig, 3);
            fail_store(rig, (enum relay_store_call)call, 1, codes[c], false);
            fail_store(rig, (enum relay_store_call)call, 3, codes[c], false);
            rig_start(rig, 0);
            rig_until(rig, rig_settled);
            assert_int_equal(relay_db_name(&rig->db, RIG_RELAY)->published_total, 3);
            rig_free(rig);
        }
    }
}

static struct rig *rig_halted(void)
{
    struct rig *rig = rig_new(true);
    add(rig, 3);
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    rig->db.rebuilt = true;
    add(rig, 1);
    rig_until(rig, is_told);
    return rig;
}

static void a_rebuilt_outbox_halts_until_it_is_mended(void **state)
{
    (void)state;
    struct rig *rig = rig_halted();
    const struct relay_name *lease = &rig->db.names[0];
    assert_non_null(strstr(rig_snapshot(rig).last_error.text, "the outbox was rebuilt"));
    assert_non_null(strstr(lease->report, "the outbox was rebuilt"));
    int reads = rig->p[0].store.calls[RELAY_STORE_READ];
    td_time_us until = rig->time.mono + 60 * TD_SECOND_US;
    while (rig->time.mono < until) {
        rig_run_for(rig, 1);
        assert_true(is_told(rig)); /* the lease is kept, and its row says why */
    }
    assert_in_range(rig->p[0].store.calls[RELAY_STORE_READ] - reads, 4, 7);
    assert_int_equal(lease->fence, 1);
    assert_int_equal(rig->p[0].broker.open, 0);
    rig->db.rebuilt = false;
    rig_until(rig, rig_settled);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    assert_int_equal(accepted(rig), 4);
    rig_free(rig);
}

static void who_mends_takes_the_lease_and_the_relay_goes_on(void **state)
{
    (void)state;
    struct rig *rig = rig_halted();
    struct relay_name *lease = &rig->db.names[0];
    rig->db.rebuilt = false;
    lease->position = 0; /* as relay_rebase() does it */
    lease->owner = 0;
    lease->fence++;
    td_time_us then = rig->time.mono;
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then < 5 * TD_SECOND_US);
    assert_int_equal(lease->fence, 3);
    assert_int_equal(accepted(rig), 7);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    rig_free(rig);
}

static void a_broken_session_that_halts_keeps_a_lease_too(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    fail_store(rig, RELAY_STORE_SETTLE, 1, TD_ERR_CORRUPT, false);
    rig_start(rig, 0);
    rig_until(rig, is_told);
    rig_run_for(rig, 5 * TD_SECOND_US);
    assert_true(is_told(rig));
    assert_int_equal(rig->db.names[0].fence, 2);
    rig_until(rig, rig_settled);
    rig_free(rig);
}

static void a_refused_schema_halts_too(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    fail_store(rig, RELAY_STORE_OPEN, 1, TD_ERR_SCHEMA, false);
    rig_start(rig, 0);
    rig_until(rig, is_halted);
    td_time_us then = rig->time.mono;
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then >= 10 * TD_SECOND_US);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    rig_free(rig);
}

static void a_settlement_that_can_never_be_halts(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    fail_store(rig, RELAY_STORE_SETTLE, 1, TD_ERR_STATEMENT, false);
    rig_start(rig, 0);
    rig_until(rig, is_halted);
    rig_until(rig, rig_settled);
    rig_run_for(rig, TD_SECOND_US);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_outcome_is_tried_again_in_a_new_session),
        cmocka_unit_test(a_lost_session_sends_everything_in_flight_again),
        cmocka_unit_test(a_second_copy_keeps_the_first_time_of_publication),
        cmocka_unit_test(no_answer_for_too_long_is_unknown),
        cmocka_unit_test(a_broker_that_is_down_is_asked_ever_less_often),
        cmocka_unit_test(opening_alone_does_not_end_the_backoff),
        cmocka_unit_test(a_store_that_fails_for_now_costs_nothing_in_hand),
        cmocka_unit_test(a_moments_lock_is_no_trouble),
        cmocka_unit_test(rows_go_on_while_another_has_the_write_lock),
        cmocka_unit_test(answers_are_collected_while_the_store_is_down),
        cmocka_unit_test(an_unknown_settlement_takes_the_lease_anew),
        cmocka_unit_test(a_closed_store_session_is_opened_anew),
        cmocka_unit_test(every_failing_call_heals),
        cmocka_unit_test(a_rebuilt_outbox_halts_until_it_is_mended),
        cmocka_unit_test(who_mends_takes_the_lease_and_the_relay_goes_on),
        cmocka_unit_test(a_broken_session_that_halts_keeps_a_lease_too),
        cmocka_unit_test(a_refused_schema_halts_too),
        cmocka_unit_test(a_settlement_that_can_never_be_halts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
