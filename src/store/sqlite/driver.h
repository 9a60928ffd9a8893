/* The SQLite store, for the registry alone. */
#ifndef TDD_SQLITE_DRIVER_H
#define TDD_SQLITE_DRIVER_H

#include "tidings/store.h"

extern const struct td_store_driver tdd_sqlite_store;

#endif
