/*
 * What a SQLSTATE means for a message. Data: the built-in table below the overrides of the consumer.
 */
#ifndef TDD_SQL_CLASSIFY_H
#define TDD_SQL_CLASSIFY_H

#include "tidings/handler.h"

/* kind, code, broken and uncharged of the verdict; texts are the caller's. */
struct td_verdict tdd_sql_classify(const char *sqlstate, const struct td_classify *overrides,
                                   size_t overrides_count);

#endif
