/*
 * From the outbox to the window: reading, judging each row, making sure it is on disk; and the
 * housekeeping of the outbox: purging, counting.
 *
 * A row that cannot be published enters the window refused, with its reason, so that it is parked
 * in its turn. The judgement depends on the row, the catalogue and the wall clock only.
 */
#include "base/assert.h"
#include "base/str.h"
#include "core/envelope.h"
#include "relay/internal.h"

/* ---- judging a row ---------------------------------------------------------------------- */

bool tdi_relay_expired(const struct td_message *m, td_time_us wall)
{
    return m->expires_at != TD_TIME_NONE && m->expires_at <= wall;
}

static void judge_message(const struct td_message *m, td_time_us wall, struct tdi_arena *a,
                          struct tdi_relay_judgement *j)
{
    struct td_error err;
    char until[TDI_TIME_BYTES];

    if (tdi_message_check(m, &err) != TD_OK) {
        j->dead = TD_DEAD_INVALID;
        j->reason = tdi_arena_printf(a, "%s", err.text);
    } else if (tdi_relay_expired(m, wall)) {
        j->dead = TD_DEAD_EXPIRED;
        j->reason = tdi_arena_printf(a, "it expired at %s, before it was published",
                                     tdi_time_format(m->expires_at, until));
    } else if (m->deliver_at != TD_TIME_NONE && m->deliver_at > wall) {
        j->dead = TD_DEAD_NOT_DUE;
        j->reason = tdi_arena_printf(a,
                                     "it is due at %s, and sending at a later time is not built in "
                                     "this version",
                                     tdi_time_format(m->deliver_at, until));
    }
}

struct tdi_relay_judgement tdi_relay_judge(const struct tdi_relay *r, const struct td_message *m,
                                           struct td_str defect, td_time_us wall,
                                           struct tdi_arena *a)
{
    struct tdi_relay_judgement j = {.dead = TD_DEAD_NONE,
                                    .route = tdi_catalogue_route(r->o.catalogue, m)};
    const struct tdi_topic *topic = j.route.topic;

    j.ours = topic == NULL ? r->o.unmatched_ours : tdi_str_eq(topic->broker, r->o.broker_name);
    if (!j.ours) {
        return j;
    }
    if (!tdi_str_empty(defect)) {
        j.dead = TD_DEAD_INVALID;
        j.reason = defect;
    } else if (j.route.dead != TD_DEAD_NONE) {
        j.dead = j.route.dead;
        j.reason = tdi_route_reason(&j.route, m, a);
    } else {
        j.topic = topic->name;
        judge_message(m, wall, a, &j);
    }
    return j;
}

/* ---- filling the window ----------------------------------------------------------------- */

static bool push(struct tdi_relay *r, struct td_outbox_row *row, td_time_us wall,
                 struct tdi_arena *a)
{
    struct td_message *m = &row->message;
    uint64_t token = r->window.end;

    m->published_at = TD_TIME_NONE;
    if (tdi_str_empty(m->source)) {
        m->source = r->o.service;
    }
    struct tdi_relay_judgement j = tdi_relay_judge(r, m, row->defect, wall, a);
    r->slots[token % r->window.capacity] = (struct tdi_relay_slot){.row = row, .topic = j.topic};
    if (!j.ours) {
        return tdi_window_push_skipped(&r->window, row);
    }
    if (j.dead != TD_DEAD_NONE) {
        return tdi_window_push_refused(&r->window, row, j.dead, j.reason);
    }
    m->topic = j.topic;
    m->deliver_at = TD_TIME_NONE; /* that time has come: nobody needs it any more */
    return tdi_window_push(&r->window, row);
}

/* Rows that find no memory are read again later. */
static enum tdi_step take_in(struct tdi_relay *r, struct tdi_relay_batch *b,
                             struct td_outbox_row *rows, size_t count)
{
    td_time_us wall = tdi_wall(&r->o.clock);
    struct tdi_buf data; /* of all their positions */
    size_t pushed = 0;

    tdi_buf_init(&data, TD_POSITION_BYTES_MAX);
    tdi_buf_add(&data, rows[0].position.data.data, rows[0].position.data.len);
    while (!data.failed && pushed < count && push(r, &rows[pushed], wall, &b->arena)) {
        pushed++;
    }
    if (pushed == 0) {
        struct td_error err;
        tdi_buf_release(&data);
        tdi_arena_reset(&b->arena);
        td_error_set(&err, TD_ERR_NOMEM, "no memory for the rows of the outbox");
        return tdi_relay_store_failed(r, &err);
    }
    b->end = r->window.end;
    r->batches_count++;
    tdi_relay_set_position(r, &data, rows[pushed - 1].position.order);
    r->undurable = true;
    r->front_stale = true;
    return TDI_STEP_AGAIN;
}

static size_t chunk(const struct tdi_relay *r)
{
    return r->o.read_rows < r->window.capacity ? r->o.read_rows : r->window.capacity;
}

static size_t bytes_in_hand(const struct tdi_relay *r)
{
    size_t bytes = 0;

    for (size_t i = 0; i < r->batches_count; i++) {
        bytes += r->batches[(r->batches_first + i) % TDI_RELAY_BATCHES_MAX].arena.bytes;
    }
    return bytes;
}

bool tdi_relay_read_allowed(const struct tdi_relay *r)
{
    return r->batches_count < TDI_RELAY_BATCHES_MAX &&
           tdi_window_room(&r->window) >= (chunk(r) + 1) / 2 &&
           bytes_in_hand(r) < TDI_RELAY_HAND_READS * r->o.read_bytes &&
           (r->broker != NULL || !r->read_once);
}

/* When to read again: at once after a full read; soon while rows come; then ever less often, or
 * not before the timer where a waker tells. */
static void plan_next_read(struct tdi_relay *r, td_time_us now, size_t count, size_t max)
{
    bool waker = (r->o.store_driver->caps & TD_STORE_WAKER) != 0;

    r->caught_up = count < max;
    if (count > 0) {
        r->read_gap_us = TDI_RELAY_READ_GAP_US;
        r->read_at = r->caught_up ? now + r->read_gap_us : now;
        return;
    }
    if (waker && r->window.submitted == 0) {
        r->read_gap_us = r->o.poll_us;
    }
    r->read_at = now + r->read_gap_us;
    r->read_gap_us = tdi_earlier(2 * r->read_gap_us, r->o.poll_us);
}

enum tdi_step tdi_relay_read(struct tdi_relay *r, td_time_us now)
{
    size_t at = (r->batches_first + r->batches_count) % TDI_RELAY_BATCHES_MAX;
    struct tdi_relay_batch *b = &r->batches[at];
    size_t room = tdi_window_room(&r->window);
    size_t max = room < r->o.read_rows ? room : r->o.read_rows;
    struct td_outbox_row *rows = NULL;
    size_t count = 0;
    struct td_error err;

    enum td_err e = r->store->driver->outbox_read(r->store, &r->read_position, max, r->o.read_bytes,
                                                  &b->arena, &rows, &count, &err);
    if (e != TD_OK) {
        tdi_arena_reset(&b->arena);
        return tdi_relay_store_failed(r, &err);
    }
    TDI_ASSERT(count <= max);
    tdi_relay_store_worked(r);
    r->read_once = true;
    if (!r->halted_by_settle) {
        r->halted = false;
    }
    plan_next_read(r, now, count, max);
    if (count == 0) {
        tdi_arena_reset(&b->arena);
        return TDI_STEP_AGAIN;
    }
    return take_in(r, b, rows, count);
}

enum tdi_step tdi_relay_durable(struct tdi_relay *r)
{
    struct td_error err;

    if (r->store->driver->outbox_durable(r->store, &err) != TD_OK) {
        return tdi_relay_store_failed(r, &err);
    }
    tdi_relay_store_worked(r);
    r->undurable = false;
    return TDI_STEP_AGAIN;
}

/* ---- housekeeping ----------------------------------------------------------------------- */

enum tdi_step tdi_relay_housekeeping_failed(struct tdi_relay *r, const struct td_error *e)
{
    if (e->class_ == TD_CLASS_PERMANENT) {
        tdi_relay_remember(r, e);
        return TDI_STEP_AGAIN;
    }
    return tdi_relay_store_failed(r, e);
}

enum tdi_step tdi_relay_purge(struct tdi_relay *r, td_time_us now)
{
    size_t removed = 0;
    struct td_error err;

    r->purge_at = now + TDI_RELAY_PURGE_US;
    if (r->store->driver->outbox_purge(r->store, r->o.keep_us, TDI_RELAY_PURGE_ROWS, &removed,
                                       &err) != TD_OK) {
        if (tdi_relay_lock_missed(r, &err)) {
            r->purge_at = now + TD_SECOND_US;
            return TDI_STEP_AGAIN;
        }
        return tdi_relay_housekeeping_failed(r, &err);
    }
    tdi_relay_wrote(r);
    if (removed >= TDI_RELAY_PURGE_ROWS) {
        r->purge_at = now + TDI_RELAY_PURGE_MORE_US;
    }
    return TDI_STEP_AGAIN;
}

enum tdi_step tdi_relay_stats(struct tdi_relay *r, td_time_us now)
{
    struct td_relay_stats stats;
    struct td_error err;

    r->stats_at = now + TDI_RELAY_STATS_US;
    if (r->store->driver->relay_stats(r->store, r->o.name, &stats, &err) != TD_OK) {
        return tdi_relay_housekeeping_failed(r, &err);
    }
    r->pending_counted = stats.pending;
    r->oldest_counted_us = stats.oldest_pending_us;
    return TDI_STEP_AGAIN;
}
