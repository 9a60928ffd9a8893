/*
 * Registry of handlers: a visible array. Slots are checked where a session is opened, so that a driver
 * with a hole is an error that names it and never a jump to NULL.
 */
#include "handler/registry.h"

#include <stdlib.h>

#include "base/str.h"

extern const struct td_handler_driver tdd_sql_handler;
extern const struct td_handler_driver tdd_exec_handler;

static const struct td_handler_driver *const drivers[] = {
    &tdd_sql_handler,
    &tdd_exec_handler,
};

const struct td_handler_driver *tdi_handler_driver_at(size_t i)
{
    return i < sizeof(drivers) / sizeof(drivers[0]) ? drivers[i] : NULL;
}

const struct td_handler_driver *tdi_handler_driver(struct td_str name)
{
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
        if (tdi_str_is(name, drivers[i]->name)) {
            return drivers[i];
        }
    }
    return NULL;
}

static bool is_complete(const struct td_handler_driver *d)
{
    if (d->abi != TD_HANDLER_ABI || d->struct_size != sizeof(*d) || d->name == NULL ||
        d->session_size < sizeof(struct td_handler) || d->open == NULL || d->close == NULL) {
        return false;
    }
    if (d->place == TD_HANDLER_INSIDE) {
        return d->prepare != NULL && d->run != NULL;
    }
    return d->start != NULL && d->poll != NULL && d->cancel != NULL && d->free_slots != NULL;
}

enum td_err tdi_handler_open(const struct td_handler_driver *driver,
                             const struct td_handler_options *o, struct td_handler **ret,
                             struct td_error *err)
{
    if (!is_complete(driver)) {
        return td_error_set(err, TD_ERR_INTERNAL, "handler %s has an incomplete table of slots",
                            driver->name != NULL ? driver->name : "without a name");
    }
    struct td_handler *h = calloc(1, driver->session_size);
    if (h == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for a session of handler %s",
                            driver->name);
    }
    h->driver = driver;
    enum td_err rc = driver->open(h, o, err);
    if (rc != TD_OK) {
        tdi_handler_close(h, 0);
        return rc;
    }
    *ret = h;
    return TD_OK;
}

void tdi_handler_close(struct td_handler *h, td_time_us deadline_us)
{
    if (h == NULL) {
        return;
    }
    h->driver->close(h, deadline_us);
    free(h);
}
