/*
 * The text of every statement of the SQLite store.
 *
 * Must not know: who runs them.
 * Invariants: parameters are numbered. The lists of outcomes are those of the partial indexes, word
 * for word, or SQLite would not use the index.
 */
#include "store/sqlite/statements.h"

/* tdd_outbox_decode() reads them in this order. */
#define OUTBOX_COLUMNS                                                                             \
    "seq, id, topic, type, partition_key, body, headers, content_type, data_schema, "              \
    "aggregate_type, aggregate_version, correlation_id, causation_id, traceparent, tracestate, "   \
    "baggage, tenant, created_at, deliver_at, expires_at, data_ref"
#define OUTBOX_INSERT_COLUMNS                                                                      \
    "id, topic, type, partition_key, body, headers, content_type, data_schema, aggregate_type, "   \
    "aggregate_version, correlation_id, causation_id, traceparent, tracestate, baggage, "          \
    "tenant, created_at, deliver_at, expires_at, data_ref"

/* tdd_parked_decode() reads them in this order. */
#define PARKED_COLUMNS                                                                             \
    "arrival, consumer, shard, source, id, outcome, attempts, attempt_limit, revision, due_at, "   \
    "first_failed_at, last_failed_at, code, reason, error_type, error_message, handler, "          \
    "origin, history, blocks_key, body_dropped, envelope, topic, body, partition_key, type"

#define BY_REF "consumer = ?1 AND source = ?2 AND id = ?3"
#define UNFINISHED "outcome IN ('retry', 'blocked', 'dead')"
#define FILTER                                                                                     \
    "(?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR type = ?2) AND (?3 IS NULL OR code = ?3) "   \
    "AND (?4 OR outcome = 'dead') AND NOT (?5 AND code IS 'stale')"

const char *const tdd_sql_text[TDD_SQL_COUNT] = {
    /* ---- session */
    [TDD_SQL_SCHEMA_EXISTS] =
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'tidings_schema'",
    [TDD_SQL_SCHEMA_READ] = "SELECT name, value FROM tidings_schema",
    [TDD_SQL_DATA_VERSION] = "PRAGMA main.data_version",
    [TDD_SQL_SAVEPOINT] = "SAVEPOINT tidings",
    [TDD_SQL_SAVEPOINT_UNDO] = "ROLLBACK TO tidings",
    [TDD_SQL_SAVEPOINT_END] = "RELEASE tidings",

    /* ---- outbox */
    [TDD_SQL_OUTBOX_SEQUENCE] = "SELECT seq FROM sqlite_sequence WHERE name = 'tidings_outbox'",
    [TDD_SQL_OUTBOX_WAITING] =
        "SELECT count(*) FROM (SELECT 1 FROM tidings_outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2)",
    [TDD_SQL_OUTBOX_READ] =
        "SELECT " OUTBOX_COLUMNS " FROM tidings_outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    [TDD_SQL_OUTBOX_FIND] = "SELECT " OUTBOX_COLUMNS " FROM tidings_outbox WHERE id = ?1",
    [TDD_SQL_OUTBOX_INSERT] =
        "INSERT INTO tidings_outbox(" OUTBOX_INSERT_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, "
        "?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
    [TDD_SQL_OUTBOX_INSERT_AGAIN] =
        "INSERT INTO tidings_outbox(" OUTBOX_INSERT_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, "
        "?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20) ON CONFLICT(id) DO "
        "NOTHING",
    [TDD_SQL_OUTBOX_PENDING] =
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM tidings_outbox WHERE seq > ?1 LIMIT ?2)), "
        "(SELECT created_at FROM tidings_outbox WHERE seq > ?1 ORDER BY seq LIMIT 1)",
    [TDD_SQL_OUTBOX_PURGE] =
        "DELETE FROM tidings_outbox WHERE seq IN (SELECT seq FROM (SELECT seq, created_at FROM "
        "tidings_outbox WHERE seq <= (SELECT min(seq) FROM tidings_position) ORDER BY seq LIMIT "
        "?1) WHERE created_at < ?2 LIMIT ?3)",

    /* ---- relay */
    [TDD_SQL_RELAY_DECLARE] =
        "INSERT INTO tidings_position(relay, position, seq, declared_at, updated_at) SELECT ?1, "
        "coalesce((SELECT position FROM tidings_position ORDER BY seq LIMIT 1), ''), "
        "coalesce((SELECT min(seq) FROM tidings_position), 0), ?2, ?2 WHERE true ON "
        "CONFLICT(relay) DO NOTHING",
    [TDD_SQL_RELAY_POSITION] =
        "SELECT position, seq, published FROM tidings_position WHERE relay = ?1",
    [TDD_SQL_RELAY_MOVE] =
        "UPDATE tidings_position SET position = ?2, seq = ?3, published = published + ?4, "
        "updated_at = ?5 WHERE relay = ?1 AND seq <= ?3",
    [TDD_SQL_RELAY_REBASE] =
        "UPDATE tidings_position SET position = ?2, seq = ?3, updated_at = ?4 WHERE relay = ?1",
    [TDD_SQL_PUBLISHED_ADD] =
        "INSERT INTO tidings_published(relay, from_seq, to_seq, published, at, evidence) VALUES "
        "(?1, ?2, ?3, ?4, ?5, ?6)",
    [TDD_SQL_PUBLISHED_FIND] =
        "SELECT b.relay, b.from_seq, b.to_seq, b.published, b.at, b.evidence FROM "
        "tidings_position AS p JOIN tidings_published AS b ON b.seq IN (SELECT seq FROM "
        "tidings_published WHERE relay = p.relay AND to_seq >= ?1 ORDER BY to_seq LIMIT 8) WHERE "
        "b.from_seq <= ?1 ORDER BY b.at LIMIT ?2",
    [TDD_SQL_PUBLISHED_PRUNE] =
        "DELETE FROM tidings_published WHERE seq IN (SELECT b.seq FROM tidings_position AS p "
        "JOIN tidings_published AS b ON b.relay = p.relay AND b.to_seq < coalesce((SELECT "
        "min(seq) FROM tidings_outbox), (SELECT min(seq) + 1 FROM tidings_position)) LIMIT ?1)",

    /* ---- leases */
    [TDD_SQL_LEASE_INSERT] =
        "INSERT INTO tidings_lease(name) VALUES (?1) ON CONFLICT(name) DO NOTHING",
    [TDD_SQL_LEASE_READ] =
        "SELECT slot, owner, owner_pid, fence, until, locked, unclean FROM tidings_lease WHERE "
        "name = ?1",
    [TDD_SQL_LEASE_TAKE] =
        "UPDATE tidings_lease SET owner = ?2, owner_pid = ?3, fence = ?4, until = ?5, locked = "
        "?6, unclean = ?7 WHERE slot = ?1",
    [TDD_SQL_LEASE_RENEW] =
        "UPDATE tidings_lease SET until = ?3, locked = ?4, report = coalesce(?5, report), "
        "reported_at = CASE WHEN ?5 IS NULL THEN reported_at ELSE ?6 END WHERE name = ?1 AND "
        "fence = ?2 AND owner IS NOT NULL",
    [TDD_SQL_LEASE_CLEAR] =
        "UPDATE tidings_lease SET unclean = 0 WHERE name = ?1 AND fence = ?2 AND owner IS NOT "
        "NULL",
    [TDD_SQL_LEASE_RELEASE] =
        "UPDATE tidings_lease SET owner = NULL, owner_pid = 0, until = 0, locked = 0 WHERE name "
        "= ?1 AND fence = ?2 AND owner IS NOT NULL",
    [TDD_SQL_LEASE_END] =
        "UPDATE tidings_lease SET owner = NULL, owner_pid = 0, until = 0, locked = 0, fence = "
        "fence + 1 WHERE name = ?1",
    [TDD_SQL_LEASE_SCAN] =
        "SELECT name, coalesce(owner, ''), owner_pid, fence, until, unclean, report, "
        "reported_at, (SELECT count(*) FROM tidings_lease) FROM tidings_lease ORDER BY name",

    /* ---- inbox */
    [TDD_SQL_INBOX_STATE] = "SELECT outcome, attempts FROM tidings_inbox WHERE " BY_REF,
    [TDD_SQL_INBOX_CLAIM] =
        "INSERT INTO tidings_inbox(consumer, source, id, outcome, attempts, origin, "
        "published_at, seen_at, settled_at) VALUES (?1, ?2, ?3, 'effect', 1, ?4, ?5, ?6, ?6) ON "
        "CONFLICT DO NOTHING",
    [TDD_SQL_INBOX_INSERT] =
        "INSERT INTO tidings_inbox(consumer, source, id, outcome, attempts, origin, "
        "published_at, seen_at, settled_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)",
    [TDD_SQL_INBOX_UPDATE] =
        "UPDATE tidings_inbox SET outcome = ?4, attempts = ?5, settled_at = ?6 WHERE " BY_REF,
    [TDD_SQL_INBOX_PRUNE_SCAN] =
        "SELECT source, id, outcome, settled_at, published_at FROM tidings_inbox WHERE consumer "
        "= ?1 AND (source, id) > (?2, ?3) ORDER BY source, id LIMIT ?4",
    [TDD_SQL_INBOX_DELETE] =
        "DELETE FROM tidings_inbox WHERE " BY_REF " AND outcome IN ('effect', 'dropped', "
        "'discarded')",
    [TDD_SQL_INBOX_ROW] =
        "SELECT outcome, attempts, origin, published_at, seen_at, settled_at FROM tidings_inbox "
        "WHERE " BY_REF,
    [TDD_SQL_INBOX_NEXT_PAIR] =
        "SELECT consumer, source FROM tidings_inbox WHERE (consumer, source) > (?1, ?2) ORDER BY "
        "consumer, source LIMIT 1",
    [TDD_SQL_INBOX_COUNT] =
        "SELECT count(*) FROM (SELECT 1 FROM tidings_inbox WHERE consumer = ?1 LIMIT ?2)",

    /* ---- parked rows */
    [TDD_SQL_PARKED_HAS_BODY] =
        "SELECT 1 FROM tidings_parked WHERE " BY_REF " AND body_dropped = 0",
    [TDD_SQL_PARKED_PLACE] =
        "SELECT arrival, shard, partition_key FROM tidings_parked WHERE " BY_REF,
    [TDD_SQL_PARKED_HISTORY] = "SELECT history FROM tidings_parked WHERE " BY_REF,
    [TDD_SQL_PARKED_BY_REF] = "SELECT " PARKED_COLUMNS " FROM tidings_parked WHERE " BY_REF,
    [TDD_SQL_PARKED_BY_ARRIVAL] =
        "SELECT " PARKED_COLUMNS " FROM tidings_parked WHERE arrival = ?1",
    [TDD_SQL_PARKED_INSERT] =
        "INSERT INTO tidings_parked(consumer, shard, source, id, type, partition_key, outcome, "
        "due_at, attempts, attempt_limit, alone, blocks_key, envelope, topic, body, origin, "
        "code, reason, error_type, error_message, handler, first_failed_at, last_failed_at, "
        "history) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, "
        "?17, ?18, ?19, ?20, ?21, ?22, ?22, ?23)",
    [TDD_SQL_PARKED_UPDATE] =
        "UPDATE tidings_parked SET outcome = ?4, due_at = ?5, attempts = max(attempts, ?6), "
        "attempt_limit = max(attempt_limit, ?7), alone = ?8, blocks_key = ?9, running = 0, "
        "revision = revision + 1, code = CASE WHEN ?15 IS NULL THEN code ELSE ?10 END, reason = "
        "CASE WHEN ?15 IS NULL THEN reason ELSE ?11 END, error_type = CASE WHEN ?15 IS NULL THEN "
        "error_type ELSE ?12 END, error_message = CASE WHEN ?15 IS NULL THEN error_message ELSE "
        "?13 END, handler = coalesce(?14, handler), first_failed_at = coalesce(first_failed_at, "
        "?15), last_failed_at = coalesce(?15, last_failed_at), history = ?16, body_dropped = "
        "body_dropped OR ?17, body = CASE WHEN ?17 THEN NULL ELSE body END, original_body = CASE "
        "WHEN ?17 THEN NULL ELSE original_body END, origin = coalesce(origin, ?18) WHERE " BY_REF,
    [TDD_SQL_PARKED_DELETE] = "DELETE FROM tidings_parked WHERE " BY_REF,
    [TDD_SQL_PARKED_COUNTS] =
        "SELECT coalesce(sum(outcome = 'retry'), 0), coalesce(sum(outcome = 'blocked'), 0), "
        "coalesce(sum(outcome = 'dead'), 0), coalesce(sum(outcome = 'discarded'), 0), (SELECT "
        "min(due_at) FROM tidings_parked WHERE consumer = ?1 AND outcome = 'retry') FROM "
        "tidings_parked WHERE consumer = ?1 AND outcome IN ('retry', 'blocked', 'dead', "
        "'discarded')",
    [TDD_SQL_DUE] =
        "SELECT arrival, running OR alone, attempts >= attempt_limit FROM tidings_parked WHERE "
        "consumer = ?1 AND shard = ?2 AND outcome = 'retry' AND due_at <= ?3 ORDER BY due_at, "
        "arrival LIMIT ?4",
    [TDD_SQL_DUE_NEXT] =
        "SELECT due_at FROM tidings_parked WHERE consumer = ?1 AND shard = ?2 AND outcome = "
        "'retry' AND due_at IS NOT NULL AND due_at <> ?3 ORDER BY due_at LIMIT 1",
    [TDD_SQL_ORPHANS_LOOK] =
        "SELECT 1 FROM tidings_parked WHERE consumer = ?1 AND shard = ?2 AND running = 1 AND "
        "lease_fence < ?3 AND outcome = 'retry' AND due_at > ?4 LIMIT 1",
    [TDD_SQL_ORPHANS_TAKE] =
        "UPDATE tidings_parked SET due_at = ?4 WHERE consumer = ?1 AND shard = ?2 AND running = "
        "1 AND lease_fence < ?3 AND outcome = 'retry' AND due_at > ?4",
    [TDD_SQL_PARKED_LEASE] =
        "UPDATE tidings_parked SET attempts = attempts + 1, running = 1, due_at = ?2, "
        "lease_fence = ?3, revision = revision + 1 WHERE arrival = ?1",
    [TDD_SQL_PARKED_RETURN] =
        "UPDATE tidings_parked SET running = 0, due_at = ?4, revision = revision + 1 WHERE " BY_REF
        " AND outcome = 'retry' AND running = 1",

    /* ---- keys */
    [TDD_SQL_KEY_BLOCKED] =
        "SELECT 1 FROM tidings_parked WHERE consumer = ?1 AND shard = ?2 AND partition_key = ?3 "
        "AND arrival < ?4 AND " UNFINISHED " AND blocks_key = 1 LIMIT 1",
    [TDD_SQL_KEY_FOLLOWER] =
        "SELECT arrival FROM tidings_parked WHERE consumer = ?1 AND shard = ?2 AND partition_key "
        "= ?3 AND " UNFINISHED " AND outcome = 'blocked' ORDER BY arrival LIMIT 1",
    [TDD_SQL_RELEASE_INBOX] =
        "UPDATE tidings_inbox SET outcome = 'retry', settled_at = ?2 WHERE (consumer, source, "
        "id) = (SELECT consumer, source, id FROM tidings_parked WHERE arrival = ?1) AND outcome "
        "= 'blocked'",
    [TDD_SQL_RELEASE_PARKED] =
        "UPDATE tidings_parked SET outcome = 'retry', due_at = ?2, revision = revision + 1 WHERE "
        "arrival = ?1",
    [TDD_SQL_KEYS_COUNT] =
        "SELECT count(DISTINCT partition_key) FROM tidings_parked WHERE consumer = ?1 AND shard "
        "= ?2 AND " UNFINISHED " AND blocks_key = 1",
    [TDD_SQL_KEYS] =
        "SELECT DISTINCT partition_key FROM tidings_parked WHERE consumer = ?1 AND shard = ?2 "
        "AND partition_key IS NOT NULL AND " UNFINISHED " AND blocks_key = 1",

    /* ---- operator */
    [TDD_SQL_PARKED_SCAN] =
        "SELECT " PARKED_COLUMNS " FROM tidings_parked WHERE arrival > ?6 AND " FILTER " ORDER "
        "BY arrival LIMIT ?7",
    [TDD_SQL_PARKED_SCAN_ID] =
        "SELECT " PARKED_COLUMNS " FROM tidings_parked WHERE id >= ?8 AND id <= ?9 AND (id = ?8 "
        "OR NOT EXISTS (SELECT 1 FROM tidings_parked WHERE id = ?8)) AND arrival > ?6 AND " FILTER
        " ORDER BY arrival LIMIT ?7",
    [TDD_SQL_CHANGE_REPLAY] =
        "UPDATE tidings_parked SET outcome = 'retry', due_at = ?2, attempt_limit = "
        "max(attempt_limit, ?3), running = 0, alone = 0, revision = revision + 1 WHERE arrival = "
        "?1",
    [TDD_SQL_CHANGE_DISCARD] =
        "UPDATE tidings_parked SET outcome = 'discarded', due_at = NULL, running = 0, revision = "
        "revision + 1 WHERE arrival = ?1",
    [TDD_SQL_CHANGE_EDIT] =
        "UPDATE tidings_parked SET envelope = ?2, original_body = CASE WHEN ?3 AND NOT "
        "original_kept THEN body ELSE original_body END, original_kept = original_kept OR ?3, "
        "body = CASE WHEN ?3 THEN ?4 ELSE body END, revision = revision + 1 WHERE arrival = ?1",
    [TDD_SQL_CHANGE_HISTORY] = "UPDATE tidings_parked SET history = ?2 WHERE arrival = ?1",
    [TDD_SQL_AUDIT_ADD] =
        "INSERT INTO tidings_audit(at, actor, action, consumer, source, id, detail) VALUES (?1, "
        "?2, ?3, ?4, ?5, ?6, ?7)",
    [TDD_SQL_AUDIT_FIND] =
        "SELECT at, actor, action, consumer, source, id, detail FROM tidings_audit WHERE id = ?1 "
        "ORDER BY seq",
};
