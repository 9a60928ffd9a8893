/*
 * The :name parameters of a SQL statement, found without a database: the configuration checks them and
 * the sql handler binds them. Knows strings, quoted names, comments and casts (::), nothing else.
 * Pure.
 */
#ifndef TDI_CORE_SQLPARAMS_H
#define TDI_CORE_SQLPARAMS_H

#include "tidings/types.h"

#define TDI_SQL_PARAMS_MAX 64

struct tdi_sql_params {
    struct td_str names[TDI_SQL_PARAMS_MAX]; /* each once, in order of first use, without the colon;
                                                point into the statement */
    size_t offsets[TDI_SQL_PARAMS_MAX];      /* of the first use's colon, in bytes */
    size_t count;
};

/* false: more than TDI_SQL_PARAMS_MAX names. */
bool tdi_sql_params(struct td_str sql, struct tdi_sql_params *ret);

#endif
