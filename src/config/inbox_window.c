#include "config/inbox_window.h"

#define MINUTE_US (60 * TD_SECOND_US)
#define HOUR_US (60 * MINUTE_US)
#define DAY_US (24 * HOUR_US)

/* Saturates; neither is negative. */
static td_time_us sum(td_time_us a, td_time_us b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static td_time_us rounded_up(td_time_us t)
{
    td_time_us unit = t >= DAY_US ? DAY_US : t >= HOUR_US ? HOUR_US : MINUTE_US;
    td_time_us rest = t % unit;
    return rest == 0 ? t : sum(t, unit - rest);
}

struct tdi_inbox_window tdi_inbox_window(const struct tdi_window_input *in)
{
    td_time_us again = sum(sum(in->retention_us, in->retry_span_us), in->retry_span_us);
    td_time_us anew = in->outbox_keep_us > 0 ? sum(in->outbox_keep_us, in->retry_span_us) : 0;
    struct tdi_inbox_window w = {.verdict = TDI_WINDOW_HOLDS,
                                 .needed_us = again > anew ? again : anew};
    w.proposal_us = rounded_up(w.needed_us);
    if (in->keep_us < anew) {
        w.verdict = TDI_WINDOW_TWICE;
        w.needed_us = anew;
    } else if (in->keep_us < again) {
        w.verdict = TDI_WINDOW_GOES_STALE;
        w.needed_us = again;
    }
    return w;
}
