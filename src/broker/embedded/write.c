/*
 * One slice of work in one transaction: new messages, deletes of settled ones, the dedupe row and
 * the counters of every queue touched. Runs with `writing` held and without the lock; touches only
 * the fields marked W and entries that nobody else has.
 *
 * Must not know: sessions, what a caller waits for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/embedded/internal.h"

#define COLUMNS 4
#define DEDUP_PURGE_ROWS 64
#define DEDUP_PURGE_EVERY 8 /* commits */

enum statement {
    STMT_DEDUP_INSERT,
    STMT_DEDUP_DELETE,
    STMT_QUEUE_UPDATE,
};

void tdd_emb_touch(struct tdd_emb_slice *s, struct tdd_emb_queue *q)
{
    if (!q->touched) {
        q->touched = true;
        q->staged_count = 0;
        q->saved_next_id = q->next_id;
        q->saved_depth = q->depth;
        q->saved_bytes = q->bytes;
        q->next_touched = s->touched;
        s->touched = q;
    }
}

static enum td_err failed(struct td_broker_instance *in, int rc, struct td_error *err)
{
    return tdi_db_error(&in->writer, rc, "commit", "cannot write to the broker's file", err);
}

static enum td_err prepare(struct td_broker_instance *in, sqlite3_stmt **at, const char *sql,
                           struct td_error *err)
{
    int rc = sqlite3_prepare_v3(in->writer.handle, sql, -1, SQLITE_PREPARE_PERSISTENT, at, NULL);
    return rc == SQLITE_OK ? TD_OK : failed(in, rc, err);
}

static enum td_err prepare_queue(struct td_broker_instance *in, struct tdd_emb_queue *q,
                                 struct td_error *err)
{
    char sql[200];
    enum td_err rc = TD_OK;
    if (q->insert_one == NULL) {
        (void)snprintf(sql, sizeof(sql), "INSERT INTO q_%" PRId64 " VALUES(?,?,?,?)", q->id);
        rc = prepare(in, &q->insert_one, sql, err);
    }
    if (rc == TD_OK && q->insert_four == NULL) {
        (void)snprintf(sql, sizeof(sql),
                       "INSERT INTO q_%" PRId64 " VALUES(?,?,?,?),(?,?,?,?),(?,?,?,?),(?,?,?,?)",
                       q->id);
        rc = prepare(in, &q->insert_four, sql, err);
    }
    if (rc == TD_OK && q->delete_range == NULL) {
        (void)snprintf(sql, sizeof(sql), "DELETE FROM q_%" PRId64 " WHERE id BETWEEN ?1 AND ?2",
                       q->id);
        rc = prepare(in, &q->delete_range, sql, err);
    }
    return rc;
}

static enum td_err run(struct td_broker_instance *in, sqlite3_stmt *s, struct td_error *err)
{
    int rc = sqlite3_step(s);
    enum td_err code = rc == SQLITE_DONE ? TD_OK : failed(in, rc, err);
    (void)sqlite3_reset(s);
    return code;
}

/* ---- new messages ---- */

static void stage_in_queues(struct tdd_emb_slice *s, struct tdd_emb_entry *e)
{
    for (uint32_t i = 0; i < e->route->count; i++) {
        struct tdd_emb_queue *q = e->route->queues[i];
        tdd_emb_touch(s, q);
        TDI_ASSERT(q->staged_count < TDD_EMB_SLICE_MAX);
        q->staged[q->staged_count++] = e;
    }
}

/* Which are duplicates; the others go into the staging lists of their queues. */
static enum td_err stage(struct td_broker_instance *in, struct tdd_emb_slice *s,
                         struct td_error *err)
{
    for (struct tdd_emb_entry *e = s->entries.first; e != NULL; e = e->next) {
        if (!e->replay) {
            enum tdd_emb_seen seen = tdd_emb_dedupe_stage(&in->dedupe, e->hash);
            if (seen == TDD_EMB_SEEN_NOMEM) {
                return tdd_emb_nomem(err);
            }
            e->duplicate = seen == TDD_EMB_SEEN;
        }
        if (!e->duplicate) {
            stage_in_queues(s, e);
        }
    }
    return TD_OK;
}

static void bind_row(sqlite3_stmt *s, int row, int64_t id, const struct tdd_emb_entry *e)
{
    int at = row * COLUMNS;
    tdi_bind_i64(s, at + 1, id);
    tdi_bind_i64(s, at + 2, e->published_at);
    tdi_bind_str(s, at + 3, (struct td_str){.data = e->data, .len = e->envelope_len});
    struct td_bytes body = {.data = e->data + e->envelope_len, .len = e->body_len};
    tdi_bind_bytes(s, at + 4, e->body_null ? TD_BYTES_NONE : body);
}

static enum td_err insert_staged(struct td_broker_instance *in, struct tdd_emb_queue *q,
                                 struct td_error *err)
{
    enum td_err rc = TD_OK;
    size_t i = 0;
    while (i < q->staged_count && rc == TD_OK) {
        size_t rows = q->staged_count - i >= 4 ? 4 : 1;
        sqlite3_stmt *s = rows == 4 ? q->insert_four : q->insert_one;
        for (size_t k = 0; k < rows; k++) {
            const struct tdd_emb_entry *e = q->staged[i + k];
            bind_row(s, (int)k, q->next_id++, e);
            q->bytes += (int64_t)(e->envelope_len + e->body_len);
        }
        rc = run(in, s, err);
        i += rows;
    }
    q->depth += (int64_t)q->staged_count;
    return rc;
}

/* ---- settled messages ---- */

static int compare_acks(const void *x, const void *y)
{
    const struct tdd_emb_ack *a = x;
    const struct tdd_emb_ack *b = y;
    return (a->id > b->id) - (a->id < b->id);
}

static enum td_err delete_settled(struct td_broker_instance *in, struct tdd_emb_queue *q,
                                  struct td_error *err)
{
    enum td_err rc = TD_OK;
    qsort(q->flush, q->flush_count, sizeof(*q->flush), compare_acks);
    for (size_t i = 0; i < q->flush_count && rc == TD_OK;) {
        size_t end = i + 1;
        int64_t bytes = q->flush[i].bytes;
        while (end < q->flush_count && q->flush[end].id == q->flush[end - 1].id + 1) {
            bytes += q->flush[end++].bytes;
        }
        tdi_bind_i64(q->delete_range, 1, q->flush[i].id);
        tdi_bind_i64(q->delete_range, 2, q->flush[end - 1].id);
        rc = run(in, q->delete_range, err);
        /* Rows that somebody has deleted by hand are not counted twice. */
        q->depth -= sqlite3_changes(in->writer.handle);
        q->bytes -= bytes;
        i = end;
    }
    return rc;
}

/* ---- dedupe and counters ---- */

static enum td_err write_dedupe(struct td_broker_instance *in, struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    enum td_err rc = TD_OK;
    if (in->dedupe.order_count > 0) {
        rc = tdi_db_statement(&in->writer, STMT_DEDUP_INSERT, "INSERT INTO dedup VALUES(?1,?2,?3)",
                              &s, err);
        if (rc == TD_OK) {
            tdi_bind_i64(s, 1, in->dedup_next);
            tdi_bind_i64(s, 2, tdi_wall(&in->clock));
            tdi_bind_bytes(
                s, 3,
                (struct td_bytes){.data = in->dedupe.order,
                                  .len = in->dedupe.order_count * sizeof(*in->dedupe.order)});
            rc = run(in, s, err);
        }
    }
    /* A slice of those that no generation holds any more. */
    if (rc == TD_OK && in->commits % DEDUP_PURGE_EVERY == 0 &&
        in->dedup_first < in->dedupe.keep_row) {
        rc = tdi_db_statement(&in->writer, STMT_DEDUP_DELETE,
                              "DELETE FROM dedup WHERE seq >= ?1 AND seq < ?2", &s, err);
        if (rc == TD_OK) {
            int64_t to = in->dedup_first + DEDUP_PURGE_ROWS;
            tdi_bind_i64(s, 1, in->dedup_first);
            tdi_bind_i64(s, 2, to < in->dedupe.keep_row ? to : in->dedupe.keep_row);
            rc = run(in, s, err);
        }
    }
    return rc;
}

static enum td_err update_queue(struct td_broker_instance *in, struct tdd_emb_queue *q, bool final,
                                struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    enum td_err rc = tdi_db_statement(&in->writer, STMT_QUEUE_UPDATE,
                                      "UPDATE queue SET next_seq = ?2, depth = ?3, bytes = ?4, "
                                      "delivered_hi = ?5 WHERE id = ?1",
                                      &s, err);
    if (rc != TD_OK) {
        return rc;
    }
    /* Not beyond what there is, and never back, save at a clean end. */
    if (q->mark_next >= q->next_id) {
        q->mark_next = q->next_id - 1;
    }
    if (q->mark_next < q->mark && !final) {
        q->mark_next = q->mark;
    }
    tdi_bind_i64(s, 1, q->id);
    tdi_bind_i64(s, 2, q->next_id);
    tdi_bind_i64(s, 3, q->depth > 0 ? q->depth : 0);
    tdi_bind_i64(s, 4, q->bytes > 0 ? q->bytes : 0);
    tdi_bind_i64(s, 5, q->mark_next);
    return run(in, s, err);
}

static enum td_err write_all(struct td_broker_instance *in, struct tdd_emb_slice *s,
                             struct td_error *err)
{
    enum td_err rc = TD_OK;
    for (struct tdd_emb_queue *q = s->touched; q != NULL && rc == TD_OK; q = q->next_touched) {
        rc = prepare_queue(in, q, err);
        if (rc == TD_OK) {
            rc = insert_staged(in, q, err);
        }
        if (rc == TD_OK) {
            rc = delete_settled(in, q, err);
        }
        if (rc == TD_OK) {
            rc = update_queue(in, q, s->final, err);
        }
    }
    return rc == TD_OK ? write_dedupe(in, err) : rc;
}

static void undo(struct td_broker_instance *in, struct tdd_emb_slice *s)
{
    tdi_db_rollback(&in->writer);
    tdd_emb_dedupe_undo(&in->dedupe);
    for (struct tdd_emb_queue *q = s->touched; q != NULL; q = q->next_touched) {
        q->next_id = q->saved_next_id;
        q->depth = q->saved_depth;
        q->bytes = q->saved_bytes;
    }
}

enum td_err tdd_emb_write_slice(struct td_broker_instance *in, struct tdd_emb_slice *s,
                                bool *ret_wrote, struct td_error *err)
{
    enum td_err rc = stage(in, s, err);
    if (rc == TD_OK && s->touched == NULL) {
        *ret_wrote = false; /* nothing but duplicates */
        return TD_OK;
    }
    if (rc == TD_OK) {
        rc = tdi_db_begin(&in->writer, true, err);
    }
    if (rc == TD_OK) {
        rc = write_all(in, s, err);
    }
    if (rc == TD_OK) {
        rc = tdi_db_commit(&in->writer, err);
    }
    if (rc != TD_OK) {
        undo(in, s);
        return rc;
    }
    if (in->commits++ % DEDUP_PURGE_EVERY == 0 && in->dedup_first < in->dedupe.keep_row) {
        int64_t to = in->dedup_first + DEDUP_PURGE_ROWS;
        in->dedup_first = to < in->dedupe.keep_row ? to : in->dedupe.keep_row;
    }
    if (in->dedupe.order_count > 0) {
        tdd_emb_dedupe_keep(&in->dedupe, in->dedup_next++, tdi_mono(&in->clock));
    }
    *ret_wrote = true;
    return TD_OK;
}
