/*
 * The store drivers that are built in, and opening a session of one by its name.
 *
 * Must not know: what a driver does with its options. Only the registry names drivers.
 */
#ifndef TDI_STORE_REGISTRY_H
#define TDI_STORE_REGISTRY_H

#include "tidings/error.h"
#include "tidings/store.h"

/* Does the table say what this version of the interface needs: abi, sizes, all slots that are not
 * optional? INTERNAL names what is missing. */
enum td_err tdi_store_driver_check(const struct td_store_driver *driver, struct td_error *err);

/* NULL: no such driver in this version. */
const struct td_store_driver *tdi_store_driver(struct td_str name);
/* The i-th driver, NULL behind the last. */
const struct td_store_driver *tdi_store_driver_at(size_t i);

/*
 * A session: zeroed memory of the driver's size, opened. On failure nothing is left behind.
 *
 * Errors:    the driver's; NOMEM
 * Ownership: the session is the caller's, for tdi_store_close(); options are borrowed for the call,
 *            save clock and random, which must live as long as the session
 * Threads:   a session belongs to one thread at a time, save its slot interrupt()
 * Blocking:  up to the operation timeout
 */
enum td_err tdi_store_open(const struct td_store_driver *driver, const struct td_store_options *o,
                           struct td_store **ret_store, struct td_error *err);
/* Rolls back what is open. NULL is fine. */
void tdi_store_close(struct td_store *store);

#endif
