-- The embedded broker's file, format 1. Queues get a table q_<id> and a view "queue_<name>" each.

CREATE TABLE meta(k TEXT PRIMARY KEY, v) WITHOUT ROWID;

CREATE TABLE topic(
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    max_bytes INTEGER NOT NULL           -- largest body; 0: no limit but the broker's
);

CREATE TABLE queue(
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    topic INTEGER NOT NULL,
    ordered INTEGER NOT NULL,
    next_seq INTEGER NOT NULL,           -- of the next message; these four change in the commit
    depth INTEGER NOT NULL,              -- that changes the rows of q_<id>
    bytes INTEGER NOT NULL,
    delivered_hi INTEGER NOT NULL        -- messages up to here may have been delivered
);

CREATE TABLE binding(                    -- a queue without a row takes every type of its topic
    queue INTEGER NOT NULL,
    at INTEGER NOT NULL,
    pattern TEXT NOT NULL,
    PRIMARY KEY(queue, at)
) WITHOUT ROWID;

CREATE TABLE dedup(                      -- one row a commit: keyed hashes of 16 bytes, end to end
    seq INTEGER PRIMARY KEY,
    ts INTEGER NOT NULL,
    ids BLOB NOT NULL
);
