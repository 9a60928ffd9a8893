-- Tables of Tidings in the database of the application. All times are microseconds since 1970, UTC.
-- A file of this folder is never changed once it was released; a change is a new file.

-- Name and value: service, identity (of this database), migration N (its checksum).
CREATE TABLE tidings_schema(
    name   TEXT PRIMARY KEY,
    value  TEXT NOT NULL,
    at     INTEGER NOT NULL
) WITHOUT ROWID;

-- The application INSERTs here, in its own transaction; only type and body are needed.
-- The id is a UUID of version 7: 48 bits of milliseconds, the rest random.
CREATE TABLE tidings_outbox(
    seq               INTEGER PRIMARY KEY AUTOINCREMENT,
    id                TEXT NOT NULL UNIQUE DEFAULT (printf('%08x-%04x-7%03x-%04x-%012x',
                          CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) / 65536,
                          CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) % 65536,
                          random() & 0xfff, 0x8000 | (random() & 0x3fff),
                          random() & 0xffffffffffff)),
    topic             TEXT,
    type              TEXT NOT NULL,
    partition_key     TEXT,
    body              BLOB,              -- text or blob; NULL is a tombstone
    headers           TEXT,              -- a JSON object of strings
    content_type      TEXT,
    data_schema       TEXT,
    aggregate_type    TEXT,
    aggregate_version INTEGER,
    correlation_id    TEXT,
    causation_id      TEXT,
    traceparent       TEXT,
    tracestate        TEXT,
    baggage           TEXT,
    tenant            TEXT,
    created_at        INTEGER NOT NULL DEFAULT
                          (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    deliver_at        INTEGER,
    expires_at        INTEGER,
    data_ref          TEXT,
    CONSTRAINT created_at_is_in_microseconds_since_1970 CHECK (
        typeof(created_at) = 'integer' AND created_at BETWEEN 100000000000000 AND 100000000000000000),
    CONSTRAINT deliver_at_is_in_microseconds_since_1970 CHECK (deliver_at IS NULL OR (
        typeof(deliver_at) = 'integer' AND deliver_at BETWEEN 100000000000000 AND 100000000000000000)),
    CONSTRAINT expires_at_is_in_microseconds_since_1970 CHECK (expires_at IS NULL OR (
        typeof(expires_at) = 'integer' AND expires_at BETWEEN 100000000000000 AND 100000000000000000))
);

-- What became of each message, for each consumer. A worker with a transaction of its own may write
-- consumer, source, id, outcome, attempts and settled_at itself.
CREATE TABLE tidings_inbox(
    consumer     TEXT NOT NULL,
    source       TEXT NOT NULL,
    id           TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 1,
    origin       TEXT,                   -- JSON: broker, topic, partition, offset
    published_at INTEGER,
    seen_at      INTEGER NOT NULL DEFAULT
                     (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    settled_at   INTEGER NOT NULL DEFAULT
                     (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    PRIMARY KEY (consumer, source, id),
    CONSTRAINT outcome_is_known CHECK ( -- IN (...) would build a table of its own for each row
        outcome = 'effect' OR outcome = 'retry' OR outcome = 'blocked' OR outcome = 'dead' OR
        outcome = 'discarded' OR outcome = 'dropped')
) WITHOUT ROWID;

-- Body and schedule of what is not finished, and the story of what was parked once.
CREATE TABLE tidings_parked(
    arrival         INTEGER PRIMARY KEY, -- followers of a key go by it
    consumer        TEXT NOT NULL,
    shard           INTEGER NOT NULL,
    source          TEXT NOT NULL,
    id              TEXT NOT NULL,
    type            TEXT,
    partition_key   TEXT,
    outcome         TEXT NOT NULL,       -- as in tidings_inbox
    due_at          INTEGER,             -- retry: when it runs, or when the lease of its run ends
    attempts        INTEGER NOT NULL,
    attempt_limit   INTEGER NOT NULL,
    revision        INTEGER NOT NULL DEFAULT 1,
    running         INTEGER NOT NULL DEFAULT 0, -- leased, without a verdict yet
    lease_fence     INTEGER NOT NULL DEFAULT 0, -- of the owner that leased it
    alone           INTEGER NOT NULL DEFAULT 0, -- the process may have died in it: run it alone
    blocks_key      INTEGER NOT NULL DEFAULT 0, -- while unfinished
    code            TEXT,
    reason          TEXT,
    error_type      TEXT,
    error_message   TEXT,
    handler         TEXT,
    first_failed_at INTEGER,
    last_failed_at  INTEGER,
    envelope        TEXT NOT NULL,       -- CloudEvents attributes and own headers, JSON
    topic           TEXT,
    body            BLOB,
    body_dropped    INTEGER NOT NULL DEFAULT 0,
    original_body   BLOB,                -- before the first edit
    original_kept   INTEGER NOT NULL DEFAULT 0,
    origin          TEXT,
    history         TEXT NOT NULL DEFAULT '[]',
    UNIQUE (consumer, source, id)
);
CREATE INDEX tidings_parked_due ON tidings_parked(consumer, shard, due_at)
    WHERE outcome = 'retry';
CREATE INDEX tidings_parked_running ON tidings_parked(consumer, shard, lease_fence)
    WHERE running = 1;
CREATE INDEX tidings_parked_key ON tidings_parked(consumer, shard, partition_key, arrival)
    WHERE outcome IN ('retry', 'blocked', 'dead');
CREATE INDEX tidings_parked_outcome ON tidings_parked(consumer, outcome)
    WHERE outcome IN ('retry', 'blocked', 'dead', 'discarded');
CREATE INDEX tidings_parked_id ON tidings_parked(id);

-- One row for each batch that a relay published: its evidence.
CREATE TABLE tidings_published(
    seq       INTEGER PRIMARY KEY,
    relay     TEXT NOT NULL,
    from_seq  INTEGER NOT NULL,          -- of tidings_outbox
    to_seq    INTEGER NOT NULL,
    published INTEGER NOT NULL,          -- how many of them the broker accepted
    at        INTEGER NOT NULL,
    evidence  TEXT
);
CREATE INDEX tidings_published_range ON tidings_published(relay, to_seq);

-- How far each relay is. A row holds the outbox from purging, also before its first batch.
CREATE TABLE tidings_position(
    relay       TEXT PRIMARY KEY,
    position    TEXT NOT NULL,           -- SEQ@IDENTITY
    seq         INTEGER NOT NULL,
    published   INTEGER NOT NULL DEFAULT 0,
    declared_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Who owns which relay and which shard of which consumer.
CREATE TABLE tidings_lease(
    slot        INTEGER PRIMARY KEY,     -- the byte of the lock file that its owner locks
    name        TEXT NOT NULL UNIQUE,
    owner       TEXT,                    -- HOST/PID; NULL: given back
    owner_pid   INTEGER NOT NULL DEFAULT 0,
    fence       INTEGER NOT NULL DEFAULT 0,
    until       INTEGER NOT NULL DEFAULT 0,
    locked      INTEGER NOT NULL DEFAULT 0, -- the owner holds the lock of the slot
    unclean     INTEGER NOT NULL DEFAULT 0,
    report      TEXT,
    reported_at INTEGER
);

-- What people did.
CREATE TABLE tidings_audit(
    seq      INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    actor    TEXT,
    action   TEXT NOT NULL,
    consumer TEXT,
    source   TEXT,
    id       TEXT,
    detail   TEXT                        -- JSON
);
CREATE INDEX tidings_audit_id ON tidings_audit(id);
