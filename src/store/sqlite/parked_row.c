/*
 * Rows of tidings_parked: making, changing and reading one, and its bounded history.
 *
 * Must not know: whether a change is allowed (settle.c, change.c).
 * Invariant: attempts and attempt_limit never go down.
 */
#include "store/sqlite/internal.h"

#include "base/json.h"
#include "base/str.h"
#include "core/deadletter.h"
#include "core/envelope.h"

#define ENVELOPE_BYTES_MAX (1024 * 1024)
#define HISTORY_REASON_BYTES_MAX 120

/* ---- history -------------------------------------------------------------------------------- */

/* Cut between two characters. */
static struct td_str cut(struct td_str s, size_t max)
{
    if (s.len > max) {
        s.len = max;
        while (s.len > 0 && ((unsigned char)s.data[s.len] & 0xC0) == 0x80) {
            s.len--;
        }
    }
    return s;
}

/* The members of a JSON array, as spans; only the last `max` are kept. false: not an array. */
static bool history_split(struct td_str json, struct td_str *entries, size_t max, size_t *ret_count)
{
    struct tdi_json j;
    struct tdi_json_token t;
    size_t count = 0;
    tdi_json_init(&j, json);
    if (tdi_json_next(&j, &t) != TDI_JSON_ARRAY_BEGIN) {
        return false;
    }
    enum tdi_json_kind kind = tdi_json_next(&j, &t);
    while (kind != TDI_JSON_ARRAY_END) {
        size_t from = t.offset;
        if (kind == TDI_JSON_ERROR || kind == TDI_JSON_END || !tdi_json_skip(&j, &t)) {
            return false;
        }
        size_t to = j.at > t.end ? j.at : t.end;
        if (count == max) {
            for (size_t i = 1; i < max; i++) {
                entries[i - 1] = entries[i];
            }
            count--;
        }
        entries[count++] = (struct td_str){json.data + from, to - from};
        kind = tdi_json_next(&j, &t);
    }
    *ret_count = count;
    return true;
}

static void history_entry(struct tdi_buf *b, td_time_us at, int32_t attempt, const char *result,
                          struct td_str code, struct td_str reason)
{
    char time[TDI_TIME_BYTES];
    bool first = true;
    tdi_buf_add_char(b, '{');
    tdi_json_add_member(b, &first, "at", tdi_str(tdi_time_format(at, time)));
    tdi_json_add_member_int(b, &first, "attempt", attempt);
    tdi_json_add_member(b, &first, "result", tdi_str(result));
    if (code.len > 0) {
        tdi_json_add_member(b, &first, "code", code);
    }
    if (reason.len > 0) {
        tdi_json_add_member(b, &first, "reason", cut(reason, HISTORY_REASON_BYTES_MAX));
    }
    tdi_buf_add_char(b, '}');
}

void tdd_history_add(struct tdi_buf *out, struct td_str history, td_time_us at, int32_t attempt,
                     const char *result, struct td_str code, struct td_str reason)
{
    struct td_str entries[TDD_HISTORY_ENTRIES_MAX - 1];
    size_t count = 0;
    if (!history_split(history, entries, TDD_HISTORY_ENTRIES_MAX - 1, &count)) {
        count = 0; /* somebody wrote into it; the new entry counts */
    }
    struct tdi_buf entry;
    tdi_buf_init(&entry, TDD_HISTORY_BYTES_MAX);
    history_entry(&entry, at, attempt, result, code, reason);
    size_t bytes = entry.len + 2;
    size_t from = count;
    while (from > 0 && bytes + entries[from - 1].len + 1 <= TDD_HISTORY_BYTES_MAX) {
        bytes += entries[--from].len + 1;
    }
    tdi_buf_add_char(out, '[');
    for (size_t i = from; i < count; i++) {
        tdi_buf_add_str(out, entries[i]);
        tdi_buf_add_char(out, ',');
    }
    tdi_buf_add_str(out, tdi_buf_str(&entry));
    tdi_buf_add_char(out, ']');
    tdi_buf_release(&entry);
}

/* ---- writing -------------------------------------------------------------------------------- */

static const char *result_name(enum td_outcome outcome)
{
    return outcome == TD_OUTCOME_DEAD ? "dead" : "retry";
}

static struct td_str code_text(enum td_dead_code code)
{
    return code == TD_DEAD_NONE ? TD_STR_NONE : tdi_str(tdi_dead_code_name(code));
}

static void bind_failure(sqlite3_stmt *stmt, int at, const struct tdd_parked_write *w,
                         struct td_str history, td_time_us now)
{
    tdi_bind_str(stmt, at, w->failed ? code_text(w->code) : TD_STR_NONE);
    tdi_bind_str(stmt, at + 1, w->failed ? w->reason : TD_STR_NONE);
    tdi_bind_str(stmt, at + 2, w->failed ? w->error_type : TD_STR_NONE);
    tdi_bind_str(stmt, at + 3, w->failed ? w->error_message : TD_STR_NONE);
    tdi_bind_str(stmt, at + 4, w->failed ? w->handler : TD_STR_NONE);
    tdi_bind_i64(stmt, at + 5, w->failed ? now : TD_TIME_NONE);
    tdi_bind_str(stmt, at + 6, history);
}

enum td_err tdd_parked_insert(struct tdd_sqlite *s, const struct tdd_parked_write *w,
                              const struct td_message *m, const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    struct tdi_buf envelope;
    struct tdi_buf history;
    td_time_us now = tdd_now(s);
    tdi_buf_init(&envelope, ENVELOPE_BYTES_MAX);
    tdi_buf_init(&history, TDD_HISTORY_BYTES_MAX);
    tdi_envelope_write(&envelope, m);
    if (w->failed) {
        tdd_history_add(&history, TD_STR_LIT("[]"), now, w->attempts, result_name(w->outcome),
                        code_text(w->code), w->reason);
    } else {
        tdi_buf_add_cstr(&history, "[]");
    }
    enum td_err rc = envelope.failed || history.failed ? tdd_nomem(op, err) : TD_OK;
    if (rc == TD_OK) {
        rc = tdd_stmt(s, TDD_SQL_PARKED_INSERT, &stmt, op, err);
    }
    if (rc == TD_OK) {
        tdi_bind_str(stmt, 1, w->consumer);
        tdi_bind_i64(stmt, 2, w->shard);
        tdi_bind_str(stmt, 3, w->ref.source);
        tdi_bind_str(stmt, 4, w->ref.id);
        tdi_bind_str(stmt, 5, m->type);
        tdi_bind_str(stmt, 6, m->key);
        tdi_bind_str(stmt, 7, tdi_str(tdi_outcome_name(w->outcome)));
        tdi_bind_i64(stmt, 8, w->due_at);
        tdi_bind_i64(stmt, 9, w->attempts);
        tdi_bind_i64(stmt, 10, w->attempt_limit);
        tdi_bind_i64(stmt, 11, w->alone);
        tdi_bind_i64(stmt, 12, w->blocks_key);
        tdi_bind_str(stmt, 13, tdi_buf_str(&envelope));
        tdi_bind_str(stmt, 14, m->topic);
        tdd_bind_body(stmt, 15, m->body, m->content_type);
        tdi_bind_str(stmt, 16, w->origin.len > 0 ? w->origin : TD_STR_NONE);
        bind_failure(stmt, 17, w, tdi_buf_str(&history), now);
        rc = tdd_run(s, stmt, NULL, op, err);
    }
    tdi_buf_release(&envelope);
    tdi_buf_release(&history);
    return rc;
}

/* The history of the row with one entry more. */
static enum td_err grown_history(struct tdd_sqlite *s, const struct tdd_parked_write *w,
                                 struct tdi_buf *out, bool *ret_found, const char *op,
                                 struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_PARKED_HISTORY, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, w->consumer);
    tdi_bind_str(stmt, 2, w->ref.source);
    tdi_bind_str(stmt, 3, w->ref.id);
    rc = tdd_step(s, stmt, ret_found, op, err);
    if (rc == TD_OK && *ret_found) {
        if (w->failed) {
            tdd_history_add(out, tdi_column_str(stmt, 0), tdd_now(s), w->attempts,
                            result_name(w->outcome), code_text(w->code), w->reason);
        } else {
            tdi_buf_add_str(out, tdi_column_str(stmt, 0));
        }
        (void)sqlite3_reset(stmt);
        rc = out->failed ? tdd_nomem(op, err) : TD_OK;
    }
    return rc;
}

static bool drops_body(enum td_outcome outcome)
{
    return outcome == TD_OUTCOME_EFFECT || outcome == TD_OUTCOME_DROPPED;
}

enum td_err tdd_parked_update(struct tdd_sqlite *s, const struct tdd_parked_write *w,
                              bool *ret_found, const char *op, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    struct tdi_buf history;
    /* What stands there may be longer than what we write. */
    tdi_buf_init(&history, 16 * TDD_HISTORY_BYTES_MAX);
    enum td_err rc = grown_history(s, w, &history, ret_found, op, err);
    if (rc == TD_OK && *ret_found) {
        rc = tdd_stmt(s, TDD_SQL_PARKED_UPDATE, &stmt, op, err);
    }
    if (stmt != NULL) {
        tdi_bind_str(stmt, 1, w->consumer);
        tdi_bind_str(stmt, 2, w->ref.source);
        tdi_bind_str(stmt, 3, w->ref.id);
        tdi_bind_str(stmt, 4, tdi_str(tdi_outcome_name(w->outcome)));
        tdi_bind_i64(stmt, 5, w->due_at);
        tdi_bind_i64(stmt, 6, w->attempts);
        tdi_bind_i64(stmt, 7, w->attempt_limit);
        tdi_bind_i64(stmt, 8, w->alone);
        tdi_bind_i64(stmt, 9, w->blocks_key);
        bind_failure(stmt, 10, w, tdi_buf_str(&history), tdd_now(s));
        tdi_bind_i64(stmt, 17, drops_body(w->outcome));
        tdi_bind_str(stmt, 18, w->origin.len > 0 ? w->origin : TD_STR_NONE);
        rc = tdd_run(s, stmt, NULL, op, err);
    }
    tdi_buf_release(&history);
    return rc;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool decode_texts(sqlite3_stmt *stmt, struct tdi_arena *a, struct td_parked_row *r)
{
    return tdd_copy_str(stmt, 1, a, &r->consumer) && tdd_copy_str(stmt, 13, a, &r->reason) &&
           tdd_copy_str(stmt, 14, a, &r->error_type) &&
           tdd_copy_str(stmt, 15, a, &r->error_message) && tdd_copy_str(stmt, 16, a, &r->handler) &&
           tdd_copy_str(stmt, 17, a, &r->origin) && tdd_copy_str(stmt, 18, a, &r->history);
}

static enum td_err decode_message(sqlite3_stmt *stmt, bool with_body, struct tdi_arena *a,
                                  struct td_message *m, const char *op, struct td_error *err)
{
    struct td_str envelope;
    struct td_str type;
    if (!tdd_copy_str(stmt, 21, a, &envelope)) {
        return tdd_nomem(op, err);
    }
    enum td_err rc = tdi_envelope_read(envelope, false, a, m, NULL);
    if (rc == TD_ERR_NOMEM) {
        return tdd_nomem(op, err);
    }
    if (rc != TD_OK) {
        /* Somebody edited it by hand; what the columns say can still be shown and handled. */
        *m = (struct td_message){.time = TD_TIME_NONE,
                                 .sequence = TD_NUMBER_NONE,
                                 .aggregate_version = TD_NUMBER_NONE,
                                 .deliver_at = TD_TIME_NONE,
                                 .expires_at = TD_TIME_NONE,
                                 .published_at = TD_TIME_NONE};
    }
    if (!tdd_copy_str(stmt, 3, a, &m->source) || !tdd_copy_str(stmt, 4, a, &m->id) ||
        !tdd_copy_str(stmt, 22, a, &m->topic) || !tdd_copy_str(stmt, 24, a, &m->key) ||
        !tdd_copy_str(stmt, 25, a, &type)) {
        return tdd_nomem(op, err);
    }
    m->type = type;
    if (with_body && !tdd_copy_bytes(stmt, 23, a, &m->body)) {
        return tdd_nomem(op, err);
    }
    return TD_OK;
}

enum td_err tdd_parked_decode(struct tdd_sqlite *s, sqlite3_stmt *stmt, bool with_body,
                              struct tdi_arena *a, struct td_parked_row *ret, const char *op,
                              struct td_error *err)
{
    (void)s;
    struct td_parked_row r = {
        .arrival = sqlite3_column_int64(stmt, 0),
        .shard = (int32_t)sqlite3_column_int64(stmt, 2),
        .attempts = (int32_t)sqlite3_column_int64(stmt, 6),
        .attempt_limit = (int32_t)sqlite3_column_int64(stmt, 7),
        .revision = sqlite3_column_int64(stmt, 8),
        .due_at = tdi_column_i64(stmt, 9),
        .first_failed_at = tdi_column_i64(stmt, 10),
        .last_failed_at = tdi_column_i64(stmt, 11),
        .blocks_key = sqlite3_column_int64(stmt, 19) != 0,
        .body_dropped = sqlite3_column_int64(stmt, 20) != 0,
    };
    struct td_str code = tdi_column_str(stmt, 12);
    if (!tdi_outcome_parse(tdi_column_str(stmt, 5), &r.outcome) ||
        (code.len > 0 && !tdi_dead_code_parse(code, &r.code))) {
        return tdd_fail(TD_ERR_CORRUPT, op, err,
                        "row %lld of tidings_parked has an unknown outcome or code",
                        (long long)r.arrival);
    }
    if (!decode_texts(stmt, a, &r)) {
        return tdd_nomem(op, err);
    }
    enum td_err rc = decode_message(stmt, with_body, a, &r.message, op, err);
    if (rc == TD_OK) {
        *ret = r;
    }
    return rc;
}
