/*
 * From the window to the position: the settled front of the window is stored, with its dead rows,
 * in one transaction of the store.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "relay/internal.h"

#define EVIDENCE_BYTES 320

const struct tdi_window_front *tdi_relay_front(struct tdi_relay *r)
{
    if (r->front_stale) {
        tdi_window_front(&r->window, TDI_RELAY_DEAD_MAX, &r->front);
        r->front_stale = false;
    }
    return &r->front;
}

static size_t list_dead(struct tdi_relay *r, const struct tdi_window_front *f)
{
    size_t count = 0;

    for (size_t i = 0; i < f->rows && count < f->dead; i++) {
        const struct tdi_window_row *w = tdi_window_at(&r->window, r->window.first + i);
        if (w->state == TDI_WINDOW_REFUSED) {
            r->dead[count++] = (struct td_relay_dead){
                .message = &w->row->message,
                .code = w->dead_code,
                .reason = w->dead_reason,
            };
        }
    }
    TDI_ASSERT(count == f->dead);
    return count;
}

static void settled(struct tdi_relay *r, td_time_us now)
{
    const struct tdi_window_front f = r->front;

    tdi_relay_wrote(r);
    r->position_order = f.position->order;
    r->published_total += f.published;
    r->dead_total += (int64_t)f.dead;
    r->pending_counted =
        r->pending_counted > (int64_t)f.rows ? r->pending_counted - (int64_t)f.rows : 0;
    r->settled_at = now;
    if (r->halted_by_settle) {
        r->halted = false;
        r->halted_by_settle = false;
    }
    if (f.dead > 0) {
        TDI_LOG(r->o.log, TDI_LOG_WARN, "rows parked as dead letters of the relay",
                TDI_LOG_STR("relay", r->o.name), TDI_LOG_INT("count", (int64_t)f.dead),
                TDI_LOG_STR("message_id", r->dead[0].message->id),
                TDI_LOG_STR("reason", r->dead[0].reason));
    }
    tdi_window_settled(&r->window, f.rows);
    r->front_stale = true;
    tdi_relay_release_rows(r);
}

enum tdi_step tdi_relay_settle(struct tdi_relay *r, td_time_us now)
{
    const struct tdi_window_front *f = tdi_relay_front(r);
    char evidence[EVIDENCE_BYTES];
    struct td_error err;

    TDI_ASSERT(f->rows > 0 && r->fence > 0 && now < r->lease_until);
    int len = snprintf(evidence, sizeof(evidence), "%.*s %" PRIu64,
                       (int)(r->o.broker_name.len < 255 ? r->o.broker_name.len : 255),
                       r->o.broker_name.data, f->evidence);
    struct td_relay_settle settle = {
        .relay = r->o.name,
        .fence = r->fence,
        .position = *f->position,
        .from_seq = f->from_seq,
        .to_seq = f->to_seq,
        .published = f->published,
        .evidence = {.data = evidence, .len = (size_t)len},
        .dead = r->dead,
        .dead_count = list_dead(r, f),
    };
    if (r->store->driver->relay_settle(r->store, &settle, &err) == TD_OK) {
        settled(r, now);
        return TDI_STEP_AGAIN;
    }
    if (tdi_relay_lock_missed(r, &err)) {
        return TDI_STEP_AGAIN;
    }
    if (err.class_ == TD_CLASS_PERMANENT) {
        r->halted_by_settle = true;
    }
    return tdi_relay_store_failed(r, &err);
}
