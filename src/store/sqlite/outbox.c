/*
 * The outbox table: reading it in order, making what was read durable, finding and adding rows.
 *
 * Must not know: relays and their state; see relay.c.
 * Invariant: reading writes nothing, and no snapshot outlives the call.
 */
#include "store/sqlite/internal.h"

#include "base/str.h"
#include "core/envelope.h"

#define READ_ROWS_MAX 4096

/* AUTOINCREMENT never gives a number twice: a sequence behind the position is another table. */
static enum td_err check_sequence(struct tdd_sqlite *s, int64_t after, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    int64_t last = 0;
    enum td_err rc = tdd_stmt(s, TDD_SQL_OUTBOX_SEQUENCE, &stmt, "outbox_read", err);
    if (rc == TD_OK) {
        rc = tdd_step(s, stmt, &row, "outbox_read", err);
    }
    if (rc == TD_OK && row) {
        last = sqlite3_column_int64(stmt, 0);
        (void)sqlite3_reset(stmt);
    }
    if (rc == TD_OK && last < after) {
        return tdd_fail(TD_ERR_REBUILT, "outbox_read", err,
                        "%s: tidings_outbox ends at %lld, before the relay's position %lld: it was "
                        "made anew or restored; see tidings outbox rebase",
                        s->db.path, (long long)last, (long long)after);
    }
    return rc;
}

static enum td_err rows_waiting(struct tdd_sqlite *s, int64_t after, size_t max, size_t *ret,
                                struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(s, TDD_SQL_OUTBOX_WAITING, &stmt, "outbox_read", err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(stmt, 1, after);
    tdi_bind_i64(stmt, 2, (int64_t)max);
    rc = tdd_step(s, stmt, &row, "outbox_read", err);
    if (rc == TD_OK && row) {
        *ret = (size_t)sqlite3_column_int64(stmt, 0);
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

static struct td_bytes position_data(struct td_str identity)
{
    return (struct td_bytes){identity.data, identity.len};
}

enum td_err tdd_outbox_read(struct td_store *store, const struct td_position *after, size_t max,
                            size_t bytes_max, struct tdi_arena *a, struct td_outbox_row **ret_rows,
                            size_t *ret_count, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    int64_t seq = 0;
    size_t limit = 0;
    size_t count = 0;
    size_t bytes = 0;
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_position_seq(s, after, "outbox_read", &seq, err);
    if (rc == TD_OK) {
        rc = check_sequence(s, seq, err);
    }
    if (rc == TD_OK) {
        rc = rows_waiting(s, seq, max < READ_ROWS_MAX ? max : READ_ROWS_MAX, &limit, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    struct td_str identity = TD_STR_NONE;
    struct td_outbox_row *rows = tdi_arena_array(a, limit, sizeof(*rows));
    if (rows == NULL || !tdi_arena_str(a, tdi_str(s->identity), &identity)) {
        return tdd_nomem("outbox_read", err);
    }
    if (limit > 0) {
        rc = tdd_stmt(s, TDD_SQL_OUTBOX_READ, &stmt, "outbox_read", err);
    }
    if (stmt != NULL) {
        tdi_bind_i64(stmt, 1, seq);
        tdi_bind_i64(stmt, 2, (int64_t)limit);
    }
    while (rc == TD_OK && count < limit && bytes < bytes_max) {
        bool row = false;
        rc = tdd_step(s, stmt, &row, "outbox_read", err);
        if (rc != TD_OK || !row) {
            break;
        }
        rc = tdd_outbox_decode(s, stmt, a, &rows[count], err);
        if (rc == TD_OK) {
            rows[count].position.data = position_data(identity);
            bytes += rows[count++].message.body.len;
        }
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    /* What is there already is better than nothing at all. */
    if (rc == TD_ERR_NOMEM && count > 0) {
        rc = TD_OK;
    }
    if (rc == TD_OK) {
        *ret_rows = rows;
        *ret_count = count;
    }
    return rc;
}

enum td_err tdd_outbox_durable(struct td_store *store, struct td_error *err)
{
    return tdi_db_sync(&tdd_session(store)->db, err);
}

enum td_err tdd_outbox_find(struct td_store *store, struct td_str id, struct tdi_arena *a,
                            struct td_outbox_row *ret_row, bool *ret_found, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct td_outbox_row found = {.defect = TD_STR_NONE};
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = tdd_stmt(s, TDD_SQL_OUTBOX_FIND, &stmt, "outbox_find", err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, id);
    rc = tdd_step(s, stmt, &row, "outbox_find", err);
    if (rc == TD_OK && row) {
        rc = tdd_outbox_decode(s, stmt, a, &found, err);
        (void)sqlite3_reset(stmt);
        struct td_str identity = TD_STR_NONE;
        if (rc == TD_OK && !tdi_arena_str(a, tdi_str(s->identity), &identity)) {
            rc = tdd_nomem("outbox_find", err);
        }
        found.position.data = position_data(identity);
    }
    if (rc == TD_OK) {
        *ret_row = row ? found : *ret_row;
        *ret_found = row;
    }
    return rc;
}

static void bind_message(sqlite3_stmt *stmt, const struct td_message *m, struct td_str headers,
                         td_time_us now)
{
    tdi_bind_str(stmt, 1, m->id);
    tdi_bind_str(stmt, 2, m->topic);
    tdi_bind_str(stmt, 3, m->type);
    tdi_bind_str(stmt, 4, m->key);
    tdd_bind_body(stmt, 5, m->body, m->content_type);
    tdi_bind_str(stmt, 6, headers);
    tdi_bind_str(stmt, 7, m->content_type);
    tdi_bind_str(stmt, 8, m->data_schema);
    tdi_bind_str(stmt, 9, m->aggregate_type);
    tdi_bind_i64(stmt, 10, m->aggregate_version);
    tdi_bind_str(stmt, 11, m->correlation_id);
    tdi_bind_str(stmt, 12, m->causation_id);
    tdi_bind_str(stmt, 13, m->traceparent);
    tdi_bind_str(stmt, 14, m->tracestate);
    tdi_bind_str(stmt, 15, m->baggage);
    tdi_bind_str(stmt, 16, m->tenant);
    tdi_bind_i64(stmt, 17, m->time == TD_TIME_NONE ? now : m->time);
    tdi_bind_i64(stmt, 18, m->deliver_at);
    tdi_bind_i64(stmt, 19, m->expires_at);
    tdi_bind_str(stmt, 20, m->data_ref);
}

enum td_err tdd_outbox_insert(struct tdd_sqlite *s, const struct td_message *m, bool again,
                              const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    struct tdi_buf headers;
    tdi_buf_init(&headers, 8 * TD_HEADERS_BYTES_MAX);
    if (m->headers_count > 0) {
        tdi_headers_write(&headers, m->headers, m->headers_count);
    }
    enum td_err rc = headers.failed ? tdd_nomem(op, err) : TD_OK;
    if (rc == TD_OK) {
        rc = tdd_stmt(s, again ? TDD_SQL_OUTBOX_INSERT_AGAIN : TDD_SQL_OUTBOX_INSERT, &stmt, op,
                      err);
    }
    if (rc == TD_OK) {
        bind_message(stmt, m, m->headers_count > 0 ? tdi_buf_str(&headers) : TD_STR_NONE,
                     tdd_now(s));
        rc = tdd_run(s, stmt, NULL, op, err);
    }
    tdi_buf_release(&headers);
    return rc;
}

enum td_err tdd_outbox_add(struct td_store *store, const struct td_message *messages, size_t count,
                           struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct td_error why = {.code = TD_OK};
    enum td_err rc = tdd_tx_begin(s, "outbox_add", err);
    if (rc != TD_OK) {
        return rc;
    }
    for (size_t i = 0; i < count && rc == TD_OK; i++) {
        rc = tdd_outbox_insert(s, &messages[i], false, "outbox_add", &why);
        if (rc == TD_ERR_STATEMENT && tdi_str_is(tdi_str(why.sqlstate), "23505")) {
            rc = tdd_fail(TD_ERR_CONFLICT, "outbox_add", &why,
                          "message %zu has an id that is in the outbox already", i + 1);
        }
    }
    if (rc != TD_OK && err != NULL) {
        *err = why;
    }
    return tdd_tx_end(s, rc, true, err);
}
