/* Names of outcomes and dead-letter codes, one table each. Pure. */
#ifndef TDI_CORE_DEADLETTER_H
#define TDI_CORE_DEADLETTER_H

#include "tidings/store.h"

const char *tdi_outcome_name(enum td_outcome o); /* "effect"; NONE: "none" */
bool tdi_outcome_parse(struct td_str s, enum td_outcome *ret);
const char *tdi_dead_code_name(enum td_dead_code c); /* "too-large"; NONE: "" */
bool tdi_dead_code_parse(struct td_str s, enum td_dead_code *ret);
const char *tdi_dead_code_text(enum td_dead_code c); /* a sentence for help */
const char *tdi_verdict_name(int verdict_kind);      /* "ok", "retry", "dead", "drop" */
/* RETRY, BLOCKED, or DEAD that holds: not finished. */
bool tdi_outcome_unfinished(enum td_outcome o);

#endif
