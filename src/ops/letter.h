/* A parked message as JSON, in the form of contract section 5. Pure. */
#ifndef TDI_OPS_LETTER_H
#define TDI_OPS_LETTER_H

#include "ops/plan.h"
#include "tidings/store.h"

struct tdi_buf;

/* One object: consumer (short), source, id, type, key, code, reason, attempts, first_failed_at,
 * last_failed_at, origin, and with `full` also outcome, headers, body or body_base64, history and the
 * rest of the envelope. Scratch memory from the arena. */
void tdi_letter_json(struct tdi_buf *b, const struct tdi_plan *plan,
                     const struct td_parked_row *row, bool full, struct tdi_arena *a);

/* An RFC 3339 time, or null. */
void tdi_json_add_time(struct tdi_buf *b, bool *first, const char *key, td_time_us t);

#endif
