/*
 * Gathering the status. Three sources: counts from the store, depth from the broker, and the report that
 * an owner wrote into its lease. A report counts as news only while its owner is alive; totals stay true.
 */
#include "ops/status.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"

struct gather {
    const struct tdi_plan *plan;
    const struct tdi_status_store *stores;
    const struct tdi_status_broker *brokers;
    td_time_us now;
    struct tdi_arena *arena;
};

static struct td_str report_text(const struct gather *g, struct td_str report, const char *pointer)
{
    struct tdi_json_token t;
    struct td_str text;
    struct td_error ignored;
    if (tdi_str_empty(report) ||
        tdi_json_pointer(report, tdi_str(pointer), g->arena, &t, &ignored) != TD_OK ||
        t.kind != TDI_JSON_STRING || !tdi_json_text(&t, g->arena, &text) || text.len == 0) {
        return TD_STR_NONE;
    }
    return text;
}

/* Whole part of a number; `otherwise` if there is none. */
static int64_t report_number(const struct gather *g, struct td_str report, const char *pointer,
                             int64_t otherwise)
{
    struct tdi_json_token t;
    struct td_error ignored;
    int64_t n;
    if (tdi_str_empty(report) ||
        tdi_json_pointer(report, tdi_str(pointer), g->arena, &t, &ignored) != TD_OK ||
        t.kind != TDI_JSON_NUMBER) {
        return otherwise;
    }
    size_t len = 0;
    while (len < t.raw.len && t.raw.data[len] != '.' && t.raw.data[len] != 'e' &&
           t.raw.data[len] != 'E') {
        len++;
    }
    return tdi_json_int((struct td_str){t.raw.data, len}, &n) ? n : otherwise;
}

static const struct td_lease_state *find_lease(struct td_lease_state *leases, size_t count,
                                               struct td_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (tdi_str_eq(leases[i].name, name)) {
            return &leases[i];
        }
    }
    return NULL;
}

/* The lease of that name with its owner's report; zeroes if there is none. */
static struct td_lease_state lease_of(const struct gather *g, struct td_store *store,
                                      struct td_str name)
{
    struct td_lease_state *leases;
    size_t count;
    struct td_error ignored;
    const struct td_lease_state *found = NULL;
    if (store->driver->lease_scan(store, g->arena, &leases, &count, &ignored) == TD_OK) {
        found = find_lease(leases, count, name);
    }
    return found != NULL ? *found : (struct td_lease_state){.reported_at = TD_TIME_NONE};
}

int64_t tdi_status_halted(struct td_store *store, struct td_str relay, struct tdi_arena *a)
{
    const struct gather g = {.arena = a};
    struct td_lease_state lease = lease_of(&g, store, relay);
    struct td_str state = report_text(&g, lease.report, "/state");
    bool halted = lease.alive && state.data != NULL && tdi_str_is(state, "halted");
    return halted ? lease.fence : 0;
}

static td_time_us drain_time(int64_t waiting, int64_t rate)
{
    if (waiting == 0) {
        return 0;
    }
    return waiting > 0 && rate > 0 ? waiting * TD_SECOND_US / rate : TD_TIME_NONE;
}

static size_t store_number(const struct gather *g, const struct tdi_config_store *store)
{
    return (size_t)(store - g->plan->config->stores);
}

static void gather_outbox(const struct gather *g, const struct tdi_plan_relay *relay,
                          struct tdi_status_outbox *ret)
{
    const struct tdi_status_store *at = &g->stores[store_number(g, relay->outbox->store)];
    struct td_relay_stats stats;
    struct td_consumer_counts counts;
    struct td_error why;
    *ret = (struct tdi_status_outbox){
        .name = relay->short_name,
        .state = TD_STR_LIT("store down"),
        .pending = TDI_STATUS_UNKNOWN,
        .oldest_pending_us = TD_TIME_NONE,
        .drain_us = TD_TIME_NONE,
    };
    if (at->session == NULL) {
        tdi_arena_str(g->arena, tdi_str(at->why.text), &ret->last_error);
        return;
    }
    struct td_store *store = at->session;
    if (store->driver->relay_stats(store, relay->name, &stats, &why) != TD_OK) {
        tdi_arena_str(g->arena, tdi_str(why.text), &ret->last_error);
        return;
    }
    struct td_lease_state lease = lease_of(g, store, relay->name);
    ret->pending = stats.pending;
    ret->published_total = stats.published_total;
    if (stats.oldest_pending_us != TD_TIME_NONE && stats.pending > 0) {
        ret->oldest_pending_us =
            g->now > stats.oldest_pending_us ? g->now - stats.oldest_pending_us : 0;
    }
    if (store->driver->counts(store, relay->consumer, &counts, &why) == TD_OK) {
        ret->dead = counts.dead;
    }
    ret->state = TD_STR_LIT("not running");
    ret->last_error = report_text(g, lease.report, "/last_error");
    if (lease.alive) {
        ret->owner = lease.owner;
        ret->rate_per_second = report_number(g, lease.report, "/rate_per_second", 0);
        ret->state = report_text(g, lease.report, "/state");
        if (ret->state.data == NULL) {
            ret->state = TD_STR_LIT("waiting");
        }
    }
    if (tdi_str_is(ret->state, "halted")) {
        ret->pending = TDI_STATUS_UNKNOWN; /* rows behind the position are not the ones that wait */
        ret->oldest_pending_us = TD_TIME_NONE;
    }
    ret->drain_us = drain_time(ret->pending, ret->rate_per_second);
}

static void gather_lag(const struct gather *g, const struct tdi_config_consumer *c,
                       struct tdi_status_consumer *ret)
{
    size_t number = (size_t)(c->topic->broker - g->plan->config->brokers);
    struct td_broker *broker = g->brokers[number].session;
    struct td_lag *lags;
    struct td_error ignored;
    size_t count;
    if (broker == NULL ||
        broker->driver->lag(broker, c->full_name, g->arena, &lags, &count, &ignored) != TD_OK) {
        return;
    }
    ret->lag = 0;
    for (size_t i = 0; i < count; i++) {
        ret->lag += lags[i].waiting;
    }
}

static void gather_report(const struct gather *g, const struct td_lease_state *lease,
                          struct tdi_status_consumer *ret)
{
    ret->handled_total = report_number(g, lease->report, "/handled_total", 0);
    ret->duplicates_total = report_number(g, lease->report, "/duplicates_total", 0);
    ret->last_error = report_text(g, lease->report, "/last_error");
    if (!lease->alive) {
        return;
    }
    ret->owner = lease->owner;
    ret->in_flight = report_number(g, lease->report, "/in_flight", 0);
    ret->rate_per_second = report_number(g, lease->report, "/rate_per_second", 0);
    struct td_str probe = report_text(g, lease->report, "/next_probe_at");
    if (probe.data == NULL || !tdi_time_parse(probe, &ret->next_probe_at)) {
        ret->next_probe_at = TD_TIME_NONE;
    }
    ret->state = report_text(g, lease->report, "/state");
    if (ret->state.data == NULL) {
        ret->state = TD_STR_LIT("starting");
    }
}

static void gather_consumer(const struct gather *g, const struct tdi_config_consumer *c,
                            struct tdi_status_consumer *ret)
{
    const struct tdi_status_store *at = &g->stores[store_number(g, c->store)];
    struct td_error why;
    *ret = (struct tdi_status_consumer){
        .name = c->name,
        .state = TD_STR_LIT("store down"),
        .lag = TDI_STATUS_UNKNOWN,
        .drain_us = TD_TIME_NONE,
        .next_probe_at = TD_TIME_NONE,
    };
    gather_lag(g, c, ret);
    if (at->session == NULL) {
        tdi_arena_str(g->arena, tdi_str(at->why.text), &ret->last_error);
        return;
    }
    struct td_store *store = at->session;
    ret->state = TD_STR_LIT("not running");
    ret->counts_known = store->driver->counts(store, c->full_name, &ret->counts, &why) == TD_OK;
    struct td_str name = tdi_arena_printf(g->arena, "consumer:%s:0", c->full_name.data);
    struct td_lease_state lease = lease_of(g, store, name);
    gather_report(g, &lease, ret);
    ret->drain_us = drain_time(ret->lag, ret->rate_per_second);
}

static void gather_ends(const struct gather *g, struct tdi_status *ret)
{
    const struct tdi_config *c = g->plan->config;
    struct td_error why;
    for (size_t i = 0; i < c->stores_count; i++) {
        struct tdi_status_end *e = &ret->stores[i];
        struct td_store *s = g->stores[i].session;
        struct td_store_info info;
        e->name = c->stores[i].name;
        e->up = s != NULL && s->driver->info(s, g->arena, &info, &why) == TD_OK;
        if (e->up) {
            e->version = info.version;
        } else {
            tdi_arena_str(g->arena, tdi_str(s != NULL ? why.text : g->stores[i].why.text),
                          &e->text);
        }
    }
    for (size_t i = 0; i < c->brokers_count; i++) {
        struct tdi_status_end *e = &ret->brokers[i];
        struct td_broker *b = g->brokers[i].session;
        struct td_broker_info info;
        e->name = c->brokers[i].name;
        e->since = TD_TIME_NONE;
        e->up = b != NULL && b->driver->info(b, g->arena, &info, &why) == TD_OK;
        if (e->up) {
            e->version = info.version;
            e->owner_pid = info.owner_pid;
            e->since = info.owner_since;
        } else {
            tdi_arena_str(g->arena, tdi_str(b != NULL ? why.text : g->brokers[i].why.text),
                          &e->text);
        }
    }
}

enum td_err tdi_status_gather(const struct tdi_plan *plan, const struct tdi_status_store *stores,
                              const struct tdi_status_broker *brokers, td_time_us now,
                              struct tdi_arena *a, struct tdi_status *ret, struct td_error *err)
{
    const struct gather g = {plan, stores, brokers, now, a};
    const struct tdi_config *c = plan->config;
    struct tdi_status s = {
        .outboxes = tdi_arena_array(a, plan->relays_count, sizeof(*s.outboxes)),
        .outboxes_count = plan->relays_count,
        .consumers = tdi_arena_array(a, c->consumers_count, sizeof(*s.consumers)),
        .consumers_count = c->consumers_count,
        .brokers = tdi_arena_array(a, c->brokers_count, sizeof(*s.brokers)),
        .brokers_count = c->brokers_count,
        .stores = tdi_arena_array(a, c->stores_count, sizeof(*s.stores)),
        .stores_count = c->stores_count,
    };
    if (s.outboxes == NULL || s.consumers == NULL || s.brokers == NULL || s.stores == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for the status");
    }
    for (size_t i = 0; i < s.outboxes_count; i++) {
        gather_outbox(&g, &plan->relays[i], &s.outboxes[i]);
    }
    for (size_t i = 0; i < s.consumers_count; i++) {
        gather_consumer(&g, &c->consumers[i], &s.consumers[i]);
    }
    gather_ends(&g, &s);
    *ret = s;
    return TD_OK;
}
