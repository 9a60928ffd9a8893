/* The relay's window: named cases, and random ones against a naive model of the same rules. */
#include "base/clock.h"
#include "base/str.h"
#include "core/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 4096
static struct td_outbox_row rows[ROWS];
static size_t rows_used;
static const uint64_t seed[2] = {1, 2};

static const struct td_outbox_row *row_of(const char *key)
{
    assert_true(rows_used < ROWS);
    struct td_outbox_row *r = &rows[rows_used];
    r->message.key = tdi_str(key);
    r->message.sequence = (int64_t)(100 + rows_used);
    r->position.order = (int64_t)(100 + rows_used);
    rows_used++;
    return r;
}

static void open_window(struct tdi_window *w, size_t capacity, bool ordered)
{
    rows_used = 0;
    assert_true(tdi_window_init(w, capacity, ordered, seed));
}

/* Push rows of these keys, one letter each; '-' is none. */
static void push_keys(struct tdi_window *w, const char *keys)
{
    static char texts[256][2];
    for (; *keys; keys++) {
        unsigned char c = (unsigned char)*keys;
        texts[c][0] = (char)c;
        assert_true(tdi_window_push(w, row_of(c == '-' ? NULL : texts[c])));
    }
}

/* The tokens that may go now, as text: "0 2 3". */
static const char *ready(const struct tdi_window *w)
{
    static char text[256];
    uint64_t tokens[32];
    size_t count = tdi_window_ready(w, tokens, 32);
    text[0] = '\0';
    size_t len = 0;
    for (size_t i = 0; i < count; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%llu", i > 0 ? " " : "",
                                (unsigned long long)tokens[i]);
    }
    return text;
}

static void submit_all(struct tdi_window *w)
{
    uint64_t tokens[32];
    tdi_window_submitted(w, tdi_window_ready(w, tokens, 32));
}

static struct tdi_window_front front(const struct tdi_window *w)
{
    struct tdi_window_front f;
    tdi_window_front(w, SIZE_MAX, &f);
    return f;
}

static enum tdi_window_state state_of(const struct tdi_window *w, uint64_t token)
{
    return tdi_window_at(w, token)->state;
}

/* ---- one in flight a key ----------------------------------------------------------------- */

static void one_of_a_key(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, false);
    push_keys(&w, "aab-ba-");
    assert_string_equal(ready(&w), "0 2 3 6");
    submit_all(&w);
    assert_string_equal(ready(&w), "");
    assert_int_equal(w.submitted, 4);
    assert_true(tdi_window_accept(&w, 2, 7));
    assert_string_equal(ready(&w), "4"); /* the next of b */
    assert_true(tdi_window_accept(&w, 0, 7));
    assert_string_equal(ready(&w), "4 1");
    tdi_window_submitted(&w, 1);
    assert_string_equal(ready(&w), "1");
    assert_int_equal(state_of(&w, 4), TDI_WINDOW_SUBMITTED);
    tdi_window_release(&w);
}

static void empty_key_is_no_key(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, false);
    assert_true(tdi_window_push(&w, row_of("")));
    assert_true(tdi_window_push(&w, row_of("")));
    assert_string_equal(ready(&w), "0 1");
    tdi_window_release(&w);
}

static void refused_row_holds_its_key(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, false);
    push_keys(&w, "xaaa");
    submit_all(&w);
    assert_true(tdi_window_refuse(&w, 1, TD_DEAD_TOO_LARGE, TD_STR_LIT("too large")));
    assert_string_equal(ready(&w), ""); /* the transaction that parks row 1 is not committed */
    assert_int_equal(front(&w).rows, 0);
    assert_true(tdi_window_accept(&w, 0, 5));
    struct tdi_window_front f = front(&w);
    assert_int_equal(f.rows, 2);
    assert_int_equal(f.dead, 1);
    assert_int_equal(f.published, 1);
    assert_int_equal(f.evidence, 5);
    assert_int_equal(tdi_window_at(&w, 1)->dead_code, TD_DEAD_TOO_LARGE);
    assert_true(tdi_str_is(tdi_window_at(&w, 1)->dead_reason, "too large"));
    assert_string_equal(ready(&w), "");
    tdi_window_settled(&w, 2);
    assert_string_equal(ready(&w), "2");
    tdi_window_release(&w);
}

static void refused_when_pushed(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, false);
    push_keys(&w, "a");
    assert_true(tdi_window_push_refused(&w, row_of("a"), TD_DEAD_UNROUTABLE, TD_STR_LIT("no")));
    assert_true(tdi_window_push_refused(&w, row_of(NULL), TD_DEAD_INVALID, TD_STR_LIT("no")));
    push_keys(&w, "a-");
    assert_string_equal(ready(&w), "0 4");
    submit_all(&w);
    assert_true(tdi_window_accept(&w, 0, 1));
    assert_string_equal(ready(&w), "");
    struct tdi_window_front f;
    tdi_window_front(&w, 1, &f); /* at most one dead row in a transaction */
    assert_int_equal(f.rows, 2);
    assert_int_equal(f.dead, 1);
    tdi_window_front(&w, 0, &f);
    assert_int_equal(f.rows, 1);
    assert_int_equal(front(&w).rows, 3);
    tdi_window_settled(&w, 2);
    assert_string_equal(ready(&w), "3");
    assert_int_equal(front(&w).rows, 1);
    tdi_window_release(&w);
}

static void given_back_and_new_session(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, false);
    push_keys(&w, "ab-ab");
    submit_all(&w);
    assert_true(tdi_window_give_back(&w, 1));
    assert_string_equal(ready(&w), "1");
    assert_true(tdi_window_accept(&w, 0, 1));
    assert_string_equal(ready(&w), "1 3");
    tdi_window_session(&w);
    assert_string_equal(ready(&w), "1 2 3"); /* in publishing order again, 4 behind 1 */
    assert_int_equal(w.submitted, 0);
    assert_false(tdi_window_accept(&w, 2, 1)); /* answers of the old session */
    assert_false(tdi_window_refuse(&w, 2, TD_DEAD_DENIED, TD_STR_NONE));
    assert_false(tdi_window_give_back(&w, 2));
    assert_false(tdi_window_accept(&w, 0, 9)); /* accepted once is enough */
    assert_int_equal(tdi_window_at(&w, 0)->evidence, 1);
    assert_int_equal(state_of(&w, 2), TDI_WINDOW_QUEUED);
    assert_false(tdi_window_accept(&w, 5, 1)); /* never pushed */
    tdi_window_release(&w);
}

static void refusal_survives_a_new_session(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, false);
    push_keys(&w, "xaa");
    submit_all(&w);
    assert_true(tdi_window_refuse(&w, 1, TD_DEAD_DENIED, TD_STR_LIT("no")));
    tdi_window_session(&w);
    assert_string_equal(ready(&w), "0");
    assert_int_equal(state_of(&w, 1), TDI_WINDOW_REFUSED);
    tdi_window_release(&w);
}

/* ---- ordered pipeline -------------------------------------------------------------------- */

static void ordered_takes_all(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, true);
    push_keys(&w, "aa");
    assert_true(tdi_window_push_skipped(&w, row_of("a")));
    push_keys(&w, "a");
    assert_string_equal(ready(&w), "0 1 3");
    tdi_window_submitted(&w, 2);
    assert_string_equal(ready(&w), "3");
    assert_true(tdi_window_accept(&w, 1, 8)); /* answers come in any order */
    assert_int_equal(front(&w).rows, 0);
    assert_true(tdi_window_accept(&w, 0, 7));
    struct tdi_window_front f = front(&w);
    assert_int_equal(f.rows, 3); /* the skipped one counts as settled */
    assert_int_equal(f.published, 2);
    assert_int_equal(f.evidence, 8);
    assert_int_equal(f.from_seq, 100);
    assert_int_equal(f.to_seq, 102);
    assert_ptr_equal(f.position, &rows[2].position);
    tdi_window_release(&w);
}

static void ordered_refusal_breaks_the_session(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, true);
    push_keys(&w, "abcde");
    tdi_window_submitted(&w, 4);
    assert_true(tdi_window_refuse(&w, 1, TD_DEAD_TOO_LARGE, TD_STR_LIT("too large")));
    assert_int_equal(state_of(&w, 0), TDI_WINDOW_SUBMITTED);
    assert_int_equal(state_of(&w, 2), TDI_WINDOW_QUEUED);
    assert_int_equal(state_of(&w, 3), TDI_WINDOW_QUEUED);
    assert_int_equal(w.submitted, 1);
    assert_false(tdi_window_give_back(&w, 2)); /* their refusals tell nothing new */
    assert_string_equal(ready(&w), "");
    assert_true(tdi_window_accept(&w, 0, 1));
    assert_int_equal(front(&w).rows, 2);
    tdi_window_session(&w);
    assert_string_equal(ready(&w), ""); /* nothing passes row 1 before it is parked */
    tdi_window_settled(&w, 2);
    assert_string_equal(ready(&w), "2 3 4");
    tdi_window_release(&w);
}

static void ordered_needs_a_session_after_a_settlement(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, true);
    push_keys(&w, "abc");
    submit_all(&w);
    assert_true(tdi_window_refuse(&w, 0, TD_DEAD_TOO_LARGE, TD_STR_LIT("too large")));
    tdi_window_settled(&w, 1);
    assert_string_equal(ready(&w), "");
    tdi_window_session(&w);
    assert_string_equal(ready(&w), "1 2");
    tdi_window_release(&w);
}

static void ordered_give_back(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, true);
    push_keys(&w, "abcd");
    submit_all(&w);
    assert_true(tdi_window_accept(&w, 2, 3));
    assert_true(tdi_window_give_back(&w, 1));
    assert_string_equal(ready(&w), "");
    assert_int_equal(w.submitted, 1);
    tdi_window_session(&w);
    assert_string_equal(ready(&w), "0 1 3"); /* what was accepted is not sent again */
    tdi_window_release(&w);
}

static void ordered_refused_when_pushed(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 8, true);
    push_keys(&w, "a");
    assert_true(tdi_window_push_refused(&w, row_of("b"), TD_DEAD_INVALID, TD_STR_LIT("no")));
    push_keys(&w, "c");
    assert_string_equal(ready(&w), "0"); /* no session is broken, yet nothing goes past it */
    submit_all(&w);
    assert_string_equal(ready(&w), "");
    assert_true(tdi_window_accept(&w, 0, 1));
    assert_int_equal(front(&w).rows, 2);
    tdi_window_settled(&w, 2);
    assert_string_equal(ready(&w), "2");
    tdi_window_release(&w);
}

/* ---- both -------------------------------------------------------------------------------- */

static void bounds(void **state)
{
    (void)state;
    struct tdi_window w;
    assert_false(tdi_window_init(&w, 0, false, seed));
    tdi_window_release(&w);
    assert_false(tdi_window_init(&w, TDI_WINDOW_ROWS_MAX + 1, true, seed));
    for (int ordered = 0; ordered < 2; ordered++) {
        open_window(&w, 3, ordered != 0);
        push_keys(&w, "abc");
        assert_int_equal(tdi_window_room(&w), 0);
        assert_false(tdi_window_push(&w, row_of("d")));
        assert_false(tdi_window_push_skipped(&w, row_of("d")));
        assert_false(tdi_window_push_refused(&w, row_of("d"), TD_DEAD_INVALID, TD_STR_NONE));
        uint64_t tokens[2];
        assert_int_equal(tdi_window_ready(&w, tokens, 2), 2);
        tdi_window_submitted(&w, 2);
        assert_true(tdi_window_accept(&w, 0, 1));
        tdi_window_settled(&w, 1);
        assert_int_equal(tdi_window_count(&w), 2);
        assert_int_equal(tdi_window_room(&w), 1);
        assert_false(tdi_window_accept(&w, 0, 1)); /* gone */
        push_keys(&w, "e");
        assert_int_equal(w.end, 4);
        assert_string_equal(ready(&w), "2 3");
        tdi_window_release(&w);
    }
}

static void nothing_is_settled(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 3, false);
    struct tdi_window_front f = front(&w);
    assert_int_equal(f.rows, 0);
    tdi_window_settled(&w, 0);
    push_keys(&w, "a");
    f = front(&w);
    assert_int_equal(f.rows, 0);
    assert_int_equal(f.from_seq, TD_NUMBER_NONE);
    assert_null(f.position);
    tdi_window_release(&w);
}

static void sequences_out_of_order(void **state)
{
    (void)state;
    struct tdi_window w;
    open_window(&w, 4, true);
    for (size_t i = 0; i < 4; i++) {
        assert_true(tdi_window_push_skipped(&w, row_of("a")));
    }
    rows[0].message.sequence = TD_NUMBER_NONE;
    rows[1].message.sequence = 9;
    rows[2].message.sequence = -4;
    rows[3].message.sequence = 5;
    struct tdi_window_front f = front(&w);
    assert_int_equal(f.from_seq, -4);
    assert_int_equal(f.to_seq, 9);
    assert_int_equal(f.published, 0);
    assert_int_equal(f.evidence, 0);
    tdi_window_release(&w);
}

static void clearing(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct tdi_window w;
        open_window(&w, 4, ordered != 0);
        push_keys(&w, "aab");
        submit_all(&w);
        tdi_window_refuse(&w, 0, TD_DEAD_DENIED, TD_STR_NONE);
        tdi_window_clear(&w);
        assert_int_equal(tdi_window_count(&w), 0);
        assert_int_equal(w.submitted, 0);
        assert_int_equal(front(&w).rows, 0);
        assert_false(tdi_window_accept(&w, 2, 1));
        push_keys(&w, "abcd");
        assert_string_equal(ready(&w), "3 4 5 6");
        tdi_window_release(&w);
    }
}

/* ---- against a model --------------------------------------------------------------------- */

struct model_row {
    enum tdi_window_state state;
    const char *key;
};

struct model {
    struct model_row rows[ROWS];
    uint64_t first;
    uint64_t end;
    bool ordered;
    bool broken;
};

static bool same_key(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static bool model_holds(enum tdi_window_state s)
{
    return s == TDI_WINDOW_QUEUED || s == TDI_WINDOW_SUBMITTED || s == TDI_WINDOW_REFUSED;
}

static bool model_may_go(const struct model *m, uint64_t token)
{
    if (m->rows[token].state != TDI_WINDOW_QUEUED || (m->ordered && m->broken)) {
        return false;
    }
    for (uint64_t t = m->first; t < token; t++) {
        enum tdi_window_state s = m->rows[t].state;
        if (m->ordered ? s == TDI_WINDOW_REFUSED
                       : same_key(m->rows[t].key, m->rows[token].key) && model_holds(s)) {
            return false;
        }
    }
    return true;
}

static void compare(const struct model *m, const struct tdi_window *w)
{
    assert_int_equal(w->first, m->first);
    assert_int_equal(w->end, m->end);
    bool expected[ROWS] = {false};
    size_t expected_count = 0;
    size_t submitted = 0;
    uint64_t settled = m->first;
    for (uint64_t t = m->first; t < m->end; t++) {
        assert_int_equal(state_of(w, t), m->rows[t].state);
        expected[t] = model_may_go(m, t);
        expected_count += expected[t] ? 1 : 0;
        submitted += m->rows[t].state == TDI_WINDOW_SUBMITTED ? 1 : 0;
        if (settled == t && m->rows[t].state > TDI_WINDOW_SUBMITTED) {
            settled++;
        }
    }
    uint64_t tokens[64];
    size_t count = tdi_window_ready(w, tokens, 64);
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) {
        assert_true(expected[tokens[i]]);
        expected[tokens[i]] = false; /* each once */
        assert_true(!m->ordered || i == 0 || tokens[i - 1] < tokens[i]);
    }
    assert_int_equal(w->submitted, submitted);
    assert_int_equal(front(w).rows, settled - m->first);
}

static void model_requeue(struct model *m, uint64_t from)
{
    for (uint64_t t = from; t < m->end; t++) {
        if (m->rows[t].state == TDI_WINDOW_SUBMITTED) {
            m->rows[t].state = TDI_WINDOW_QUEUED;
        }
    }
}

static void model_push(struct model *m, struct tdi_window *w, struct tdi_random *r)
{
    static const char *const keys[] = {"a", "b", "c", "d", NULL, ""};
    const char *key = keys[tdi_random_below(r, 6)];
    const struct td_outbox_row *row = row_of(key);
    struct model_row *mr = &m->rows[m->end];
    mr->key = key && key[0] ? key : NULL;
    bool ok;
    switch (tdi_random_below(r, 10)) {
    case 0:
        mr->state = TDI_WINDOW_SKIPPED;
        ok = tdi_window_push_skipped(w, row);
        break;
    case 1:
        mr->state = TDI_WINDOW_REFUSED;
        ok = tdi_window_push_refused(w, row, TD_DEAD_INVALID, TD_STR_LIT("x"));
        break;
    default:
        mr->state = TDI_WINDOW_QUEUED;
        ok = tdi_window_push(w, row);
    }
    assert_int_equal(ok, m->end - m->first < w->capacity);
    m->end += ok ? 1 : 0;
    rows_used -= ok ? 0 : 1;
}

static void model_answer(struct model *m, struct tdi_window *w, struct tdi_random *r)
{
    if (m->first == m->end) {
        return;
    }
    uint64_t t = m->first + tdi_random_below(r, m->end - m->first);
    bool waits = m->rows[t].state == TDI_WINDOW_SUBMITTED;
    switch (tdi_random_below(r, 8)) {
    case 0:
        assert_int_equal(tdi_window_refuse(w, t, TD_DEAD_DENIED, TD_STR_LIT("x")), waits);
        if (waits) {
            m->rows[t].state = TDI_WINDOW_REFUSED;
        }
        break;
    case 1:
        assert_int_equal(tdi_window_give_back(w, t), waits);
        if (waits) {
            m->rows[t].state = TDI_WINDOW_QUEUED;
        }
        break;
    default:
        assert_int_equal(tdi_window_accept(w, t, t), waits);
        if (waits) {
            m->rows[t].state = TDI_WINDOW_ACCEPTED;
        }
        return;
    }
    if (waits && m->ordered) {
        model_requeue(m, t);
        m->broken = true;
    }
}

static void model_submit(struct model *m, struct tdi_window *w, struct tdi_random *r)
{
    uint64_t tokens[64];
    size_t count = tdi_window_ready(w, tokens, 1 + (size_t)tdi_random_below(r, 8));
    size_t taken = (size_t)tdi_random_below(r, count + 1);
    for (size_t i = 0; i < taken; i++) {
        assert_true(model_may_go(m, tokens[i]));
        m->rows[tokens[i]].state = TDI_WINDOW_SUBMITTED;
    }
    tdi_window_submitted(w, taken);
}

static void model_settle(struct model *m, struct tdi_window *w, struct tdi_random *r)
{
    size_t dead_max = (size_t)tdi_random_below(r, 3);
    struct tdi_window_front f;
    tdi_window_front(w, dead_max, &f);
    assert_true(f.dead <= dead_max);
    int64_t published = 0;
    size_t dead = 0;
    for (uint64_t t = m->first; t < m->first + f.rows; t++) {
        published += m->rows[t].state == TDI_WINDOW_ACCEPTED ? 1 : 0;
        dead += m->rows[t].state == TDI_WINDOW_REFUSED ? 1 : 0;
        if (m->rows[t].state == TDI_WINDOW_ACCEPTED) {
            assert_true(f.evidence >= t);
        }
    }
    assert_int_equal(f.published, published);
    assert_int_equal(f.dead, dead);
    if (f.rows > 0) {
        assert_int_equal(f.position->order, 100 + m->first + f.rows - 1);
        assert_int_equal(f.from_seq, 100 + m->first);
        assert_int_equal(f.to_seq, 100 + m->first + f.rows - 1);
    }
    tdi_window_settled(w, f.rows);
    m->first += f.rows;
}

static void model_step(struct model *m, struct tdi_window *w, struct tdi_random *r)
{
    uint64_t what = tdi_random_below(r, 100);
    if (what < 30) {
        model_push(m, w, r);
    } else if (what < 50) {
        model_submit(m, w, r);
    } else if (what < 85) {
        model_answer(m, w, r);
    } else if (what < 95) {
        model_settle(m, w, r);
    } else if (what < 99) {
        tdi_window_session(w);
        model_requeue(m, m->first);
        m->broken = false;
    } else if (tdi_random_below(r, 10) == 0) {
        tdi_window_clear(w);
        m->first = m->end;
        m->broken = false;
    }
}

static void random_against_model(void **state)
{
    (void)state;
    static struct model m;
    for (uint64_t round = 0; round < 200; round++) {
        struct tdi_random r;
        tdi_random_seed(&r, round);
        m = (struct model){.ordered = round % 2 == 1};
        struct tdi_window w;
        open_window(&w, 1 + (size_t)tdi_random_below(&r, 24), m.ordered);
        for (int step = 0; step < 1000; step++) {
            model_step(&m, &w, &r);
            compare(&m, &w);
        }
        assert_true(m.first > 0); /* it moved */
        tdi_window_release(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_a_key),
        cmocka_unit_test(empty_key_is_no_key),
        cmocka_unit_test(refused_row_holds_its_key),
        cmocka_unit_test(refused_when_pushed),
        cmocka_unit_test(given_back_and_new_session),
        cmocka_unit_test(refusal_survives_a_new_session),
        cmocka_unit_test(ordered_takes_all),
        cmocka_unit_test(ordered_refusal_breaks_the_session),
        cmocka_unit_test(ordered_needs_a_session_after_a_settlement),
        cmocka_unit_test(ordered_give_back),
        cmocka_unit_test(ordered_refused_when_pushed),
        cmocka_unit_test(bounds),
        cmocka_unit_test(nothing_is_settled),
        cmocka_unit_test(sequences_out_of_order),
        cmocka_unit_test(clearing),
        cmocka_unit_test(random_against_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
