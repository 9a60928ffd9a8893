/* Gathering the hops of a message. */
#include "ops/trace.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "core/deadletter.h"

struct gather {
    const struct tdi_plan *plan;
    struct tdi_arena *arena;
    struct tdi_trace *trace;
    bool in_outbox, published, settled_any;
    enum td_outcome worst; /* the outcome that most needs a person */
};

static void add_hop(struct gather *g, const char *hop, td_time_us at, struct td_str where,
                    struct td_str evidence)
{
    struct tdi_trace *t = g->trace;
    if (t->count < TDI_TRACE_HOPS_MAX) {
        t->hops[t->count++] = (struct tdi_trace_hop){tdi_str(hop), at, where, evidence};
    }
}

static void identify(struct gather *g, struct td_str source, struct td_str type, struct td_str key)
{
    struct tdi_trace *t = g->trace;
    t->found = true;
    if (tdi_str_empty(t->source)) {
        tdi_arena_str(g->arena, source, &t->source);
    }
    if (tdi_str_empty(t->type)) {
        tdi_arena_str(g->arena, type, &t->type);
    }
    if (tdi_str_empty(t->key)) {
        tdi_arena_str(g->arena, key, &t->key);
    }
}

static enum td_err add_published(struct gather *g, struct td_store *store, int64_t seq,
                                 struct td_error *err)
{
    struct td_published_row *rows;
    size_t count;
    enum td_err rc = store->driver->published_find(store, seq, g->arena, &rows, &count, err);
    for (size_t i = 0; rc == TD_OK && i < count; i++) {
        g->published = true;
        add_hop(g, "published", rows[i].at, rows[i].relay,
                tdi_arena_printf(g->arena, "%.*s, with %" PRId64 " others",
                                 (int)rows[i].evidence.len, rows[i].evidence.data,
                                 rows[i].published > 0 ? rows[i].published - 1 : 0));
    }
    return rc;
}

static enum td_err add_outbox(struct gather *g, struct td_store *store, size_t number,
                              struct td_error *err)
{
    struct td_outbox_row row;
    bool found = false;
    enum td_err rc = store->driver->outbox_find(store, g->trace->id, g->arena, &row, &found, err);
    if (rc != TD_OK || !found) {
        return rc;
    }
    g->in_outbox = true;
    identify(g, row.message.source, row.message.type, row.message.key);
    add_hop(g, "committed", row.message.time, g->plan->config->stores[number].name,
            tdi_arena_printf(g->arena, "seq %" PRId64, row.message.sequence));
    return add_published(g, store, row.message.sequence, err);
}

/* How much an outcome needs looking at. */
static int weight(enum td_outcome o)
{
    switch (o) {
    case TD_OUTCOME_DEAD:
        return 6;
    case TD_OUTCOME_BLOCKED:
        return 5;
    case TD_OUTCOME_RETRY:
        return 4;
    case TD_OUTCOME_DISCARDED:
        return 3;
    case TD_OUTCOME_DROPPED:
        return 1;
    case TD_OUTCOME_EFFECT:
        return 2;
    case TD_OUTCOME_NONE:
        break;
    }
    return 0;
}

static enum td_err add_inbox(struct gather *g, struct td_store *store, struct td_error *err)
{
    struct td_inbox_row *rows;
    size_t count;
    enum td_err rc = store->driver->inbox_find(store, g->trace->id, g->arena, &rows, &count, err);
    for (size_t i = 0; rc == TD_OK && i < count; i++) {
        const struct td_inbox_row *r = &rows[i];
        struct td_str consumer = tdi_plan_short(g->plan, r->consumer, g->arena);
        identify(g, r->ref.source, TD_STR_NONE, TD_STR_NONE);
        if (r->outcome == TD_OUTCOME_EFFECT && tdi_str_starts(r->consumer, "relay:")) {
            g->published = true; /* a letter of the relay that was replayed */
            add_hop(g, "published", r->settled_at, consumer, TD_STR_LIT("replayed"));
            continue;
        }
        g->settled_any = true;
        g->worst = weight(r->outcome) > weight(g->worst) ? r->outcome : g->worst;
        bool ended = r->outcome != TD_OUTCOME_RETRY && r->outcome != TD_OUTCOME_BLOCKED;
        if (ended &&
            r->outcome != TD_OUTCOME_DISCARDED) { /* the history has that, with the reason */
            add_hop(g, tdi_outcome_name(r->outcome), r->settled_at, consumer,
                    tdi_arena_printf(g->arena, "after %" PRId32 " run%s", r->attempts,
                                     r->attempts == 1 ? "" : "s"));
        }
    }
    return rc;
}

/* One member of a history entry. */
static struct td_str entry_text(struct gather *g, struct td_str entry, const char *pointer)
{
    struct tdi_json_token t;
    struct td_str text;
    struct td_error ignored;
    if (tdi_json_pointer(entry, tdi_str(pointer), g->arena, &t, &ignored) != TD_OK) {
        return TD_STR_LIT("");
    }
    if (t.kind == TDI_JSON_STRING && tdi_json_text(&t, g->arena, &text)) {
        return text;
    }
    return t.kind == TDI_JSON_NUMBER ? t.raw : TD_STR_LIT("");
}

/* The hop of what a person did; the word of the history where there is none. */
static const char *hop_of(struct gather *g, struct td_str result)
{
    static const struct {
        const char *action, *hop;
    } hops[] = {{"replay", "replayed"}, {"discard", "discarded"}, {"edit", "edited"}};
    for (size_t i = 0; i < sizeof(hops) / sizeof(hops[0]); i++) {
        if (tdi_str_is(result, hops[i].action)) {
            return hops[i].hop;
        }
    }
    return tdi_arena_printf(g->arena, "%.*s", (int)result.len, result.data).data;
}

static void add_history_entry(struct gather *g, struct td_str consumer, struct td_str entry)
{
    td_time_us at = TD_TIME_NONE;
    struct td_str result = entry_text(g, entry, "/result");
    struct td_str reason = entry_text(g, entry, "/reason");
    struct td_str attempt = entry_text(g, entry, "/attempt");
    if (!tdi_time_parse(entry_text(g, entry, "/at"), &at)) {
        at = TD_TIME_NONE;
    }
    bool is_run = tdi_str_is(result, "retry") || tdi_str_is(result, "dead");
    if (tdi_str_empty(result)) {
        return;
    }
    if (is_run) {
        add_hop(g, "attempt", at, consumer,
                tdi_arena_printf(g->arena, "%.*s: %.*s: %.*s", (int)attempt.len, attempt.data,
                                 (int)result.len, result.data, (int)reason.len, reason.data));
    } else {
        add_hop(g, hop_of(g, result), at, consumer, reason);
    }
}

static void add_history(struct gather *g, struct td_str consumer, struct td_str history)
{
    struct tdi_json j;
    struct tdi_json_token t;
    if (tdi_str_empty(history)) {
        return;
    }
    tdi_json_init(&j, history);
    if (tdi_json_next(&j, &t) != TDI_JSON_ARRAY_BEGIN) {
        return;
    }
    while (tdi_json_next(&j, &t) == TDI_JSON_OBJECT_BEGIN) {
        size_t begin = t.offset;
        if (!tdi_json_skip(&j, &t)) {
            return;
        }
        add_history_entry(g, consumer, (struct td_str){history.data + begin, j.at - begin});
    }
}

static enum td_err add_parked(struct gather *g, struct td_store *store, struct td_error *err)
{
    struct td_parked_filter filter = {.id = g->trace->id, .any_outcome = true};
    struct td_parked_row *rows;
    int64_t cursor = 0;
    size_t count;
    enum td_err rc =
        store->driver->parked_scan(store, &filter, &cursor, 256, g->arena, &rows, &count, err);
    for (size_t i = 0; rc == TD_OK && i < count; i++) {
        const struct td_parked_row *r = &rows[i];
        struct td_str consumer = tdi_plan_short(g->plan, r->consumer, g->arena);
        if (!tdi_str_eq(r->message.id, g->trace->id)) {
            continue; /* the filter also takes prefixes */
        }
        identify(g, r->message.source, r->message.type, r->message.key);
        add_history(g, consumer, r->history);
        if (r->outcome == TD_OUTCOME_RETRY || r->outcome == TD_OUTCOME_BLOCKED) {
            add_hop(g, "parked", r->due_at, consumer,
                    tdi_arena_printf(g->arena, "%s, due then", tdi_outcome_name(r->outcome)));
        }
    }
    return rc;
}

static enum td_err add_store(struct gather *g, struct td_store *store, size_t number,
                             struct td_error *err)
{
    enum td_err rc = add_outbox(g, store, number, err);
    if (rc == TD_OK) {
        rc = add_inbox(g, store, err);
    }
    return rc == TD_OK ? add_parked(g, store, err) : rc;
}

static int by_time(const void *a, const void *b)
{
    const struct tdi_trace_hop *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at ? 1 : 0;
}

/* What is true now. One consumer that still works on it decides over those that are done. */
static const char *now_of(const struct gather *g)
{
    if (!g->settled_any) {
        return g->published ? "in broker" : g->in_outbox ? "waiting in outbox" : "unknown";
    }
    switch (g->worst) {
    case TD_OUTCOME_DEAD:
        return "dead";
    case TD_OUTCOME_BLOCKED:
        return "blocked";
    case TD_OUTCOME_RETRY:
        return "retrying";
    case TD_OUTCOME_DISCARDED:
        return "discarded";
    case TD_OUTCOME_EFFECT:
        return "effect committed";
    case TD_OUTCOME_DROPPED:
        return "dropped";
    case TD_OUTCOME_NONE:
        break;
    }
    return "unknown";
}

enum td_err tdi_trace_gather(const struct tdi_plan *plan, struct td_store *const *stores,
                             struct td_str id, struct tdi_arena *a, struct tdi_trace *ret,
                             struct td_error *err)
{
    struct gather g = {.plan = plan, .arena = a, .trace = ret};
    *ret = (struct tdi_trace){.id = id};
    ret->hops = tdi_arena_array(a, TDI_TRACE_HOPS_MAX, sizeof(*ret->hops));
    if (ret->hops == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for the hops of a message");
    }
    for (size_t i = 0; i < plan->config->stores_count; i++) {
        if (stores[i] != NULL) {
            enum td_err rc = add_store(&g, stores[i], i, err);
            if (rc != TD_OK) {
                return rc;
            }
        }
    }
    qsort(ret->hops, ret->count, sizeof(*ret->hops), by_time);
    ret->now = tdi_str(now_of(&g));
    return TD_OK;
}
