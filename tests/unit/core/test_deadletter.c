/* Names of outcomes, dead-letter codes and verdicts: what is written can be read back. */
#include "base/str.h"
#include "core/deadletter.h"
#include "tidings/handler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void outcomes(void **state)
{
    (void)state;
    const struct {
        enum td_outcome outcome;
        const char *name;
        bool unfinished;
    } all[] = {
        {TD_OUTCOME_NONE, "none", false},       {TD_OUTCOME_EFFECT, "effect", false},
        {TD_OUTCOME_RETRY, "retry", true},      {TD_OUTCOME_BLOCKED, "blocked", true},
        {TD_OUTCOME_DEAD, "dead", true},        {TD_OUTCOME_DISCARDED, "discarded", false},
        {TD_OUTCOME_DROPPED, "dropped", false},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_string_equal(tdi_outcome_name(all[i].outcome), all[i].name);
        enum td_outcome back = TD_OUTCOME_NONE;
        assert_true(tdi_outcome_parse(tdi_str(all[i].name), &back));
        assert_int_equal(back, all[i].outcome);
        assert_int_equal(tdi_outcome_unfinished(all[i].outcome), all[i].unfinished);
    }
    enum td_outcome untouched = TD_OUTCOME_DEAD;
    assert_false(tdi_outcome_parse(TD_STR_LIT("Dead"), &untouched));
    assert_false(tdi_outcome_parse(TD_STR_LIT(""), &untouched));
    assert_false(tdi_outcome_parse(TD_STR_NONE, &untouched));
    assert_int_equal(untouched, TD_OUTCOME_DEAD);
    assert_string_equal(tdi_outcome_name((enum td_outcome)99), "unknown");
}

static void dead_codes(void **state)
{
    (void)state;
    /* The closed list of the contract, in the order of the enum. */
    const char *names[] = {"",        "exhausted",  "rejected",  "expired", "schema",
                           "poison",  "unroutable", "too-large", "denied",  "invalid",
                           "not-due", "no-id",      "stale"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_string_equal(tdi_dead_code_name((enum td_dead_code)i), names[i]);
        enum td_dead_code back = TD_DEAD_STALE;
        assert_true(tdi_dead_code_parse(tdi_str(names[i]), &back));
        assert_int_equal(back, i);
        assert_true(tdi_str(tdi_dead_code_text((enum td_dead_code)i)).len > 10);
    }
    assert_int_equal(TD_DEAD_STALE, 12); /* the last */
    enum td_dead_code code = TD_DEAD_DENIED;
    assert_false(tdi_dead_code_parse(TD_STR_LIT("too_large"), &code));
    assert_int_equal(code, TD_DEAD_DENIED);
    assert_true(tdi_dead_code_parse(TD_STR_NONE, &code)); /* a NULL column */
    assert_int_equal(code, TD_DEAD_NONE);
    assert_string_equal(tdi_dead_code_name((enum td_dead_code)99), "unknown");
    assert_string_equal(tdi_dead_code_text((enum td_dead_code)99), "unknown");
}

static void verdicts(void **state)
{
    (void)state;
    assert_string_equal(tdi_verdict_name(TD_VERDICT_OK), "ok");
    assert_string_equal(tdi_verdict_name(TD_VERDICT_RETRY), "retry");
    assert_string_equal(tdi_verdict_name(TD_VERDICT_DEAD), "dead");
    assert_string_equal(tdi_verdict_name(TD_VERDICT_DROP), "drop");
    assert_string_equal(tdi_verdict_name(4), "unknown");
    assert_string_equal(tdi_verdict_name(-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outcomes),
        cmocka_unit_test(dead_codes),
        cmocka_unit_test(verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
