/* Dead letters of the relay that an operator replays: when, how, and what becomes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "../../fake/relay_letters.h"
#include "base/str.h"
#include "rig.h"

static const struct td_str orders_types[] = {{"order.*", 7}};
static const struct td_str late_types[] = {{"no.*", 4}};
static const struct td_str moved_types[] = {{"no.*", 4}};

/* As somebody has added the topic that was missing. */
static const struct tdi_topic added[] = {
    {.name = {"orders", 6}, .broker = {"main", 4}, .types = orders_types, .types_count = 1},
    {.name = {"late", 4}, .broker = {"main", 4}, .types = late_types, .types_count = 1},
};

/* As somebody has added it on another broker. */
static const struct tdi_topic moved[] = {
    {.name = {"orders", 6}, .broker = {"main", 4}, .types = orders_types, .types_count = 1},
    {.name = {"late", 4}, .broker = {"other", 5}, .types = moved_types, .types_count = 1},
};

static struct relay_letter *letter(struct rig *rig, int64_t seq)
{
    return &rig->db.rows[seq - 1].letter;
}

static void add(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++) {
        relay_db_add(&rig->db, "a", "order.paid");
    }
}

static void replay(struct rig *rig, int64_t seq)
{
    relay_letter_replay(&rig->db, seq, 1, 0);
}

static bool letters_ended(const struct rig *rig)
{
    return relay_letters_ended(&rig->db);
}

static bool in_flight(const struct rig *rig)
{
    return relay_broker_in_flight(&rig->p[0].broker) > 0;
}

static bool is_connected(const struct rig *rig)
{
    return rig_settled(rig) && rig->p[0].broker.open > 0;
}

/* A relay with `count` unroutable rows that are dead. */
static struct rig *rig_dead(bool ordered, int count)
{
    struct rig *rig = rig_new(ordered);
    for (int i = 0; i < count; i++) {
        relay_db_add(&rig->db, "a", "no.topic");
    }
    rig_start(rig, 0);
    rig_until(rig, is_connected);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_DEAD);
    return rig;
}

/* The same, and the topic is there now. */
static struct rig *rig_mended(bool ordered, int count)
{
    struct rig *rig = rig_dead(ordered, count);
    rig->catalogue = (struct tdi_catalogue){added, sizeof(added) / sizeof(added[0])};
    return rig;
}

static void assert_dead_again(struct rig *rig, int64_t seq, enum td_dead_code code,
                              const char *reason)
{
    const struct relay_row *row = &rig->db.rows[seq - 1];
    assert_int_equal(row->letter.outcome, TD_OUTCOME_DEAD);
    assert_int_equal(row->letter.attempts, 2);
    assert_int_equal(row->letter.published, 0);
    assert_int_equal(row->dead_code, code);
    assert_non_null(strstr(row->dead_reason, reason));
}

/* ---- what becomes of a letter ----------------------------------------------------------- */

static void a_letter_is_published_by_the_catalogue_of_now(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_mended(ordered, 1);
        replay(rig, 1);
        rig_until(rig, letters_ended);
        assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
        assert_int_equal(letter(rig, 1)->published, 1);
        assert_int_equal(letter(rig, 1)->attempts, 2);
        assert_int_equal(rig->db.rows[0].accepted, 0);
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
        rig_run_for(rig, 60 * TD_SECOND_US);
        assert_int_equal(letter(rig, 1)->published, 1);
        rig_free(rig);
    }
}

static void a_letter_that_nobody_replays_stays(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    rig_run_for(rig, 60 * TD_SECOND_US);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_DEAD);
    assert_int_equal(rig->p[0].broker.submitted, 0);
    rig_free(rig);
}

static void a_letter_that_is_still_unroutable_is_dead_again(void **state)
{
    (void)state;
    struct rig *rig = rig_dead(true, 1);
    replay(rig, 1);
    rig_until(rig, letters_ended);
    assert_dead_again(rig, 1, TD_DEAD_UNROUTABLE, "no.topic");
    rig_free(rig);
}

static void a_letter_whose_topic_is_on_another_broker_says_so(void **state)
{
    (void)state;
    struct rig *rig = rig_dead(true, 1);
    rig->catalogue = (struct tdi_catalogue){moved, sizeof(moved) / sizeof(moved[0])};
    replay(rig, 1);
    rig_until(rig, letters_ended);
    assert_dead_again(rig, 1, TD_DEAD_UNROUTABLE, "late is on the broker other");
    rig_free(rig);
}

static void a_letter_that_is_not_due_is_dead_until_it_is(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    rig->db.rows[0].message.deliver_at = rig->time.wall + 60 * TD_SECOND_US;
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    replay(rig, 1);
    rig_until(rig, letters_ended);
    assert_dead_again(rig, 1, TD_DEAD_NOT_DUE, "it is due at");
    rig_run_for(rig, 60 * TD_SECOND_US);
    replay(rig, 1);
    rig_until(rig, letters_ended);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
    assert_int_equal(letter(rig, 1)->attempts, 3);
    rig_free(rig);
}

static void an_expired_letter_is_dead_again(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    rig->db.rows[0].message.expires_at = rig->time.wall - 1;
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    replay(rig, 1);
    rig_until(rig, letters_ended);
    assert_dead_again(rig, 1, TD_DEAD_EXPIRED, "it expired at");
    rig_free(rig);
}

static void an_edited_letter_goes_out_edited(void **state)
{
    (void)state;
    struct rig *rig = rig_new(true);
    add(rig, 1);
    relay_db_topic(&rig->db.rows[0], "tiny"); /* takes 4 bytes */
    rig_start(rig, 0);
    rig_until(rig, rig_settled);
    assert_int_equal(rig->db.rows[0].dead_code, TD_DEAD_TOO_LARGE);
    letter(rig, 1)->edited = "{}"; /* the fake compares what is published */
    replay(rig, 1);
    rig_until(rig, letters_ended);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
    assert_int_equal(letter(rig, 1)->published, 1);
    rig_free(rig);
}

static void the_brokers_refusal_of_a_letter_is_its_new_reason(void **state)
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
        struct rig *rig = rig_mended(i % 2 == 0, 1);
        relay_verdict(&rig->world, 1, 1, TD_PUBLISH_REFUSED, cases[i / 2].code, TD_CLASS_PERMANENT);
        relay_letter_replay(&rig->db, 1, 8, 0); /* its own fault: no other run changes that */
        rig_until(rig, letters_ended);
        assert_dead_again(rig, 1, cases[i / 2].dead, "the broker refused it");
        rig_free(rig);
    }
}

static void a_letter_that_is_refused_for_now_is_tried_again_and_never_used_up(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_mended(ordered, 1);
        relay_verdict(&rig->world, 1, 20, TD_PUBLISH_REFUSED, TD_ERR_DISK_FULL, TD_CLASS_RETRY);
        replay(rig, 1);
        td_time_us then = rig->time.mono;
        rig_until(rig, letters_ended);
        assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
        assert_int_equal(letter(rig, 1)->attempts, 22);
        assert_int_equal(letter(rig, 1)->limit, 22);
        assert_true(rig->time.mono - then > 60 * TD_SECOND_US); /* ever less often */
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
        rig_free(rig);
    }
}

static void an_unknown_outcome_opens_a_new_session_and_the_letter_is_sent_again(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_mended(ordered, 1);
        int opened = rig->p[0].broker.calls[RELAY_BROKER_OPEN];
        relay_verdict(&rig->world, 1, 3, TD_PUBLISH_UNKNOWN, TD_OK, TD_CLASS_UNKNOWN);
        replay(rig, 1);
        rig_until(rig, letters_ended);
        assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
        assert_int_equal(letter(rig, 1)->attempts, 5);
        assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_OPEN] - opened, 3);
        rig_free(rig);
    }
}

static void a_letter_whose_runs_are_used_up_is_dead(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    relay_letter_replay(&rig->db, 1, 0, 0);
    rig_until(rig, letters_ended);
    assert_int_equal(rig->db.rows[0].dead_code, TD_DEAD_EXHAUSTED);
    assert_int_equal(rig->p[0].broker.submitted, 0);
    rig_free(rig);
}

static void a_letter_that_is_given_up_meanwhile_stays_given_up(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    rig->world.held = true;
    replay(rig, 1);
    rig_until(rig, in_flight);
    letter(rig, 1)->outcome = TD_OUTCOME_DISCARDED;
    rig->world.held = false;
    rig_run_for(rig, TD_SECOND_US);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_DISCARDED);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    rig_free(rig);
}

/* ---- letters and rows ------------------------------------------------------------------- */

static void letters_wait_until_nothing_is_in_flight(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_mended(ordered, 1);
        rig->world.held = true;
        add(rig, 2);
        rig_until(rig, in_flight);
        size_t rows = relay_broker_in_flight(&rig->p[0].broker);
        replay(rig, 1);
        rig_run_for(rig, TD_SECOND_US);
        assert_int_equal(letter(rig, 1)->attempts, 2); /* leased, and not sent */
        assert_int_equal(relay_broker_in_flight(&rig->p[0].broker), rows);
        rig->world.held = false;
        rig_until(rig, letters_ended);
        rig_until(rig, rig_settled);
        assert_int_equal(letter(rig, 1)->published, 1);
        rig_free(rig);
    }
}

static void rows_wait_while_a_letter_is_in_flight(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_mended(ordered, 1);
        rig->world.held = true;
        replay(rig, 1);
        rig_until(rig, in_flight);
        add(rig, 3);
        rig_run_for(rig, TD_SECOND_US);
        assert_int_equal(relay_broker_in_flight(&rig->p[0].broker), 1);
        assert_int_equal(rig_snapshot(rig).in_flight, 1);
        rig->world.held = false;
        rig_until(rig, rig_settled);
        assert_true(letters_ended(rig));
        rig_free(rig);
    }
}

static void a_refused_letter_does_not_harm_what_is_behind_it(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_mended(ordered, 3);
        int opened = rig->p[0].broker.calls[RELAY_BROKER_OPEN];
        relay_verdict(&rig->world, 1, 1, TD_PUBLISH_REFUSED, TD_ERR_DENIED, TD_CLASS_PERMANENT);
        for (int64_t seq = 1; seq <= 3; seq++) {
            replay(rig, seq);
        }
        add(rig, 3);
        rig_until(rig, letters_ended);
        rig_until(rig, rig_settled);
        assert_dead_again(rig, 1, TD_DEAD_DENIED, "not permitted");
        for (int64_t seq = 2; seq <= 3; seq++) {
            assert_int_equal(letter(rig, seq)->outcome, TD_OUTCOME_EFFECT);
            assert_int_equal(letter(rig, seq)->published, 1);
        }
        for (int64_t seq = 4; seq <= 6; seq++) {
            assert_int_equal(rig->db.rows[seq - 1].accepted, 1);
            assert_int_equal(letter(rig, seq)->outcome, TD_OUTCOME_NONE);
        }
        /* An ordered session is used up by a refusal, and that is no trouble of the broker. */
        assert_int_equal(rig->p[0].broker.calls[RELAY_BROKER_OPEN] - opened, ordered);
        assert_int_equal(rig_state(rig), TDI_RELAY_OK);
        rig_free(rig);
    }
}

static void letters_go_in_the_end_although_rows_never_end(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    rig->options.window_rows = 16;
    rig_kill(rig, 0);
    rig_start(rig, 0);
    rig_run_for(rig, TD_SECOND_US);
    rig->p[0].broker.pipeline_max = 4;
    rig->world.held = true;
    add(rig, 16); /* more than is calm */
    rig_until(rig, in_flight);
    replay(rig, 1);
    td_time_us then = rig->time.mono;
    while (!letters_ended(rig)) {
        add(rig, 1);
        rig_run_for(rig, 10 * TD_MILLISECOND_US);
        relay_broker_answer_at(&rig->p[0].broker, 0);
        assert_true(rig->time.mono - then < 20 * TD_SECOND_US);
    }
    assert_true(rig->time.mono - then > TD_SECOND_US);
    rig->world.held = false;
    rig_until(rig, rig_settled);
    rig_free(rig);
}

static void many_letters_go_a_few_at_a_time(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct rig *rig = rig_mended(ordered, 300);
        for (int64_t seq = 1; seq <= 300; seq++) {
            replay(rig, seq);
        }
        rig->p[0].broker.pipeline_max = 10;
        td_time_us then = rig->time.mono;
        rig_until(rig, letters_ended);
        for (int64_t seq = 1; seq <= 300; seq++) {
            assert_int_equal(letter(rig, seq)->outcome, TD_OUTCOME_EFFECT);
            assert_int_equal(letter(rig, seq)->published, 1);
        }
        assert_true(rig->time.mono - then < TD_SECOND_US);
        assert_in_range(rig->p[0].store.calls[RELAY_STORE_FINISH], 4, 6);
        rig_free(rig);
    }
}

/* ---- when ------------------------------------------------------------------------------- */

static void the_store_is_asked_calmly(void **state)
{
    (void)state;
    struct rig *rig = rig_dead(true, 1);
    int before = rig->p[0].store.calls[RELAY_STORE_DUE];
    rig_run_for(rig, 60 * TD_SECOND_US);
    assert_in_range(rig->p[0].store.calls[RELAY_STORE_DUE] - before, 110, 130);
    rig_free(rig);
}

static void a_letter_is_run_when_it_is_due(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 2);
    relay_letter_replay(&rig->db, 1, 1, 0);
    relay_letter_replay(&rig->db, 2, 1, 730 * TD_MILLISECOND_US);
    td_time_us due_at = letter(rig, 2)->due_at;
    rig_until(rig, letters_ended);
    assert_in_range(rig->time.wall - due_at, 0, 20 * TD_MILLISECOND_US);
    rig_free(rig);
}

static void who_stands_by_runs_no_letters(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    struct relay_name *lease = relay_db_name(&rig->db, RIG_RELAY);
    rig_kill(rig, 0);
    lease->owner = 77;
    lease->until = rig->time.mono + 1000 * TD_SECOND_US;
    replay(rig, 1);
    rig_start(rig, 0);
    int before = rig->p[0].store.calls[RELAY_STORE_DUE];
    rig_run_for(rig, 60 * TD_SECOND_US);
    assert_int_equal(rig->p[0].store.calls[RELAY_STORE_DUE], before);
    lease->owner = 0;
    rig_until(rig, letters_ended);
    rig_free(rig);
}

static void a_halted_relay_runs_no_letters(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    rig->db.rebuilt = true;
    add(rig, 1);
    rig_run_for(rig, TD_SECOND_US);
    assert_int_equal(rig_state(rig), TDI_RELAY_HALTED);
    replay(rig, 1);
    rig_run_for(rig, 60 * TD_SECOND_US);
    assert_int_equal(letter(rig, 1)->attempts, 1);
    rig->db.rebuilt = false;
    rig_until(rig, letters_ended);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
    rig_free(rig);
}

static void while_the_broker_is_down_letters_cost_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    for (int i = 1; i <= 8; i++) {
        relay_plan(&rig->p[0].broker.faults, RELAY_BROKER_OPEN, i, TD_ERR_UNAVAILABLE,
                   TD_CLASS_RETRY, false);
    }
    rig_kill(rig, 0);
    rig_start(rig, 0);
    replay(rig, 1);
    rig_until(rig, letters_ended);
    assert_int_equal(letter(rig, 1)->attempts, 2);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
    rig_free(rig);
}

/* ---- ends and failures ------------------------------------------------------------------ */

static void step_to_the_end(struct rig *rig)
{
    for (int i = 0; rig_step(rig, 0) != TDI_STEP_ENDED; i++) {
        assert_true(i < 200);
    }
}

static void a_letter_in_flight_is_settled_at_the_end(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    rig->world.held = true;
    replay(rig, 1);
    rig_until(rig, in_flight);
    tdi_relay_stop(rig->p[0].relay);
    rig->world.held = false;
    step_to_the_end(rig);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
    assert_int_equal(rig->db.names[0].owner, 0);
    rig_free(rig);
}

static void a_letter_that_was_not_sent_is_given_back_at_the_end(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    rig->world.held = true;
    add(rig, 1);
    rig_until(rig, in_flight);
    replay(rig, 1);
    rig_run_for(rig, TD_SECOND_US);
    assert_true(letter(rig, 1)->running);
    tdi_relay_stop(rig->p[0].relay);
    rig->world.held = false;
    step_to_the_end(rig);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_RETRY);
    assert_false(letter(rig, 1)->running);
    assert_int_equal(letter(rig, 1)->limit, 3);
    assert_true(letter(rig, 1)->due_at <= rig->time.wall);
    assert_int_equal(letter(rig, 1)->published, 0);
    assert_true(rig_settled(rig));
    rig_free(rig);
}

static void a_second_stop_leaves_in_the_middle_of_a_transaction(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    replay(rig, 1);
    for (int i = 0; !rig->p[0].store.in_tx; i++) {
        assert_true(i < RIG_STEPS_MAX);
        if (rig_step(rig, 0) == TDI_STEP_WAIT) {
            relay_time_pass(&rig->time, TD_MILLISECOND_US);
        }
    }
    tdi_relay_stop(rig->p[0].relay);
    tdi_relay_stop(rig->p[0].relay);
    step_to_the_end(rig);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_RETRY);
    rig_free(rig);
}

static void the_next_owner_runs_the_letter_of_a_killed_one(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    rig->world.held = true;
    relay_letter_replay(&rig->db, 1, 2, 0);
    rig_until(rig, in_flight);
    rig_kill(rig, 0);
    rig->world.held = false;
    rig_start(rig, 0);
    td_time_us then = rig->time.mono;
    rig_until(rig, letters_ended);
    assert_true(rig->time.mono - then < 2 * TD_SECOND_US); /* nobody waits for the row's lease */
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
    assert_int_equal(letter(rig, 1)->attempts, 3);
    rig_free(rig);
}

static void every_failing_call_heals(void **state)
{
    (void)state;
    static const enum relay_store_call calls[] = {RELAY_STORE_DUE, RELAY_STORE_BEGIN,
                                                  RELAY_STORE_INBOX, RELAY_STORE_FINISH,
                                                  RELAY_STORE_RENEW};
    static const enum td_err codes[] = {TD_ERR_BUSY,      TD_ERR_OUTCOME_UNKNOWN, TD_ERR_CLOSED,
                                        TD_ERR_STATEMENT, TD_ERR_INTERRUPTED,     TD_ERR_FENCED,
                                        TD_ERR_NOMEM};
    for (size_t i = 0; i < 2 * 5 * 7; i++) {
        struct rig *rig = rig_mended(i % 2 == 0, 2);
        enum td_err code = codes[i / 2 % 7];
        bool done = td_err_class_of(code) == TD_CLASS_UNKNOWN && i % 4 == 0;
        relay_plan(&rig->p[0].store.faults, (int)calls[i / 14], 1, code, td_err_class_of(code),
                   done);
        relay_letter_replay(&rig->db, 1, 4, 0);
        relay_letter_replay(&rig->db, 2, 4, 0);
        add(rig, 2);
        rig_until(rig, letters_ended);
        rig_until(rig, rig_settled);
        for (int64_t seq = 1; seq <= 2; seq++) {
            assert_int_equal(letter(rig, seq)->outcome, TD_OUTCOME_EFFECT);
        }
        rig_free(rig);
    }
}

static void what_the_store_refuses_for_good_stops_no_rows(void **state)
{
    (void)state;
    struct rig *rig = rig_mended(true, 1);
    relay_plan(&rig->p[0].store.faults, RELAY_STORE_INBOX, 1, TD_ERR_STATEMENT, TD_CLASS_PERMANENT,
               false);
    relay_letter_replay(&rig->db, 1, 8, 0);
    rig_run_for(rig, TD_SECOND_US);
    assert_int_equal(rig_snapshot(rig).last_error.code, TD_ERR_STATEMENT);
    assert_int_equal(rig_state(rig), TDI_RELAY_OK);
    add(rig, 2);
    rig_until(rig, rig_settled);
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_RETRY);
    rig_until(rig, letters_ended); /* its lease ends */
    assert_int_equal(letter(rig, 1)->outcome, TD_OUTCOME_EFFECT);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_letter_is_published_by_the_catalogue_of_now),
        cmocka_unit_test(a_letter_that_nobody_replays_stays),
        cmocka_unit_test(a_letter_that_is_still_unroutable_is_dead_again),
        cmocka_unit_test(a_letter_whose_topic_is_on_another_broker_says_so),
        cmocka_unit_test(a_letter_that_is_not_due_is_dead_until_it_is),
        cmocka_unit_test(an_expired_letter_is_dead_again),
        cmocka_unit_test(an_edited_letter_goes_out_edited),
        cmocka_unit_test(the_brokers_refusal_of_a_letter_is_its_new_reason),
        cmocka_unit_test(a_letter_that_is_refused_for_now_is_tried_again_and_never_used_up),
        cmocka_unit_test(an_unknown_outcome_opens_a_new_session_and_the_letter_is_sent_again),
        cmocka_unit_test(a_letter_whose_runs_are_used_up_is_dead),
        cmocka_unit_test(a_letter_that_is_given_up_meanwhile_stays_given_up),
        cmocka_unit_test(letters_wait_until_nothing_is_in_flight),
        cmocka_unit_test(rows_wait_while_a_letter_is_in_flight),
        cmocka_unit_test(a_refused_letter_does_not_harm_what_is_behind_it),
        cmocka_unit_test(letters_go_in_the_end_although_rows_never_end),
        cmocka_unit_test(many_letters_go_a_few_at_a_time),
        cmocka_unit_test(the_store_is_asked_calmly),
        cmocka_unit_test(a_letter_is_run_when_it_is_due),
        cmocka_unit_test(who_stands_by_runs_no_letters),
        cmocka_unit_test(a_halted_relay_runs_no_letters),
        cmocka_unit_test(while_the_broker_is_down_letters_cost_nothing),
        cmocka_unit_test(a_letter_in_flight_is_settled_at_the_end),
        cmocka_unit_test(a_letter_that_was_not_sent_is_given_back_at_the_end),
        cmocka_unit_test(a_second_stop_leaves_in_the_middle_of_a_transaction),
        cmocka_unit_test(the_next_owner_runs_the_letter_of_a_killed_one),
        cmocka_unit_test(every_failing_call_heals),
        cmocka_unit_test(what_the_store_refuses_for_good_stops_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
