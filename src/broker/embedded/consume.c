/*
 * Consuming: leases in memory, deliveries, ack and nack. A session has one queue; several sessions
 * of one queue compete for its messages.
 *
 * A message may be delivered only up to the queue's mark, which a commit wrote: so whatever was
 * delivered comes back `redelivered` after the owner was killed.
 *
 * Must not know: SQL.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "broker/embedded/internal.h"
#include "core/envelope.h"

#define ORIGIN_BYTES_MAX 2048

enum td_err tdd_emb_con_new(struct td_broker_instance *in, struct tdd_emb_con **ret,
                            struct td_error *err)
{
    struct tdd_emb_con *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return tdd_emb_nomem(err);
    }
    c->instance = in;
    c->leased = calloc(TDD_EMB_FETCH_MAX, sizeof(*c->leased));
    if (c->leased == NULL || tdd_emb_cond_init(&c->cond, NULL) != TD_OK) {
        free(c->leased);
        free(c);
        return tdd_emb_nomem(err);
    }
    *ret = c;
    return TD_OK;
}

static void wake_consumers(const struct tdd_emb_queue *q)
{
    for (struct tdd_emb_con *c = q->consumers; c != NULL; c = c->next) {
        (void)pthread_cond_signal(&c->cond);
    }
}

/* All that it holds goes back to its place. */
static void leave_queue(struct tdd_emb_con *c)
{
    struct tdd_emb_queue *q = c->queue;
    for (size_t i = q->head; i < q->tail && c->in_flight > 0; i++) {
        if (q->items[i].holder == c) {
            tdd_emb_window_return(c->instance, q, &q->items[i], true);
        }
    }
    struct tdd_emb_con **at = &q->consumers;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    wake_consumers(q);
}

void tdd_emb_con_close(struct tdd_emb_con *c)
{
    if (c == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&c->instance->lock);
    if (c->queue != NULL) {
        leave_queue(c);
    }
    (void)pthread_mutex_unlock(&c->instance->lock);
    (void)pthread_cond_destroy(&c->cond);
    free(c->leased);
    free(c);
}

enum td_err tdd_emb_subscribe(struct tdd_emb_con *c, const struct td_subscription *sub,
                              struct td_error *err)
{
    struct td_broker_instance *in = c->instance;
    if (c->queue != NULL) {
        return td_error_set(err, TD_ERR_USAGE, "a session of the embedded broker has one queue");
    }
    if (sub->prefetch == 0 || sub->shard != 0) {
        return td_error_set(err, TD_ERR_USAGE,
                            "a subscription needs a prefetch, and shard 0 is the only one");
    }
    enum td_err rc = TD_OK;
    (void)pthread_mutex_lock(&in->lock);
    struct tdd_emb_queue *q = tdi_map_get(&in->queues, sub->consumer);
    if (in->failed) {
        rc = tdd_emb_failure(in, err);
    } else if (q == NULL) {
        rc = td_error_set(err, TD_ERR_NOT_FOUND,
                          "the broker has no queue %.*s; run tidings init to add it",
                          (int)sub->consumer.len, sub->consumer.data);
    } else if (!tdi_str_empty(sub->topic) && !tdi_str_eq(sub->topic, q->topic->name)) {
        rc = td_error_set(err, TD_ERR_CONFLICT,
                          "the queue %s takes from topic %s, not from %.*s; run tidings init",
                          q->name.data, q->topic->name.data, (int)sub->topic.len, sub->topic.data);
    } else {
        c->prefetch = sub->prefetch < TDD_EMB_PREFETCH_MAX ? sub->prefetch : TDD_EMB_PREFETCH_MAX;
        c->prefetch_bytes = sub->prefetch_bytes > 0 ? sub->prefetch_bytes : TDD_EMB_PREFETCH_BYTES;
        c->queue = q;
        c->next = q->consumers;
        q->consumers = c;
    }
    (void)pthread_mutex_unlock(&in->lock);
    return rc;
}

/* ---- leasing; lock held ---- */

static void want_mark(struct td_broker_instance *in, struct tdd_emb_queue *q)
{
    if (!q->mark_wanted) {
        q->mark_wanted = true;
        in->mark_wanted = true;
        tdd_emb_queue_dirty(in, q);
        (void)pthread_cond_broadcast(&in->work);
    }
}

/* One message always goes, however large. */
static bool has_room(const struct tdd_emb_con *c, const struct tdd_emb_item *it)
{
    return c->in_flight < c->prefetch &&
           (c->in_flight == 0 || c->in_flight_bytes + it->entry->body_len <= c->prefetch_bytes);
}

static size_t lease(struct tdd_emb_con *c, size_t max)
{
    struct td_broker_instance *in = c->instance;
    struct tdd_emb_queue *q = c->queue;
    struct tdd_emb_item *it = NULL;
    size_t n = 0;
    if (c->paused || q->acks_count >= TDD_EMB_ACKS_MAX) {
        return 0;
    }
    while (n < max && (it = tdd_emb_window_first(q)) != NULL && has_room(c, it)) {
        if (it->id > q->mark) {
            want_mark(in, q);
            break;
        }
        c->leased[n++] = (struct tdd_emb_leased){
            .id = it->id, .entry = it->entry, .redelivered = it->redelivered};
        tdd_emb_window_lease(in, q, it, c);
    }
    /* Ask for the next mark before it is needed. */
    if (n > 0 && q->mark < q->visible && q->mark - q->delivered_hi < TDD_EMB_MARK_AHEAD / 2) {
        want_mark(in, q);
    }
    return n;
}

static bool acks_due(const struct td_broker_instance *in)
{
    return in->acks_waiting >= TDD_EMB_SLICE_MAX ||
           (in->acks_waiting > 0 && tdi_mono(&in->clock) - in->ack_since >= TDD_EMB_ACK_FLUSH_US);
}

/* Until something is leased, or the deadline. *ret_count may be 0. */
static enum td_err wait_lease(struct tdd_emb_con *c, size_t max, td_time_us deadline_us,
                              size_t *ret_count, struct td_error *err)
{
    struct td_broker_instance *in = c->instance;
    struct tdd_emb_queue *q = c->queue;
    if (!in->threads && acks_due(in)) {
        (void)tdd_emb_step(in);
    }
    for (;;) {
        if (in->failed) {
            return tdd_emb_failure(in, err);
        }
        if (c->interrupted) {
            c->interrupted = false;
            return td_error_set(err, TD_ERR_INTERRUPTED, "the wait for messages was interrupted");
        }
        *ret_count = lease(c, max);
        if (*ret_count > 0) {
            return TD_OK;
        }
        if (!c->paused && q->ready == 0 && q->cursor < q->visible && !q->refilling &&
            c->in_flight < c->prefetch) {
            enum td_err rc = tdd_emb_refill(in, q, err);
            if (rc != TD_OK) {
                return rc;
            }
            continue;
        }
        if (!in->threads && tdd_emb_step(in)) {
            continue;
        }
        if ((!in->threads && !in->writing && !in->syncing && !q->refilling) ||
            tdd_emb_passed(in, deadline_us)) {
            return TD_OK;
        }
        tdd_emb_wait(in, in->threads || q->refilling ? &c->cond : &in->work, deadline_us);
    }
}

/* ---- deliveries ---- */

static bool make_origin(struct tdi_arena *a, struct td_str topic, int64_t id, struct td_str *ret)
{
    struct tdi_buf b;
    tdi_buf_init(&b, ORIGIN_BYTES_MAX);
    bool first = true;
    tdi_buf_add_char(&b, '{');
    tdi_json_add_member(&b, &first, "broker", TD_STR_LIT(TDD_EMB_NAME));
    tdi_json_add_member(&b, &first, "topic", topic);
    tdi_json_add_member_int(&b, &first, "partition", 0);
    tdi_json_add_member_int(&b, &first, "offset", id);
    tdi_buf_add_char(&b, '}');
    bool good = !b.failed && tdi_arena_str(a, tdi_buf_str(&b), ret);
    tdi_buf_release(&b);
    return good;
}

static bool make_delivery(struct tdi_arena *a, struct td_str topic, const struct tdd_emb_leased *l,
                          struct td_delivery *ret)
{
    const struct tdd_emb_entry *e = l->entry;
    struct td_delivery d = {.handle = (uint64_t)l->id, .redelivered = l->redelivered};
    struct td_str envelope;
    struct td_bytes body = {.data = e->data + e->envelope_len, .len = e->body_len};
    if (!tdi_arena_str(a, (struct td_str){.data = e->data, .len = e->envelope_len}, &envelope)) {
        return false;
    }
    struct td_error why = {0};
    enum td_err rc = tdi_envelope_read(envelope, false, a, &d.message, &why);
    if (rc == TD_ERR_NOMEM || rc == TD_ERR_LIMIT) {
        return false;
    }
    if (rc != TD_OK) {
        /* We wrote it; somebody has edited the row. The consumer parks it as dead. */
        d.message = (struct td_message){.time = TD_TIME_NONE,
                                        .sequence = TD_NUMBER_NONE,
                                        .aggregate_version = TD_NUMBER_NONE,
                                        .deliver_at = TD_TIME_NONE,
                                        .expires_at = TD_TIME_NONE};
        d.defect = tdi_arena_printf(a, "%s", why.text);
        if (d.defect.data == NULL) {
            return false;
        }
    }
    d.message.published_at = e->published_at;
    d.message.topic = topic;
    d.message.body = TD_BYTES_NONE;
    if (!e->body_null && !tdi_arena_bytes(a, body, &d.message.body)) {
        return false;
    }
    if (!make_origin(a, topic, l->id, &d.origin)) {
        return false;
    }
    *ret = d;
    return true;
}

/* What could not be handed over goes back as it was. */
static void give_back(struct tdd_emb_con *c, size_t from, size_t count)
{
    for (size_t i = from; i < count; i++) {
        struct tdd_emb_item *it = tdd_emb_window_find(c->queue, c->leased[i].id);
        TDI_ASSERT(it != NULL);
        tdd_emb_window_return(c->instance, c->queue, it, c->leased[i].redelivered);
    }
    if (from < count) {
        wake_consumers(c->queue);
    }
}

enum td_err tdd_emb_fetch(struct tdd_emb_con *c, size_t max, td_time_us deadline_us,
                          struct tdi_arena *a, struct td_fetch *ret, struct td_error *err)
{
    struct td_broker_instance *in = c->instance;
    struct tdd_emb_queue *q = c->queue;
    if (q == NULL || max == 0) {
        return td_error_set(err, TD_ERR_USAGE, "fetch needs a subscription and a number above 0");
    }
    size_t count = 0;
    max = max < TDD_EMB_FETCH_MAX ? max : TDD_EMB_FETCH_MAX;
    (void)pthread_mutex_lock(&in->lock);
    enum td_err rc = wait_lease(c, max, deadline_us, &count, err);
    struct td_str topic = q->topic->name;
    (void)pthread_mutex_unlock(&in->lock);
    if (rc != TD_OK) {
        return rc;
    }
    size_t made = 0;
    struct td_delivery *deliveries = tdi_arena_array(a, count, sizeof(*deliveries));
    bool good = deliveries != NULL && tdi_arena_str(a, topic, &topic);
    while (good && made < count && make_delivery(a, topic, &c->leased[made], &deliveries[made])) {
        made++;
    }
    (void)pthread_mutex_lock(&in->lock);
    give_back(c, made, count);
    bool caught_up = q->ready == 0 && q->cursor == q->visible;
    (void)pthread_mutex_unlock(&in->lock);
    if (made == 0 && count > 0) {
        return tdd_emb_nomem(err);
    }
    *ret = (struct td_fetch){.deliveries = deliveries, .count = made, .caught_up = caught_up};
    return TD_OK;
}

/* ---- settling ---- */

static struct tdd_emb_item *held(struct tdd_emb_con *c, uint64_t handle)
{
    struct tdd_emb_item *it = NULL;
    if (c->queue != NULL && handle <= INT64_MAX) {
        it = tdd_emb_window_find(c->queue, (int64_t)handle);
    }
    return it != NULL && it->state == TDD_EMB_IN_FLIGHT && it->holder == c ? it : NULL;
}

static enum td_err check_handles(struct tdd_emb_con *c, const uint64_t *handles, size_t count,
                                 struct td_error *err)
{
    if (c->instance->failed) {
        return tdd_emb_failure(c->instance, err);
    }
    for (size_t i = 0; i < count; i++) {
        if (held(c, handles[i]) == NULL) {
            return td_error_set(err, TD_ERR_USAGE,
                                "delivery %" PRIu64 " is not in the hands of this session",
                                handles[i]);
        }
    }
    return TD_OK;
}

enum td_err tdd_emb_ack(struct tdd_emb_con *c, const uint64_t *handles, size_t count,
                        struct td_error *err)
{
    struct td_broker_instance *in = c->instance;
    (void)pthread_mutex_lock(&in->lock);
    size_t waited = in->acks_waiting;
    enum td_err rc = check_handles(c, handles, count, err);
    if (rc == TD_OK && count > 0 && !tdd_emb_window_reserve(c->queue, count)) {
        rc = tdd_emb_nomem(err);
    }
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        /* One that is named twice is settled already. */
        struct tdd_emb_item *it = held(c, handles[i]);
        if (it != NULL) {
            tdd_emb_window_settle(in, c->queue, it);
        }
    }
    if (rc == TD_OK && count > 0) {
        tdd_emb_window_trim(c->queue);
        /* The writer waits until the flush is due; it needs to know only of the first. */
        if (waited == 0 || in->acks_waiting >= TDD_EMB_SLICE_MAX) {
            (void)pthread_cond_broadcast(&in->work);
        }
    }
    (void)pthread_mutex_unlock(&in->lock);
    return rc;
}

enum td_err tdd_emb_nack(struct tdd_emb_con *c, const uint64_t *handles, size_t count,
                         struct td_error *err)
{
    struct td_broker_instance *in = c->instance;
    (void)pthread_mutex_lock(&in->lock);
    enum td_err rc = check_handles(c, handles, count, err);
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        struct tdd_emb_item *it = held(c, handles[i]);
        if (it != NULL) {
            tdd_emb_window_return(in, c->queue, it, true);
        }
    }
    if (rc == TD_OK && c->queue != NULL) {
        wake_consumers(c->queue);
    }
    (void)pthread_mutex_unlock(&in->lock);
    return rc;
}

enum td_err tdd_emb_pause(struct tdd_emb_con *c, bool paused, struct td_error *err)
{
    struct td_broker_instance *in = c->instance;
    (void)pthread_mutex_lock(&in->lock);
    enum td_err rc = in->failed ? tdd_emb_failure(in, err) : TD_OK;
    c->paused = paused;
    if (!paused) {
        (void)pthread_cond_signal(&c->cond);
    }
    (void)pthread_mutex_unlock(&in->lock);
    return rc;
}
