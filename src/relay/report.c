/*
 * How the relay is doing: for other threads (snapshot), for `status` in other processes (report of
 * the lease row), for people (one line of the log at each change of state).
 */
#include <inttypes.h>

#include "base/json.h"
#include "base/str.h"
#include "relay/internal.h"

const char *tdi_relay_state_name(enum tdi_relay_state s)
{
    switch (s) {
    case TDI_RELAY_OK:
        return "ok";
    case TDI_RELAY_WAITING:
        return "waiting";
    case TDI_RELAY_BROKER_DOWN:
        return "broker down";
    case TDI_RELAY_STORE_DOWN:
        return "store down";
    case TDI_RELAY_HALTED:
        return "halted";
    case TDI_RELAY_STANDBY:
        return "standby";
    case TDI_RELAY_NOT_RUNNING:
        return "not running";
    }
    return "unknown";
}

void tdi_relay_remember(struct tdi_relay *r, const struct td_error *e)
{
    r->last_error = *e;
    r->last_error_at = tdi_wall(&r->o.clock);
}

/* A lock that somebody held for a moment is no trouble. */
static bool store_is_down(const struct tdi_relay *r)
{
    return r->store_failures >= TDI_RELAY_BUSY_MAX ||
           (r->store_failures > 0 && r->store_code != TD_ERR_BUSY);
}

enum tdi_relay_state tdi_relay_state(const struct tdi_relay *r)
{
    if (r->phase >= TDI_PHASE_LEAVE) {
        return TDI_RELAY_NOT_RUNNING;
    }
    if (r->standby) {
        return TDI_RELAY_STANDBY;
    }
    if (r->halted) {
        return TDI_RELAY_HALTED;
    }
    if (store_is_down(r)) {
        return TDI_RELAY_STORE_DOWN;
    }
    if (r->phase != TDI_PHASE_RUN) {
        return TDI_RELAY_WAITING;
    }
    if (r->broker_failures > 0) {
        return TDI_RELAY_BROKER_DOWN;
    }
    return r->refusals > 0 ? TDI_RELAY_WAITING : TDI_RELAY_OK;
}

/* ---- numbers ---------------------------------------------------------------------------- */

static int64_t pending(const struct tdi_relay *r)
{
    int64_t in_hand = (int64_t)tdi_window_count(&r->window);

    if (r->caught_up && r->broker != NULL) {
        return in_hand;
    }
    return r->pending_counted < 0 || r->pending_counted > in_hand ? r->pending_counted : in_hand;
}

static td_time_us oldest_pending(const struct tdi_relay *r)
{
    if (tdi_window_count(&r->window) > 0) {
        return tdi_window_at(&r->window, r->window.first)->row->message.time;
    }
    return pending(r) > 0 ? r->oldest_counted_us : TD_TIME_NONE;
}

static void count_rate(struct tdi_relay *r, td_time_us now)
{
    td_time_us passed = now - r->rate_at;

    if (passed >= TD_SECOND_US) {
        r->rate = (r->published_total - r->rate_total) * TD_SECOND_US / passed;
        r->rate_total = r->published_total;
        r->rate_at = now;
    }
}

static void fill(const struct tdi_relay *r, struct tdi_relay_snapshot *s)
{
    s->state = tdi_relay_state(r);
    s->published_total = r->published_total;
    s->rate_per_second = r->rate;
    s->pending = pending(r);
    s->oldest_pending_us = oldest_pending(r);
    s->dead = r->dead_total;
    s->in_flight = (int64_t)(r->window.submitted + r->letters.submitted);
    s->fence = r->fence;
    s->position = r->position_order;
    s->owner_pid = r->owner_pid;
    s->last_error_at = r->last_error_at;
    s->last_error = r->last_error;
}

/* ---- report of the lease row ------------------------------------------------------------ */

static void add_seconds(struct tdi_buf *b, bool *first, const char *name, td_time_us us)
{
    tdi_json_add_key(b, first, name);
    if (us == TD_TIME_NONE) {
        tdi_buf_add_cstr(b, "null");
        return;
    }
    us = us > 0 ? us : 0;
    tdi_buf_printf(b, "%" PRId64 ".%03" PRId64, us / TD_SECOND_US,
                   us % TD_SECOND_US / TD_MILLISECOND_US);
}

static td_time_us drain_time(const struct tdi_relay_snapshot *s)
{
    if (s->pending <= 0) {
        return s->pending == 0 ? 0 : TD_TIME_NONE;
    }
    return s->rate_per_second > 0 ? s->pending * TD_SECOND_US / s->rate_per_second : TD_TIME_NONE;
}

static void write_report(struct tdi_buf *b, const struct tdi_relay_snapshot *s, td_time_us wall)
{
    bool first = true;
    bool waits = s->oldest_pending_us != TD_TIME_NONE;
    bool failed = s->last_error.code != TD_OK;
    char when[TDI_TIME_BYTES];

    tdi_buf_add_char(b, '{');
    tdi_json_add_member(b, &first, "state", tdi_str(tdi_relay_state_name(s->state)));
    tdi_json_add_member_int(b, &first, "published_total", s->published_total);
    tdi_json_add_member_int(b, &first, "rate_per_second", s->rate_per_second);
    if (s->pending >= 0) {
        tdi_json_add_member_int(b, &first, "pending", s->pending);
    }
    add_seconds(b, &first, "oldest_pending_seconds",
                waits ? wall - s->oldest_pending_us : TD_TIME_NONE);
    add_seconds(b, &first, "drain_seconds", drain_time(s));
    tdi_json_add_member_int(b, &first, "dead", s->dead);
    tdi_json_add_member_int(b, &first, "in_flight", s->in_flight);
    tdi_json_add_member_int(b, &first, "fence", s->fence);
    tdi_json_add_member_int(b, &first, "position", s->position);
    tdi_json_add_member(b, &first, "last_error",
                        failed ? tdi_str(s->last_error.text) : TD_STR_NONE);
    tdi_json_add_member(b, &first, "last_error_at",
                        failed ? tdi_str(tdi_time_format(s->last_error_at, when)) : TD_STR_NONE);
    tdi_buf_add_char(b, '}');
}

bool tdi_relay_report(struct tdi_relay *r, td_time_us now)
{
    struct tdi_relay_snapshot s;

    count_rate(r, now);
    fill(r, &s);
    tdi_buf_clear(&r->report);
    write_report(&r->report, &s, tdi_wall(&r->o.clock));
    if (r->report.failed) {
        tdi_buf_clear(&r->report); /* no memory: without a report this time */
        return false;
    }
    return !tdi_str_eq(tdi_buf_str(&r->report), tdi_buf_str(&r->reported));
}

/* ---- after every step ------------------------------------------------------------------- */

static enum tdi_log_level level_of(enum tdi_relay_state s)
{
    if (s == TDI_RELAY_HALTED) {
        return TDI_LOG_ERROR;
    }
    return s == TDI_RELAY_BROKER_DOWN || s == TDI_RELAY_STORE_DOWN ? TDI_LOG_WARN : TDI_LOG_INFO;
}

static void log_change(struct tdi_relay *r, enum tdi_relay_state s)
{
    const struct tdi_log_field fields[] = {
        TDI_LOG_STR("relay", r->o.name),
        TDI_LOG_STR("state", tdi_str(tdi_relay_state_name(s))),
        TDI_LOG_INT("fence", r->fence),
        TDI_LOG_INT("position", r->position_order),
    };
    const size_t count = sizeof(fields) / sizeof(fields[0]);
    bool trouble = s != TDI_RELAY_OK && s != TDI_RELAY_NOT_RUNNING && r->last_error.code != TD_OK;

    r->state_logged = s;
    if (!tdi_log_on(r->o.log, level_of(s))) {
        return;
    }
    if (trouble) {
        tdi_log_error(r->o.log, level_of(s), "relay state changed", &r->last_error, fields, count);
    } else {
        tdi_log_write(r->o.log, level_of(s), "relay state changed", fields, count);
    }
}

void tdi_relay_publish_state(struct tdi_relay *r)
{
    enum tdi_relay_state s = tdi_relay_state(r);

    if (s != r->state_logged) {
        log_change(r, s);
    }
    pthread_mutex_lock(&r->lock);
    fill(r, &r->snapshot);
    pthread_mutex_unlock(&r->lock);
}
