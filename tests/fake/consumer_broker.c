/* See consumer_broker.h. */
#include "fake/consumer_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"
#include "fake/consumer_unused.h"

#define TEXT_MAX 96

enum state {
    WAITING,
    OUT,
    ACKED,
};

struct entry {
    char id[TEXT_MAX], key[TEXT_MAX], type[TEXT_MAX], source[TEXT_MAX], defect[TEXT_MAX];
    char body[TEXT_MAX];
    bool has_id, has_key, has_defect;
    td_time_us published_at, expires_at;
    enum state state;
    uint64_t session;
    bool delivered;
};

struct fake_broker_data {
    struct entry entries[FAKE_MESSAGES_MAX];
    size_t count;
    uint64_t sessions; /* so far */
    uint64_t active;   /* the session that gets deliveries; 0: none */
    size_t fetches;
};

struct fake_broker {
    struct td_broker head;
    struct fake_world *w;
    uint64_t session;
    size_t prefetch;
};

struct fake_broker_data *fake_broker_data_new(void)
{
    struct fake_broker_data *b = calloc(1, sizeof(*b));
    TDI_ASSERT(b != NULL);
    return b;
}

void fake_broker_data_free(struct fake_broker_data *b)
{
    free(b);
}

static void put(char to[TEXT_MAX], const char *text)
{
    snprintf(to, TEXT_MAX, "%s", text != NULL ? text : "");
}

void fake_publish(struct fake_world *w, const struct fake_publish *p)
{
    TDI_ASSERT(w->broker->count < FAKE_MESSAGES_MAX);
    struct entry *e = &w->broker->entries[w->broker->count++];
    *e = (struct entry){
        .has_id = !p->no_id,
        .has_key = p->key != NULL,
        .has_defect = p->defect != NULL,
        .published_at = p->published_at != 0 ? p->published_at : w->now,
        .expires_at = p->expires_at != 0 ? p->expires_at : TD_TIME_NONE,
    };
    put(e->id, p->id);
    put(e->key, p->key);
    put(e->type, p->type != NULL ? p->type : "order.paid");
    put(e->source, p->source != NULL ? p->source : "shop");
    put(e->defect, p->defect);
    put(e->body, p->body);
}

void fake_publish_key(struct fake_world *w, const char *id, const char *key)
{
    fake_publish(w, &(struct fake_publish){.id = id, .key = key});
}

static size_t count_state(const struct fake_world *w, enum state a, enum state b)
{
    size_t count = 0;
    for (size_t i = 0; i < w->broker->count; i++) {
        enum state s = w->broker->entries[i].state;
        count += s == a || s == b ? 1 : 0;
    }
    return count;
}

size_t fake_broker_waiting(const struct fake_world *w)
{
    return count_state(w, WAITING, WAITING);
}

size_t fake_broker_unsettled(const struct fake_world *w)
{
    return count_state(w, WAITING, OUT);
}

bool fake_broker_acked(const struct fake_world *w, size_t index)
{
    return w->broker->entries[index].state == ACKED;
}

size_t fake_broker_fetches(const struct fake_world *w)
{
    return w->broker->fetches;
}

static void take_back(struct fake_world *w, uint64_t session)
{
    for (size_t i = 0; i < w->broker->count; i++) {
        struct entry *e = &w->broker->entries[i];
        if (e->state == OUT && e->session == session) {
            e->state = WAITING;
        }
    }
    if (w->broker->active == session) {
        w->broker->active = 0;
    }
}

void fake_broker_drop_sessions(struct fake_world *w)
{
    if (w->broker->active != 0) {
        take_back(w, w->broker->active);
    }
}

/* ---- the driver ---- */

static struct fake_broker *of(struct td_broker *b)
{
    return (struct fake_broker *)b;
}

static enum td_err fb_open(struct td_broker *head, const struct td_broker_options *o,
                           struct td_error *err)
{
    struct fake_broker *b = of(head);
    b->w = fake_world_of(&o->clock);
    b->w->calls_of_open++;
    if (fake_call(b->w, "broker.open", err, NULL)) {
        return err->code;
    }
    b->session = ++b->w->broker->sessions;
    return TD_OK;
}

static void fb_close(struct td_broker *head)
{
    struct fake_broker *b = of(head);
    b->w->calls++;
    b->w->calls_of_open += b->session == 0 ? 1 : 0;
    if (b->session != 0) {
        take_back(b->w, b->session);
    }
}

static void fb_interrupt(struct td_broker *head)
{
    (void)head;
}

static enum td_err closed(const struct fake_broker *b, struct td_error *err)
{
    return b->w->broker->active == b->session
               ? TD_OK
               : td_error_set(err, TD_ERR_CLOSED, "the broker has ended the session");
}

static enum td_err fb_subscribe(struct td_broker *head, const struct td_subscription *sub,
                                struct td_error *err)
{
    struct fake_broker *b = of(head);
    if (fake_call(b->w, "broker.subscribe", err, NULL)) {
        return err->code;
    }
    fake_broker_drop_sessions(b->w);
    b->w->broker->active = b->session;
    b->prefetch = sub->prefetch;
    return TD_OK;
}

static bool deliver(struct tdi_arena *a, struct fake_world *w, size_t index, struct td_delivery *d)
{
    struct entry *e = &w->broker->entries[index];
    *d = (struct td_delivery){
        .handle = index + 1,
        .redelivered = e->delivered,
        .message = {.time = e->published_at,
                    .sequence = TD_NUMBER_NONE,
                    .aggregate_version = TD_NUMBER_NONE,
                    .deliver_at = TD_TIME_NONE,
                    .expires_at = e->expires_at,
                    .published_at = e->published_at},
    };
    struct td_message *m = &d->message;
    struct td_str body = TD_STR_NONE;
    bool ok = tdi_arena_str(a, e->has_id ? tdi_str(e->id) : TD_STR_NONE, &m->id) &&
              tdi_arena_str(a, tdi_str(e->source), &m->source) &&
              tdi_arena_str(a, tdi_str(e->type), &m->type) &&
              tdi_arena_str(a, e->has_key ? tdi_str(e->key) : TD_STR_NONE, &m->key) &&
              tdi_arena_str(a, e->has_defect ? tdi_str(e->defect) : TD_STR_NONE, &d->defect) &&
              tdi_arena_str(a, tdi_str(e->body), &body);
    m->body = (struct td_bytes){.data = body.data, .len = body.len};
    m->topic = TD_STR_LIT("orders");
    d->origin = tdi_arena_printf(a, "{\"offset\":%zu}", index);
    return ok;
}

static enum td_err fb_fetch(struct td_broker *head, size_t max, td_time_us deadline_us,
                            struct tdi_arena *a, struct td_fetch *ret, struct td_error *err)
{
    struct fake_broker *b = of(head);
    struct fake_broker_data *data = b->w->broker;
    (void)deadline_us;
    data->fetches++;
    if (fake_call(b->w, "broker.fetch", err, NULL)) {
        return err->code;
    }
    enum td_err rc = closed(b, err);
    if (rc != TD_OK) {
        return rc;
    }
    size_t count = 0;
    struct td_delivery *list = tdi_arena_array(a, max, sizeof(*list));
    for (size_t i = 0; i < data->count && count < max; i++) {
        struct entry *e = &data->entries[i];
        if (e->state == WAITING) {
            TDI_ASSERT(list != NULL && deliver(a, b->w, i, &list[count]));
            fake_say(b->w, "broker delivers %s%s", e->id, e->delivered ? " again" : "");
            count++;
            e->state = OUT;
            e->session = b->session;
            e->delivered = true;
        }
    }
    *ret = (struct td_fetch){
        .deliveries = list, .count = count, .caught_up = fake_broker_waiting(b->w) == 0};
    return TD_OK;
}

static enum td_err fb_ack(struct td_broker *head, const uint64_t *handles, size_t count,
                          struct td_error *err)
{
    struct fake_broker *b = of(head);
    if (fake_call(b->w, "broker.ack", err, NULL)) {
        return err->code;
    }
    enum td_err rc = closed(b, err);
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        struct entry *e = &b->w->broker->entries[handles[i] - 1];
        TDI_ASSERT(e->state == OUT && e->session == b->session);
        e->state = ACKED;
        fake_say(b->w, "broker has the ack of %s", e->id);
    }
    return rc;
}

const struct td_broker_driver fake_broker_driver = {
    .abi = TD_BROKER_ABI,
    .struct_size = sizeof(struct td_broker_driver),
    .name = "fake",
    .caps = TD_BROKER_REDELIVERED_MARK | TD_BROKER_REDELIVERS_IN_ORDER,
    .session_size = sizeof(struct fake_broker),
    .open = fb_open,
    .close = fb_close,
    .interrupt = fb_interrupt,
    .subscribe = fb_subscribe,
    .fetch = fb_fetch,
    .ack = fb_ack,
    BROKER_UNUSED,
};
