/*
 * Publishing in the owner's process: checking, copying, queueing; collecting the answers.
 *
 * Ordered pipeline: after a refused message everything later in the session is refused too
 * (INTERRUPTED, retry), until all that was submitted has been collected; then the session is whole
 * again. So many messages of one key may be in flight.
 *
 * Must not know: SQL.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/embedded/internal.h"
#include "core/envelope.h"

#define CHUNK 64 /* prepared without the lock, then queued with it */

struct prepared {
    struct tdd_emb_entry *entry; /* NULL: `code` says why */
    enum td_err code;
};

enum td_err tdd_emb_pub_new(struct td_broker_instance *in, struct tdd_emb_pub **ret,
                            struct td_error *err)
{
    struct tdd_emb_pub *p = calloc(1, sizeof(*p));
    if (p == NULL || tdd_emb_cond_init(&p->cond, NULL) != TD_OK) {
        free(p);
        return tdd_emb_nomem(err);
    }
    p->instance = in;
    p->refs = 1;
    p->notify_fd = -1;
    p->ring = calloc(TDD_EMB_WINDOW_MAX, sizeof(*p->ring));
    tdi_buf_init(&p->scratch, TDD_EMB_ENVELOPE_BYTES_MAX);
    if (p->ring == NULL) {
        (void)pthread_cond_destroy(&p->cond);
        free(p);
        return tdd_emb_nomem(err);
    }
    *ret = p;
    return TD_OK;
}

static void pub_unref(struct tdd_emb_pub *p)
{
    if (--p->refs == 0) {
        (void)pthread_cond_destroy(&p->cond);
        free(p->ring);
        free(p);
    }
}

void tdd_emb_pub_close(struct tdd_emb_pub *p)
{
    if (p == NULL) {
        return;
    }
    struct td_broker_instance *in = p->instance;
    tdi_buf_release(&p->scratch);
    (void)pthread_mutex_lock(&in->lock);
    p->closed = true;
    p->notify_fd = -1;
    pub_unref(p);
    (void)pthread_mutex_unlock(&in->lock);
}

/* ---- answers ---- */

static bool own_fault(enum td_err code)
{
    return code == TD_ERR_UNROUTABLE || code == TD_ERR_TOO_LARGE || code == TD_ERR_DENIED ||
           code == TD_ERR_INVALID;
}

static void answer(struct tdd_emb_pub *p, const struct td_published *a)
{
    if (p->closed) {
        return;
    }
    TDI_ASSERT(p->ring_count < TDD_EMB_WINDOW_MAX);
    p->ring[(p->ring_head + p->ring_count) % TDD_EMB_WINDOW_MAX] = *a;
    p->ring_count++;
    (void)pthread_cond_signal(&p->cond);
    if (p->notify_fd >= 0) {
        uint64_t one = 1;
        /* Full means that it was poked already. */
        ssize_t n = write(p->notify_fd, &one, sizeof(one));
        (void)n;
    }
}

static void answer_refused(struct tdd_emb_pub *p, uint64_t token, uint64_t seq, enum td_err code)
{
    if (p->broken_at == 0 || seq < p->broken_at) {
        p->broken_at = seq;
    }
    struct td_published a = {
        .token = token,
        .result = TD_PUBLISH_REFUSED,
        .code = code,
        .class_ = own_fault(code) ? TD_CLASS_PERMANENT : TD_CLASS_RETRY,
    };
    answer(p, &a);
}

void tdd_emb_settle(struct td_broker_instance *in, struct tdd_emb_entry *e,
                    enum td_publish_result result, enum td_err code, uint64_t evidence)
{
    struct tdd_emb_pub *p = e->pub;
    size_t bytes = e->envelope_len + e->body_len;
    p->bytes -= bytes;
    in->pending_bytes -= bytes;
    if (result == TD_PUBLISH_REFUSED) {
        answer_refused(p, e->token, e->seq, code);
    } else {
        struct td_published a = {
            .token = e->token,
            .result = result,
            .duplicate = result == TD_PUBLISH_ACCEPTED && e->duplicate,
            .code = code,
            .class_ = result == TD_PUBLISH_UNKNOWN ? TD_CLASS_UNKNOWN : TD_CLASS_RETRY,
            .evidence = evidence,
        };
        answer(p, &a);
    }
    e->pub = NULL;
    pub_unref(p);
    tdd_emb_route_unref(e->route);
    e->route = NULL;
    tdd_emb_entry_unref(e);
}

/* ---- submitting ---- */

/* Without the lock: check, and copy what will be stored. */
static enum td_err prepare(struct tdd_emb_pub *p, const struct td_publish *item, td_time_us now,
                           struct tdd_emb_entry **ret)
{
    const struct td_message *m = item->message;
    if (m->body.len > TDD_EMB_BODY_BYTES_MAX) {
        return TD_ERR_TOO_LARGE;
    }
    if (item->topic.len > TD_TYPE_BYTES_MAX) {
        return TD_ERR_UNROUTABLE;
    }
    if (tdi_message_check(m, NULL) != TD_OK) {
        return TD_ERR_INVALID;
    }
    tdi_buf_clear(&p->scratch);
    tdi_envelope_write(&p->scratch, m);
    if (p->scratch.failed) {
        return p->scratch.len * 2 > TDD_EMB_ENVELOPE_BYTES_MAX ? TD_ERR_INVALID : TD_ERR_NOMEM;
    }
    struct tdd_emb_entry *e = tdd_emb_entry_new(p->scratch.len, m->body.len);
    if (e == NULL) {
        return TD_ERR_NOMEM;
    }
    memcpy(e->data, p->scratch.data, p->scratch.len);
    if (m->body.len > 0) {
        memcpy(e->data + p->scratch.len, m->body.data, m->body.len);
    }
    e->body_null = m->body.data == NULL;
    e->token = item->token;
    e->replay = item->replay;
    e->published_at = m->published_at != TD_TIME_NONE ? m->published_at : now;
    e->hash = tdd_emb_dedupe_hash(p->instance->hash_key, m->source, item->topic, m->id);
    *ret = e;
    return TD_OK;
}

/* Lock held: where does it go? */
static enum td_err route(struct td_broker_instance *in, const struct td_publish *item,
                         struct tdd_emb_entry *e)
{
    if (in->wal_full) {
        return TD_ERR_BUSY;
    }
    struct tdd_emb_topic *t =
        item->topic.data != NULL ? tdi_map_get(&in->topics, item->topic) : NULL;
    if (t == NULL) {
        return TD_ERR_UNROUTABLE;
    }
    if (t->max_bytes > 0 && item->message->body.len > t->max_bytes) {
        return TD_ERR_TOO_LARGE;
    }
    struct tdd_emb_route *r = tdd_emb_route_get(in, t, item->message->type);
    if (r == NULL) {
        return TD_ERR_NOMEM;
    }
    if (r->count == 0) {
        tdd_emb_route_unref(r);
        return TD_ERR_UNROUTABLE;
    }
    e->route = r;
    return TD_OK;
}

/* Lock held. The answer to a bad one comes at once, those before it may still be on their way. */
static void enqueue(struct tdd_emb_pub *p, const struct td_publish *item,
                    const struct prepared *ready)
{
    struct td_broker_instance *in = p->instance;
    struct tdd_emb_entry *e = ready->entry;
    enum td_err code = ready->code;
    uint64_t seq = ++p->seq;
    p->outstanding++;
    if (in->failed) {
        code = in->failure.code;
    } else if (p->broken_at != 0) {
        code = TD_ERR_INTERRUPTED;
    } else if (code == TD_OK) {
        code = route(in, item, e);
    }
    if (code != TD_OK || e == NULL) {
        if (e != NULL) {
            tdd_emb_entry_unref(e);
        }
        answer_refused(p, item->token, seq, code);
        return;
    }
    e->seq = seq;
    e->pub = p;
    p->refs++;
    p->bytes += e->envelope_len + e->body_len;
    in->pending_bytes += e->envelope_len + e->body_len;
    tdd_emb_list_add(&in->pending, e);
}

/* How many may be taken now, by number; bytes are looked at between chunks. */
static size_t room(const struct tdd_emb_pub *p)
{
    const struct td_broker_instance *in = p->instance;
    bool full =
        p->bytes >= TDD_EMB_WINDOW_BYTES_MAX || in->pending_bytes >= TDD_EMB_PENDING_BYTES_MAX;
    return full ? 0 : TDD_EMB_WINDOW_MAX - p->outstanding;
}

/* A chunk ends before its bodies pass the byte limit of the session, but holds one at least. */
static size_t chunk_of(const struct td_publish *items, size_t count, size_t room_count)
{
    size_t max = count < room_count ? count : room_count;
    size_t bytes = 0;
    size_t n = 0;
    while (n < max && n < CHUNK) {
        bytes += items[n].message->body.len;
        if (n > 0 && bytes > TDD_EMB_WINDOW_BYTES_MAX / 4) {
            break;
        }
        n++;
    }
    return n;
}

enum td_err tdd_emb_submit(struct tdd_emb_pub *p, const struct td_publish *items, size_t count,
                           size_t *ret_taken, struct td_error *err)
{
    struct td_broker_instance *in = p->instance;
    struct prepared ready[CHUNK];
    td_time_us now = tdi_wall(&in->clock);
    size_t taken = 0;
    enum td_err rc = TD_OK;
    (void)pthread_mutex_lock(&in->lock);
    while (taken < count && rc == TD_OK) {
        if (in->failed || in->stopping) {
            rc = in->failed ? tdd_emb_failure(in, err)
                            : td_error_set(err, TD_ERR_CLOSED, "the broker is closing");
            break;
        }
        size_t n = chunk_of(items + taken, count - taken, room(p));
        if (n == 0) {
            break;
        }
        (void)pthread_mutex_unlock(&in->lock);
        for (size_t i = 0; i < n; i++) {
            ready[i].entry = NULL;
            ready[i].code = prepare(p, &items[taken + i], now, &ready[i].entry);
        }
        (void)pthread_mutex_lock(&in->lock);
        for (size_t i = 0; i < n; i++) {
            enqueue(p, &items[taken + i], &ready[i]);
        }
        taken += n;
        (void)pthread_cond_broadcast(&in->work);
    }
    (void)pthread_mutex_unlock(&in->lock);
    if (taken > 0 || rc == TD_OK) {
        *ret_taken = taken;
        return TD_OK;
    }
    return rc;
}

/* ---- collecting ---- */

static size_t take_answers(struct tdd_emb_pub *p, struct td_published *ret, size_t max)
{
    size_t n = 0;
    while (n < max && p->ring_count > 0) {
        ret[n++] = p->ring[p->ring_head];
        p->ring_head = (p->ring_head + 1) % TDD_EMB_WINDOW_MAX;
        p->ring_count--;
    }
    p->outstanding -= n;
    if (p->outstanding == 0) {
        p->broken_at = 0;
    }
    return n;
}

enum td_err tdd_emb_collect(struct tdd_emb_pub *p, td_time_us deadline_us, struct td_published *ret,
                            size_t max, size_t *ret_count, struct td_error *err)
{
    struct td_broker_instance *in = p->instance;
    enum td_err rc = TD_OK;
    size_t n = 0;
    (void)pthread_mutex_lock(&in->lock);
    bool starved = p->outstanding == 0 && room(p) == 0; /* wakes when others make room */
    while (max > 0) {
        n = take_answers(p, ret, max);
        if (n > 0 || (starved && room(p) > 0)) {
            break;
        }
        if (in->failed) {
            rc = tdd_emb_failure(in, err);
            break;
        }
        if (p->interrupted) {
            p->interrupted = false;
            rc = td_error_set(err, TD_ERR_INTERRUPTED, "the wait for confirms was interrupted");
            break;
        }
        if (!in->threads && tdd_emb_step(in)) {
            continue;
        }
        if ((!in->threads && !in->writing && !in->syncing) || tdd_emb_passed(in, deadline_us)) {
            break;
        }
        tdd_emb_wait(in, starved || !in->threads ? &in->work : &p->cond, deadline_us);
    }
    (void)pthread_mutex_unlock(&in->lock);
    if (rc == TD_OK) {
        *ret_count = n;
    }
    return rc;
}
