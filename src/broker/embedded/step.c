/*
 * Commits and syncs: a slice of what waits is committed, a sync makes it durable, then publishers
 * are told and consumers see it. Lock held on entry and exit of everything here, let go while the
 * disk works.
 *
 * Invariants: one commit and one sync at a time; syncs finish commits in their order; what a failed
 * sync covered is UNKNOWN, and nothing is tried after it.
 */
#include "broker/embedded/internal.h"

/* ---- the flags ---- */

void tdd_emb_writing_take(struct td_broker_instance *in)
{
    while (in->writing) {
        (void)pthread_cond_wait(&in->work, &in->lock);
    }
    in->writing = true;
}

void tdd_emb_writing_give(struct td_broker_instance *in)
{
    in->writing = false;
    (void)pthread_cond_broadcast(&in->work);
}

/* ---- taking a slice ---- */

static size_t take_acks(struct td_broker_instance *in, struct tdd_emb_queue *q, size_t max)
{
    /* Those of a commit that failed come first. */
    size_t left = TDD_EMB_SLICE_MAX - q->flush_count;
    size_t n = q->acks_count < left ? q->acks_count : left;
    n = n < max ? n : max;
    for (size_t i = 0; i < n; i++) {
        q->flush[q->flush_count++] = q->acks[i];
    }
    q->acks_count -= n;
    for (size_t i = 0; i < q->acks_count; i++) {
        q->acks[i] = q->acks[i + n];
    }
    in->acks_waiting -= n;
    return n;
}

/* How far the commit lets deliveries go: further for a consumer that was fast since the last one. */
static int64_t mark_of(const struct tdd_emb_queue *q, bool final)
{
    if (final) {
        return q->delivered_hi;
    }
    if (q->consumers == NULL && !q->mark_wanted) {
        return -1;
    }
    int64_t ahead = (q->delivered_hi - q->mark_based) * 2;
    ahead = ahead > TDD_EMB_MARK_AHEAD ? ahead : TDD_EMB_MARK_AHEAD;
    ahead = ahead < TDD_EMB_MARK_AHEAD_MAX ? ahead : TDD_EMB_MARK_AHEAD_MAX;
    return q->delivered_hi + ahead;
}

/* Acks, and marks that are wanted. */
static size_t take_dirty(struct td_broker_instance *in, struct tdd_emb_slice *s, size_t max)
{
    size_t weight = 0;
    struct tdd_emb_queue *list = in->dirty;
    in->dirty = NULL;
    while (list != NULL) {
        struct tdd_emb_queue *q = list;
        list = q->next_dirty;
        q->dirty = false;
        weight += take_acks(in, q, weight < max ? max - weight : 0);
        if (q->acks_count > 0) {
            tdd_emb_queue_dirty(in, q);
        }
        if (q->flush_count > 0 || q->mark_wanted) {
            tdd_emb_touch(s, q);
            q->mark_next = mark_of(q, s->final);
        }
    }
    in->mark_wanted = false;
    in->ack_since = tdi_mono(&in->clock);
    return weight;
}

static void take_entries(struct td_broker_instance *in, struct tdd_emb_slice *s, size_t max)
{
    size_t bytes = 0;
    while (in->pending.first != NULL && s->entries.count < max && bytes < TDD_EMB_SLICE_BYTES_MAX) {
        struct tdd_emb_entry *e = tdd_emb_list_take(&in->pending);
        if (e->pub->broken_at != 0 && e->seq > e->pub->broken_at) {
            tdd_emb_settle(in, e, TD_PUBLISH_REFUSED, TD_ERR_INTERRUPTED, 0);
            continue;
        }
        bytes += e->envelope_len + e->body_len;
        for (uint32_t i = 0; i < e->route->count; i++) {
            e->route->queues[i]->mark_next = mark_of(e->route->queues[i], s->final);
        }
        tdd_emb_list_add(&s->entries, e);
    }
}

static void take_slice(struct td_broker_instance *in, struct tdd_emb_slice *s)
{
    /* Each kind may have half; what one leaves the other takes. */
    size_t acks = TDD_EMB_SLICE_MAX / 2;
    if (in->pending.count < TDD_EMB_SLICE_MAX / 2) {
        acks = TDD_EMB_SLICE_MAX - in->pending.count;
    }
    size_t weight = take_dirty(in, s, acks);
    take_entries(in, s, TDD_EMB_SLICE_MAX - weight);
}

/* ---- the end of a commit ---- */

static void settle_all(struct td_broker_instance *in, struct tdd_emb_list *list,
                       enum td_publish_result result, enum td_err code)
{
    struct tdd_emb_entry *e = NULL;
    while ((e = tdd_emb_list_take(list)) != NULL) {
        tdd_emb_settle(in, e, result, code, 0);
    }
}

static void wake_consumers(const struct tdd_emb_queue *q)
{
    for (struct tdd_emb_con *c = q->consumers; c != NULL; c = c->next) {
        (void)pthread_cond_signal(&c->cond);
    }
}

static void forget_touched(struct td_broker_instance *in, struct tdd_emb_slice *s, bool done)
{
    for (struct tdd_emb_queue *q = s->touched; q != NULL; q = q->next_touched) {
        q->touched = false;
        if (done) {
            q->flush_count = 0;
        } else if (q->flush_count > 0) {
            tdd_emb_queue_dirty(in, q);
        }
        /* With a full disk deliveries go on; only the mark of a redelivery may be missing then. */
        if (done ? q->mark_next > q->mark || s->final : q->mark_wanted) {
            q->mark = done ? q->mark_next : q->visible;
            q->mark_based = q->delivered_hi;
        }
        q->mark_wanted = false;
        wake_consumers(q);
    }
}

/* Certainly not written: everybody may try again later. */
static void refused(struct td_broker_instance *in, struct tdd_emb_slice *s, enum td_err code)
{
    bool had_entries = s->entries.count > 0;
    settle_all(in, &s->entries, TD_PUBLISH_REFUSED, code);
    forget_touched(in, s, false);
    td_time_us now = tdi_mono(&in->clock);
    in->retry_at = had_entries ? now : now + TDD_EMB_RETRY_US;
}

static bool final_class(const struct td_error *e)
{
    return e->class_ == TD_CLASS_FATAL || e->class_ == TD_CLASS_UNKNOWN;
}

void tdd_emb_commit(struct td_broker_instance *in, bool final)
{
    struct tdd_emb_slice s = {.final = final};
    struct td_error err = {0};
    bool wrote = false;
    take_slice(in, &s);
    if (final) {
        for (size_t i = 0; i < in->queues_count; i++) {
            tdd_emb_touch(&s, in->queue_list[i]);
            in->queue_list[i]->mark_next = in->queue_list[i]->delivered_hi;
        }
    }
    if (s.entries.count == 0 && s.touched == NULL) {
        return;
    }
    (void)pthread_mutex_unlock(&in->lock);
    enum td_err rc = tdd_emb_write_slice(in, &s, &wrote, &err);
    if (rc == TD_ERR_DISK_FULL) {
        /* A WAL that can begin anew needs no more space. */
        struct td_error ignored;
        (void)tdi_db_checkpoint(&in->writer, false, &ignored);
    }
    (void)pthread_mutex_lock(&in->lock);
    in->idle_at = tdi_mono(&in->clock) + TDD_EMB_IDLE_US;
    if (rc == TD_OK) {
        forget_touched(in, &s, true);
        struct tdd_emb_entry *e = NULL;
        while ((e = tdd_emb_list_take(&s.entries)) != NULL) {
            tdd_emb_list_add(&in->unsynced, e);
        }
        in->unsynced_dirty = in->unsynced_dirty || wrote;
        in->retry_at = 0;
    } else if (final_class(&err)) {
        settle_all(in, &s.entries, TD_PUBLISH_UNKNOWN, rc);
        forget_touched(in, &s, false);
        tdd_emb_fail(in, &err);
    } else {
        refused(in, &s, rc);
    }
}

/* ---- syncs ---- */

static void show(struct td_broker_instance *in, struct tdd_emb_queue *q, struct tdd_emb_entry *e)
{
    int64_t id = ++q->visible;
    q->live++;
    /* Into memory only if somebody takes it and everything before it is there or gone. */
    if (q->consumers != NULL && !q->refilling && q->cursor == id - 1 &&
        in->cached_bytes < TDD_EMB_CACHE_BYTES_MAX && tdd_emb_window_add(in, q, id, e, false)) {
        q->cursor = id;
    }
}

static void finish(struct td_broker_instance *in, struct tdd_emb_list *list)
{
    struct tdd_emb_entry *e = NULL;
    while ((e = tdd_emb_list_take(list)) != NULL) {
        uint64_t evidence = 0;
        for (uint32_t i = 0; i < e->route->count && !e->duplicate; i++) {
            struct tdd_emb_queue *q = e->route->queues[i];
            show(in, q, e);
            wake_consumers(q);
            evidence = evidence == 0 ? (uint64_t)q->visible : evidence;
        }
        tdd_emb_settle(in, e, TD_PUBLISH_ACCEPTED, TD_OK, evidence);
    }
}

void tdd_emb_sync(struct td_broker_instance *in)
{
    TDI_ASSERT(!in->syncing);
    struct tdd_emb_list list = in->unsynced;
    bool dirty = in->unsynced_dirty;
    struct td_error err = {0};
    enum td_err rc = TD_OK;
    if (list.count == 0) {
        return;
    }
    in->unsynced = (struct tdd_emb_list){0};
    in->unsynced_dirty = false;
    in->syncing = true;
    if (dirty) {
        (void)pthread_mutex_unlock(&in->lock);
        rc = tdi_db_sync(&in->writer, &err);
        (void)pthread_mutex_lock(&in->lock);
    }
    in->syncing = false;
    if (rc == TD_OK && !in->failed) {
        finish(in, &list);
    } else {
        settle_all(in, &list, TD_PUBLISH_UNKNOWN, TD_ERR_IO);
        tdd_emb_fail(in, rc == TD_OK ? &in->failure : &err);
    }
    (void)pthread_cond_broadcast(&in->work);
    (void)pthread_cond_broadcast(&in->sync_work);
}

/* ---- inline steps ---- */

static bool has_work(const struct td_broker_instance *in)
{
    if (in->pending.count > 0 || in->unsynced.count > 0) {
        return true;
    }
    return (in->dirty != NULL) && (in->retry_at == 0 || tdi_mono(&in->clock) >= in->retry_at);
}

bool tdd_emb_step(struct td_broker_instance *in)
{
    if (in->failed || in->writing || in->syncing || !has_work(in)) {
        return false;
    }
    in->writing = true;
    tdd_emb_commit(in, false);
    if (!in->failed) {
        tdd_emb_sync(in);
    }
    if (!in->failed) {
        tdd_emb_maintain(in);
    }
    tdd_emb_writing_give(in);
    return true;
}

void tdd_emb_drain(struct td_broker_instance *in)
{
    in->retry_at = 0;
    while (!in->failed && (in->pending.count > 0 || in->unsynced.count > 0)) {
        (void)tdd_emb_step(in);
    }
    /* Acks one by one slice; a disk that is full ends it, they are redelivered then. */
    while (!in->failed && in->dirty != NULL && in->retry_at == 0) {
        (void)tdd_emb_step(in);
    }
    if (!in->failed) {
        in->writing = true;
        tdd_emb_commit(in, true);
        in->writing = false;
    }
    if (!in->failed) {
        struct td_error err = {0};
        if (tdi_db_sync(&in->writer, &err) != TD_OK) {
            tdd_emb_fail(in, &err);
        }
    }
}
