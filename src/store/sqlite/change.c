/*
 * What an operator does to a parked row: replay, discard, edit. One transaction with its audit row.
 *
 * Must not know: who asks, and in which words.
 * Invariants: the inbox row changes with the parked row; attempts never go down, a replay raises
 * the limit instead.
 */
#include "store/sqlite/internal.h"

#include "base/json.h"
#include "base/str.h"
#include "core/deadletter.h"
#include "core/envelope.h"

#define ENVELOPE_BYTES_MAX (1024 * 1024)
#define DETAIL_BYTES_MAX (256 * 1024)

static const char op[] = "parked_change";

struct changing {
    struct tdd_sqlite *s;
    struct td_parked_change *change;
    struct td_parked_row row; /* as it was, without its body */
    struct tdi_arena a;
};

static const char *action_name(enum td_parked_change_kind kind)
{
    switch (kind) {
    case TD_PARKED_REPLAY:
        return "replay";
    case TD_PARKED_DISCARD:
        return "discard";
    case TD_PARKED_EDIT:
        return "edit";
    }
    return "";
}

static enum td_err read_row(struct changing *c, bool *ret_found, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(c->s, TDD_SQL_PARKED_BY_REF, &stmt, op, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_bind_str(stmt, 1, c->change->consumer);
    tdi_bind_str(stmt, 2, c->change->ref.source);
    tdi_bind_str(stmt, 3, c->change->ref.id);
    rc = tdd_step(c->s, stmt, ret_found, op, err);
    if (rc == TD_OK && *ret_found) {
        rc = tdd_parked_decode(c->s, stmt, false, &c->a, &c->row, op, err);
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

static bool allowed(const struct changing *c, const struct td_inbox_state *inbox)
{
    const struct td_parked_change *ch = c->change;
    if ((ch->revision != 0 && ch->revision != c->row.revision) ||
        inbox->outcome != c->row.outcome) {
        return false;
    }
    if (ch->kind == TD_PARKED_DISCARD) {
        return tdi_outcome_unfinished(c->row.outcome);
    }
    return c->row.outcome == TD_OUTCOME_DEAD;
}

static enum td_err audit(struct changing *c, struct td_error *err)
{
    const struct td_parked_change *ch = c->change;
    struct tdi_buf detail;
    bool first = true;
    tdi_buf_init(&detail, DETAIL_BYTES_MAX);
    tdi_buf_add_char(&detail, '{');
    tdi_json_add_member(&detail, &first, "outcome", tdi_str(tdi_outcome_name(c->row.outcome)));
    tdi_json_add_member(&detail, &first, "code", tdi_str(tdi_dead_code_name(c->row.code)));
    tdi_json_add_member_int(&detail, &first, "attempts", c->row.attempts);
    if (ch->reason.len > 0) {
        tdi_json_add_member(&detail, &first, "reason", ch->reason);
    }
    if (ch->kind == TD_PARKED_EDIT && ch->set_headers) {
        tdi_json_add_key(&detail, &first, "former_headers");
        tdi_headers_write(&detail, c->row.message.headers, c->row.message.headers_count);
    }
    tdi_buf_add_char(&detail, '}');
    struct tdd_audit entry = {.actor = ch->actor,
                              .action = action_name(ch->kind),
                              .consumer = ch->consumer,
                              .ref = ch->ref,
                              .detail = tdi_buf_str(&detail)};
    enum td_err rc = detail.failed ? tdd_nomem(op, err) : tdd_audit_add(c->s, &entry, op, err);
    tdi_buf_release(&detail);
    return rc;
}

static enum td_err write_history(struct changing *c, struct td_error *err)
{
    const struct td_parked_change *ch = c->change;
    sqlite3_stmt *stmt = NULL;
    struct tdi_buf history;
    struct td_str reason = ch->reason.len > 0 ? ch->reason : ch->actor;
    tdi_buf_init(&history, TDD_HISTORY_BYTES_MAX);
    tdd_history_add(&history, c->row.history, tdd_now(c->s), c->row.attempts, action_name(ch->kind),
                    TD_STR_NONE, reason);
    enum td_err rc = history.failed ? tdd_nomem(op, err)
                                    : tdd_stmt(c->s, TDD_SQL_CHANGE_HISTORY, &stmt, op, err);
    if (rc == TD_OK) {
        tdi_bind_i64(stmt, 1, c->row.arrival);
        tdi_bind_str(stmt, 2, tdi_buf_str(&history));
        rc = tdd_run(c->s, stmt, NULL, op, err);
    }
    tdi_buf_release(&history);
    return rc;
}

static enum td_err replay(struct changing *c, struct td_error *err)
{
    const struct td_parked_change *ch = c->change;
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(c->s, TDD_SQL_CHANGE_REPLAY, &stmt, op, err);
    if (rc == TD_OK) {
        tdi_bind_i64(stmt, 1, c->row.arrival);
        tdi_bind_i64(stmt, 2, tdd_now(c->s) + ch->due_after_us);
        tdi_bind_i64(stmt, 3, (int64_t)c->row.attempts + ch->attempts_more);
        rc = tdd_run(c->s, stmt, NULL, op, err);
    }
    if (rc == TD_OK) {
        rc = tdd_inbox_update(c->s, ch->consumer, &ch->ref, TD_OUTCOME_RETRY, c->row.attempts, op,
                              err);
    }
    return rc;
}

static enum td_err discard(struct changing *c, struct td_error *err)
{
    const struct td_parked_change *ch = c->change;
    sqlite3_stmt *stmt = NULL;
    struct tdd_key key = {c->row.consumer, c->row.shard, c->row.message.key};
    bool released = false;
    enum td_err rc = tdd_stmt(c->s, TDD_SQL_CHANGE_DISCARD, &stmt, op, err);
    if (rc == TD_OK) {
        tdi_bind_i64(stmt, 1, c->row.arrival);
        rc = tdd_run(c->s, stmt, NULL, op, err);
    }
    if (rc == TD_OK) {
        rc = tdd_inbox_update(c->s, ch->consumer, &ch->ref, TD_OUTCOME_DISCARDED, c->row.attempts,
                              op, err);
    }
    return rc == TD_OK ? tdd_key_release(c->s, &key, &released, op, err) : rc;
}

static enum td_err edit(struct changing *c, struct td_error *err)
{
    const struct td_parked_change *ch = c->change;
    sqlite3_stmt *stmt = NULL;
    struct tdi_buf envelope;
    struct td_message m = c->row.message;
    if (ch->set_headers) {
        m.headers = ch->headers;
        m.headers_count = ch->headers_count;
    }
    tdi_buf_init(&envelope, ENVELOPE_BYTES_MAX);
    tdi_envelope_write(&envelope, &m);
    enum td_err rc =
        envelope.failed ? tdd_nomem(op, err) : tdd_stmt(c->s, TDD_SQL_CHANGE_EDIT, &stmt, op, err);
    if (rc == TD_OK) {
        tdi_bind_i64(stmt, 1, c->row.arrival);
        tdi_bind_str(stmt, 2, tdi_buf_str(&envelope));
        tdi_bind_i64(stmt, 3, ch->set_body);
        tdd_bind_body(stmt, 4, ch->body, m.content_type);
        rc = tdd_run(c->s, stmt, NULL, op, err);
    }
    tdi_buf_release(&envelope);
    return rc;
}

static enum td_err apply(struct changing *c, struct td_error *err)
{
    switch (c->change->kind) {
    case TD_PARKED_REPLAY:
        return replay(c, err);
    case TD_PARKED_DISCARD:
        return discard(c, err);
    case TD_PARKED_EDIT:
        return edit(c, err);
    }
    return tdd_fail(TD_ERR_USAGE, op, err, "there is no such change");
}

static enum td_err change_in_tx(struct changing *c, struct td_error *err)
{
    struct td_inbox_state inbox;
    bool found = false;
    enum td_err rc = read_row(c, &found, err);
    if (rc == TD_OK && found) {
        rc = tdd_inbox_state(c->s, c->change->consumer, &c->change->ref, &inbox, op, err);
    }
    if (rc != TD_OK || !found || !allowed(c, &inbox)) {
        return rc;
    }
    rc = apply(c, err);
    if (rc == TD_OK) {
        rc = write_history(c, err);
    }
    if (rc == TD_OK) {
        rc = audit(c, err);
    }
    c->change->changed = rc == TD_OK;
    return rc;
}

enum td_err tdd_parked_change(struct td_store *store, struct td_parked_change *change,
                              struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    struct changing c = {.s = s, .change = change};
    change->changed = false;
    if (change->kind == TD_PARKED_DISCARD && change->reason.len == 0) {
        return tdd_fail(TD_ERR_USAGE, op, err, "to discard a message needs a reason");
    }
    tdi_arena_init(&c.a, 0);
    enum td_err rc = tdd_tx_begin(s, op, err);
    if (rc == TD_OK) {
        rc = tdd_tx_end(s, change_in_tx(&c, err), true, err);
    }
    if (rc != TD_OK) {
        change->changed = false;
    }
    tdi_arena_release(&c.a);
    return rc;
}
