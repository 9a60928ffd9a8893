/*
 * The broker drivers that are built in, and sessions of them. The only place outside the drivers'
 * own folders that knows them by name.
 */
#ifndef TDI_BROKER_REGISTRY_H
#define TDI_BROKER_REGISTRY_H

#include "tidings/broker.h"

/* NULL: no such driver in this version. */
const struct td_broker_driver *tdi_broker_driver(struct td_str name);
/* The i-th driver, NULL behind the last. */
const struct td_broker_driver *tdi_broker_driver_at(size_t i);
/* Are abi, struct_size, name, session_size and all slots that are not optional there? INTERNAL. */
enum td_err tdi_broker_driver_check(const struct td_broker_driver *driver, struct td_error *err);

/*
 * A session on the heap, zeroed before the driver opens it. A failed open is closed and freed here;
 * *ret is set only on success.
 */
enum td_err tdi_broker_open(const struct td_broker_driver *driver,
                            const struct td_broker_options *o, struct td_broker **ret,
                            struct td_error *err);
/* Close and free; NULL is fine. */
void tdi_broker_close(struct td_broker *b);

#endif
