/* The topology as the file has it. Must not know: what is wanted. */
#include "broker/embedded/topology.h"

static enum td_err read_error(struct tdi_db *db, int rc, struct td_error *err)
{
    return tdi_db_error(db, rc, "topology", "cannot read the topology", err);
}

static enum td_err read_topics(struct tdi_db *db, struct tdi_arena *a, struct tdd_emb_have *h,
                               struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "SELECT id, name, max_bytes FROM topic ORDER BY id", -1,
                                &s, NULL);
    bool memory = true;
    h->topics = tdi_arena_array(a, TDD_EMB_TOPICS_MAX, sizeof(*h->topics));
    while (rc == SQLITE_OK && h->topics != NULL && memory && h->topics_count < TDD_EMB_TOPICS_MAX &&
           (rc = sqlite3_step(s)) == SQLITE_ROW) {
        struct tdd_emb_have_topic *t = &h->topics[h->topics_count++];
        t->id = sqlite3_column_int64(s, 0);
        memory = tdi_arena_str(a, tdi_column_str(s, 1), &t->name);
        t->max_bytes = sqlite3_column_int64(s, 2);
        rc = SQLITE_OK;
    }
    (void)sqlite3_finalize(s);
    if (h->topics == NULL || !memory) {
        return tdd_emb_nomem(err);
    }
    return rc == SQLITE_DONE || rc == SQLITE_OK ? TD_OK : read_error(db, rc, err);
}

static enum td_err read_types(struct tdi_db *db, struct tdi_arena *a, struct tdd_emb_have_queue *q,
                              struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(
        db->handle, "SELECT pattern FROM binding WHERE queue = ?1 ORDER BY at", -1, &s, NULL);
    bool memory = true;
    q->types = tdi_arena_array(a, TDD_EMB_TYPES_MAX, sizeof(*q->types));
    if (rc == SQLITE_OK) {
        tdi_bind_i64(s, 1, q->id);
    }
    while (rc == SQLITE_OK && q->types != NULL && memory && q->types_count < TDD_EMB_TYPES_MAX &&
           (rc = sqlite3_step(s)) == SQLITE_ROW) {
        memory = tdi_arena_str(a, tdi_column_str(s, 0), &q->types[q->types_count++]);
        rc = SQLITE_OK;
    }
    (void)sqlite3_finalize(s);
    if (q->types == NULL || !memory) {
        return tdd_emb_nomem(err);
    }
    return rc == SQLITE_DONE || rc == SQLITE_OK ? TD_OK : read_error(db, rc, err);
}

static enum td_err read_queues(struct tdi_db *db, struct tdi_arena *a, struct tdd_emb_have *h,
                               struct td_error *err)
{
    h->queues = tdi_arena_array(a, TDD_EMB_QUEUES_MAX, sizeof(*h->queues));
    if (h->queues == NULL) {
        return tdd_emb_nomem(err);
    }
    sqlite3_stmt *s = NULL;
    static const char sql[] = "SELECT q.id, q.name, t.name, q.ordered, q.depth FROM queue q "
                              "JOIN topic t ON t.id = q.topic ORDER BY q.id";
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    enum td_err code = TD_OK;
    while (rc == SQLITE_OK && code == TD_OK && h->queues_count < TDD_EMB_QUEUES_MAX &&
           (rc = sqlite3_step(s)) == SQLITE_ROW) {
        struct tdd_emb_have_queue *q = &h->queues[h->queues_count++];
        q->id = sqlite3_column_int64(s, 0);
        q->ordered = sqlite3_column_int(s, 3) != 0;
        q->depth = sqlite3_column_int64(s, 4);
        if (!tdi_arena_str(a, tdi_column_str(s, 1), &q->name) ||
            !tdi_arena_str(a, tdi_column_str(s, 2), &q->topic)) {
            code = tdd_emb_nomem(err);
        } else {
            code = read_types(db, a, q, err);
        }
        rc = SQLITE_OK;
    }
    (void)sqlite3_finalize(s);
    if (code == TD_OK && rc != SQLITE_DONE && rc != SQLITE_OK) {
        code = read_error(db, rc, err);
    }
    return code;
}

enum td_err tdd_emb_have_read(struct tdi_db *db, struct tdi_arena *a, struct tdd_emb_have *h,
                              struct td_error *err)
{
    *h = (struct tdd_emb_have){0};
    enum td_err rc = read_topics(db, a, h, err);
    return rc == TD_OK ? read_queues(db, a, h, err) : rc;
}

const struct tdd_emb_have_topic *tdd_emb_have_topic(const struct tdd_emb_have *h,
                                                    struct td_str name)
{
    for (size_t i = 0; i < h->topics_count; i++) {
        if (tdi_str_eq(h->topics[i].name, name)) {
            return &h->topics[i];
        }
    }
    return NULL;
}

const struct tdd_emb_have_queue *tdd_emb_have_queue(const struct tdd_emb_have *h,
                                                    struct td_str name)
{
    for (size_t i = 0; i < h->queues_count; i++) {
        if (tdi_str_eq(h->queues[i].name, name)) {
            return &h->queues[i];
        }
    }
    return NULL;
}
