/*
 * What others see: the state, totals since init, the report in the lease row, the snapshot, the
 * last error.
 *
 * The report is an object of JSON: state, in_flight, handled_total, duplicates_total,
 * retried_total, dead_total, rate_per_second, blocked_keys, next_probe_at (RFC 3339 or null),
 * last_error (text or null), last_error_at. It holds nothing that changes while nothing happens, so
 * that an idle consumer writes its lease row only to keep it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "consumer/internal.h"

#define REPORT_BYTES_MAX 4096

const char *tdi_consumer_state_name(enum tdi_consumer_state state)
{
    switch (state) {
    case TDI_CONSUMER_STARTING:
        return "starting";
    case TDI_CONSUMER_OK:
        return "ok";
    case TDI_CONSUMER_RETRYING:
        return "retrying";
    case TDI_CONSUMER_BLOCKED:
        return "blocked";
    case TDI_CONSUMER_PAUSED:
        return "paused";
    case TDI_CONSUMER_DOWNSTREAM_DOWN:
        return "downstream down";
    case TDI_CONSUMER_BROKER_DOWN:
        return "broker down";
    case TDI_CONSUMER_STORE_DOWN:
        return "store down";
    case TDI_CONSUMER_STANDBY:
        return "standby";
    case TDI_CONSUMER_STOPPED:
        return "stopped";
    }
    return "unknown";
}

void tdi_report_init(struct tdi_consumer *c)
{
    tdi_buf_init(&c->report, REPORT_BYTES_MAX);
    tdi_buf_init(&c->report_sent, REPORT_BYTES_MAX);
    c->last_error_at = TD_TIME_NONE;
    c->state = TDI_CONSUMER_STARTING;
    c->snapshot.next_probe_at = TD_TIME_NONE;
    c->snapshot.last_error_at = TD_TIME_NONE;
}

void tdi_report_release(struct tdi_consumer *c)
{
    tdi_buf_release(&c->report);
    tdi_buf_release(&c->report_sent);
}

bool tdi_paused(const struct tdi_consumer *c)
{
    return c->counts.retrying + c->counts.blocked + c->counts.dead >= c->o.parked_max;
}

static enum tdi_consumer_state state_of(const struct tdi_consumer *c)
{
    if (c->ended) {
        return TDI_CONSUMER_STOPPED;
    }
    if (c->store_failures > 0) {
        return TDI_CONSUMER_STORE_DOWN;
    }
    if (c->owned) {
        return TDI_CONSUMER_STANDBY;
    }
    if (!c->keys_read) {
        return TDI_CONSUMER_STARTING;
    }
    if (c->broker_failures > 0) {
        return TDI_CONSUMER_BROKER_DOWN;
    }
    if (!c->subscribed) {
        return TDI_CONSUMER_STARTING;
    }
    if (c->breaker.state != TDI_BREAKER_CLOSED) {
        return TDI_CONSUMER_DOWNSTREAM_DOWN;
    }
    if (tdi_paused(c)) {
        return TDI_CONSUMER_PAUSED;
    }
    bool held = c->o.order == TDI_ORDER_BLOCK && c->o.on_dead == TDI_ON_DEAD_HOLD;
    if (held && c->counts.dead > 0 && c->gate.blocked > 0) {
        return TDI_CONSUMER_BLOCKED;
    }
    if (c->counts.retrying + c->counts.blocked > 0) {
        return TDI_CONSUMER_RETRYING;
    }
    return TDI_CONSUMER_OK;
}

static td_time_us probe_at(const struct tdi_consumer *c)
{
    if (c->breaker.state != TDI_BREAKER_OPEN) {
        return TD_TIME_NONE;
    }
    return tdi_wall(&c->o.clock) - tdi_now(c) + c->breaker.probe_at;
}

static void add_time(struct tdi_buf *b, bool *first, const char *key, td_time_us t)
{
    char text[TDI_TIME_BYTES];
    struct td_str value = t == TD_TIME_NONE ? TD_STR_NONE : tdi_str(tdi_time_format(t, text));
    tdi_json_add_member(b, first, key, value);
}

static void measure_rate(struct tdi_consumer *c, td_time_us now)
{
    td_time_us passed = now - c->rate_at;
    if (c->rate_at == 0 || passed >= TDI_REPORT_EVERY_US) {
        int64_t done = c->totals.handled - c->rate_handled;
        int64_t rate = c->rate_at == 0 ? 0 : done * 1000 * TD_SECOND_US / passed;
        c->rate_milli = rate; /* of the last second or more */
        c->rate_at = now;
        c->rate_handled = c->totals.handled;
    }
}

void tdi_report_build(struct tdi_consumer *c, td_time_us now)
{
    struct tdi_buf *b = &c->report;
    bool first = true;
    measure_rate(c, now);
    tdi_buf_clear(b);
    tdi_buf_add_char(b, '{');
    tdi_json_add_member(b, &first, "state", tdi_str(tdi_consumer_state_name(state_of(c))));
    tdi_json_add_member_int(b, &first, "in_flight", (int64_t)(c->hand.count + c->rows.count));
    tdi_json_add_member_int(b, &first, "handled_total", c->totals.handled);
    tdi_json_add_member_int(b, &first, "duplicates_total", c->totals.duplicates);
    tdi_json_add_member_int(b, &first, "retried_total", c->totals.retried);
    tdi_json_add_member_int(b, &first, "dead_total", c->totals.dead);
    tdi_json_add_key(b, &first, "rate_per_second");
    tdi_buf_printf(b, "%" PRId64 ".%03" PRId64, c->rate_milli / 1000, c->rate_milli % 1000);
    tdi_json_add_member_int(b, &first, "blocked_keys", (int64_t)c->gate.blocked);
    add_time(b, &first, "next_probe_at", probe_at(c));
    tdi_json_add_member(b, &first, "last_error",
                        c->last_error.code == TD_OK ? TD_STR_NONE : tdi_str(c->last_error.text));
    add_time(b, &first, "last_error_at", c->last_error_at);
    tdi_buf_add_char(b, '}');
    if (b->failed) {
        tdi_buf_clear(b); /* out of memory: the lease is renewed without a report */
    }
}

static int64_t total_of(struct tdi_consumer *c, struct td_str json, const char *pointer)
{
    struct tdi_json_token token = {0};
    struct td_error err = {0};
    int64_t value = 0;
    if (tdi_json_pointer(json, tdi_str(pointer), &c->scratch, &token, &err) != TD_OK ||
        token.kind != TDI_JSON_NUMBER || !tdi_json_int(token.raw, &value) || value < 0) {
        return 0;
    }
    return value;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Totals go on from what the last owner reported, and never back. */
void tdi_report_read(struct tdi_consumer *c, struct td_str json)
{
    struct tdi_totals *t = &c->totals;
    t->handled = larger(t->handled, total_of(c, json, "/handled_total"));
    t->duplicates = larger(t->duplicates, total_of(c, json, "/duplicates_total"));
    t->retried = larger(t->retried, total_of(c, json, "/retried_total"));
    t->dead = larger(t->dead, total_of(c, json, "/dead_total"));
    c->rate_handled = t->handled;
}

void tdi_report_error(struct tdi_consumer *c, const struct td_error *err)
{
    bool again = strcmp(c->last_error.text, err->text) == 0;
    c->last_error = *err;
    c->last_error_at = tdi_wall(&c->o.clock);
    pthread_mutex_lock(&c->lock);
    snprintf(c->snapshot.last_error, sizeof(c->snapshot.last_error), "%s", err->text);
    c->snapshot.last_error_at = c->last_error_at;
    pthread_mutex_unlock(&c->lock);
    struct tdi_log_field field = TDI_LOG_STR("consumer", c->o.name);
    tdi_log_error(c->o.log, again ? TDI_LOG_DEBUG : TDI_LOG_WARN, "consumer met an error", err,
                  &field, 1);
}

void tdi_report_publish(struct tdi_consumer *c)
{
    enum tdi_consumer_state state = state_of(c);
    pthread_mutex_lock(&c->lock);
    struct tdi_consumer_snapshot *s = &c->snapshot;
    s->state = state;
    s->handled_total = c->totals.handled;
    s->duplicates_total = c->totals.duplicates;
    s->retried_total = c->totals.retried;
    s->dead_total = c->totals.dead;
    s->in_flight = (int64_t)(c->hand.count + c->rows.count);
    s->blocked_keys = (int64_t)c->gate.blocked;
    s->rate_milli = c->rate_milli;
    s->next_probe_at = probe_at(c);
    pthread_mutex_unlock(&c->lock);
    if (state != c->state) {
        TDI_LOG(c->o.log, TDI_LOG_INFO, "consumer changed state",
                TDI_LOG_STR("consumer", c->o.name),
                TDI_LOG_STR("state", tdi_str(tdi_consumer_state_name(state))),
                TDI_LOG_STR("before", tdi_str(tdi_consumer_state_name(c->state))));
        c->state = state;
    }
}
