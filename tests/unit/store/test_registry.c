/* The registry of store drivers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "store/registry.h"

static const struct td_store_driver *sqlite(void)
{
    const struct td_store_driver *driver = tdi_store_driver(TD_STR_LIT("sqlite"));
    assert_non_null(driver);
    return driver;
}

static void test_find(void **state)
{
    (void)state;
    size_t count = 0;
    assert_string_equal(sqlite()->name, "sqlite");
    assert_null(tdi_store_driver(TD_STR_LIT("oracle")));
    assert_null(tdi_store_driver(TD_STR_NONE));
    while (tdi_store_driver_at(count) != NULL) {
        assert_int_equal(tdi_store_driver_check(tdi_store_driver_at(count), NULL), TD_OK);
        count++;
    }
    assert_true(count > 0);
}

static void test_check(void **state)
{
    (void)state;
    struct td_error err;
    struct td_store_driver d = *sqlite();
    assert_int_equal(tdi_store_driver_check(&d, &err), TD_OK);
    d.wait = NULL; /* optional */
    assert_int_equal(tdi_store_driver_check(&d, &err), TD_OK);
    d.inbox_claim = NULL;
    assert_int_equal(tdi_store_driver_check(&d, &err), TD_ERR_INTERNAL);
    assert_non_null(strstr(err.text, "inbox_claim"));
    d = *sqlite();
    d.abi++;
    assert_int_equal(tdi_store_driver_check(&d, &err), TD_ERR_INTERNAL);
    d = *sqlite();
    d.struct_size -= 8;
    assert_int_equal(tdi_store_driver_check(&d, &err), TD_ERR_INTERNAL);
    d = *sqlite();
    d.name = NULL;
    assert_int_equal(tdi_store_driver_check(&d, &err), TD_ERR_INTERNAL);
    d = *sqlite();
    d.session_size = 0;
    assert_int_equal(tdi_store_driver_check(&d, &err), TD_ERR_INTERNAL);
}

/* A slot that is added to the interface and not to the list of the check would go unchecked. */
static void test_every_slot_is_checked(void **state)
{
    (void)state;
    const size_t slot_size = sizeof(sqlite()->open);
    struct td_store_driver d;
    const size_t first = offsetof(struct td_store_driver, open);
    for (size_t at = first; at < sizeof(d); at += slot_size) {
        d = *sqlite();
        memset((char *)&d + at, 0, slot_size);
        enum td_err wanted = at == offsetof(struct td_store_driver, wait) ? TD_OK : TD_ERR_INTERNAL;
        assert_int_equal(tdi_store_driver_check(&d, NULL), wanted);
    }
}

static void test_failed_open_leaves_nothing(void **state)
{
    (void)state;
    struct td_error err;
    struct td_store *store = NULL;
    struct td_store_options o = {.location = TD_STR_LIT("/nowhere/at/all.db"),
                                 .clock = tdi_clock_system()};
    assert_int_equal(tdi_store_open(sqlite(), &o, &store, &err), TD_ERR_NOT_FOUND);
    assert_null(store);
    tdi_store_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_every_slot_is_checked),
        cmocka_unit_test(test_failed_open_leaves_nothing),
    };
    return cmocka_run_group_tests_name("store registry", tests, NULL, NULL);
}
