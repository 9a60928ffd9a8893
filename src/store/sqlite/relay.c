/*
 * The relay's side: positions, settling batches, purging what every relay covers, and what an
 * operator asks about them.
 *
 * Must not know: how rows are read (outbox.c).
 * Invariants: the lease of a relay has the relay's name; a position never goes back except by
 * relay_rebase(); dead rows, evidence and position are one transaction.
 */
#include "store/sqlite/internal.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "core/deadletter.h"

#define PURGE_PINNED_MAX 1024 /* rows that are too young and are looked past */
#define PUBLISHED_FIND_MAX 64
#define RELAY_NAME_BYTES_MAX 512
#define POSITION_TEXT_BYTES 128 /* an identity has 32 */

/* ---- positions are stored as "SEQ@IDENTITY" ------------------------------------------------- */

/* text may be the statement's own: the data is copied. false: out of memory. */
static bool position_from(struct td_str text, int64_t order, struct tdi_arena *a,
                          struct td_position *ret)
{
    const char *at = text.len > 0 ? memchr(text.data, '@', text.len) : NULL;
    size_t skip = at != NULL ? (size_t)(at - text.data) + 1 : 0;
    ret->order = order;
    return tdi_arena_bytes(a, (struct td_bytes){text.data + skip, text.len - skip}, &ret->data);
}

static struct td_str position_text(const struct td_position *p, char out[POSITION_TEXT_BYTES])
{
    if (p->data.len == 0) {
        return TD_STR_LIT("");
    }
    int len = snprintf(out, POSITION_TEXT_BYTES, "%lld@%.*s", (long long)p->order, (int)p->data.len,
                       (const char *)p->data.data);
    return (struct td_str){out, len < POSITION_TEXT_BYTES ? (size_t)len : POSITION_TEXT_BYTES - 1};
}

/* Name of the consumer whose parked rows are the dead letters of the relay. */
static enum td_err dead_consumer(struct td_str relay, char out[RELAY_NAME_BYTES_MAX],
                                 struct td_str *ret, struct td_error *err)
{
    int len = snprintf(out, RELAY_NAME_BYTES_MAX, "relay:%.*s", (int)relay.len, relay.data);
    if (len < 0 || len >= RELAY_NAME_BYTES_MAX) {
        return tdd_fail(TD_ERR_LIMIT, "relay_settle", err, "the name of the relay is too long");
    }
    *ret = (struct td_str){out, (size_t)len};
    return TD_OK;
}

/* What tidings_position says of one relay. */
struct stored {
    bool found;
    struct td_position at; /* data only if an arena was given */
    int64_t published;
};

static enum td_err position_read(struct tdd_sqlite *s, struct td_str relay, struct tdi_arena *a,
                                 const char *op, struct stored *ret, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    *ret = (struct stored){.found = false};
    enum td_err rc = tdd_stmt(s, TDD_SQL_RELAY_POSITION, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, relay);
    rc = tdd_step(s, stmt, &ret->found, op, err);
    if (rc == TD_OK && ret->found) {
        ret->at.order = sqlite3_column_int64(stmt, 1);
        ret->published = sqlite3_column_int64(stmt, 2);
        if (a != NULL && !position_from(tdi_column_str(stmt, 0), ret->at.order, a, &ret->at)) {
            rc = tdd_nomem(op, err);
        }
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

static enum td_err not_declared(struct td_str relay, const char *op, struct td_error *err)
{
    return tdd_fail(TD_ERR_NOT_FOUND, op, err, "the relay '%.*s' is not declared in this database",
                    (int)relay.len, relay.data);
}

enum td_err tdd_relay_declare(struct td_store *store, struct td_str relay, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    struct stored known;
    enum td_err rc = position_read(s, relay, NULL, "relay_declare", &known, err);
    if (rc != TD_OK || known.found) {
        return rc;
    }
    rc = tdd_tx_begin(s, "relay_declare", err);
    if (rc != TD_OK) {
        return rc;
    }
    rc = tdd_stmt(s, TDD_SQL_RELAY_DECLARE, &stmt, "relay_declare", err);
    if (rc == TD_OK) {
        tdi_bind_str(stmt, 1, relay);
        tdi_bind_i64(stmt, 2, tdd_now(s));
        rc = tdd_run(s, stmt, NULL, "relay_declare", err);
    }
    return tdd_tx_end(s, rc, true, err);
}

enum td_err tdd_relay_position(struct td_store *store, struct td_str relay, struct tdi_arena *a,
                               struct td_position *ret_position, struct td_error *err)
{
    struct stored stored;
    enum td_err rc = position_read(tdd_session(store), relay, a, "relay_position", &stored, err);
    if (rc == TD_OK && !stored.found) {
        return not_declared(relay, "relay_position", err);
    }
    if (rc == TD_OK) {
        *ret_position = stored.at;
    }
    return rc;
}

/* ---- settling -------------------------------------------------------------------------------- */

static enum td_err park_dead(struct tdd_sqlite *s, struct td_str consumer,
                             const struct td_relay_dead *dead, struct td_error *err)
{
    struct td_message_ref ref = {dead->message->source, dead->message->id};
    struct td_inbox_state state;
    enum td_err rc = tdd_inbox_state(s, consumer, &ref, &state, "relay_settle", err);
    /* Known from before a rebase: its row stays as the operator left it. */
    if (rc != TD_OK || state.outcome != TD_OUTCOME_NONE) {
        return rc;
    }
    char origin[64];
    (void)snprintf(origin, sizeof(origin), "{\"seq\":%lld}", (long long)dead->message->sequence);
    rc = tdd_inbox_insert(s, consumer, &ref, TD_OUTCOME_DEAD, 1, tdi_str(origin), TD_TIME_NONE,
                          "relay_settle", err);
    if (rc != TD_OK) {
        return rc;
    }
    struct tdd_parked_write w = {
        .consumer = consumer,
        .ref = ref,
        .outcome = TD_OUTCOME_DEAD,
        .due_at = TD_TIME_NONE,
        .attempts = 1,
        .attempt_limit = 1,
        .failed = true,
        .code = dead->code,
        .reason = dead->reason,
        .handler = TD_STR_LIT("relay"),
        .origin = tdi_str(origin),
    };
    return tdd_parked_insert(s, &w, dead->message, "relay_settle", err);
}

static enum td_err add_evidence(struct tdd_sqlite *s, const struct td_relay_settle *settle,
                                struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_PUBLISHED_ADD, &stmt, "relay_settle", err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, settle->relay);
    tdi_bind_i64(stmt, 2, settle->from_seq);
    tdi_bind_i64(stmt, 3, settle->to_seq);
    tdi_bind_i64(stmt, 4, settle->published);
    tdi_bind_i64(stmt, 5, tdd_now(s));
    tdi_bind_str(stmt, 6, settle->evidence);
    return tdd_run(s, stmt, NULL, "relay_settle", err);
}

static enum td_err move_position(struct tdd_sqlite *s, const struct td_relay_settle *settle,
                                 struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    char text[POSITION_TEXT_BYTES];
    int64_t seq = 0;
    int64_t changed = 0;
    enum td_err rc = tdd_position_seq(s, &settle->position, "relay_settle", &seq, err);
    if (rc == TD_OK) {
        rc = tdd_stmt(s, TDD_SQL_RELAY_MOVE, &stmt, "relay_settle", err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, settle->relay);
    tdi_bind_str(stmt, 2, position_text(&settle->position, text));
    tdi_bind_i64(stmt, 3, seq);
    tdi_bind_i64(stmt, 4, settle->published);
    tdi_bind_i64(stmt, 5, tdd_now(s));
    rc = tdd_run(s, stmt, &changed, "relay_settle", err);
    if (rc == TD_OK && changed == 0) {
        return tdd_fail(TD_ERR_CONFLICT, "relay_settle", err,
                        "the relay '%.*s' is not declared, or its position is past this one",
                        (int)settle->relay.len, settle->relay.data);
    }
    return rc;
}

static enum td_err settle_in_tx(struct tdd_sqlite *s, const struct td_relay_settle *settle,
                                struct td_error *err)
{
    char name[RELAY_NAME_BYTES_MAX];
    struct td_str consumer = TD_STR_NONE;
    enum td_err rc = dead_consumer(settle->relay, name, &consumer, err);
    if (rc == TD_OK) {
        rc = tdd_fence_check(s, settle->relay, settle->fence, "relay_settle", err);
    }
    if (rc == TD_OK) {
        rc = move_position(s, settle, err);
    }
    for (size_t i = 0; i < settle->dead_count && rc == TD_OK; i++) {
        rc = park_dead(s, consumer, &settle->dead[i], err);
    }
    if (rc == TD_OK && settle->from_seq <= settle->to_seq && settle->to_seq > 0) {
        rc = add_evidence(s, settle, err);
    }
    return rc;
}

enum td_err tdd_relay_settle(struct td_store *store, const struct td_relay_settle *settle,
                             struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    enum td_err rc = tdd_tx_begin_soon(s, "relay_settle", err);
    if (rc != TD_OK) {
        return rc;
    }
    return tdd_tx_end(s, settle_in_tx(s, settle, err), true, err);
}

/* ---- purging --------------------------------------------------------------------------------- */

/* Evidence of rows that are all gone. */
static enum td_err prune_published(struct tdd_sqlite *s, size_t max, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_PUBLISHED_PRUNE, &stmt, "outbox_purge", err);
    if (rc == TD_OK) {
        tdi_bind_i64(stmt, 1, (int64_t)max);
        rc = tdd_run(s, stmt, NULL, "outbox_purge", err);
    }
    return rc;
}

enum td_err tdd_outbox_purge(struct td_store *store, td_time_us keep_us, size_t max,
                             size_t *ret_removed, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    int64_t removed = 0;
    enum td_err rc = tdd_tx_begin_soon(s, "outbox_purge", err);
    if (rc != TD_OK) {
        return rc;
    }
    rc = tdd_stmt(s, TDD_SQL_OUTBOX_PURGE, &stmt, "outbox_purge", err);
    if (rc == TD_OK) {
        tdi_bind_i64(stmt, 1, (int64_t)max + PURGE_PINNED_MAX);
        tdi_bind_i64(stmt, 2, tdd_now(s) - keep_us);
        tdi_bind_i64(stmt, 3, (int64_t)max);
        rc = tdd_run(s, stmt, &removed, "outbox_purge", err);
    }
    if (rc == TD_OK && removed > 0) {
        rc = prune_published(s, max, err);
    }
    rc = tdd_tx_end(s, rc, false, err);
    if (rc == TD_OK) {
        *ret_removed = (size_t)removed;
    }
    return rc;
}

/* ---- operator -------------------------------------------------------------------------------- */

static enum td_err write_position(struct tdd_sqlite *s, struct td_str relay,
                                  const struct td_position *to, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    char text[POSITION_TEXT_BYTES];
    int64_t seq = 0;
    enum td_err rc = tdd_position_seq(s, to, "relay_rebase", &seq, err);
    if (rc == TD_OK) {
        rc = tdd_stmt(s, TDD_SQL_RELAY_REBASE, &stmt, "relay_rebase", err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, relay);
    tdi_bind_str(stmt, 2, position_text(to, text));
    tdi_bind_i64(stmt, 3, seq);
    tdi_bind_i64(stmt, 4, tdd_now(s));
    return tdd_run(s, stmt, NULL, "relay_rebase", err);
}

static enum td_err audit_rebase(struct tdd_sqlite *s, struct td_str relay,
                                const struct td_position *from, const struct td_position *to,
                                struct td_str actor, struct td_error *err)
{
    struct tdi_buf detail;
    char text[POSITION_TEXT_BYTES];
    bool first = true;
    tdi_buf_init(&detail, 4096);
    tdi_buf_add_char(&detail, '{');
    tdi_json_add_member(&detail, &first, "from", position_text(from, text));
    tdi_json_add_member(&detail, &first, "to", position_text(to, text));
    tdi_buf_add_char(&detail, '}');
    struct tdd_audit entry = {
        .actor = actor, .action = "rebase", .consumer = relay, .detail = tdi_buf_str(&detail)};
    enum td_err rc = detail.failed ? tdd_nomem("relay_rebase", err)
                                   : tdd_audit_add(s, &entry, "relay_rebase", err);
    tdi_buf_release(&detail);
    return rc;
}

/* Nobody may work with the old position while it is changed. */
static enum td_err end_owner(struct tdd_sqlite *s, struct td_str relay, int64_t fence,
                             struct td_error *err)
{
    bool alive = false;
    int64_t found = 0;
    enum td_err rc = tdd_lease_alive(s, relay, &alive, &found, err);
    if (rc != TD_OK || !alive) {
        return rc;
    }
    if (fence == 0 || fence != found) {
        return tdd_fail(TD_ERR_OWNED, "relay_rebase", err, "the relay '%.*s' runs; stop it first",
                        (int)relay.len, relay.data);
    }
    return tdd_lease_end(s, relay, "relay_rebase", err);
}

static enum td_err rebase_in_tx(struct tdd_sqlite *s, struct td_str relay, int64_t fence,
                                const struct td_position *to, struct td_str actor,
                                struct td_error *err)
{
    struct tdi_arena a;
    struct stored from;
    tdi_arena_init(&a, 2 * TD_POSITION_BYTES_MAX);
    enum td_err rc = end_owner(s, relay, fence, err);
    if (rc == TD_OK) {
        rc = position_read(s, relay, &a, "relay_rebase", &from, err);
    }
    if (rc == TD_OK && !from.found) {
        rc = not_declared(relay, "relay_rebase", err);
    }
    if (rc == TD_OK) {
        rc = write_position(s, relay, to, err);
    }
    if (rc == TD_OK) {
        rc = audit_rebase(s, relay, &from.at, to, actor, err);
    }
    tdi_arena_release(&a);
    return rc;
}

enum td_err tdd_relay_rebase(struct td_store *store, struct td_str relay, int64_t fence,
                             const struct td_position *to, struct td_str actor,
                             struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    enum td_err rc = tdd_tx_begin(s, "relay_rebase", err);
    if (rc != TD_OK) {
        return rc;
    }
    return tdd_tx_end(s, rebase_in_tx(s, relay, fence, to, actor, err), true, err);
}

enum td_err tdd_relay_stats(struct td_store *store, struct td_str relay,
                            struct td_relay_stats *ret_stats, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct td_relay_stats stats = {.oldest_pending_us = TD_TIME_NONE};
    struct stored stored;
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    enum td_err rc = position_read(s, relay, NULL, "relay_stats", &stored, err);
    stats.declared = stored.found;
    stats.position = stored.at.order;
    stats.published_total = stored.published;
    if (rc == TD_OK) {
        rc = tdd_stmt(s, TDD_SQL_OUTBOX_PENDING, &stmt, "relay_stats", err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(stmt, 1, stats.position);
    tdi_bind_i64(stmt, 2, TDD_COUNT_MAX);
    rc = tdd_step(s, stmt, &row, "relay_stats", err);
    if (rc == TD_OK && row) {
        stats.pending = sqlite3_column_int64(stmt, 0);
        stats.oldest_pending_us = tdi_column_i64(stmt, 1);
        (void)sqlite3_reset(stmt);
    }
    if (rc == TD_OK) {
        *ret_stats = stats;
    }
    return rc;
}

enum td_err tdd_published_find(struct td_store *store, int64_t seq, struct tdi_arena *a,
                               struct td_published_row **ret_rows, size_t *ret_count,
                               struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    sqlite3_stmt *stmt = NULL;
    size_t count = 0;
    struct td_published_row *rows = tdi_arena_array(a, PUBLISHED_FIND_MAX, sizeof(*rows));
    if (rows == NULL) {
        return tdd_nomem("published_find", err);
    }
    enum td_err rc = tdd_stmt(s, TDD_SQL_PUBLISHED_FIND, &stmt, "published_find", err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_i64(stmt, 1, seq);
    tdi_bind_i64(stmt, 2, PUBLISHED_FIND_MAX);
    bool row = true;
    while (rc == TD_OK && count < PUBLISHED_FIND_MAX) {
        rc = tdd_step(s, stmt, &row, "published_find", err);
        if (rc != TD_OK || !row) {
            break;
        }
        struct td_published_row *p = &rows[count++];
        p->from_seq = sqlite3_column_int64(stmt, 1);
        p->to_seq = sqlite3_column_int64(stmt, 2);
        p->published = sqlite3_column_int64(stmt, 3);
        p->at = sqlite3_column_int64(stmt, 4);
        if (!tdd_copy_str(stmt, 0, a, &p->relay) || !tdd_copy_str(stmt, 5, a, &p->evidence)) {
            rc = tdd_nomem("published_find", err);
        }
    }
    (void)sqlite3_reset(stmt);
    if (rc == TD_OK) {
        *ret_rows = rows;
        *ret_count = count;
    }
    return rc;
}
