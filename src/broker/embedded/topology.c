/*
 * What the file has against what is wanted. Changes nothing.
 *
 * Must not know: messages.
 */
#include <inttypes.h>

#include "broker/embedded/topology.h"
#include "core/route.h"

/* ---- what is wanted ---- */

static bool name_good(struct td_str name)
{
    if (name.len == 0 || name.len > TD_TYPE_BYTES_MAX || !tdi_utf8_valid(name)) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        if ((unsigned char)name.data[i] < 0x20) {
            return false;
        }
    }
    return true;
}

static bool topic_wanted(const struct td_topology *w, struct td_str name)
{
    for (size_t i = 0; i < w->topics_count; i++) {
        if (tdi_str_eq(w->topics[i].name, name)) {
            return true;
        }
    }
    return false;
}

static enum td_err check_queue(const struct td_topology *w, size_t at, struct td_error *err)
{
    const struct td_queue *q = &w->queues[at];
    const char *why = NULL;
    if (!name_good(q->consumer)) {
        return td_error_set(err, TD_ERR_CONFIG, "queue %zu has no valid name", at + 1);
    }
    if (!topic_wanted(w, q->topic)) {
        return td_error_set(err, TD_ERR_CONFIG,
                            "queue %.*s takes from topic %.*s, which is not named",
                            (int)q->consumer.len, q->consumer.data, (int)q->topic.len,
                            q->topic.data != NULL ? q->topic.data : "");
    }
    for (size_t i = 0; i < at; i++) {
        if (tdi_str_eq(w->queues[i].consumer, q->consumer)) {
            return td_error_set(err, TD_ERR_CONFIG, "queue %.*s is named twice",
                                (int)q->consumer.len, q->consumer.data);
        }
    }
    if (q->types_count > TDD_EMB_TYPES_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "queue %.*s has more than %d types",
                            (int)q->consumer.len, q->consumer.data, TDD_EMB_TYPES_MAX);
    }
    for (size_t i = 0; i < q->types_count; i++) {
        if (!tdi_pattern_valid(q->types[i], &why)) {
            return td_error_set(err, TD_ERR_CONFIG, "type %.*s of queue %.*s: %s",
                                (int)q->types[i].len,
                                q->types[i].data != NULL ? q->types[i].data : "",
                                (int)q->consumer.len, q->consumer.data, why);
        }
    }
    return TD_OK;
}

enum td_err tdd_emb_wanted_check(const struct td_topology *w, struct td_error *err)
{
    enum td_err rc = TD_OK;
    if (w->topics_count > TDD_EMB_TOPICS_MAX || w->queues_count > TDD_EMB_QUEUES_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "a broker has at most %d topics and %d queues",
                            TDD_EMB_TOPICS_MAX, TDD_EMB_QUEUES_MAX);
    }
    for (size_t i = 0; i < w->topics_count; i++) {
        if (!name_good(w->topics[i].name)) {
            return td_error_set(err, TD_ERR_CONFIG, "topic %zu has no valid name", i + 1);
        }
    }
    for (size_t i = 0; i < w->queues_count && rc == TD_OK; i++) {
        rc = check_queue(w, i, err);
    }
    return rc;
}

/* ---- the difference ---- */

static bool add(struct tdd_emb_differences *l, enum td_topology_kind kind, struct td_str name,
                int64_t depth, struct td_str text)
{
    if (text.data == NULL || l->count >= l->max) {
        return false;
    }
    struct td_topology_difference *d = &l->items[l->count];
    *d = (struct td_topology_difference){.kind = kind, .depth = depth, .text = text};
    l->count++;
    return tdi_arena_str(l->a, name, &d->name);
}

static bool types_equal(const struct td_queue *w, const struct tdd_emb_have_queue *h)
{
    if (w->types_count != h->types_count) {
        return false;
    }
    for (size_t i = 0; i < w->types_count; i++) {
        bool found = false;
        for (size_t k = 0; k < h->types_count && !found; k++) {
            found = tdi_str_eq(w->types[i], h->types[k]);
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

bool tdd_emb_queue_equal(const struct td_queue *w, const struct tdd_emb_have_queue *h)
{
    return tdi_str_eq(w->topic, h->topic) && w->ordered == h->ordered && types_equal(w, h);
}

static bool diff_topic(struct tdd_emb_differences *l, const struct td_topic *w,
                       const struct tdd_emb_have_topic *h)
{
    int len = (int)w->name.len;
    if (h == NULL) {
        return add(l, TD_TOPOLOGY_MISSING_TOPIC, w->name, 0,
                   tdi_arena_printf(l->a, "topic %.*s %s", len, w->name.data,
                                    l->done ? "was added" : "is missing"));
    }
    if (h->max_bytes != (int64_t)w->max_bytes) {
        return add(l, TD_TOPOLOGY_CHANGED_BINDING, w->name, 0,
                   tdi_arena_printf(l->a, "max_bytes of topic %.*s %s from %" PRId64 " to %zu", len,
                                    w->name.data, l->done ? "was changed" : "is to change",
                                    h->max_bytes, w->max_bytes));
    }
    return true;
}

static bool diff_queue(struct tdd_emb_differences *l, const struct td_queue *w,
                       const struct tdd_emb_have_queue *h)
{
    int len = (int)w->consumer.len;
    if (h == NULL) {
        return add(l, TD_TOPOLOGY_MISSING_QUEUE, w->consumer, 0,
                   tdi_arena_printf(l->a, "queue %.*s of topic %.*s %s", len, w->consumer.data,
                                    (int)w->topic.len, w->topic.data,
                                    l->done ? "was added" : "is missing"));
    }
    if (!tdd_emb_queue_equal(w, h)) {
        return add(l, TD_TOPOLOGY_CHANGED_BINDING, w->consumer, h->depth,
                   tdi_arena_printf(l->a, "queue %.*s %s other messages than before", len,
                                    w->consumer.data,
                                    l->done ? "takes from now on" : "is to take"));
    }
    return true;
}

static bool diff_extra(struct tdd_emb_differences *l, const struct td_topology *w,
                       const struct tdd_emb_have *h)
{
    bool good = true;
    for (size_t i = 0; i < h->topics_count && good; i++) {
        struct td_str name = h->topics[i].name;
        if (!topic_wanted(w, name)) {
            good = add(
                l, TD_TOPOLOGY_EXTRA_TOPIC, name, 0,
                tdi_arena_printf(l->a, "topic %s is no longer in the configuration", name.data));
        }
    }
    for (size_t i = 0; i < h->queues_count && good; i++) {
        const struct tdd_emb_have_queue *q = &h->queues[i];
        bool wanted = false;
        for (size_t k = 0; k < w->queues_count && !wanted; k++) {
            wanted = tdi_str_eq(w->queues[k].consumer, q->name);
        }
        if (!wanted) {
            good = add(l, TD_TOPOLOGY_EXTRA_QUEUE, q->name, q->depth,
                       tdi_arena_printf(l->a,
                                        "queue %s is no longer in the configuration; %" PRId64
                                        " messages wait in it",
                                        q->name.data, q->depth));
        }
    }
    return good;
}

enum td_err tdd_emb_differences(const struct td_topology *w, const struct tdd_emb_have *h,
                                struct tdd_emb_differences *l, struct td_error *err)
{
    l->max = w->topics_count + w->queues_count + h->topics_count + h->queues_count;
    l->items = tdi_arena_array(l->a, l->max, sizeof(*l->items));
    bool good = l->items != NULL;
    for (size_t i = 0; i < w->topics_count && good; i++) {
        good = diff_topic(l, &w->topics[i], tdd_emb_have_topic(h, w->topics[i].name));
    }
    for (size_t i = 0; i < w->queues_count && good; i++) {
        good = diff_queue(l, &w->queues[i], tdd_emb_have_queue(h, w->queues[i].consumer));
    }
    if (good && !l->done) {
        good = diff_extra(l, w, h);
    }
    return good ? TD_OK : tdd_emb_nomem(err);
}

enum td_err tdd_emb_topology_diff(struct tdi_db *db, const struct td_topology *wanted,
                                  struct tdi_arena *a, struct td_topology_difference **ret,
                                  size_t *ret_count, struct td_error *err)
{
    struct tdd_emb_have h;
    struct tdi_arena scratch;
    struct tdd_emb_differences l = {.a = a};
    tdi_arena_init(&scratch, 0);
    enum td_err rc = tdd_emb_wanted_check(wanted, err);
    if (rc == TD_OK) {
        rc = tdd_emb_have_read(db, &scratch, &h, err);
    }
    if (rc == TD_OK) {
        rc = tdd_emb_differences(wanted, &h, &l, err);
    }
    tdi_arena_release(&scratch);
    if (rc == TD_OK) {
        *ret = l.items;
        *ret_count = l.count;
    }
    return rc;
}
