/*
 * Adding what is missing and changing bindings, in one transaction. Nothing is ever removed, so it
 * can be repeated. The writer's connection is used between two commits.
 *
 * Invariant: a queue takes messages only after it is on disk.
 */
#include <inttypes.h>
#include <stdio.h>

#include "broker/embedded/topology.h"

#define SQL_BYTES_MAX 2048

static enum td_err write_error(struct tdi_db *db, int rc, struct td_error *err)
{
    return tdi_db_error(db, rc, "topology", "cannot write the topology", err);
}

/* A statement of up to four values: texts first, then numbers. */
struct values {
    struct td_str text[2];
    size_t texts;
    int64_t number[4];
    size_t numbers;
};

static enum td_err run(struct tdi_db *db, const char *sql, const struct values *v,
                       struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    int at = 0;
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    if (rc == SQLITE_OK) {
        for (size_t i = 0; i < v->texts; i++) {
            tdi_bind_str(s, ++at, v->text[i]);
        }
        for (size_t i = 0; i < v->numbers; i++) {
            tdi_bind_i64(s, ++at, v->number[i]);
        }
        rc = sqlite3_step(s);
    }
    enum td_err code = rc == SQLITE_DONE ? TD_OK : write_error(db, rc, err);
    (void)sqlite3_finalize(s);
    return code;
}

static enum td_err put_topic(struct tdi_db *db, const struct td_topic *w, struct td_error *err)
{
    struct values v = {
        .text = {w->name}, .texts = 1, .number = {(int64_t)w->max_bytes}, .numbers = 1};
    return run(db,
               "INSERT INTO topic(name, max_bytes) VALUES(?1, ?2) "
               "ON CONFLICT(name) DO UPDATE SET max_bytes = excluded.max_bytes",
               &v, err);
}

static enum td_err put_bindings(struct tdi_db *db, const struct td_queue *w, struct td_error *err)
{
    struct values v = {.text = {w->consumer}, .texts = 1};
    enum td_err rc = run(db,
                         "DELETE FROM binding WHERE queue = "
                         "(SELECT id FROM queue WHERE name = ?1)",
                         &v, err);
    for (size_t i = 0; i < w->types_count && rc == TD_OK; i++) {
        struct values p = {
            .text = {w->consumer, w->types[i]}, .texts = 2, .number = {(int64_t)i}, .numbers = 1};
        rc = run(db,
                 "INSERT INTO binding(queue, at, pattern) "
                 "VALUES((SELECT id FROM queue WHERE name = ?1), ?3, ?2)",
                 &p, err);
    }
    return rc;
}

/* The table, and a view for people. */
static enum td_err make_table(struct tdi_db *db, int64_t id, struct td_str name,
                              struct td_error *err)
{
    char sql[SQL_BYTES_MAX];
    (void)snprintf(sql, sizeof(sql),
                   "CREATE TABLE q_%" PRId64 "(id INTEGER PRIMARY KEY, pub INTEGER NOT NULL, "
                   "env TEXT NOT NULL, body BLOB)",
                   id);
    enum td_err rc = tdi_db_exec(db, sql, "topology", err);
    if (rc != TD_OK) {
        return rc;
    }
    char *view = sqlite3_mprintf(
        "CREATE VIEW IF NOT EXISTS \"queue_%w\" AS SELECT id AS seq, "
        "strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', pub / 1e6, 'unixepoch') AS published_at, "
        "json_extract(env, '$.source') AS source, json_extract(env, '$.id') AS id, "
        "json_extract(env, '$.type') AS type, json_extract(env, '$.partitionkey') AS key, "
        "env AS envelope, body FROM q_%lld",
        name.data, (long long)id);
    if (view == NULL) {
        return tdd_emb_nomem(err);
    }
    rc = tdi_db_exec(db, view, "topology", err);
    sqlite3_free(view);
    return rc;
}

static enum td_err put_queue(struct tdi_db *db, struct tdi_arena *a, const struct td_queue *w,
                             const struct tdd_emb_have_queue *have, struct td_error *err)
{
    struct values v = {
        .text = {w->consumer, w->topic}, .texts = 2, .number = {w->ordered ? 1 : 0}, .numbers = 1};
    enum td_err rc = TD_OK;
    if (have != NULL) {
        rc = run(db,
                 "UPDATE queue SET topic = (SELECT id FROM topic WHERE name = ?2), ordered = ?3 "
                 "WHERE name = ?1",
                 &v, err);
    } else {
        rc = run(db,
                 "INSERT INTO queue(name, topic, ordered, next_seq, depth, bytes, delivered_hi) "
                 "VALUES(?1, (SELECT id FROM topic WHERE name = ?2), ?3, 1, 0, 0, 0)",
                 &v, err);
        struct td_str name;
        if (rc == TD_OK) {
            rc = tdi_arena_str(a, w->consumer, &name) ? TD_OK : tdd_emb_nomem(err);
        }
        if (rc == TD_OK) {
            rc = make_table(db, sqlite3_last_insert_rowid(db->handle), name, err);
        }
    }
    return rc == TD_OK ? put_bindings(db, w, err) : rc;
}

static enum td_err write_changes(struct tdi_db *db, const struct td_topology *w,
                                 const struct tdd_emb_have *h, struct tdi_arena *a,
                                 struct td_error *err)
{
    enum td_err rc = tdi_db_begin(db, true, err);
    if (rc != TD_OK) {
        return rc;
    }
    for (size_t i = 0; i < w->topics_count && rc == TD_OK; i++) {
        const struct tdd_emb_have_topic *t = tdd_emb_have_topic(h, w->topics[i].name);
        if (t == NULL || t->max_bytes != (int64_t)w->topics[i].max_bytes) {
            rc = put_topic(db, &w->topics[i], err);
        }
    }
    for (size_t i = 0; i < w->queues_count && rc == TD_OK; i++) {
        const struct tdd_emb_have_queue *q = tdd_emb_have_queue(h, w->queues[i].consumer);
        if (q == NULL || !tdd_emb_queue_equal(&w->queues[i], q)) {
            rc = put_queue(db, a, &w->queues[i], q, err);
        }
    }
    if (rc == TD_OK) {
        rc = tdi_db_commit(db, err);
    } else {
        tdi_db_rollback(db);
    }
    return rc == TD_OK ? tdi_db_sync(db, err) : rc;
}

/* Lock held. What the file has becomes what is known in memory. */
static enum td_err refresh(struct td_broker_instance *in, const struct tdd_emb_have *h,
                           struct td_error *err)
{
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < h->topics_count && rc == TD_OK; i++) {
        rc = tdd_emb_topic_put(in, h->topics[i].id, h->topics[i].name,
                               (size_t)h->topics[i].max_bytes, err);
    }
    for (size_t i = 0; i < h->queues_count && rc == TD_OK; i++) {
        const struct tdd_emb_have_queue *have = &h->queues[i];
        struct tdd_emb_queue *q = tdi_map_get(&in->queues, have->name);
        if (q == NULL) {
            rc = tdd_emb_queue_put(in, have->id, have->name, have->topic, &q, err);
        }
        if (rc == TD_OK) {
            q->ordered = have->ordered;
            rc = tdd_emb_queue_bind(in, q, have->topic, have->types, have->types_count, err);
        }
    }
    return rc;
}

/* Holds `writing`, not the lock. */
static enum td_err apply(struct td_broker_instance *in, const struct td_topology *wanted,
                         struct tdi_arena *scratch, struct tdd_emb_differences *l, bool *ret_final,
                         struct td_error *err)
{
    struct tdd_emb_have h;
    enum td_err rc = tdd_emb_have_read(&in->writer, scratch, &h, err);
    if (rc == TD_OK) {
        rc = tdd_emb_differences(wanted, &h, l, err);
    }
    if (rc != TD_OK || l->count == 0) {
        return rc;
    }
    size_t topics = h.topics_count;
    size_t queues = h.queues_count;
    for (size_t i = 0; i < l->count; i++) {
        topics += l->items[i].kind == TD_TOPOLOGY_MISSING_TOPIC ? 1 : 0;
        queues += l->items[i].kind == TD_TOPOLOGY_MISSING_QUEUE ? 1 : 0;
    }
    if (topics > TDD_EMB_TOPICS_MAX || queues > TDD_EMB_QUEUES_MAX) {
        return td_error_set(err, TD_ERR_LIMIT, "a broker has at most %d topics and %d queues",
                            TDD_EMB_TOPICS_MAX, TDD_EMB_QUEUES_MAX);
    }
    struct td_error why = {0};
    rc = write_changes(&in->writer, wanted, &h, scratch, &why);
    *ret_final = rc != TD_OK && (why.class_ == TD_CLASS_FATAL || why.class_ == TD_CLASS_UNKNOWN);
    if (rc == TD_OK) {
        rc = tdd_emb_have_read(&in->writer, scratch, &h, &why);
        (void)pthread_mutex_lock(&in->lock);
        rc = rc == TD_OK ? refresh(in, &h, &why) : rc;
        (void)pthread_mutex_unlock(&in->lock);
        *ret_final = rc != TD_OK; /* memory and file differ */
    }
    if (rc != TD_OK && err != NULL) {
        *err = why;
    }
    return rc;
}

enum td_err tdd_emb_topology_apply(struct td_broker_instance *in, const struct td_topology *wanted,
                                   struct tdi_arena *a, struct td_topology_difference **ret,
                                   size_t *ret_count, struct td_error *err)
{
    struct tdi_arena scratch;
    struct tdd_emb_differences l = {.a = a, .done = true};
    struct td_error why = {0};
    bool final = false;
    enum td_err rc = tdd_emb_wanted_check(wanted, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_arena_init(&scratch, 0);
    (void)pthread_mutex_lock(&in->lock);
    tdd_emb_writing_take(in);
    if (in->failed) {
        rc = tdd_emb_failure(in, err);
    } else {
        (void)pthread_mutex_unlock(&in->lock);
        rc = apply(in, wanted, &scratch, &l, &final, &why);
        (void)pthread_mutex_lock(&in->lock);
        in->idle_at = tdi_mono(&in->clock) + TDD_EMB_IDLE_US;
        if (final) {
            tdd_emb_fail(in, &why);
        }
        if (rc != TD_OK && err != NULL) {
            *err = why;
        }
    }
    tdd_emb_writing_give(in);
    (void)pthread_mutex_unlock(&in->lock);
    tdi_arena_release(&scratch);
    if (rc == TD_OK) {
        *ret = l.items;
        *ret_count = l.count;
    }
    return rc;
}
