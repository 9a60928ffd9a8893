/*
 * The proof that an inbox remembers long enough. Pure.
 *
 * An inbox row is pruned `keep` after the later of its settlement and the message's publication. A
 * copy that comes later finds no row. Then one of two things happens:
 *
 *   - The copy was published long ago (redelivered by the broker, a run of its own retries): by its
 *     time of publication it is `stale` and goes dead. Nothing takes effect twice, but somebody must
 *     look at it, and at every message that only waited that long. This is a finding.
 *   - The copy was published anew, from a row that the outbox still holds (a new relay begins at the
 *     oldest row, an operator sets one back): it looks fresh and takes effect twice. This is a
 *     mistake.
 */
#ifndef TDI_CONFIG_INBOX_WINDOW_H
#define TDI_CONFIG_INBOX_WINDOW_H

#include "tidings/types.h"

enum tdi_window_verdict {
    TDI_WINDOW_HOLDS,
    TDI_WINDOW_GOES_STALE,
    TDI_WINDOW_TWICE,
};

struct tdi_window_input {
    td_time_us keep_us;        /* of the inbox */
    td_time_us retry_span_us;  /* from the first to the last run; a replay grants as much again */
    td_time_us retention_us;   /* of the topic; 0: not known */
    td_time_us outbox_keep_us; /* the longest of those that feed the topic; 0: none */
};

struct tdi_inbox_window {
    enum tdi_window_verdict verdict;
    td_time_us needed_us; /* how long a message can come again, for the reason of the verdict */
    td_time_us
        proposal_us; /* enough for both reasons, rounded up to whole minutes, hours or days */
};

struct tdi_inbox_window tdi_inbox_window(const struct tdi_window_input *in);

#endif
