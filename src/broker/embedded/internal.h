/*
 * The embedded broker: topics, queues, durable publishing and leases on one SQLite file.
 *
 * Who may touch what
 *   - `lock` of the instance guards everything that is not said to be otherwise.
 *   - Who holds `writing` has the write connection and the fields marked W. Who holds `syncing`
 *     syncs. Both are flags under the lock, taken and given back with it, so that a writer thread
 *     and a caller that steps inline are the same code.
 *   - `reader_lock` guards the read connection; `lock` is never taken while it is held.
 *
 * The way of a message: submit() copies it into an entry and puts it into `pending`; a commit
 * writes a slice of them and moves them to `unsynced`; after a sync they are confirmed and become
 * visible to consumers, in the order in which they came.
 *
 * Invariants
 *   - Confirmed or delivered is on disk. A failed sync is final: nothing follows it.
 *   - Of a queue, ids up to `visible` are on disk, ids up to `cursor` are in `items` or settled, and
 *     `items` is sorted by id.
 *   - An id enters the dedupe set with the commit that stored its message in every queue.
 */
#ifndef TDD_EMBEDDED_INTERNAL_H
#define TDD_EMBEDDED_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/str.h"
#include "broker/embedded/dedupe.h"
#include "sqlite/db.h"
#include "tidings/broker.h"

#define TDD_EMB_NAME "embedded"
#define TDD_EMB_APPLICATION_ID 0x54644272 /* "TdBr" */
#define TDD_EMB_FORMAT 1

#define TDD_EMB_TOPICS_MAX 1024
#define TDD_EMB_QUEUES_MAX 1024
#define TDD_EMB_ROUTES_MAX 1024 /* remembered per topic */

#define TDD_EMB_WINDOW_MAX 4096             /* submitted and not collected, a session */
#define TDD_EMB_WINDOW_BYTES_MAX 33554432   /* likewise; one message always goes */
#define TDD_EMB_PENDING_BYTES_MAX 134217728 /* of all sessions */
#define TDD_EMB_ENVELOPE_BYTES_MAX 1048576
#define TDD_EMB_BODY_BYTES_MAX ((size_t)TD_BODY_BYTES_MAX)

#define TDD_EMB_SLICE_MAX 1024 /* messages and acks of one commit */
#define TDD_EMB_SLICE_BYTES_MAX 8388608
#define TDD_EMB_SYNC_INLINE_MAX 32 /* fewer waiting: the writer syncs itself */
#define TDD_EMB_HOLD_BACK_MAX 64   /* fewer waiting while a sync runs: no commit yet */
#define TDD_EMB_ACK_FLUSH_US (5 * TD_MILLISECOND_US)
#define TDD_EMB_ACKS_MAX 65536 /* waiting for a commit; more: no deliveries */
#define TDD_EMB_RETRY_US (100 * TD_MILLISECOND_US)

#define TDD_EMB_REFILL_ROWS 1024
#define TDD_EMB_REFILL_BYTES 4194304
#define TDD_EMB_CACHE_BYTES_MAX 33554432 /* fresh messages in memory, all queues */
#define TDD_EMB_MARK_AHEAD 512           /* deliveries that a commit allows ahead, at least */
#define TDD_EMB_MARK_AHEAD_MAX 8192      /* for fast consumers */
#define TDD_EMB_FETCH_MAX 1024
#define TDD_EMB_PREFETCH_BYTES 16777216 /* default */
#define TDD_EMB_PREFETCH_MAX 65536

#define TDD_EMB_CHECKPOINT_AGAIN_PAGES 1024 /* after one that a reader cut short */
#define TDD_EMB_WAL_PAGES_WARN (64 * 1024)  /* 256 MiB */
#define TDD_EMB_WAL_PAGES_MAX (256 * 1024)  /* 1 GiB: publishes are refused */
#define TDD_EMB_IDLE_US (500 * TD_MILLISECOND_US)
#define TDD_EMB_IDLE_AGAIN_US (5 * TD_SECOND_US)

struct tdd_emb_pub;
struct tdd_emb_con;
struct tdd_emb_queue;
struct tdd_emb_server;
struct tdd_emb_client;

struct tdd_emb_topic {
    int64_t id;
    struct td_str name; /* own copy, terminated */
    size_t max_bytes;   /* 0: the broker's */
    struct tdi_map routes;
};

/* Queues of a topic that take one type. Unchanging; counted references under the lock. */
struct tdd_emb_route {
    uint32_t refs;
    uint32_t count;
    struct tdd_emb_queue *queues[];
};

/* A message in memory: on its way to disk, then in the windows of its queues. */
struct tdd_emb_entry {
    struct tdd_emb_entry *next;  /* in pending, the slice, unsynced */
    struct tdd_emb_pub *pub;     /* who gets the answer; NULL when settled */
    struct tdd_emb_route *route; /* NULL when settled */
    uint64_t token;              /* the publisher's */
    uint64_t seq;                /* number in its session, from 1 */
    struct tdd_emb_hash hash;
    uint32_t refs; /* one of the way to disk, one of each window */
    bool replay;
    bool duplicate; /* W */
    bool body_null; /* a tombstone */
    td_time_us published_at;
    size_t envelope_len;
    size_t body_len;
    char data[]; /* envelope, body */
};

enum tdd_emb_item_state {
    TDD_EMB_READY,
    TDD_EMB_IN_FLIGHT,
    TDD_EMB_SETTLED, /* waits to be dropped from the window */
};

struct tdd_emb_item {
    int64_t id;
    struct tdd_emb_entry *entry; /* NULL when settled */
    struct tdd_emb_con *holder;  /* IN_FLIGHT */
    enum tdd_emb_item_state state;
    bool redelivered;
};

struct tdd_emb_ack {
    int64_t id;
    int64_t bytes; /* as counted in queue.bytes */
};

struct tdd_emb_queue {
    int64_t id;
    struct td_str name; /* the consumer's; own copy, terminated */
    struct tdd_emb_topic *topic;
    bool ordered;
    struct td_str *types; /* patterns, own copies; none: everything */
    size_t types_count;

    /* The window: items[head..tail), sorted by id. */
    struct tdd_emb_item *items;
    size_t head, tail, cap;
    size_t first_ready; /* no READY item before it */
    size_t ready;
    size_t settled;
    int64_t visible; /* on disk and deliverable up to here */
    int64_t cursor;  /* in the window or settled up to here; the rest is only on disk */
    int64_t live;    /* visible and not acknowledged */
    int64_t in_flight;
    int64_t delivered_hi; /* highest id delivered */
    int64_t mark;         /* committed: up to here messages may have been delivered */
    int64_t mark_based;   /* delivered_hi when the mark was set last */
    bool mark_wanted;
    bool refilling; /* somebody reads from disk without the lock */
    struct tdd_emb_con *consumers;

    struct tdd_emb_ack *acks; /* settled, not yet in a commit */
    size_t acks_count, acks_cap;
    bool dirty; /* in the instance's dirty list: acks or mark_wanted */
    struct tdd_emb_queue *next_dirty;

    /* W: the commit in hand */
    int64_t next_id, depth, bytes;
    int64_t saved_next_id, saved_depth, saved_bytes;
    int64_t mark_next;         /* that the commit writes; first how far deliveries may go, or -1 */
    struct tdd_emb_ack *flush; /* TDD_EMB_SLICE_MAX; kept when the commit fails */
    size_t flush_count;
    struct tdd_emb_entry **staged; /* TDD_EMB_SLICE_MAX */
    size_t staged_count;
    bool touched;
    struct tdd_emb_queue *next_touched;
    sqlite3_stmt *insert_one, *insert_four, *delete_range;
    sqlite3_stmt *select_range; /* reader_lock */
};

/* A publishing session's core; outlives the session while entries point to it. */
struct tdd_emb_pub {
    struct td_broker_instance *instance;
    uint32_t refs;
    pthread_cond_t cond;
    struct td_published *ring; /* settled, TDD_EMB_WINDOW_MAX */
    size_t ring_head, ring_count;
    size_t outstanding; /* submitted and not collected */
    size_t bytes;       /* of what is not settled */
    uint64_t seq;       /* of the last one submitted */
    uint64_t broken_at; /* what comes after it is refused until all is collected; 0: not broken */
    int notify_fd;      /* eventfd to poke when something is settled, or -1 */
    bool interrupted;
    bool closed;
    struct tdi_buf scratch; /* the session's thread only */
};

/* A delivery on its way from the window to the caller. */
struct tdd_emb_leased {
    int64_t id;
    struct tdd_emb_entry *entry; /* lives until the session settles or returns it */
    bool redelivered;
};

struct tdd_emb_con {
    struct td_broker_instance *instance;
    struct tdd_emb_queue *queue; /* NULL before subscribe */
    struct tdd_emb_con *next;    /* of the queue */
    pthread_cond_t cond;
    size_t prefetch, prefetch_bytes;
    size_t in_flight, in_flight_bytes;
    bool paused;
    bool interrupted;
    struct tdd_emb_leased *leased; /* TDD_EMB_FETCH_MAX; the session's thread only */
};

struct tdd_emb_list {
    struct tdd_emb_entry *first, *last;
    size_t count;
};

struct td_broker_instance {
    struct td_clock clock;
    char *dir; /* as the user wrote it */
    int owner_fd;
    struct td_str vfs; /* own copy */

    struct tdi_db writer; /* W */
    struct tdi_db reader; /* reader_lock */
    pthread_mutex_t reader_lock;

    pthread_mutex_t lock;
    pthread_cond_t work;      /* the writer thread, and who waits for `writing` or `syncing` */
    pthread_cond_t sync_work; /* the sync thread */
    bool writing, syncing;
    bool handed;   /* the sync thread shall sync */
    bool stopping; /* no new work is taken */
    bool stop_threads;
    bool failed;
    struct td_error failure;

    struct tdi_map topics; /* by name */
    struct tdi_map queues; /* by name */
    struct tdd_emb_topic **topic_list;
    struct tdd_emb_queue **queue_list;
    size_t topics_count, queues_count;
    size_t sessions;

    struct tdd_emb_list pending;
    size_t pending_bytes;
    struct tdd_emb_list unsynced;
    bool unsynced_dirty; /* a commit since the last sync began */
    struct tdd_emb_queue *dirty;
    size_t acks_waiting;
    td_time_us ack_since; /* of the oldest ack that waits (clock.mono) */
    bool mark_wanted;     /* of any queue */
    td_time_us retry_at;  /* after a full disk: no commit of acks alone before */
    size_t cached_bytes;  /* READY entries in windows */
    bool wal_full;        /* publishes are refused */
    bool wal_large;       /* a reader keeps the WAL from beginning anew */

    struct tdd_emb_dedupe dedupe;    /* W */
    uint64_t hash_key[2];            /* unchanging */
    uint64_t commits;                /* W */
    uint64_t vacuum_looked;          /* W: commits at the last look at the free list */
    int64_t dedup_next, dedup_first; /* W: seq of the next and of the oldest row */
    int checkpoint_at;               /* W */
    td_time_us idle_at; /* maintenance when nothing happens; TD_TIME_NONE: all is done */

    bool threads;
    pthread_t writer_thread, sync_thread;
    bool writer_started, sync_started;
    struct tdd_emb_server *server;
};

struct tdd_emb_session {
    struct td_broker base;
    enum td_broker_role role;
    struct td_clock clock;
    char *dir;
    struct td_broker_instance *instance; /* or NULL */
    struct tdd_emb_pub *pub;             /* PUBLISH with an instance */
    struct tdd_emb_con *con;             /* CONSUME */
    struct tdd_emb_client *client;       /* PUBLISH by the owner's socket */
    struct tdi_db file;                  /* ADMIN without an instance: read only */
    bool file_open;
};

/* ---- owner.c: one process owns the directory ---- */
enum td_err tdd_emb_owner_take(const char *dir, const struct td_clock *clock, int *ret_fd,
                               struct td_error *err);
void tdd_emb_owner_release(int fd);
/* 0: nobody, or not known. */
int64_t tdd_emb_owner_pid(const char *dir, td_time_us *ret_since);

/* ---- instance.c ---- */
enum td_err tdd_emb_instance_open(const struct td_broker_options *o,
                                  struct td_broker_instance **ret, struct td_error *err);
void tdd_emb_instance_close(struct td_broker_instance *in);
enum td_err tdd_emb_instance_health(struct td_broker_instance *in, struct td_error *err);
/* The directory is there, or a sentence that names `tidings init`. */
enum td_err tdd_emb_dir_check(const char *dir, bool create, struct td_error *err);
enum td_err tdd_emb_file_open(struct tdi_db *db, const char *dir, struct td_str vfs,
                              const struct td_clock *clock, bool read_only, bool create,
                              struct td_error *err);
char *tdd_emb_strdup(struct td_str s);
void tdd_emb_str_free(struct td_str s); /* made by the former; absent is fine */
enum td_err tdd_emb_nomem(struct td_error *err);
/* Final: everybody is told. Lock held. */
void tdd_emb_fail(struct td_broker_instance *in, const struct td_error *why);
/* Copies the failure. */
enum td_err tdd_emb_failure(const struct td_broker_instance *in, struct td_error *err);
/* Wait on cond until the deadline (TD_TIME_NONE: for ever); spurious wake-ups happen. */
void tdd_emb_wait(struct td_broker_instance *in, pthread_cond_t *cond, td_time_us deadline_us);
bool tdd_emb_passed(const struct td_broker_instance *in, td_time_us deadline_us);
enum td_err tdd_emb_cond_init(pthread_cond_t *cond, struct td_error *err);

/* ---- schema.c ---- */
enum td_err tdd_emb_schema_open(struct tdi_db *db, bool create, struct tdi_random *random,
                                uint64_t ret_key[2], struct td_error *err);
enum td_err tdd_emb_schema_check(struct tdi_db *db, struct td_error *err);
enum td_err tdd_emb_load(struct td_broker_instance *in, struct td_error *err);
enum td_err tdd_emb_identity(struct tdi_db *db, struct tdi_arena *a, struct td_str *ret,
                             struct td_error *err);

/* ---- topology.c ---- */
enum td_err tdd_emb_topology_diff(struct tdi_db *db, const struct td_topology *wanted,
                                  struct tdi_arena *a, struct td_topology_difference **ret,
                                  size_t *ret_count, struct td_error *err);
enum td_err tdd_emb_topology_apply(struct td_broker_instance *in, const struct td_topology *wanted,
                                   struct tdi_arena *a, struct td_topology_difference **ret,
                                   size_t *ret_count, struct td_error *err);

/* ---- route.c: topics and queues in memory. Lock held, or before anybody else knows. ---- */
enum td_err tdd_emb_topic_put(struct td_broker_instance *in, int64_t id, struct td_str name,
                              size_t max_bytes, struct td_error *err);
enum td_err tdd_emb_queue_put(struct td_broker_instance *in, int64_t id, struct td_str name,
                              struct td_str topic, struct tdd_emb_queue **ret,
                              struct td_error *err);
enum td_err tdd_emb_queue_bind(struct td_broker_instance *in, struct tdd_emb_queue *q,
                               struct td_str topic, const struct td_str *types, size_t count,
                               struct td_error *err);
/* With one more reference; NULL: out of memory. */
struct tdd_emb_route *tdd_emb_route_get(struct td_broker_instance *in, struct tdd_emb_topic *t,
                                        struct td_str type);
void tdd_emb_route_unref(struct tdd_emb_route *r);
void tdd_emb_catalogue_free(struct td_broker_instance *in);

/* ---- entry.c ---- */
struct tdd_emb_entry *tdd_emb_entry_new(size_t envelope_len, size_t body_len);
void tdd_emb_entry_unref(struct tdd_emb_entry *e);
void tdd_emb_list_add(struct tdd_emb_list *l, struct tdd_emb_entry *e);
struct tdd_emb_entry *tdd_emb_list_take(struct tdd_emb_list *l);

/* ---- publish.c ---- */
enum td_err tdd_emb_pub_new(struct td_broker_instance *in, struct tdd_emb_pub **ret,
                            struct td_error *err);
void tdd_emb_pub_close(struct tdd_emb_pub *p);
enum td_err tdd_emb_submit(struct tdd_emb_pub *p, const struct td_publish *items, size_t count,
                           size_t *ret_taken, struct td_error *err);
enum td_err tdd_emb_collect(struct tdd_emb_pub *p, td_time_us deadline_us, struct td_published *ret,
                            size_t max, size_t *ret_count, struct td_error *err);
/* Lock held. Takes the reference of the way to disk. */
void tdd_emb_settle(struct td_broker_instance *in, struct tdd_emb_entry *e,
                    enum td_publish_result result, enum td_err code, uint64_t evidence);

/* ---- window.c: a queue's messages in memory. Lock held. ---- */
bool tdd_emb_window_add(struct td_broker_instance *in, struct tdd_emb_queue *q, int64_t id,
                        struct tdd_emb_entry *e, bool redelivered);
struct tdd_emb_item *tdd_emb_window_find(struct tdd_emb_queue *q, int64_t id);
/* The first READY item up to the mark; NULL: none. */
struct tdd_emb_item *tdd_emb_window_first(struct tdd_emb_queue *q);
void tdd_emb_window_lease(struct td_broker_instance *in, struct tdd_emb_queue *q,
                          struct tdd_emb_item *it, struct tdd_emb_con *c);
void tdd_emb_window_return(struct td_broker_instance *in, struct tdd_emb_queue *q,
                           struct tdd_emb_item *it, bool redelivered);
/* Room for acks, so that settling them cannot fail. */
bool tdd_emb_window_reserve(struct tdd_emb_queue *q, size_t count);
void tdd_emb_window_settle(struct td_broker_instance *in, struct tdd_emb_queue *q,
                           struct tdd_emb_item *it);
void tdd_emb_window_trim(struct tdd_emb_queue *q);
void tdd_emb_window_free(struct tdd_emb_queue *q);
void tdd_emb_queue_dirty(struct td_broker_instance *in, struct tdd_emb_queue *q);

/* ---- refill.c: from disk into the window. Lock held, let go meanwhile. ---- */
enum td_err tdd_emb_refill(struct td_broker_instance *in, struct tdd_emb_queue *q,
                           struct td_error *err);
enum td_err tdd_emb_lag(struct td_broker_instance *in, struct td_str consumer, struct tdi_arena *a,
                        struct td_lag **ret, size_t *ret_count, struct td_error *err);
enum td_err tdd_emb_lag_file(struct tdi_db *db, struct td_str consumer, struct tdi_arena *a,
                             struct td_lag **ret, size_t *ret_count, struct td_error *err);

/* ---- consume.c ---- */
enum td_err tdd_emb_con_new(struct td_broker_instance *in, struct tdd_emb_con **ret,
                            struct td_error *err);
void tdd_emb_con_close(struct tdd_emb_con *c);
enum td_err tdd_emb_subscribe(struct tdd_emb_con *c, const struct td_subscription *sub,
                              struct td_error *err);
enum td_err tdd_emb_fetch(struct tdd_emb_con *c, size_t max, td_time_us deadline_us,
                          struct tdi_arena *a, struct td_fetch *ret, struct td_error *err);
enum td_err tdd_emb_ack(struct tdd_emb_con *c, const uint64_t *handles, size_t count,
                        struct td_error *err);
enum td_err tdd_emb_nack(struct tdd_emb_con *c, const uint64_t *handles, size_t count,
                         struct td_error *err);
enum td_err tdd_emb_pause(struct tdd_emb_con *c, bool paused, struct td_error *err);

/* ---- write.c: one slice into the file. Holds `writing`, not the lock. ---- */
struct tdd_emb_slice {
    struct tdd_emb_list entries;
    struct tdd_emb_queue *touched;
    bool final; /* the marks are set to what really was delivered */
};
void tdd_emb_touch(struct tdd_emb_slice *s, struct tdd_emb_queue *q);
/* *ret_wrote: there was something to write and it is committed. */
enum td_err tdd_emb_write_slice(struct td_broker_instance *in, struct tdd_emb_slice *s,
                                bool *ret_wrote, struct td_error *err);

/* ---- step.c: commits and syncs. Lock held, let go meanwhile. ---- */
void tdd_emb_commit(struct td_broker_instance *in, bool final);
void tdd_emb_sync(struct td_broker_instance *in);
/* Commit and sync if there is work; false: there is none. */
bool tdd_emb_step(struct td_broker_instance *in);
void tdd_emb_writing_take(struct td_broker_instance *in);
void tdd_emb_writing_give(struct td_broker_instance *in);
void tdd_emb_drain(struct td_broker_instance *in);

/* ---- maintain.c: checkpoints and vacuum between commits. Holds `writing`; as step.c. ---- */
void tdd_emb_maintain(struct td_broker_instance *in);
void tdd_emb_maintain_idle(struct td_broker_instance *in);

/* ---- threads.c ---- */
enum td_err tdd_emb_threads_start(struct td_broker_instance *in, struct td_error *err);
void tdd_emb_threads_stop(struct td_broker_instance *in);

/* ---- server.c: other processes publish over <dir>/broker.sock ---- */
enum td_err tdd_emb_server_start(struct td_broker_instance *in, struct td_error *err);
void tdd_emb_server_stop(struct td_broker_instance *in);

/* ---- client.c: the other end ---- */
enum td_err tdd_emb_client_open(const char *dir, const struct td_clock *clock,
                                td_time_us timeout_us, struct tdd_emb_client **ret,
                                struct td_error *err);
void tdd_emb_client_close(struct tdd_emb_client *c);
void tdd_emb_client_interrupt(struct tdd_emb_client *c);
enum td_err tdd_emb_client_submit(struct tdd_emb_client *c, const struct td_publish *items,
                                  size_t count, size_t *ret_taken, struct td_error *err);
enum td_err tdd_emb_client_collect(struct tdd_emb_client *c, td_time_us deadline_us,
                                   struct td_published *ret, size_t max, size_t *ret_count,
                                   struct td_error *err);

#endif
