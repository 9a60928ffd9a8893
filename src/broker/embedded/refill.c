/*
 * From disk into a queue's window, and what waits in queues. Reads by the read connection, one short
 * statement at a time: no snapshot is held, so the WAL can always be begun anew.
 *
 * Must not know: commits in hand. What is not visible yet is not read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "broker/embedded/internal.h"

/* ---- messages ---- */

static enum td_err select_range(struct td_broker_instance *in, struct tdd_emb_queue *q,
                                sqlite3_stmt **ret, struct td_error *err)
{
    if (q->select_range == NULL) {
        char sql[160];
        (void)snprintf(sql, sizeof(sql),
                       "SELECT id, pub, env, body FROM q_%" PRId64
                       " WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3",
                       q->id);
        int rc = sqlite3_prepare_v3(in->reader.handle, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                    &q->select_range, NULL);
        if (rc != SQLITE_OK) {
            return tdi_db_error(&in->reader, rc, "fetch", "cannot read a queue", err);
        }
    }
    *ret = q->select_range;
    return TD_OK;
}

static struct tdd_emb_entry *entry_of(sqlite3_stmt *s)
{
    struct td_bytes envelope = tdi_column_bytes(s, 2);
    struct td_bytes body = tdi_column_bytes(s, 3);
    struct tdd_emb_entry *e = tdd_emb_entry_new(envelope.len, body.len);
    if (e != NULL) {
        e->published_at = tdi_column_i64(s, 1);
        e->body_null = body.data == NULL;
        if (envelope.data != NULL) {
            memcpy(e->data, envelope.data, envelope.len);
        }
        if (body.data != NULL) {
            memcpy(e->data + envelope.len, body.data, body.len);
        }
    }
    return e;
}

struct slice {
    int64_t from, to;
    struct tdd_emb_list list;
    int64_t ids[TDD_EMB_REFILL_ROWS];
    bool complete; /* nothing is left up to `to` */
};

/* reader_lock held, not the lock. */
static enum td_err read_slice(struct td_broker_instance *in, struct tdd_emb_queue *q,
                              struct slice *sl, struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    enum td_err rc = select_range(in, q, &s, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(s, 1, sl->from);
    tdi_bind_i64(s, 2, sl->to);
    tdi_bind_i64(s, 3, TDD_EMB_REFILL_ROWS);
    size_t bytes = 0;
    int step = SQLITE_ROW;
    while (sl->list.count < TDD_EMB_REFILL_ROWS && bytes < TDD_EMB_REFILL_BYTES &&
           (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct tdd_emb_entry *e = entry_of(s);
        if (e == NULL) {
            /* What was read so far is good. */
            rc = sl->list.count > 0 ? TD_OK : tdd_emb_nomem(err);
            break;
        }
        sl->ids[sl->list.count] = sqlite3_column_int64(s, 0);
        tdd_emb_list_add(&sl->list, e);
        bytes += e->envelope_len + e->body_len;
    }
    sl->complete = step == SQLITE_DONE;
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        rc = tdi_db_error(&in->reader, step, "fetch", "cannot read a queue", err);
    }
    (void)sqlite3_reset(s);
    return rc;
}

enum td_err tdd_emb_refill(struct td_broker_instance *in, struct tdd_emb_queue *q,
                           struct td_error *err)
{
    struct slice sl = {.from = q->cursor, .to = q->visible};
    q->refilling = true;
    (void)pthread_mutex_unlock(&in->lock);
    (void)pthread_mutex_lock(&in->reader_lock);
    enum td_err rc = read_slice(in, q, &sl, err);
    (void)pthread_mutex_unlock(&in->reader_lock);
    (void)pthread_mutex_lock(&in->lock);
    struct tdd_emb_entry *e = NULL;
    size_t n = 0;
    size_t added = 0;
    bool room = true;
    while ((e = tdd_emb_list_take(&sl.list)) != NULL) {
        int64_t id = sl.ids[n++];
        /* The rest is read again later if there is no memory for the window. */
        room = room && rc == TD_OK && tdd_emb_window_add(in, q, id, e, id <= q->delivered_hi);
        if (room) {
            q->cursor = id;
            added++;
        }
        tdd_emb_entry_unref(e);
    }
    if (rc == TD_OK && room && sl.complete) {
        q->cursor = sl.to;
    }
    q->refilling = false;
    for (struct tdd_emb_con *c = q->consumers; c != NULL; c = c->next) {
        (void)pthread_cond_signal(&c->cond);
    }
    return rc == TD_OK && !room && added == 0 ? tdd_emb_nomem(err) : rc;
}

/* ---- lag ---- */

/* Publication time of the first message from `from` on, or TD_TIME_NONE. */
static enum td_err oldest_after(struct tdi_db *db, int64_t queue, int64_t from, td_time_us *ret,
                                struct td_error *err)
{
    char sql[96];
    sqlite3_stmt *s = NULL;
    (void)snprintf(sql, sizeof(sql),
                   "SELECT pub FROM q_%" PRId64 " WHERE id > ?1 ORDER BY id LIMIT 1", queue);
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    if (rc == SQLITE_OK) {
        tdi_bind_i64(s, 1, from);
        rc = sqlite3_step(s);
    }
    enum td_err code = TD_OK;
    if (rc == SQLITE_ROW) {
        *ret = tdi_column_i64(s, 0);
    } else if (rc == SQLITE_DONE) {
        *ret = TD_TIME_NONE;
    } else {
        code = tdi_db_error(db, rc, "lag", "cannot read a queue", err);
    }
    (void)sqlite3_finalize(s);
    return code;
}

/* Lock held, let go for the read of one row. */
static enum td_err lag_of(struct td_broker_instance *in, struct tdd_emb_queue *q,
                          struct td_lag *ret, struct td_error *err)
{
    struct td_lag lag = {.consumer = q->name, .oldest_us = TD_TIME_NONE};
    struct tdd_emb_item *first = tdd_emb_window_first(q);
    enum td_err rc = TD_OK;
    if (first != NULL) {
        lag.oldest_us = first->entry->published_at;
    } else if (q->cursor < q->visible) {
        int64_t from = q->cursor;
        (void)pthread_mutex_unlock(&in->lock);
        (void)pthread_mutex_lock(&in->reader_lock);
        rc = oldest_after(&in->reader, q->id, from, &lag.oldest_us, err);
        (void)pthread_mutex_unlock(&in->reader_lock);
        (void)pthread_mutex_lock(&in->lock);
    }
    lag.in_flight = q->in_flight;
    lag.waiting = q->live - q->in_flight;
    *ret = lag;
    return rc;
}

enum td_err tdd_emb_lag(struct td_broker_instance *in, struct td_str consumer, struct tdi_arena *a,
                        struct td_lag **ret, size_t *ret_count, struct td_error *err)
{
    enum td_err rc = TD_OK;
    size_t n = 0;
    struct td_lag *lags = tdi_arena_array(a, TDD_EMB_QUEUES_MAX, sizeof(*lags));
    if (lags == NULL) {
        return tdd_emb_nomem(err);
    }
    (void)pthread_mutex_lock(&in->lock);
    for (size_t i = 0; i < in->queues_count && rc == TD_OK; i++) {
        struct tdd_emb_queue *q = in->queue_list[i];
        if (tdi_str_empty(consumer) || tdi_str_eq(consumer, q->name)) {
            rc = lag_of(in, q, &lags[n], err);
            if (rc == TD_OK && !tdi_arena_str(a, q->name, &lags[n++].consumer)) {
                rc = tdd_emb_nomem(err);
            }
        }
    }
    (void)pthread_mutex_unlock(&in->lock);
    if (rc == TD_OK && n == 0 && !tdi_str_empty(consumer)) {
        return td_error_set(err, TD_ERR_NOT_FOUND, "the broker has no queue %.*s",
                            (int)consumer.len, consumer.data);
    }
    if (rc == TD_OK) {
        *ret = lags;
        *ret_count = n;
    }
    return rc;
}

/* Without the owner: what the last commit says. Leases are the owner's alone, so none is in flight. */
enum td_err tdd_emb_lag_file(struct tdi_db *db, struct td_str consumer, struct tdi_arena *a,
                             struct td_lag **ret, size_t *ret_count, struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    struct td_lag *lags = tdi_arena_array(a, TDD_EMB_QUEUES_MAX, sizeof(*lags));
    if (lags == NULL) {
        return tdd_emb_nomem(err);
    }
    int rc = sqlite3_prepare_v2(db->handle,
                                "SELECT id, name, depth FROM queue WHERE ?1 IS NULL OR name = ?1 "
                                "ORDER BY id",
                                -1, &s, NULL);
    if (rc == SQLITE_OK) {
        tdi_bind_str(s, 1, tdi_str_empty(consumer) ? TD_STR_NONE : consumer);
    }
    enum td_err code = TD_OK;
    size_t n = 0;
    while (code == TD_OK && rc == SQLITE_OK && n < TDD_EMB_QUEUES_MAX &&
           (rc = sqlite3_step(s)) == SQLITE_ROW) {
        lags[n] = (struct td_lag){.waiting = sqlite3_column_int64(s, 2)};
        code =
            tdi_arena_str(a, tdi_column_str(s, 1), &lags[n].consumer) ? TD_OK : tdd_emb_nomem(err);
        if (code == TD_OK) {
            code = oldest_after(db, sqlite3_column_int64(s, 0), 0, &lags[n].oldest_us, err);
        }
        n++;
        rc = SQLITE_OK;
    }
    if (code == TD_OK && rc != SQLITE_DONE && rc != SQLITE_OK) {
        code = tdi_db_error(db, rc, "lag", "cannot read the queues", err);
    }
    (void)sqlite3_finalize(s);
    if (code == TD_OK && n == 0 && !tdi_str_empty(consumer)) {
        code = td_error_set(err, TD_ERR_NOT_FOUND, "the broker has no queue %.*s",
                            (int)consumer.len, consumer.data);
    }
    if (code == TD_OK) {
        *ret = lags;
        *ret_count = n;
    }
    return code;
}
