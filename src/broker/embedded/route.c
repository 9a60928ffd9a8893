/*
 * Topics and queues in memory, and which queues take a type. Lock held, or before anybody else
 * knows the instance.
 *
 * Invariants: topics and queues are never removed while the instance lives, so pointers to them
 * stay good; routes are forgotten when a binding changes.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/embedded/internal.h"
#include "core/route.h"

/* Room for one more; doubles at powers of two. NULL: out of memory, the list stays. */
static void *grow(void *list, size_t count)
{
    if (count > 0 && (count & (count - 1)) != 0) {
        return list;
    }
    return realloc(list, (count > 0 ? count * 2 : 1) * sizeof(void *));
}

static void topic_free(struct tdd_emb_topic *t)
{
    if (t != NULL) {
        tdi_map_release(&t->routes);
        tdd_emb_str_free(t->name);
        free(t);
    }
}

static void types_free(struct td_str *types, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tdd_emb_str_free(types[i]);
    }
    free(types);
}

static void queue_free(struct tdd_emb_queue *q)
{
    if (q != NULL) {
        types_free(q->types, q->types_count);
        tdd_emb_window_free(q);
        free(q->acks);
        free(q->flush);
        free(q->staged);
        tdd_emb_str_free(q->name);
        free(q);
    }
}

static void routes_forget(struct tdd_emb_topic *t)
{
    struct td_str key;
    void *value = NULL;
    size_t cursor = 0;
    while (tdi_map_next(&t->routes, &cursor, &key, &value)) {
        tdd_emb_route_unref(value);
    }
    uint64_t seed[2] = {t->routes.seed[0], t->routes.seed[1]};
    tdi_map_release(&t->routes);
    tdi_map_init(&t->routes, seed, TDD_EMB_ROUTES_MAX);
}

enum td_err tdd_emb_topic_put(struct td_broker_instance *in, int64_t id, struct td_str name,
                              size_t max_bytes, struct td_error *err)
{
    struct tdd_emb_topic *t = tdi_map_get(&in->topics, name);
    if (t != NULL) {
        t->max_bytes = max_bytes;
        return TD_OK;
    }
    if (in->topics_count >= TDD_EMB_TOPICS_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "a broker has at most %d topics",
                            TDD_EMB_TOPICS_MAX);
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return tdd_emb_nomem(err);
    }
    tdi_map_init(&t->routes, in->hash_key, TDD_EMB_ROUTES_MAX);
    t->id = id;
    t->max_bytes = max_bytes;
    t->name = (struct td_str){.data = tdd_emb_strdup(name), .len = name.len};
    struct tdd_emb_topic **list = grow(in->topic_list, in->topics_count);
    in->topic_list = list != NULL ? list : in->topic_list;
    if (t->name.data == NULL || list == NULL || !tdi_map_put(&in->topics, name, t)) {
        topic_free(t);
        return tdd_emb_nomem(err);
    }
    in->topic_list[in->topics_count++] = t;
    return TD_OK;
}

enum td_err tdd_emb_queue_put(struct td_broker_instance *in, int64_t id, struct td_str name,
                              struct td_str topic, struct tdd_emb_queue **ret, struct td_error *err)
{
    if (in->queues_count >= TDD_EMB_QUEUES_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "a broker has at most %d queues",
                            TDD_EMB_QUEUES_MAX);
    }
    struct tdd_emb_queue *q = calloc(1, sizeof(*q));
    if (q == NULL) {
        return tdd_emb_nomem(err);
    }
    q->id = id;
    q->next_id = 1;
    q->topic = tdi_map_get(&in->topics, topic);
    TDI_ASSERT(q->topic != NULL);
    q->name = (struct td_str){.data = tdd_emb_strdup(name), .len = name.len};
    q->flush = calloc(TDD_EMB_SLICE_MAX, sizeof(*q->flush));
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    q->staged = calloc(TDD_EMB_SLICE_MAX, sizeof(*q->staged));
    struct tdd_emb_queue **list = grow(in->queue_list, in->queues_count);
    in->queue_list = list != NULL ? list : in->queue_list;
    if (q->name.data == NULL || q->flush == NULL || q->staged == NULL || list == NULL ||
        !tdi_map_put(&in->queues, name, q)) {
        queue_free(q);
        return tdd_emb_nomem(err);
    }
    in->queue_list[in->queues_count++] = q;
    *ret = q;
    return TD_OK;
}

enum td_err tdd_emb_queue_bind(struct td_broker_instance *in, struct tdd_emb_queue *q,
                               struct td_str topic, const struct td_str *types, size_t count,
                               struct td_error *err)
{
    struct td_str *copy = count > 0 ? calloc(count, sizeof(*copy)) : NULL;
    bool good = count == 0 || copy != NULL;
    for (size_t i = 0; i < count && good; i++) {
        copy[i] = (struct td_str){.data = tdd_emb_strdup(types[i]), .len = types[i].len};
        good = copy[i].data != NULL;
    }
    if (!good) {
        types_free(copy, copy != NULL ? count : 0);
        return tdd_emb_nomem(err);
    }
    types_free(q->types, q->types_count);
    q->types = copy;
    q->types_count = count;
    q->topic = tdi_map_get(&in->topics, topic);
    TDI_ASSERT(q->topic != NULL);
    for (size_t i = 0; i < in->topics_count; i++) {
        routes_forget(in->topic_list[i]);
    }
    return TD_OK;
}

static struct tdd_emb_route *route_make(const struct td_broker_instance *in,
                                        const struct tdd_emb_topic *t, struct td_str type)
{
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    struct tdd_emb_route *r = malloc(sizeof(*r) + in->queues_count * sizeof(r->queues[0]));
    if (r == NULL) {
        return NULL;
    }
    r->refs = 1;
    r->count = 0;
    for (size_t i = 0; i < in->queues_count; i++) {
        struct tdd_emb_queue *q = in->queue_list[i];
        if (q->topic == t && tdi_patterns_match(q->types, q->types_count, type)) {
            r->queues[r->count++] = q;
        }
    }
    return r;
}

struct tdd_emb_route *tdd_emb_route_get(struct td_broker_instance *in, struct tdd_emb_topic *t,
                                        struct td_str type)
{
    struct tdd_emb_route *r = tdi_map_get(&t->routes, type);
    if (r == NULL) {
        r = route_make(in, t, type);
        if (r == NULL) {
            return NULL;
        }
        if (t->routes.count >= TDD_EMB_ROUTES_MAX) {
            routes_forget(t);
        }
        if (!tdi_map_put(&t->routes, type, r)) {
            return r; /* not remembered; the caller has the only reference */
        }
    }
    r->refs++;
    return r;
}

void tdd_emb_route_unref(struct tdd_emb_route *r)
{
    if (--r->refs == 0) {
        free(r);
    }
}

void tdd_emb_catalogue_free(struct td_broker_instance *in)
{
    for (size_t i = 0; i < in->topics_count; i++) {
        routes_forget(in->topic_list[i]);
        topic_free(in->topic_list[i]);
    }
    for (size_t i = 0; i < in->queues_count; i++) {
        queue_free(in->queue_list[i]);
    }
    free(in->topic_list);
    free(in->queue_list);
    tdi_map_release(&in->topics);
    tdi_map_release(&in->queues);
}
