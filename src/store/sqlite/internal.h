/*
 * Inside of the SQLite store: the session, and the helpers that its files share.
 *
 * Must not know: brokers, handlers, configuration.
 * Invariants: a kept statement is reset before the slot that used it returns, so no session holds a
 * snapshot (and so the WAL) between two calls; all writing happens between tdd_tx_begin() and
 * tdd_tx_end(), or in the transaction that the caller opened.
 */
#ifndef TDD_SQLITE_INTERNAL_H
#define TDD_SQLITE_INTERNAL_H

#include "base/arena.h"
#include "base/buf.h"
#include "sqlite/db.h"
#include "store/sqlite/statements.h"
#include "tidings/store.h"

#define TDD_OPERATION_TIMEOUT_US (5 * TD_SECOND_US)
#define TDD_CACHE_KIB 2048
#define TDD_LEASES_MAX 256    /* held by one session */
#define TDD_HANDLES_MAX 512   /* statements of handlers */
#define TDD_PARAMS_MAX 256    /* of one statement */
#define TDD_COUNT_MAX 1000000 /* where the interface says "counted up to" */
#define TDD_IDENTITY_BYTES 37
#define TDD_SERVICE_BYTES_MAX 256

/* A lease that this session took and did not give back. */
struct tdd_held {
    int64_t slot; /* of tidings_lease; 0: free */
    int64_t fence;
    bool locked; /* we hold the byte `slot` of the owner file */
};

/* A handler's statement. */
struct tdd_handle {
    sqlite3_stmt *stmt;
    int *positions; /* parameter number of the i-th name; 0: not used */
    size_t names_count;
};

struct tdd_sqlite {
    struct td_store head;
    struct tdi_db db;
    struct tdi_db checkpointer; /* opened when first needed */
    bool checkpointer_open;
    bool real_files; /* the default VFS: inotify and file locks make sense */
    struct td_clock clock;
    struct tdi_random *random;
    char service[TDD_SERVICE_BYTES_MAX + 1]; /* as the database says; empty: not made yet */
    char wanted[TDD_SERVICE_BYTES_MAX + 1];  /* as the options say */
    char identity[TDD_IDENTITY_BYTES];
    int32_t schema;

    /* transaction */
    bool tx_open;
    bool savepoint_open;
    bool undone;            /* a savepoint of this transaction was: claims may be gone */
    int64_t data_version;   /* when we last held the write lock */
    td_time_us tx_began_us; /* monotonic */
    td_time_us tx_ended_us;
    td_time_us lock_wait_us; /* see struct td_store_options; 0: as all others */
    td_time_us tx_held_us;   /* how long the last one held the lock */
    int checkpoint_at;       /* pages in the WAL from which on it is tried again */

    /* waker */
    int wake_fd; /* eventfd of interrupt() */
    int inotify_fd;
    bool fds_open;

    /* leases */
    int owner_fd;
    char host[64];
    struct tdd_held held[TDD_LEASES_MAX];

    /* handlers */
    struct tdd_handle handles[TDD_HANDLES_MAX];
    size_t handles_count;
    td_time_us run_deadline_us; /* of statement_run(), monotonic */

    /* inbox_prune() goes on behind this row; absent: at the beginning */
    struct tdi_arena prune_arena;
    struct td_str prune_consumer;
    struct td_message_ref prune_at;
};

static inline struct tdd_sqlite *tdd_session(struct td_store *s)
{
    return (struct tdd_sqlite *)s;
}

/* ---- session.c */
enum td_err tdd_fail(enum td_err code, const char *op, struct td_error *err, const char *fmt, ...)
    TD_PRINTF(4, 5);
enum td_err tdd_nomem(const char *op, struct td_error *err);
td_time_us tdd_now(const struct tdd_sqlite *s);
td_time_us tdd_mono(const struct tdd_sqlite *s);
/* A kept statement, ready to bind. */
enum td_err tdd_stmt(struct tdd_sqlite *s, enum tdd_sql sql, sqlite3_stmt **ret, const char *op,
                     struct td_error *err);
/* One step: *ret_row tells if there is a row. At the end or on failure the statement is reset. */
enum td_err tdd_step(struct tdd_sqlite *s, sqlite3_stmt *stmt, bool *ret_row, const char *op,
                     struct td_error *err);
/* Run to the end; results are ignored. *ret_changed may be NULL. */
enum td_err tdd_run(struct tdd_sqlite *s, sqlite3_stmt *stmt, int64_t *ret_changed, const char *op,
                    struct td_error *err);
/* A column as a copy in the arena; false: exhausted. */
bool tdd_copy_str(sqlite3_stmt *stmt, int at, struct tdi_arena *a, struct td_str *ret);
bool tdd_copy_bytes(sqlite3_stmt *stmt, int at, struct tdi_arena *a, struct td_bytes *ret);
/* A body: as text where that can be read with SQL and gives the same bytes back, else as a blob. */
void tdd_bind_body(sqlite3_stmt *stmt, int at, struct td_bytes body, struct td_str content_type);

/* ---- migrate.c */
enum td_err tdd_schema_load(struct tdd_sqlite *s, const struct td_store_options *o,
                            struct td_error *err);
enum td_err tdd_migrate(struct td_store *store, struct td_error *err);
enum td_err tdd_schema_sql(const struct td_store_options *o, struct tdi_arena *a,
                           struct td_str *ret_sql, struct td_error *err);
int32_t tdd_schema_wanted(void);

/* ---- tx.c */
/* Begin a short transaction of a slot's own. */
enum td_err tdd_tx_begin(struct tdd_sqlite *s, const char *op, struct td_error *err);
/* The same, but waits for the write lock no longer than lock_wait_us of the session's options. */
enum td_err tdd_tx_begin_soon(struct tdd_sqlite *s, const char *op, struct td_error *err);
/* rc TD_OK: commit, and bring it to disk if `sync`; otherwise roll back and return rc. */
enum td_err tdd_tx_end(struct tdd_sqlite *s, enum td_err rc, bool sync, struct td_error *err);
/* Is the caller's transaction open, and still there? */
enum td_err tdd_tx_check(struct tdd_sqlite *s, const char *op, struct td_error *err);
enum td_err tdd_begin(struct td_store *store, struct td_error *err);
enum td_err tdd_savepoint(struct td_store *store, struct td_error *err);
enum td_err tdd_savepoint_end(struct td_store *store, bool keep, struct td_error *err);
enum td_err tdd_finish(struct td_store *store, bool commit, struct td_error *err);

/* ---- outbox.c */
enum td_err tdd_outbox_read(struct td_store *store, const struct td_position *after, size_t max,
                            size_t bytes_max, struct tdi_arena *a, struct td_outbox_row **ret_rows,
                            size_t *ret_count, struct td_error *err);
enum td_err tdd_outbox_durable(struct td_store *store, struct td_error *err);
enum td_err tdd_outbox_find(struct td_store *store, struct td_str id, struct tdi_arena *a,
                            struct td_outbox_row *ret_row, bool *ret_found, struct td_error *err);
enum td_err tdd_outbox_add(struct td_store *store, const struct td_message *messages, size_t count,
                           struct td_error *err);
/* Insert one row; needs an open transaction. `again`: an id that exists is passed over. */
enum td_err tdd_outbox_insert(struct tdd_sqlite *s, const struct td_message *m, bool again,
                              const char *op, struct td_error *err);

/* ---- outbox_row.c */
/* Columns of the row that `stmt` stands on, in the order of TDD_OUTBOX_COLUMNS. Its position has
 * the order only. */
enum td_err tdd_outbox_decode(struct tdd_sqlite *s, sqlite3_stmt *stmt, struct tdi_arena *a,
                              struct td_outbox_row *ret, struct td_error *err);
/* The sequence number of a position; REBUILT when it belongs to another table. */
enum td_err tdd_position_seq(const struct tdd_sqlite *s, const struct td_position *p,
                             const char *op, int64_t *ret_seq, struct td_error *err);

/* ---- relay.c */
enum td_err tdd_relay_declare(struct td_store *store, struct td_str relay, struct td_error *err);
enum td_err tdd_relay_position(struct td_store *store, struct td_str relay, struct tdi_arena *a,
                               struct td_position *ret_position, struct td_error *err);
enum td_err tdd_relay_settle(struct td_store *store, const struct td_relay_settle *settle,
                             struct td_error *err);
enum td_err tdd_outbox_purge(struct td_store *store, td_time_us keep_us, size_t max,
                             size_t *ret_removed, struct td_error *err);
enum td_err tdd_relay_rebase(struct td_store *store, struct td_str relay, int64_t fence,
                             const struct td_position *to, struct td_str actor,
                             struct td_error *err);
enum td_err tdd_relay_stats(struct td_store *store, struct td_str relay,
                            struct td_relay_stats *ret_stats, struct td_error *err);
enum td_err tdd_published_find(struct td_store *store, int64_t seq, struct tdi_arena *a,
                               struct td_published_row **ret_rows, size_t *ret_count,
                               struct td_error *err);

/* ---- wait.c */
enum td_err tdd_wait_open(struct tdd_sqlite *s, struct td_error *err);
void tdd_wait_close(struct tdd_sqlite *s);
void tdd_wait_interrupt(struct tdd_sqlite *s);
enum td_err tdd_wait(struct td_store *store, td_time_us deadline_us, bool *ret_woken,
                     struct td_error *err);

/* ---- lease.c */
enum td_err tdd_lease_take(struct td_store *store, struct td_str name, td_time_us ttl_us,
                           struct td_lease *ret_lease, struct td_error *err);
enum td_err tdd_lease_renew(struct td_store *store, struct td_str name, int64_t fence,
                            td_time_us ttl_us, struct td_str report, struct td_error *err);
enum td_err tdd_lease_clear_unclean(struct td_store *store, struct td_str name, int64_t fence,
                                    struct td_error *err);
enum td_err tdd_lease_release(struct td_store *store, struct td_str name, int64_t fence,
                              struct td_error *err);
enum td_err tdd_lease_scan(struct td_store *store, struct tdi_arena *a, struct td_lease_state **ret,
                           size_t *ret_count, struct td_error *err);
/* FENCED unless the lease has this very fence; fence 0 is not read. */
enum td_err tdd_fence_check(struct tdd_sqlite *s, struct td_str lease, int64_t fence,
                            const char *op, struct td_error *err);
/* Is it owned now? */
enum td_err tdd_lease_alive(struct tdd_sqlite *s, struct td_str name, bool *ret_alive,
                            int64_t *ret_fence, struct td_error *err);
/* Take it from whoever has it; in a transaction. */
enum td_err tdd_lease_end(struct tdd_sqlite *s, struct td_str name, const char *op,
                          struct td_error *err);

/* ---- owner_lock.c: one byte of a file for each lease, locked as long as its owner lives */
#define TDD_CHECKPOINT_BYTE 0 /* leases begin at 1; held for the time of a checkpoint */
enum tdd_lock {
    TDD_LOCK_OURS,
    TDD_LOCK_OTHERS,
    TDD_LOCK_NONE, /* no such file here: judge by the clock alone */
};
enum tdd_lock tdd_owner_lock(struct tdd_sqlite *s, int64_t slot);
enum tdd_lock tdd_owner_probe(struct tdd_sqlite *s, int64_t slot);
void tdd_owner_unlock(struct tdd_sqlite *s, int64_t slot);
void tdd_owner_close(struct tdd_sqlite *s);

/* ---- inbox.c */
enum td_err tdd_inbox_look(struct td_store *store, struct td_str consumer,
                           const struct td_message_ref *refs, size_t count,
                           struct td_inbox_state *ret_states, struct td_error *err);
enum td_err tdd_inbox_claim(struct td_store *store, struct td_str consumer, struct td_str lease,
                            int64_t fence, struct td_claim *claims, size_t count,
                            struct td_error *err);
enum td_err tdd_inbox_prune(struct td_store *store, struct td_str consumer, td_time_us keep_us,
                            td_time_us parked_keep_us, size_t max, size_t *ret_removed,
                            struct td_error *err);
enum td_err tdd_inbox_find(struct td_store *store, struct td_str id, struct tdi_arena *a,
                           struct td_inbox_row **ret_rows, size_t *ret_count, struct td_error *err);
enum td_err tdd_counts(struct td_store *store, struct td_str consumer,
                       struct td_consumer_counts *ret_counts, struct td_error *err);
/* The row's outcome and attempts; NONE if there is none. `parked` is not looked up. */
enum td_err tdd_inbox_state(struct tdd_sqlite *s, struct td_str consumer,
                            const struct td_message_ref *ref, struct td_inbox_state *ret,
                            const char *op, struct td_error *err);
enum td_err tdd_inbox_insert(struct tdd_sqlite *s, struct td_str consumer,
                             const struct td_message_ref *ref, enum td_outcome outcome,
                             int32_t attempts, struct td_str origin, td_time_us published_at,
                             const char *op, struct td_error *err);
enum td_err tdd_inbox_update(struct tdd_sqlite *s, struct td_str consumer,
                             const struct td_message_ref *ref, enum td_outcome outcome,
                             int32_t attempts, const char *op, struct td_error *err);

/* ---- settle.c */
enum td_err tdd_inbox_settle(struct td_store *store, struct td_str consumer, int32_t shard,
                             struct td_str lease, int64_t fence, struct td_settle *items,
                             size_t count, struct td_error *err);

/* ---- keys.c: blocked keys of ordered consumers; all in an open transaction */
struct tdd_key {
    struct td_str consumer;
    int32_t shard;
    struct td_str key; /* absent: unordered, never blocked */
};
/* Does a row with an arrival below `before` (0: any) block the key? */
enum td_err tdd_key_blocked(struct tdd_sqlite *s, const struct tdd_key *k, int64_t before,
                            bool *ret_blocked, const char *op, struct td_error *err);
/* Make the follower with the lowest arrival due, unless an earlier row still blocks the key. */
enum td_err tdd_key_release(struct tdd_sqlite *s, const struct tdd_key *k, bool *ret_released,
                            const char *op, struct td_error *err);
enum td_err tdd_parked_keys(struct td_store *store, struct td_str consumer, int32_t shard,
                            struct tdi_arena *a, struct td_str **ret_keys, size_t *ret_count,
                            struct td_error *err);

/* ---- parked.c */
enum td_err tdd_parked_due(struct td_store *store, struct td_str lease,
                           const struct td_parked_due *ask, struct tdi_arena *a,
                           struct td_parked_batch *ret_batch, struct td_error *err);
enum td_err tdd_parked_return(struct td_store *store, struct td_str consumer,
                              const struct td_message_ref *refs, size_t count,
                              struct td_error *err);

/* ---- parked_row.c */
/* What changes in a parked row when it is made or settled. */
struct tdd_parked_write {
    struct td_str consumer;
    int32_t shard;
    struct td_message_ref ref;
    enum td_outcome outcome;
    td_time_us due_at; /* RETRY */
    int32_t attempts;
    int32_t attempt_limit;
    bool blocks_key;
    bool alone;
    bool failed; /* a run failed: code and its kin count, history grows */
    enum td_dead_code code;
    struct td_str reason;
    struct td_str error_type;
    struct td_str error_message;
    struct td_str handler;
    struct td_str origin;
};
enum td_err tdd_parked_insert(struct tdd_sqlite *s, const struct tdd_parked_write *w,
                              const struct td_message *m, const char *op, struct td_error *err);
/* *ret_found false: there is no such row, nothing was done. */
enum td_err tdd_parked_update(struct tdd_sqlite *s, const struct tdd_parked_write *w,
                              bool *ret_found, const char *op, struct td_error *err);
/* Columns of the row that `stmt` stands on, in the order of TDD_PARKED_COLUMNS. */
enum td_err tdd_parked_decode(struct tdd_sqlite *s, sqlite3_stmt *stmt, bool with_body,
                              struct tdi_arena *a, struct td_parked_row *ret, const char *op,
                              struct td_error *err);
/* One more entry behind a JSON array of them; the oldest go when there are too many. */
#define TDD_HISTORY_ENTRIES_MAX 20
#define TDD_HISTORY_BYTES_MAX 4096
void tdd_history_add(struct tdi_buf *out, struct td_str history, td_time_us at, int32_t attempt,
                     const char *result, struct td_str code, struct td_str reason);

/* ---- statement.c */
enum td_err tdd_statement_prepare(struct td_store *store, const struct td_statement *statement,
                                  int *ret_handle, struct td_error *err);
enum td_err tdd_statement_run(struct td_store *store, int handle, const struct td_value *values,
                              size_t rows, int64_t *ret_changed, size_t *ret_failed,
                              struct td_error *err);
void tdd_statements_close(struct tdd_sqlite *s);

/* ---- operator.c */
enum td_err tdd_parked_scan(struct td_store *store, const struct td_parked_filter *filter,
                            int64_t *cursor, size_t max, struct tdi_arena *a,
                            struct td_parked_row **ret_rows, size_t *ret_count,
                            struct td_error *err);
enum td_err tdd_audit_find(struct td_store *store, struct td_str id, struct tdi_arena *a,
                           struct td_audit_row **ret_rows, size_t *ret_count, struct td_error *err);
struct tdd_audit {
    struct td_str actor;
    const char *action;
    struct td_str consumer;
    struct td_message_ref ref;
    struct td_str detail; /* JSON */
};
enum td_err tdd_audit_add(struct tdd_sqlite *s, const struct tdd_audit *entry, const char *op,
                          struct td_error *err);

/* ---- change.c */
enum td_err tdd_parked_change(struct td_store *store, struct td_parked_change *change,
                              struct td_error *err);

#endif
