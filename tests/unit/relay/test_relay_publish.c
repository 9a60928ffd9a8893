/* The relay's way of a row from the outbox over the broker to the position. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static void add(struct rig *rig, int count, const char *key)
{
    for (int i = 0; i < count; i++) {
        relay_db_add(&rig->db, key, "order.paid");
    }
}

static bool one_in_flight(const struct rig *rig)
{
    return relay_broker_in_flight(&rig->p[0].broker) > 0;
}

static struct rig *held(bool ordered)
{
    struct rig *rig = rig_new(ordered);
    rig->world.held = true;
    rig->time.patient = false; /* collect() without an answer returns at once */
    return rig;
}

/* Let it do what it can do now. */
static void settle_down(struct rig *rig)
{
    for (int i = 0; i < 40; i++) {
        if (rig_step(rig, 0) == TDI_STEP_WAIT) {
            return;
        }
    }
}

static void settle_down_after(struct rig *rig, td_time_us us)
{
    relay_time_pass(&rig->time, us);
    settle_down(rig);
}

static void publishes_all_and_moves_the_position(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_new(ordered);
        add(rig, 5, "a");
        add(rig, 5, NULL);
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        for (int i = 0; i < 10; i++) {
            assert_int_equal(rig->db.rows[i].accepted, 1);
        }
        assert_int_equal(relay_db_name(&rig->db, RIG_RELAY)->published_total, 10);
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
        rig_free(rig);
    }
}

static void a_row_is_durable_before_it_is_published(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 3, "a");
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_DURABLE, 1, TD_ERR_BUSY, TD_CLASS_RETRY, false);
    rig_start(rig, 0);
    while (rig->p[0].store.calls[RELAY_STORE_DURABLE] == 0) {
        rig_step(rig, 0);
    }
    settle_down(rig);
    assert_int_equal(rig->p[0].broker.submitted, 0);
    rig_until(rig, rig_settled); /* the fake checks each row against what is on disk */
    assert_int_equal(rig->p[0].store.calls[RELAY_STORE_READ] >= 1, 1);
    rig_free(rig);
}

static void the_position_covers_contiguous_rows_only(void **state)
{
    (void)state;
    struct rig *rig = held(false);
    add(rig, 4, NULL);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    assert_true(relay_broker_answer(&rig->p[0].broker, 4));
    assert_true(relay_broker_answer(&rig->p[0].broker, 2));
    settle_down_after(rig, TD_SECOND_US);
    assert_int_equal(rig_position(rig), 0);
    assert_true(relay_broker_answer(&rig->p[0].broker, 1));
    settle_down_after(rig, TD_SECOND_US);
    assert_int_equal(rig_position(rig), 2);
    assert_true(relay_broker_answer(&rig->p[0].broker, 3));
    settle_down_after(rig, TD_SECOND_US);
    assert_int_equal(rig_position(rig), 4);
    rig_free(rig);
}

static void acceptance_in_any_order_ends_well(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    rig->world.reversed = true;
    for (int i = 0; i < 30; i++) {
        add(rig, 2, i % 2 == 0 ? "a" : "b");
        add(rig, 1, NULL);
    }
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_true(relay_db_all_settled(&rig->db));
    rig_free(rig);
}

static void one_row_of_a_key_is_in_flight(void **state)
{
    (void)state;
    struct rig *rig = held(false);
    add(rig, 3, "a");
    add(rig, 1, "b");
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    settle_down(rig);
    assert_int_equal(relay_broker_in_flight(&rig->p[0].broker), 2);
    assert_true(relay_broker_holds(&rig->p[0].broker, 1));
    assert_true(relay_broker_holds(&rig->p[0].broker, 4));
    assert_true(relay_broker_answer(&rig->p[0].broker, 1));
    settle_down(rig);
    assert_true(relay_broker_holds(&rig->p[0].broker, 2));
    assert_false(relay_broker_holds(&rig->p[0].broker, 3));
    rig_free(rig);
}

static void an_ordered_pipeline_takes_many_of_a_key(void **state)
{
    (void)state;
    struct rig *rig = held(true);
    add(rig, 3, "a");
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    assert_int_equal(relay_broker_in_flight(&rig->p[0].broker), 3);
    rig_free(rig);
}

static void the_next_batch_is_read_while_one_is_in_flight(void **state)
{
    (void)state;
    struct rig *rig = held(true);
    add(rig, 3, "a");
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    add(rig, 2, "a");
    settle_down_after(rig, 10 * TD_MILLISECOND_US);
    assert_int_equal(relay_broker_in_flight(&rig->p[0].broker), 5);
    rig_free(rig);
}

static void the_window_bounds_what_is_in_hand(void **state)
{
    (void)state;
    struct rig *rig = held(true);
    rig->options.window_rows = 20;
    rig->options.read_rows = 8;
    add(rig, 100, NULL);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    settle_down_after(rig, TD_SECOND_US);
    assert_in_range(rig->p[0].broker.in_flight_max, 12, 20);
    assert_in_range(rig->db.shown, 12, 20);
    assert_int_equal(rig->p[0].store.read_rows_max, 8);
    rig->world.held = false;
    rig->time.patient = true;
    rig_until(rig, rig_settled);
    rig_free(rig);
}

static void many_small_reads_are_bounded_too(void **state)
{
    (void)state;
    struct rig *rig = held(true);
    rig_start(rig, 0);
    for (int i = 0; i < 100; i++) {
        add(rig, 1, NULL);
        settle_down_after(rig, 10 * TD_MILLISECOND_US);
    }
    assert_in_range(relay_broker_in_flight(&rig->p[0].broker), 50, 70);
    rig->world.held = false;
    rig->time.patient = true;
    rig_until(rig, rig_settled);
    rig_free(rig);
}

static void bytes_in_hand_are_bounded(void **state)
{
    (void)state;
    struct rig *rig = held(true);
    rig->options.read_bytes = 20000; /* rows of the fake take about 1000 each, with position */
    rig->options.read_rows = 20;
    add(rig, 1000, NULL);
    rig_start(rig, 0);
    rig_until(rig, one_in_flight);
    settle_down_after(rig, TD_SECOND_US);
    assert_in_range(rig->db.shown, 80, 220);
    rig->world.held = false;
    rig->time.patient = true;
    rig_until(rig, rig_settled);
    rig_free(rig);
}

static void a_full_pipeline_is_no_failure(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->p[0].broker.pipeline_max = 3;
    add(rig, 20, "a");
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_int_equal(rig->p[0].broker.in_flight_max, 3);
    assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_OPEN], 1);
    assert_int_equal(rig->p[0].broker.submitted, 20);
    rig_free(rig);
}

static void position_writes_keep_their_interval_under_load(void **state)
{
    (void)state;
    struct rig *rig = held(true);
    rig_start(rig, 0);
    settle_down(rig);
    for (int i = 0; i < 400; i++) {
        add(rig, 1, "a");
        settle_down_after(rig, TD_MILLISECOND_US);
        for (int j = 0; j < 8; j++) {
            relay_broker_answer_at(&rig->p[0].broker, 0);
        }
        settle_down(rig);
    }
    assert_in_range(rig->db.settlements, 5, 9); /* 400 ms and more of load */
    for (int i = 1; i < rig->db.settlements; i++) {
        assert_true(rig->db.settled_at[i] - rig->db.settled_at[i - 1] >=
                    TDI_RELAY_POSITION_INTERVAL_US);
    }
    rig_free(rig);
}

static void an_idle_relay_publishes_and_settles_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_until(rig, rig_idle);
    rig_run_for(rig, 10 * TD_SECOND_US);
    td_time_us then = rig->time.mono;
    int before = rig->p[0].store.calls_total;
    add(rig, 1, "a");
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then < 5 * TD_MILLISECOND_US);
    assert_true(rig->p[0].store.calls_total - before <= 6);
    rig_free(rig);
}

static void without_a_waker_the_timer_finds_rows(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->options.store_driver = &relay_store_driver_no_wait;
    rig_start(rig, 0);
    rig_run_for(rig, 10 * TD_SECOND_US);
    td_time_us then = rig->time.mono;
    int reads = rig->p[0].store.calls[RELAY_STORE_READ];
    rig_run_for(rig, 10 * TD_SECOND_US);
    assert_in_range(rig->p[0].store.calls[RELAY_STORE_READ] - reads, 40, 60);
    then = rig->time.mono;
    add(rig, 1, "a");
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then <= TDI_RELAY_POLL_US);
    rig_free(rig);
}

static void the_timer_runs_under_the_waker(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig_start(rig, 0);
    rig_run_for(rig, 10 * TD_SECOND_US);
    td_time_us then = rig->time.mono;
    add(rig, 1, "a");
    rig->db.woken = false; /* the hint is lost */
    rig_until(rig, rig_settled);
    assert_true(rig->time.mono - then <= TDI_RELAY_POLL_US);
    rig_free(rig);
}

static void rows_of_another_broker_are_passed_over(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    for (int i = 0; i < 10; i++) {
        relay_db_add(&rig->db, "a", i % 2 == 0 ? "far.away" : "order.paid")->foreign = i % 2 == 0;
    }
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_int_equal(relay_db_name(&rig->db, RIG_RELAY)->published_total, 5);
    rig_free(rig);
}

static void rows_without_a_topic_belong_to_the_first_broker(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->options.unmatched_ours = false;
    relay_db_add(&rig->db, "a", "nobody.wants")->foreign = true;
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_int_equal(rig->db.rows[0].dead, 0);
    rig_free(rig);
}

static void purging_goes_in_small_batches_on_its_own_timer(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->options.keep_us = TD_SECOND_US;
    add(rig, 1200, NULL);
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    rig_run_for(rig, 100 * TD_SECOND_US);
    assert_true(rig->db.rows[0].purged);
    assert_true(rig->db.rows[1199].purged);
    assert_in_range(rig->p[0].store.calls[RELAY_STORE_PURGE], 3, 6);
    rig_free(rig);
}

static void the_data_of_a_position_outlives_its_rows(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->db.position_bytes = 40000; /* as a snapshot with thousands of open transactions */
    rig->options.read_rows = 4;
    rig_start(rig, 0);
    for (int i = 0; i < 30; i++) {
        add(rig, 3, "a");
        rig_until(rig, rig_settled); /* its batches are gone, the fake looks at each byte */
    }
    rig_kill(rig, 0);
    add(rig, 3, "a");
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_true(relay_db_all_settled(&rig->db));
    rig_free(rig);
}

static void a_failed_purge_does_not_stop_publishing(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    rig->options.keep_us = TD_SECOND_US;
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_PURGE, 1, TD_ERR_STATEMENT, TD_CLASS_PERMANENT,
               false);
    add(rig, 3, "a");
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    rig_run_for(rig, TD_SECOND_US);
    assert_int_equal(rig->p[0].store.calls[RELAY_STORE_OPEN], 1);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    assert_int_equal(rig_snapshot(rig).last_error.code, TD_ERR_STATEMENT);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(publishes_all_and_moves_the_position),
        cmocka_unit_test(a_row_is_durable_before_it_is_published),
        cmocka_unit_test(the_position_covers_contiguous_rows_only),
        cmocka_unit_test(acceptance_in_any_order_ends_well),
        cmocka_unit_test(one_row_of_a_key_is_in_flight),
        cmocka_unit_test(an_ordered_pipeline_takes_many_of_a_key),
        cmocka_unit_test(the_next_batch_is_read_while_one_is_in_flight),
        cmocka_unit_test(the_window_bounds_what_is_in_hand),
        cmocka_unit_test(many_small_reads_are_bounded_too),
        cmocka_unit_test(bytes_in_hand_are_bounded),
        cmocka_unit_test(a_full_pipeline_is_no_failure),
        cmocka_unit_test(position_writes_keep_their_interval_under_load),
        cmocka_unit_test(an_idle_relay_publishes_and_settles_at_once),
        cmocka_unit_test(without_a_waker_the_timer_finds_rows),
        cmocka_unit_test(the_timer_runs_under_the_waker),
        cmocka_unit_test(rows_of_another_broker_are_passed_over),
        cmocka_unit_test(rows_without_a_topic_belong_to_the_first_broker),
        cmocka_unit_test(purging_goes_in_small_batches_on_its_own_timer),
        cmocka_unit_test(the_data_of_a_position_outlives_its_rows),
        cmocka_unit_test(a_failed_purge_does_not_stop_publishing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
