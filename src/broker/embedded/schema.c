/*
 * The file: making it, recognising it, reading the catalogue and the dedupe window at open. No
 * messages are scanned, so opening does not take longer with a backlog.
 *
 * Must not know: sessions, threads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/uuid.h"
#include "broker/embedded/internal.h"

#define META_BYTES_MAX 65536

extern const char tdi_embed_broker_embedded_schema[];

static enum td_err meta_get(struct tdi_db *db, const char *k, struct tdi_arena *a,
                            struct td_str *ret, struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "SELECT v FROM meta WHERE k = ?1", -1, &s, NULL);
    if (rc == SQLITE_OK) {
        tdi_bind_str(s, 1, tdi_str(k));
        rc = sqlite3_step(s);
    }
    enum td_err code = TD_OK;
    if (rc == SQLITE_ROW) {
        code = tdi_arena_str(a, tdi_column_str(s, 0), ret) ? TD_OK : tdd_emb_nomem(err);
    } else if (rc == SQLITE_DONE) {
        *ret = TD_STR_NONE;
    } else {
        code = tdi_db_error(db, rc, "open", "cannot read the broker's file", err);
    }
    (void)sqlite3_finalize(s);
    return code;
}

static enum td_err meta_put(struct tdi_db *db, const char *k, struct td_bytes v, bool text,
                            struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "INSERT INTO meta VALUES(?1, ?2)", -1, &s, NULL);
    if (rc == SQLITE_OK) {
        tdi_bind_str(s, 1, tdi_str(k));
        if (text) {
            tdi_bind_str(s, 2, (struct td_str){.data = v.data, .len = v.len});
        } else {
            tdi_bind_bytes(s, 2, v);
        }
        rc = sqlite3_step(s);
    }
    enum td_err code = rc == SQLITE_DONE
                           ? TD_OK
                           : tdi_db_error(db, rc, "open", "cannot write the broker's file", err);
    (void)sqlite3_finalize(s);
    return code;
}

static bool has_meta(struct tdi_db *db, int *ret_rc)
{
    sqlite3_stmt *s = NULL;
    const char *sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'";
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(s);
    }
    *ret_rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
    (void)sqlite3_finalize(s);
    return rc == SQLITE_ROW;
}

static enum td_err make(struct tdi_db *db, struct tdi_random *random, struct td_error *err)
{
    struct tdi_random own;
    if (random == NULL) {
        if (!tdi_random_seed_system(&own)) {
            return td_error_set(err, TD_ERR_INTERNAL, "the system gives no random numbers");
        }
        random = &own;
    }
    uint64_t key[2] = {tdi_random_u64(random), tdi_random_u64(random)};
    char id[TDI_UUID_TEXT_LEN + 1];
    tdi_uuid7(random, tdi_wall(&db->options.clock), id);
    char format[16];
    int format_len = snprintf(format, sizeof(format), "%d", TDD_EMB_FORMAT);

    enum td_err rc = tdi_db_begin(db, true, err);
    if (rc == TD_OK) {
        rc = tdi_db_exec(db, tdi_embed_broker_embedded_schema, "open", err);
    }
    if (rc == TD_OK) {
        rc = meta_put(db, "format", (struct td_bytes){format, (size_t)format_len}, true, err);
    }
    if (rc == TD_OK) {
        rc = meta_put(db, "instance", (struct td_bytes){id, TDI_UUID_TEXT_LEN}, true, err);
    }
    if (rc == TD_OK) {
        rc = meta_put(db, "key", (struct td_bytes){key, sizeof(key)}, false, err);
    }
    if (rc == TD_OK) {
        rc = tdi_db_commit(db, err);
    } else {
        tdi_db_rollback(db);
    }
    return rc == TD_OK ? tdi_db_sync(db, err) : rc;
}

enum td_err tdd_emb_schema_check(struct tdi_db *db, struct td_error *err)
{
    int rc = SQLITE_OK;
    if (!has_meta(db, &rc)) {
        return rc != SQLITE_OK ? tdi_db_error(db, rc, "open", "cannot read the broker's file", err)
                               : td_error_set(err, TD_ERR_SCHEMA,
                                              "%s has no tables; run tidings init", db->path);
    }
    struct tdi_arena a;
    tdi_arena_init(&a, META_BYTES_MAX);
    struct td_str text = TD_STR_NONE;
    int64_t format = 0;
    enum td_err code = meta_get(db, "format", &a, &text, err);
    if (code == TD_OK && (!tdi_str_to_i64(text, &format) || format < 1)) {
        code = td_error_set(err, TD_ERR_CORRUPT, "%s does not say which format it has", db->path);
    } else if (code == TD_OK && format > TDD_EMB_FORMAT) {
        code = td_error_set(err, TD_ERR_SCHEMA,
                            "%s has format %" PRId64 ", and this version of Tidings knows %d; "
                            "use the newer version",
                            db->path, format, TDD_EMB_FORMAT);
    }
    tdi_arena_release(&a);
    return code;
}

enum td_err tdd_emb_schema_open(struct tdi_db *db, bool create, struct tdi_random *random,
                                uint64_t ret_key[2], struct td_error *err)
{
    int rc = SQLITE_OK;
    enum td_err code = TD_OK;
    if (create && !has_meta(db, &rc) && rc == SQLITE_OK) {
        code = make(db, random, err);
    }
    if (code == TD_OK) {
        code = tdd_emb_schema_check(db, err);
    }
    if (code != TD_OK) {
        return code;
    }
    struct tdi_arena a;
    tdi_arena_init(&a, META_BYTES_MAX);
    struct td_str key = TD_STR_NONE;
    code = meta_get(db, "key", &a, &key, err);
    if (code == TD_OK && key.len != 2 * sizeof(uint64_t)) {
        code =
            td_error_set(err, TD_ERR_CORRUPT, "%s has lost the key of its dedupe window", db->path);
    } else if (code == TD_OK) {
        memcpy(ret_key, key.data, key.len);
    }
    tdi_arena_release(&a);
    return code;
}

enum td_err tdd_emb_identity(struct tdi_db *db, struct tdi_arena *a, struct td_str *ret,
                             struct td_error *err)
{
    return meta_get(db, "instance", a, ret, err);
}

/* ---- the catalogue ---- */

static enum td_err load_topics(struct td_broker_instance *in, struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(in->writer.handle, "SELECT id, name, max_bytes FROM topic", -1, &s,
                                NULL);
    enum td_err code = TD_OK;
    while (rc == SQLITE_OK && code == TD_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        code = tdd_emb_topic_put(in, tdi_column_i64(s, 0), tdi_column_str(s, 1),
                                 (size_t)sqlite3_column_int64(s, 2), err);
        rc = SQLITE_OK;
    }
    if (code == TD_OK && rc != SQLITE_DONE) {
        code = tdi_db_error(&in->writer, rc, "open", "cannot read the topics", err);
    }
    (void)sqlite3_finalize(s);
    return code;
}

static enum td_err load_bindings(struct td_broker_instance *in, struct tdd_emb_queue *q,
                                 struct tdi_arena *a, struct td_error *err)
{
    static const char sql[] = "SELECT pattern, count(*) OVER () FROM binding WHERE queue = ?1 "
                              "ORDER BY at";
    sqlite3_stmt *s = NULL;
    struct td_str *types = NULL;
    size_t count = 0;
    int rc = sqlite3_prepare_v2(in->writer.handle, sql, -1, &s, NULL);
    if (rc == SQLITE_OK) {
        tdi_bind_i64(s, 1, q->id);
        rc = sqlite3_step(s);
    }
    if (rc == SQLITE_ROW) {
        types = tdi_arena_array(a, (size_t)sqlite3_column_int64(s, 1), sizeof(*types));
    }
    while (rc == SQLITE_ROW && types != NULL &&
           tdi_arena_str(a, tdi_column_str(s, 0), &types[count])) {
        count++;
        rc = sqlite3_step(s);
    }
    enum td_err code = TD_OK;
    if (rc == SQLITE_ROW) {
        code = tdd_emb_nomem(err);
    } else if (rc != SQLITE_DONE) {
        code = tdi_db_error(&in->writer, rc, "open", "cannot read the bindings", err);
    }
    (void)sqlite3_finalize(s);
    return code == TD_OK ? tdd_emb_queue_bind(in, q, q->topic->name, types, count, err) : code;
}

static enum td_err load_queues(struct td_broker_instance *in, struct td_error *err)
{
    static const char sql[] = "SELECT q.id, q.name, t.name, q.ordered, q.next_seq, q.depth, "
                              "q.bytes, q.delivered_hi "
                              "FROM queue q JOIN topic t ON t.id = q.topic ORDER BY q.id";
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(in->writer.handle, sql, -1, &s, NULL);
    enum td_err code = TD_OK;
    while (rc == SQLITE_OK && code == TD_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        struct tdd_emb_queue *q = NULL;
        code = tdd_emb_queue_put(in, tdi_column_i64(s, 0), tdi_column_str(s, 1),
                                 tdi_column_str(s, 2), &q, err);
        if (code == TD_OK) {
            q->ordered = sqlite3_column_int(s, 3) != 0;
            q->next_id = sqlite3_column_int64(s, 4);
            q->depth = sqlite3_column_int64(s, 5);
            q->bytes = sqlite3_column_int64(s, 6);
            q->delivered_hi = q->mark = sqlite3_column_int64(s, 7);
            q->visible = q->next_id - 1;
            q->live = q->depth;
        }
        rc = SQLITE_OK;
    }
    if (code == TD_OK && rc != SQLITE_DONE) {
        code = tdi_db_error(&in->writer, rc, "open", "cannot read the queues", err);
    }
    (void)sqlite3_finalize(s);
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    for (size_t i = 0; i < in->queues_count && code == TD_OK; i++) {
        code = load_bindings(in, in->queue_list[i], &a, err);
        tdi_arena_reset(&a);
    }
    tdi_arena_release(&a);
    return code;
}

static enum td_err load_dedupe(struct td_broker_instance *in, struct td_error *err)
{
    static const char sql[] = "SELECT seq, ids FROM dedup WHERE ts >= ?1 ORDER BY seq";
    static const char ends[] = "SELECT min(seq), max(seq) FROM dedup";
    td_time_us mono = tdi_mono(&in->clock);
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(in->writer.handle, ends, -1, &s, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        bool none = sqlite3_column_type(s, 0) == SQLITE_NULL;
        in->dedup_first = none ? 1 : sqlite3_column_int64(s, 0);
        in->dedup_next = none ? 1 : sqlite3_column_int64(s, 1) + 1;
        rc = SQLITE_OK;
    }
    (void)sqlite3_finalize(s);
    s = NULL;
    in->dedupe.now_row = in->dedupe.keep_row = in->dedup_next;
    if (rc == SQLITE_OK) {
        rc = sqlite3_prepare_v2(in->writer.handle, sql, -1, &s, NULL);
    }
    if (rc == SQLITE_OK) {
        tdi_bind_i64(s, 1, tdi_wall(&in->clock) - TDD_EMB_DEDUPE_WINDOW_US);
    }
    enum td_err code = TD_OK;
    bool first = true;
    while (rc == SQLITE_OK && code == TD_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        int64_t row = sqlite3_column_int64(s, 0);
        if (first) {
            in->dedupe.now_row = in->dedupe.keep_row = row;
            first = false;
        }
        if (!tdd_emb_dedupe_load(&in->dedupe, tdi_column_bytes(s, 1), row, mono)) {
            code = tdd_emb_nomem(err);
        }
        rc = SQLITE_OK;
    }
    if (code == TD_OK && rc != SQLITE_DONE) {
        code = tdi_db_error(&in->writer, rc, "open", "cannot read the dedupe window", err);
    }
    (void)sqlite3_finalize(s);
    return code;
}

enum td_err tdd_emb_load(struct td_broker_instance *in, struct td_error *err)
{
    enum td_err rc = load_topics(in, err);
    if (rc == TD_OK) {
        rc = load_queues(in, err);
    }
    return rc == TD_OK ? load_dedupe(in, err) : rc;
}
