/*
 * Where a parameter's value comes from: a JSON pointer into the body, an attribute, or a header.
 *
 * Must not know: statements, stores.
 */
#ifndef TDD_SQL_PARAMS_H
#define TDD_SQL_PARAMS_H

#include "core/sqlparams.h"
#include "tidings/handler.h"

struct tdi_arena;

struct tdd_sql_source {
    struct td_str param; /* the parameter's name */
    enum tdi_param_origin origin;
    struct td_str text; /* as the configuration has it, for sentences */
    struct td_str name; /* pointer, attribute or header */
};

/* Borrows from param. CONFIG: `from` is none of the forms. */
enum td_err tdd_sql_source_parse(const struct td_param *param, struct tdd_sql_source *ret,
                                 struct td_error *err);

/* The value for one message. INVALID: the message has none, and *ret_verdict (DEAD, `schema`) says why;
 * err is not filled. NOMEM: err is. missing_null: NULL for what is only missing. */
enum td_err tdd_sql_source_value(const struct tdd_sql_source *source, const struct td_run *run,
                                 bool missing_null, struct tdi_arena *a, struct td_value *ret,
                                 struct td_verdict *ret_verdict, struct td_error *err);

#endif
