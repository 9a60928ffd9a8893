/*
 * The handlers that are built in, and the only place that names them.
 */
#ifndef TDI_HANDLER_REGISTRY_H
#define TDI_HANDLER_REGISTRY_H

#include "tidings/handler.h"

/* NULL: no such handler in this version. */
const struct td_handler_driver *tdi_handler_driver(struct td_str name);
/* The i-th driver, NULL behind the last. */
const struct td_handler_driver *tdi_handler_driver_at(size_t i);

/* Allocate a session and open it. On failure nothing stays behind. */
enum td_err tdi_handler_open(const struct td_handler_driver *driver,
                             const struct td_handler_options *o, struct td_handler **ret,
                             struct td_error *err);
/* Close and free; NULL is fine. deadline_us: clock.mono, see the slot. */
void tdi_handler_close(struct td_handler *h, td_time_us deadline_us);

#endif
