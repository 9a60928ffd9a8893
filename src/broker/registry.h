/*
 * The broker drivers that are built in, and sessions of them. The only place outside the drivers'
 * own folders that knows them by name.
 */
#ifndef TDI_BROKER_REGISTRY_H
#define TDI_BROKER_REGISTRY_H

#include "tidings/broker.h"

/* The visible list; *ret_count entries, checked by tdi_broker_check in the tests. */
const struct td_broker_driver *const *tdi_broker_drivers(size_t *ret_count);
/* NULL: no such driver. */
const struct td_broker_driver *tdi_broker_find(struct td_str name);
/* Are abi, struct_size, name, session_size and all slots that are not optional there? INTERNAL. */
enum td_err tdi_broker_check(const struct td_broker_driver *driver, struct td_error *err);

/*
 * A session on the heap, zeroed before the driver opens it. A failed open is closed and freed here;
 * *ret is set only on success. CONFIG: no driver of that name.
 */
enum td_err tdi_broker_open(struct td_str name, const struct td_broker_options *o,
                            struct td_broker **ret, struct td_error *err);
/* Close and free; NULL is fine. */
void tdi_broker_close(struct td_broker *b);

/* The owner that sessions of this process share. *ret is NULL for drivers that have none. */
enum td_err tdi_broker_instance_open(struct td_str name, const struct td_broker_options *o,
                                     struct td_broker_instance **ret, struct td_error *err);
void tdi_broker_instance_close(struct td_str name, struct td_broker_instance *instance);

#endif
