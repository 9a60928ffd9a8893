/*
 * The visible array of store drivers, and what every session of one begins and ends with.
 *
 * Must not know: what a driver does.
 */
#include "store/registry.h"

#include <stdlib.h>

#include "base/str.h"
#include "store/sqlite/driver.h"

static const struct td_store_driver *const drivers[] = {
    &tdd_sqlite_store,
};

#define DRIVERS_COUNT (sizeof(drivers) / sizeof(drivers[0]))

/* wait() is optional. */
/* clang-format off */
#define REQUIRED_SLOTS(X) \
    X(open) X(close) X(interrupt) X(info) X(migrate) \
    X(schema_sql) X(now) X(begin) X(savepoint) X(savepoint_end) \
    X(finish) X(relay_declare) X(relay_position) X(outbox_read) X(outbox_durable) \
    X(relay_settle) X(outbox_purge) X(relay_rebase) X(lease_take) X(lease_renew) \
    X(lease_clear_unclean) X(lease_release) X(lease_scan) X(inbox_look) X(inbox_claim) \
    X(inbox_settle) X(parked_due) X(parked_return) X(parked_keys) X(inbox_prune) \
    X(counts) X(statement_prepare) X(statement_run) X(parked_scan) X(parked_change) \
    X(relay_stats) X(outbox_find) X(inbox_find) X(published_find) X(audit_find) \
    X(outbox_add)
/* clang-format on */

enum td_err tdi_store_driver_check(const struct td_store_driver *driver, struct td_error *err)
{
    const char *name = driver->name != NULL ? driver->name : "(no name)";
    if (driver->abi != TD_STORE_ABI || driver->struct_size != sizeof(*driver)) {
        return td_error_set(err, TD_ERR_INTERNAL,
                            "store driver %s was built for another version of the interface", name);
    }
    if (driver->name == NULL || driver->name[0] == '\0') {
        return td_error_set(err, TD_ERR_INTERNAL, "a store driver has no name");
    }
    if (driver->session_size < sizeof(struct td_store)) {
        return td_error_set(err, TD_ERR_INTERNAL, "the sessions of store driver %s are too small",
                            name);
    }
#define CHECK_SLOT(slot)                                                                           \
    if (driver->slot == NULL) {                                                                    \
        return td_error_set(err, TD_ERR_INTERNAL, "store driver %s lacks %s()", name, #slot);      \
    }
    REQUIRED_SLOTS(CHECK_SLOT)
#undef CHECK_SLOT
    return TD_OK;
}

const struct td_store_driver *tdi_store_driver_at(size_t i)
{
    return i < DRIVERS_COUNT ? drivers[i] : NULL;
}

const struct td_store_driver *tdi_store_driver(struct td_str name)
{
    for (size_t i = 0; i < DRIVERS_COUNT; i++) {
        if (tdi_str_is(name, drivers[i]->name)) {
            return drivers[i];
        }
    }
    return NULL;
}

enum td_err tdi_store_open(const struct td_store_driver *driver, const struct td_store_options *o,
                           struct td_store **ret_store, struct td_error *err)
{
    enum td_err rc = tdi_store_driver_check(driver, err);
    if (rc != TD_OK) {
        return rc;
    }
    struct td_store *store = calloc(1, driver->session_size);
    if (store == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "memory is exhausted");
    }
    store->driver = driver;
    rc = driver->open(store, o, err);
    if (rc != TD_OK) {
        tdi_store_close(store);
        return rc;
    }
    *ret_store = store;
    return TD_OK;
}

void tdi_store_close(struct td_store *store)
{
    if (store != NULL) {
        store->driver->close(store);
        free(store);
    }
}
