/* Rows that the relay gives up: why, in which transaction, and what waits for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static struct relay_row *add(struct rig *rig, const char *key)
{
    return relay_db_add(&rig->db, key, "order.paid");
}

static void refuse(struct rig *rig, int64_t seq, enum td_err code, enum td_err_class class_)
{
    relay_verdict(&rig->world, seq, 1, TD_PUBLISH_REFUSED, code, class_);
}

static void steps(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++) {
        rig_step(rig, 0);
    }
}

static bool settle_tried(const struct rig *rig)
{
    return rig->p[0].store.calls[RELAY_STORE_SETTLE] > 0;
}

static void assert_dead(struct rig *rig, int64_t seq, enum td_dead_code code, const char *reason)
{
    const struct relay_row *row = &rig->db.rows[seq - 1];
    assert_int_equal(row->dead, 1);
    assert_int_equal(row->dead_code, code);
    assert_non_null(strstr(row->dead_reason, reason));
}

static void rows_that_cannot_be_published_are_parked_with_their_reason(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_new(ordered);
        add(rig, "a")->defect = "headers is not a JSON object";
        add(rig, "a")->message.deliver_at = rig->time.wall + 3600 * TD_SECOND_US;
        add(rig, "a")->message.expires_at = rig->time.wall - 1;
        relay_db_topic(add(rig, "a"), "tiny");
        relay_db_add(&rig->db, "a", "no.topic");
        relay_db_topic(add(rig, NULL), "keyed");
        relay_db_add(&rig->db, "a", "both.twins");
        add(rig, "a")->message.id = TD_STR_LIT("with space");
        add(rig, "a");
        memcpy(rig->db.rows[7].id, "with space", sizeof("with space"));
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        assert_dead(rig, 1, TD_DEAD_INVALID, "not a JSON object");
        assert_dead(rig, 2, TD_DEAD_NOT_DUE, "not built in this version");
        assert_dead(rig, 3, TD_DEAD_EXPIRED, "it expired at 20");
        assert_dead(rig, 4, TD_DEAD_TOO_LARGE, "tiny takes at most 4");
        assert_dead(rig, 5, TD_DEAD_UNROUTABLE, "no.topic");
        assert_dead(rig, 6, TD_DEAD_INVALID, "requires a key");
        assert_dead(rig, 7, TD_DEAD_INVALID, "mails and twins");
        assert_dead(rig, 8, TD_DEAD_INVALID, "");
        assert_int_equal(rig->db.rows[8].accepted, 1);
        assert_int_equal(rig->p[0].broker.submitted, 1);
        assert_int_equal(rig_snapshot(rig).dead, 8);
        rig_free(rig);
    }
}

static void a_row_that_is_due_is_published(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, "a")->message.deliver_at = rig->time.wall;
    add(rig, "a")->message.expires_at = rig->time.wall + TD_SECOND_US;
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_int_equal(rig->db.rows[0].accepted, 1);
    assert_int_equal(rig->db.rows[1].accepted, 1);
    rig_free(rig);
}

static void a_row_can_expire_while_it_waits_for_the_broker(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_new(ordered);
        refuse(rig, 1, TD_ERR_UNAVAILABLE, TD_CLASS_RETRY);
        add(rig, "a");
        add(rig, "a")->message.expires_at = rig->time.wall + TD_MILLISECOND_US;
        add(rig, "a");
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        assert_int_equal(rig->db.rows[0].accepted, 1);
        assert_dead(rig, 2, TD_DEAD_EXPIRED, "while it waited");
        assert_int_equal(rig->db.rows[2].accepted, 1);
        rig_free(rig);
    }
}

static void the_brokers_refusals_become_dead_letters(void **state)
{
    (void)state;
    static const struct {
        enum td_err code;
        enum td_dead_code dead;
    } cases[] = {
        {TD_ERR_UNROUTABLE, TD_DEAD_UNROUTABLE},
        {TD_ERR_TOO_LARGE, TD_DEAD_TOO_LARGE},
        {TD_ERR_DENIED, TD_DEAD_DENIED},
        {TD_ERR_INVALID, TD_DEAD_INVALID},
    };
    for (size_t i = 0; i < 8; i++) {
        struct rig *rig = rig_new(i % 2 == 0);
        add(rig, "a");
        add(rig, "a");
        refuse(rig, 1, cases[i / 2].code, TD_CLASS_PERMANENT);
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        assert_dead(rig, 1, cases[i / 2].dead, "the broker refused it");
        assert_int_equal(rig->db.rows[0].accepted, 0);
        assert_int_equal(rig->db.rows[1].accepted, 1);
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
        rig_free(rig);
    }
}

static void retry_refused_rows_are_never_parked(void **state)
{
    (void)state;
    static const enum td_err codes[] = {TD_ERR_UNAVAILABLE, TD_ERR_DISK_FULL, TD_ERR_BUSY,
                                        TD_ERR_DENIED};
    for (size_t i = 0; i < 8; i++) {
        struct rig *rig = rig_new(i % 2 == 0);
        add(rig, "a");
        add(rig, "a");
        add(rig, "b");
        for (int n = 0; n < 5; n++) {
            refuse(rig, 1, codes[i / 2], TD_CLASS_RETRY);
        }
        rig_start(rig, 0);
        rig_until(rig, rig_settled);
        for (int row = 0; row < 3; row++) {
            assert_int_equal(rig->db.rows[row].dead, 0);
            assert_int_equal(rig->db.rows[row].accepted, 1);
        }
        rig_free(rig);
    }
}

static void a_full_broker_is_asked_ever_less_often(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    add(rig, "a");
    relay_verdict(&rig->world, 1, 1000, TD_PUBLISH_REFUSED, TD_ERR_DISK_FULL, TD_CLASS_RETRY);
    rig_start(rig, 0);
    rig_run_for(rig, 60 * TD_SECOND_US);
    assert_in_range(rig->p[0].broker.submitted, 8, 40);
    assert_int_equal(rig_state(rig), TDI_RELAY_WAITING);
    assert_int_equal(rig_snapshot(rig).last_error.code, TD_ERR_DISK_FULL);
    memset(rig->world.verdicts, 0, sizeof(rig->world.verdicts));
    rig_until(rig, rig_settled);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    rig_free(rig);
}

static void later_rows_of_the_key_wait_for_the_parking_commit(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    add(rig, "a");
    add(rig, "a");
    add(rig, "b");
    refuse(rig, 1, TD_ERR_TOO_LARGE, TD_CLASS_PERMANENT);
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_SETTLE, 1, TD_ERR_BUSY, TD_CLASS_RETRY, false);
    rig_start(rig, 0);
    rig_until(rig, settle_tried);
    rig->time.patient = false;
    steps(rig, 20); /* the settlement failed: nothing of the key goes, and the fake would see it */
    assert_int_equal(rig->db.rows[1].accepted, 0);
    assert_int_equal(rig->db.rows[2].accepted, 1);
    rig->time.patient = true;
    rig_until(rig, rig_settled);
    assert_int_equal(rig->db.rows[1].accepted, 1);
    rig_free(rig);
}

static void followers_of_a_row_with_a_defect_wait_too(void **state)
{
    (void)state;
    struct rig *rig = rig_new(false);
    add(rig, "a")->defect = "broken";
    add(rig, "a");
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_SETTLE, 1, TD_ERR_BUSY, TD_CLASS_RETRY, false);
    rig_start(rig, 0);
    rig_until(rig, settle_tried);
    rig->time.patient = false;
    steps(rig, 20);
    assert_int_equal(rig->p[0].broker.submitted, 0);
    rig->time.patient = true;
    rig_until(rig, rig_settled);
    rig_free(rig);
}

static void in_an_ordered_pipeline_all_later_rows_wait_for_the_commit(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, "a");
    add(rig, "b");
    add(rig, "c");
    refuse(rig, 2, TD_ERR_DENIED, TD_CLASS_PERMANENT);
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_SETTLE, 1, TD_ERR_DISK_FULL, TD_CLASS_RETRY,
               false);
    rig_start(rig, 0);
    rig_until(rig, settle_tried);
    rig->time.patient = false;
    steps(rig, 20);
    assert_int_equal(rig->db.rows[0].accepted, 1);
    assert_int_equal(rig->db.rows[2].accepted, 0);
    assert_int_equal(rig->p[0].broker.submitted, 3);
    rig->time.patient = true;
    rig_until(rig, rig_settled);
    assert_dead(rig, 2, TD_DEAD_DENIED, "not permitted");
    assert_int_equal(rig->db.rows[2].dead, 0);
    assert_int_equal(rig->db.rows[2].accepted, 1);
    assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_OPEN], 2);
    /* The store's, not a lost broker. */
    assert_int_equal(rig_snapshot(rig).last_error.code, TD_ERR_DISK_FULL);
    rig_free(rig);
}

static void many_dead_rows_are_parked_in_bounded_transactions(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    for (int i = 0; i < 700; i++) {
        relay_db_add(&rig->db, "a", "no.topic");
    }
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_in_range(rig->db.settlements, 3, 5);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_cannot_be_published_are_parked_with_their_reason),
        cmocka_unit_test(a_row_that_is_due_is_published),
        cmocka_unit_test(a_row_can_expire_while_it_waits_for_the_broker),
        cmocka_unit_test(the_brokers_refusals_become_dead_letters),
        cmocka_unit_test(retry_refused_rows_are_never_parked),
        cmocka_unit_test(a_full_broker_is_asked_ever_less_often),
        cmocka_unit_test(later_rows_of_the_key_wait_for_the_parking_commit),
        cmocka_unit_test(followers_of_a_row_with_a_defect_wait_too),
        cmocka_unit_test(in_an_ordered_pipeline_all_later_rows_wait_for_the_commit),
        cmocka_unit_test(many_dead_rows_are_parked_in_bounded_transactions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
