/*
 * The store interface: the SQL database that keeps outbox, inbox and parked messages, next to the
 * business data. A driver is one `static const struct td_store_driver`.
 *
 * Rules common to all slots
 *   - The core allocates `session_size` zeroed bytes; the session begins with struct td_store. So
 *     close() is valid after a failed open(), and after any FATAL error only close() may follow.
 *   - One thread at a time per session, save interrupt(). More parallelism is more sessions.
 *   - A slot blocks at most until its deadline or the session's operation timeout.
 *   - What is returned lives in the arena that was passed in. Inputs are borrowed for the call.
 *   - On failure outputs are untouched and *err is filled. UNKNOWN after finish(commit) means that
 *     the transaction may have been committed; the session must be closed.
 *   - "tx" slots run inside the open transaction of the session. All other slots that write make
 *     one short transaction of their own and must not be called while one is open.
 *   - Times that are compared (leases, due times) are the store's, see now().
 *   - Names: consumer = "SERVICE.NAME" (or "relay:NAME"), relay = "OUTBOX.BROKER". The lease whose
 *     fence relay_settle() compares has the relay's name.
 *
 * Must not know: brokers, handlers, configuration files.
 */
#ifndef TIDINGS_STORE_H
#define TIDINGS_STORE_H

#include "tidings/error.h"
#include "tidings/message.h"
#include "tidings/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tdi_arena; /* src/base/arena.h */
struct tdi_random;
struct td_store;

#define TD_STORE_ABI 1

/* What a store can; the core asks for these and never for a driver's name. */
enum td_store_cap {
    TD_STORE_SERIAL_WRITER = 1 << 0, /* one writer at a time in the whole database */
    TD_STORE_SET_BASED = 1 << 1,     /* statement_run() takes many rows in one round trip */
    TD_STORE_WAKER = 1 << 2,         /* wait() can wake before its deadline */
    TD_STORE_TX_LOCKS_KEY = 1 << 3,  /* inbox_claim() waits for another open claim of the id */
};

/* The one arbiter of a message: the outcome in its inbox row. NONE is "no row". */
enum td_outcome {
    TD_OUTCOME_NONE = 0,
    TD_OUTCOME_EFFECT,    /* took effect */
    TD_OUTCOME_RETRY,     /* parked; runs again when due */
    TD_OUTCOME_BLOCKED,   /* parked behind an earlier message of its key */
    TD_OUTCOME_DEAD,      /* parked; a person decides */
    TD_OUTCOME_DISCARDED, /* given up by a person */
    TD_OUTCOME_DROPPED,   /* the handler said: not wanted */
};

/* The closed list of contract section 6; text form by tdi_dead_code_name() in core/deadletter.h. */
enum td_dead_code {
    TD_DEAD_NONE = 0,
    TD_DEAD_EXHAUSTED,
    TD_DEAD_REJECTED,
    TD_DEAD_EXPIRED,
    TD_DEAD_SCHEMA,
    TD_DEAD_POISON,
    TD_DEAD_UNROUTABLE,
    TD_DEAD_TOO_LARGE,
    TD_DEAD_DENIED,
    TD_DEAD_INVALID,
    TD_DEAD_NOT_DUE,
    TD_DEAD_NO_ID,
    TD_DEAD_STALE,
};

struct td_store_options {
    struct td_str location; /* path or URL */
    struct td_str service;  /* source of what is published; empty: do not check whose it is */
    struct td_str vfs; /* SQLite: name of the VFS that does all files and syncs; empty: default */
    struct td_clock clock; /* for deadlines; the store's own clock too where it has none (SQLite) */
    struct tdi_random *random;
    td_time_us operation_timeout_us; /* 0: 5 s */
    td_time_us write_budget_us;      /* a write transaction should end within this; 0: 20 ms */
    td_time_us lock_wait_us;         /* relay_settle, lease_renew and outbox_purge wait so long for
                                        the write lock, then BUSY; 0: the operation timeout */
    bool create;                     /* make the database when it is missing (init only) */
    bool read_only;                  /* never write, not even a schema (status, trace) */
    bool schema_any;                 /* open although tables are missing or old (init only) */
};

struct td_store_info {
    struct td_str version;  /* "SQLite 3.40.1" */
    struct td_str identity; /* which database this is, stable over restarts */
    struct td_str warnings; /* sentences, one a line, for `check`; empty: none */
    struct td_str service;  /* whose tables these are; empty: not made yet */
    int32_t schema;         /* version of the tables; 0: none */
    int32_t schema_wanted;  /* what this driver makes */
};

/* ---- relay side ------------------------------------------------------------------------- */

/*
 * A position is opaque to the core: it is stored and handed back. data is what all rows of one read
 * share (which table; which snapshot, and that can be tens of kilobytes), order is the row's place
 * in it: a number that grows with the position of one outbox, also for display and for "covered
 * by". The data is borrowed: of the read's arena, or of the caller.
 */
#define TD_POSITION_BYTES_MAX (1024 * 1024)
struct td_position {
    struct td_bytes data; /* at most TD_POSITION_BYTES_MAX; empty: the beginning */
    int64_t order;
};

struct td_outbox_row {
    struct td_message message;   /* sequence is set; topic may be absent */
    struct td_position position; /* after this row */
    struct td_str defect;        /* not empty: the row cannot be a message; why, one sentence */
};

/* A row that the relay gave up; becomes a parked row of consumer "relay:NAME", outcome dead. */
struct td_relay_dead {
    const struct td_message *message; /* source, id set; as complete as the row allowed */
    enum td_dead_code code;
    struct td_str reason;
};

struct td_relay_settle {
    struct td_str relay;
    int64_t fence;
    struct td_position position; /* all before it is accepted, dead, or not ours */
    int64_t from_seq;            /* first and last sequence number that this settles */
    int64_t to_seq;
    int64_t published;      /* how many of them the broker accepted */
    struct td_str evidence; /* the broker's, one short line */
    const struct td_relay_dead *dead;
    size_t dead_count;
};

struct td_relay_stats {
    int64_t position; /* its order */
    bool declared;
    int64_t pending;              /* rows past the position; counted up to 1,000,000 */
    td_time_us oldest_pending_us; /* created_at of the first of them, or TD_TIME_NONE */
    int64_t published_total;      /* since init */
};

/* ---- leases ----------------------------------------------------------------------------- */

struct td_lease {
    int64_t fence;     /* grows with every owner */
    bool unclean;      /* an owner ended without lease_release() and nobody cleared it since */
    int64_t owner_pid; /* on TD_ERR_OWNED: who has it, 0 if not on this machine */
};

struct td_lease_state {
    struct td_str name;
    struct td_str owner; /* "HOST/PID", empty: nobody */
    int64_t owner_pid;
    int64_t fence;
    bool alive; /* owned now, as far as can be seen */
    bool unclean;
    struct td_str report; /* JSON that the owner wrote last, or empty */
    td_time_us reported_at;
};

/* ---- consumer side ---------------------------------------------------------------------- */

struct td_message_ref {
    struct td_str source;
    struct td_str id;
};

struct td_inbox_state {
    enum td_outcome outcome;
    int32_t attempts;
    bool parked; /* a parked row exists and holds the body */
};

struct td_claim {
    struct td_message_ref ref;
    struct td_str origin;         /* where it came from: broker, topic, partition, offset; JSON */
    td_time_us published_at;      /* or TD_TIME_NONE; pruning counts from the later of both */
    struct td_inbox_state former; /* out: NONE = fresh, and the row is now `effect`, attempts 1 */
};

/*
 * One settlement. It happens only if the row still has `expected` (and, unless that is NONE,
 * `expected_attempts`). NONE expects either no row, or the row that inbox_claim() made in this same
 * transaction (claimed = true).
 *
 * BLOCKED is stored as RETRY, due now, if no earlier row of (consumer, shard, key) blocks the key at
 * that moment: an operator may have ended the head meanwhile, and nobody else would wake this one.
 * EFFECT expected NONE or RETRY but found EFFECT with the same attempts: a worker wrote the inbox row
 * in its own transaction; that is `settled`, and the parked row is finished here.
 * A parked row is made when outcome is RETRY, BLOCKED or DEAD and there is none; when the outcome is
 * final its body is dropped (kept for DISCARDED) and the row stays until its inbox row is pruned.
 */
struct td_settle {
    struct td_message_ref ref;
    bool claimed; /* inbox_claim() of this transaction found it fresh */
    enum td_outcome expected;
    int32_t expected_attempts;
    enum td_outcome outcome;
    int32_t attempts;                 /* runs so far, this one included; never less than before */
    td_time_us due_after_us;          /* RETRY: from the store's now; 0: at once */
    int32_t attempt_limit;            /* RETRY, BLOCKED, DEAD: total runs allowed */
    bool blocks_key;                  /* order: block. While this row is retry, blocked or dead its
                                     key is blocked (parked_keys reports it) */
    bool release_next;                /* order: block. This ends the head of its key: the follower
                                     with the lowest arrival becomes retry, due now */
    bool unfinished_run;              /* the process may have died in it (window after an unclean
                                     end): run it alone */
    enum td_dead_code code;           /* DEAD, and the last failure of RETRY */
    struct td_str reason;             /* one sentence */
    struct td_str error_type;         /* SQLSTATE, exit code, ... */
    struct td_str error_message;      /* bounded by the caller */
    struct td_str handler;            /* "sql", "exec", ... */
    struct td_str origin;             /* as in td_claim */
    const struct td_message *message; /* needed where a parked row may have to be made */
    const struct td_message *emit;    /* rows for this store's outbox, same transaction */
    size_t emit_count;
    /* out */
    bool settled; /* false: the row was otherwise; see found */
    struct td_inbox_state found;
    bool next_released; /* a follower was made due */
    bool key_blocked;   /* after this settlement some row still blocks the key */
};

struct td_parked_row {
    struct td_str consumer;
    int32_t shard;
    int64_t arrival; /* grows within (consumer, shard) */
    struct td_message message;
    enum td_outcome outcome;
    int32_t attempts; /* this run included, if the row was leased */
    int32_t attempt_limit;
    int64_t revision; /* grows with every change */
    td_time_us due_at;
    td_time_us first_failed_at;
    td_time_us last_failed_at;
    enum td_dead_code code;
    struct td_str reason;
    struct td_str error_type;
    struct td_str error_message;
    struct td_str handler;
    struct td_str origin;  /* JSON */
    struct td_str history; /* JSON array, newest last, bounded */
    bool blocks_key;
    bool body_dropped; /* finished: the body is gone */
    bool key_blocked;  /* parked_due, dead rows: some row still blocks the key */
};

struct td_parked_due {
    struct td_str consumer;
    int32_t shard;
    int64_t fence; /* 0: unordered consumer, no fence is read */
    size_t max;
    td_time_us lease_us;  /* how long a runner owns a row */
    bool release_on_dead; /* on_dead: release, for rows that are settled dead here */
};

/* What due rows were found; rows past their limit have been settled dead and are in `dead`, rows
 * that a worker settled in a transaction of its own have been finished and are in `done`. */
struct td_parked_batch {
    struct td_parked_row *rows; /* leased; attempts counted and committed */
    size_t count;
    struct td_parked_row *dead; /* exhausted or poison; key_blocked as in td_settle */
    size_t dead_count;
    struct td_parked_row *done; /* outcome as the inbox row had it; key_blocked likewise */
    size_t done_count;
    td_time_us next_due_us; /* store's time of the next row not returned; TD_TIME_NONE */
};

/* One named parameter of a statement, in the order in which values are bound. */
struct td_statement {
    struct td_str sql;          /* one statement; :name parameters */
    const struct td_str *names; /* without the colon */
    size_t names_count;
};

struct td_consumer_counts {
    int64_t retrying, blocked, dead, discarded;
    int64_t inbox;            /* rows; counted up to 1,000,000 */
    td_time_us oldest_due_us; /* or TD_TIME_NONE */
};

/* ---- operator side ---------------------------------------------------------------------- */

struct td_parked_filter {
    struct td_str consumer; /* full name; empty: all */
    struct td_str id;       /* empty: all; otherwise exact, or a prefix of 8 bytes or more */
    struct td_str type;     /* exact; empty: all */
    enum td_dead_code code; /* NONE: all */
    bool any_outcome;       /* otherwise only dead ones */
    bool with_body;
    bool skip_stale;
};

enum td_parked_change_kind {
    TD_PARKED_REPLAY,  /* dead -> retry, due now, `attempts_more` runs more */
    TD_PARKED_DISCARD, /* dead, retry, blocked -> discarded; followers of a held head are freed */
    TD_PARKED_EDIT,    /* new body or headers of a dead one; the original is kept in history */
};

struct td_parked_change {
    enum td_parked_change_kind kind;
    struct td_str consumer;
    struct td_message_ref ref;
    int64_t revision; /* expected; 0: any */
    int32_t attempts_more;
    td_time_us due_after_us; /* REPLAY: for --rate */
    struct td_str reason;    /* DISCARD: required */
    struct td_str actor;     /* who, for tidings_audit */
    bool set_body;
    struct td_bytes body;
    bool set_headers;
    const struct td_header *headers;
    size_t headers_count;
    bool changed; /* out: false: it was otherwise (or not dead) */
};

struct td_inbox_row {
    struct td_str consumer;
    struct td_message_ref ref;
    enum td_outcome outcome;
    int32_t attempts;
    struct td_str origin;
    td_time_us published_at;
    td_time_us seen_at;
    td_time_us settled_at;
};

struct td_published_row {
    struct td_str relay;
    int64_t from_seq, to_seq, published;
    td_time_us at;
    struct td_str evidence;
};

struct td_audit_row {
    td_time_us at;
    struct td_str actor;
    struct td_str action; /* replay, discard, edit, rebase, ... */
    struct td_str consumer;
    struct td_message_ref ref;
    struct td_str detail; /* JSON */
};

/* ---- the driver ------------------------------------------------------------------------- */

struct td_store_driver {
    uint32_t abi;         /* TD_STORE_ABI */
    uint32_t struct_size; /* sizeof(struct td_store_driver) */
    const char *name;
    uint32_t caps; /* enum td_store_cap */
    size_t session_size;

    /* Connect. Refuses another service's tables, a foreign, corrupt, newer or missing schema. */
    enum td_err (*open)(struct td_store *s, const struct td_store_options *o, struct td_error *err);
    /* Give everything back; rolls back an open transaction. Never fails; takes half-open ones. */
    void (*close)(struct td_store *s);
    /* From any thread: make the slot that is running return TD_ERR_INTERRUPTED soon. */
    void (*interrupt)(struct td_store *s);
    /* Version, identity and durable settings. */
    enum td_err (*info)(struct td_store *s, struct tdi_arena *a, struct td_store_info *ret_info,
                        struct td_error *err);
    /* Make or upgrade all tables to schema_wanted; writes the service's name. Repeatable. */
    enum td_err (*migrate)(struct td_store *s, struct td_error *err);
    /* The SQL that migrate() would run on an empty database, for people. No session needed. */
    enum td_err (*schema_sql)(const struct td_store_options *o, struct tdi_arena *a,
                              struct td_str *ret_sql, struct td_error *err);
    /* The store's clock. */
    enum td_err (*now)(struct td_store *s, td_time_us *ret_now, struct td_error *err);

    /* -- transactions ---- */
    enum td_err (*begin)(struct td_store *s, struct td_error *err);
    /* One level. Ended by savepoint_end: keep = false undoes all since. tx */
    enum td_err (*savepoint)(struct td_store *s, struct td_error *err);
    /* The end of the one level that savepoint began. tx */
    enum td_err (*savepoint_end)(struct td_store *s, bool keep, struct td_error *err);
    /* End the transaction. commit: returns when it is on disk. After any failure of commit that is
     * not UNKNOWN the transaction is certainly rolled back and the session usable. tx */
    enum td_err (*finish)(struct td_store *s, bool commit, struct td_error *err);

    /* -- relay ---- */
    /* Make the relay known: it holds the outbox from purging from now on. A new one starts at the
     * lowest position of its siblings on this store, else at the beginning. Repeatable. */
    enum td_err (*relay_declare)(struct td_store *s, struct td_str relay, struct td_error *err);
    /* The stored position of a declared relay. */
    enum td_err (*relay_position)(struct td_store *s, struct td_str relay, struct tdi_arena *a,
                                  struct td_position *ret_position, struct td_error *err);
    /* Rows after `after`, in publishing order, at most max rows and about bytes_max bytes of body;
     * their positions share one data. REBUILT: the position is of another table. */
    enum td_err (*outbox_read)(struct td_store *s, const struct td_position *after, size_t max,
                               size_t bytes_max, struct tdi_arena *a,
                               struct td_outbox_row **ret_rows, size_t *ret_count,
                               struct td_error *err);
    /* Returns when everything that outbox_read() has shown is on disk. */
    enum td_err (*outbox_durable)(struct td_store *s, struct td_error *err);
    /* Dead rows, evidence and position in one transaction. FENCED: a newer owner. */
    enum td_err (*relay_settle)(struct td_store *s, const struct td_relay_settle *settle,
                                struct td_error *err);
    /* Delete at most max rows that every declared relay covers and that are older than keep_us. */
    enum td_err (*outbox_purge)(struct td_store *s, td_time_us keep_us, size_t max,
                                size_t *ret_removed, struct td_error *err);
    /* Block until something may have been committed, or until the deadline (clock.mono). A hint:
     * may wake for nothing and may miss. Optional (NULL): the caller waits by itself. */
    enum td_err (*wait)(struct td_store *s, td_time_us deadline_us, bool *ret_woken,
                        struct td_error *err);
    /* A relay's position to `to` (no data: to the beginning), audited. The lease must be free
     * (OWNED), or have this fence: of an owner that says that it is halted. That one loses it, is
     * told so by its next renewal, and goes on from there. fence 0: it must be free. */
    enum td_err (*relay_rebase)(struct td_store *s, struct td_str relay, int64_t fence,
                                const struct td_position *to, struct td_str actor,
                                struct td_error *err);

    /* -- leases: relays and shards ---- */
    /* OWNED: somebody else has it (lease->owner_pid). Otherwise ours for ttl_us, fence + 1. */
    enum td_err (*lease_take)(struct td_store *s, struct td_str name, td_time_us ttl_us,
                              struct td_lease *ret_lease, struct td_error *err);
    /* FENCED: lost. report (JSON, may be empty) is kept for `status`. */
    enum td_err (*lease_renew)(struct td_store *s, struct td_str name, int64_t fence,
                               td_time_us ttl_us, struct td_str report, struct td_error *err);
    /* clear_unclean: the window after an unclean end has been settled; the mark goes. */
    enum td_err (*lease_clear_unclean)(struct td_store *s, struct td_str name, int64_t fence,
                                       struct td_error *err);
    /* A clean end; keeps the mark of an earlier unclean one. */
    enum td_err (*lease_release)(struct td_store *s, struct td_str name, int64_t fence,
                                 struct td_error *err);
    /* Every lease, for status. Read only. */
    enum td_err (*lease_scan)(struct td_store *s, struct tdi_arena *a, struct td_lease_state **ret,
                              size_t *ret_count, struct td_error *err);

    /* -- consumer ---- */
    /* Read only: states[i] of refs[i]. */
    enum td_err (*inbox_look)(struct td_store *s, struct td_str consumer,
                              const struct td_message_ref *refs, size_t count,
                              struct td_inbox_state *ret_states, struct td_error *err);
    /* Insert `effect` rows, before the work; fills former. Reads the fence row of the shard
     * (name: lease) and fails FENCED when it is newer; fence 0: not read. tx */
    enum td_err (*inbox_claim)(struct td_store *s, struct td_str consumer, struct td_str lease,
                               int64_t fence, struct td_claim *claims, size_t count,
                               struct td_error *err);
    /* Settle and park. Reads the fence like inbox_claim. Items that are not `settled` are no
     * error. tx */
    enum td_err (*inbox_settle)(struct td_store *s, struct td_str consumer, int32_t shard,
                                struct td_str lease, int64_t fence, struct td_settle *items,
                                size_t count, struct td_error *err);
    /* Lease due rows: attempts + 1, committed before anything runs. A row whose runs are used up
     * is settled dead instead (poison if its last run ended without a verdict, else exhausted).
     * A row with unfinished_run, or whose last run ended without verdict, comes alone. */
    enum td_err (*parked_due)(struct td_store *s, struct td_str lease,
                              const struct td_parked_due *ask, struct tdi_arena *a,
                              struct td_parked_batch *ret_batch, struct td_error *err);
    /* Give leased rows back without a verdict and without taking the attempt back; due at once. */
    enum td_err (*parked_return)(struct td_store *s, struct td_str consumer,
                                 const struct td_message_ref *refs, size_t count,
                                 struct td_error *err);
    /* Keys with a retry, blocked or dead row that has blocks_key. */
    enum td_err (*parked_keys)(struct td_store *s, struct td_str consumer, int32_t shard,
                               struct tdi_arena *a, struct td_str **ret_keys, size_t *ret_count,
                               struct td_error *err);
    /* Remove at most max inbox rows (and their parked rows) that are finished and older than
     * keep_us after the later of settlement and publication; bodies of finished parked rows, and
     * discarded ones after parked_keep_us. */
    enum td_err (*inbox_prune)(struct td_store *s, struct td_str consumer, td_time_us keep_us,
                               td_time_us parked_keep_us, size_t max, size_t *ret_removed,
                               struct td_error *err);
    /* Numbers of one consumer, for status. Read only. */
    enum td_err (*counts)(struct td_store *s, struct td_str consumer,
                          struct td_consumer_counts *ret_counts, struct td_error *err);

    /* -- what the sql handler stands on ---- */
    /* Check and keep a statement for the life of the session. err: STATEMENT with sqlstate. */
    enum td_err (*statement_prepare)(struct td_store *s, const struct td_statement *statement,
                                     int *ret_handle, struct td_error *err);
    /* Run it for `rows` rows of values (row after row, names_count each); ret_changed[row]. Stops
     * at the first row that fails: *ret_failed = its number, err says why. tx */
    enum td_err (*statement_run)(struct td_store *s, int handle, const struct td_value *values,
                                 size_t rows, int64_t *ret_changed, size_t *ret_failed,
                                 struct td_error *err);

    /* -- operator ---- */
    /* At most max rows in order of arrival after the cursor; *cursor is moved. It starts at 0; the
     * scan ends when fewer than max come back. */
    enum td_err (*parked_scan)(struct td_store *s, const struct td_parked_filter *filter,
                               int64_t *cursor, size_t max, struct tdi_arena *a,
                               struct td_parked_row **ret_rows, size_t *ret_count,
                               struct td_error *err);
    /* One change in one transaction, with its tidings_audit row. */
    enum td_err (*parked_change)(struct td_store *s, struct td_parked_change *change,
                                 struct td_error *err);
    /* Numbers of one relay, for status. Read only. */
    enum td_err (*relay_stats)(struct td_store *s, struct td_str relay,
                               struct td_relay_stats *ret_stats, struct td_error *err);
    /* For trace: the outbox row, inbox rows and published entry of an id. *ret_found false: no. */
    enum td_err (*outbox_find)(struct td_store *s, struct td_str id, struct tdi_arena *a,
                               struct td_outbox_row *ret_row, bool *ret_found,
                               struct td_error *err);
    /* For trace: the inbox rows of an id, of every consumer. */
    enum td_err (*inbox_find)(struct td_store *s, struct td_str id, struct tdi_arena *a,
                              struct td_inbox_row **ret_rows, size_t *ret_count,
                              struct td_error *err);
    /* For trace: the published entries that cover an outbox sequence number. */
    enum td_err (*published_find)(struct td_store *s, int64_t seq, struct tdi_arena *a,
                                  struct td_published_row **ret_rows, size_t *ret_count,
                                  struct td_error *err);
    /* For trace: the audit rows of an id. */
    enum td_err (*audit_find)(struct td_store *s, struct td_str id, struct tdi_arena *a,
                              struct td_audit_row **ret_rows, size_t *ret_count,
                              struct td_error *err);
    /* Add messages to the outbox as an application would, one transaction; ids must be set. */
    enum td_err (*outbox_add)(struct td_store *s, const struct td_message *messages, size_t count,
                              struct td_error *err);
};

/* The head of every session; the driver's own struct begins with it. */
struct td_store {
    const struct td_store_driver *driver;
};

#ifdef __cplusplus
}
#endif

#endif
