/*
 * Parameters of SQL statements, without a database: which :names a statement has, and where a value
 * comes from. The configuration checks both, the sql handler uses them. The scanner knows strings,
 * quoted names, comments and casts (::), nothing else. Pure.
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

enum tdi_param_origin {
    TDI_PARAM_WRONG,     /* none of the forms below */
    TDI_PARAM_POINTER,   /* /a/b (RFC 6901), the body must be JSON */
    TDI_PARAM_ATTRIBUTE, /* $key; an absent one is NULL */
    TDI_PARAM_HEADER,    /* $header.NAME; an absent one is missing */
    TDI_PARAM_BODY,      /* $body: text if it is UTF-8, else a blob */
    TDI_PARAM_CONSUMER,  /* $consumer: the full name */
    TDI_PARAM_ATTEMPT,   /* $attempt: 1 for the first run */
};

/* What `from` is; *ret_name: the pointer, attribute or header name in it. */
enum tdi_param_origin tdi_param_origin(struct td_str from, struct td_str *ret_name);

/* false: more than TDI_SQL_PARAMS_MAX names. */
bool tdi_sql_params(struct td_str sql, struct tdi_sql_params *ret);

#endif
