/* The embedded broker's driver table. Everything else of it is in internal.h. */
#ifndef TDD_EMBEDDED_H
#define TDD_EMBEDDED_H

#include "tidings/broker.h"

extern const struct td_broker_driver tdd_embedded_broker;

#endif
