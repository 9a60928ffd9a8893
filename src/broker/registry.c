/*
 * The visible array of built-in broker drivers.
 *
 * Must not know: what a driver does.
 */
#include "broker/registry.h"

#include <stdlib.h>

#include "base/str.h"
#include "broker/embedded/embedded.h"

static const struct td_broker_driver *const drivers[] = {
    &tdd_embedded_broker,
};

#define DRIVERS_COUNT (sizeof(drivers) / sizeof(drivers[0]))

const struct td_broker_driver *tdi_broker_driver_at(size_t i)
{
    return i < DRIVERS_COUNT ? drivers[i] : NULL;
}

const struct td_broker_driver *tdi_broker_driver(struct td_str name)
{
    for (size_t i = 0; i < DRIVERS_COUNT; i++) {
        if (tdi_str_is(name, drivers[i]->name)) {
            return drivers[i];
        }
    }
    return NULL;
}

enum td_err tdi_broker_driver_check(const struct td_broker_driver *d, struct td_error *err)
{
    const char *name = d->name != NULL ? d->name : "(no name)";
    if (d->abi != TD_BROKER_ABI || d->struct_size != sizeof(*d)) {
        return td_error_set(err, TD_ERR_INTERNAL,
                            "broker driver %s was built for another version of Tidings", name);
    }
    bool complete = d->name != NULL && d->session_size >= sizeof(struct td_broker) &&
                    d->open != NULL && d->close != NULL && d->interrupt != NULL &&
                    d->info != NULL && d->topology_diff != NULL && d->topology_apply != NULL &&
                    d->submit != NULL && d->collect != NULL && d->subscribe != NULL &&
                    d->fetch != NULL && d->ack != NULL && d->nack != NULL && d->pause != NULL &&
                    d->lag != NULL;
    bool paired = (d->instance_open != NULL) == (d->instance_close != NULL) &&
                  (d->instance_open != NULL) == (d->instance_health != NULL);
    if (!complete || !paired) {
        return td_error_set(err, TD_ERR_INTERNAL, "broker driver %s lacks a slot", name);
    }
    return TD_OK;
}

enum td_err tdi_broker_open(const struct td_broker_driver *driver,
                            const struct td_broker_options *o, struct td_broker **ret,
                            struct td_error *err)
{
    enum td_err rc = tdi_broker_driver_check(driver, err);
    if (rc != TD_OK) {
        return rc;
    }
    struct td_broker *b = calloc(1, driver->session_size);
    if (b == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "memory is exhausted");
    }
    b->driver = driver;
    rc = driver->open(b, o, err);
    if (rc != TD_OK) {
        tdi_broker_close(b);
        return rc;
    }
    *ret = b;
    return TD_OK;
}

void tdi_broker_close(struct td_broker *b)
{
    if (b != NULL) {
        b->driver->close(b);
        free(b);
    }
}
