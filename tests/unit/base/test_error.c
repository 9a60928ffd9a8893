/* The error table and td_error_set(). */
#include "tidings/error.h"

#include "unit.h"

static void set_fills_everything(void **state)
{
    (void)state;
    struct td_error e;
    memset(&e, 0x5a, sizeof(e));
    assert_int_equal(td_error_set(&e, TD_ERR_DISK_FULL, "%d bytes on %s", 7, "disk"),
                     TD_ERR_DISK_FULL);
    assert_int_equal(e.code, TD_ERR_DISK_FULL);
    assert_int_equal(e.class_, TD_CLASS_RETRY);
    assert_int_equal(e.retry_after_us, 0);
    assert_string_equal(e.driver, "");
    assert_string_equal(e.op, "");
    assert_string_equal(e.peer, "");
    assert_string_equal(e.sqlstate, "");
    assert_string_equal(e.text, "7 bytes on disk");
}

static void set_takes_null(void **state)
{
    (void)state;
    assert_int_equal(td_error_set(NULL, TD_ERR_IO, "%s", "x"), TD_ERR_IO);
}

static void set_cuts_long_text(void **state)
{
    (void)state;
    struct td_error e;
    td_error_set(&e, TD_ERR_IO, "%0500d", 1);
    assert_int_equal(strlen(e.text), TD_ERROR_TEXT_MAX - 1);
}

static void table_gives_names_classes_exit_codes(void **state)
{
    (void)state;
    assert_string_equal(td_err_name(TD_ERR_NOMEM), "no-memory");
    assert_string_equal(td_err_name(TD_ERR_CLOSED), "closed");
    assert_int_equal(td_err_class_of(TD_ERR_OUTCOME_UNKNOWN), TD_CLASS_UNKNOWN);
    assert_int_equal(td_err_class_of(TD_ERR_INVALID), TD_CLASS_PERMANENT);
    assert_int_equal(td_err_class_of(TD_ERR_CORRUPT), TD_CLASS_FATAL);
    assert_int_equal(td_err_exit_code(TD_OK), 0);
    assert_int_equal(td_err_exit_code(TD_ERR_CONFIG), 78);
    assert_int_equal(td_err_exit_code(TD_ERR_OWNED), 75);
}

static void names_differ_and_exit_codes_are_of_sysexits(void **state)
{
    (void)state;
    for (int a = TD_ERR_NOMEM; a <= TD_ERR_CLOSED; a++) {
        int code = td_err_exit_code((enum td_err)a);
        assert_true(code == 1 || (code >= 64 && code <= 78));
        for (int b = a + 1; b <= TD_ERR_CLOSED; b++) {
            assert_string_not_equal(td_err_name((enum td_err)a), td_err_name((enum td_err)b));
        }
    }
}

static void unknown_code_is_survived(void **state)
{
    (void)state;
    assert_string_equal(td_err_name((enum td_err)(TD_ERR_CLOSED + 1)), "unknown");
    assert_string_equal(td_err_name((enum td_err)1000000), "unknown");
    assert_int_equal(td_err_class_of((enum td_err)1000000), TD_CLASS_FATAL);
    assert_int_equal(td_err_exit_code((enum td_err)1000000), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_fills_everything),
        cmocka_unit_test(set_takes_null),
        cmocka_unit_test(set_cuts_long_text),
        cmocka_unit_test(table_gives_names_classes_exit_codes),
        cmocka_unit_test(names_differ_and_exit_codes_are_of_sysexits),
        cmocka_unit_test(unknown_code_is_survived),
    };
    return cmocka_run_group_tests_name("base/error", tests, NULL, NULL);
}
