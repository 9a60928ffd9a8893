/*
 * What the files of this folder share. The loop is one thread; see consumer.h for what others may
 * call.
 *
 *   consumer.c  life of the object, the order of things in a step
 *   session.c   opening, lease, closing; what an error of store or broker means
 *   hand.c      what is in hand: fetch, acknowledge, works and their memory
 *   decide.c    from a verdict to a settlement
 *   commit.c    what a commit changes in memory
 *   tx.c        the calls inside a transaction
 *   batch.c     handler inside: many live messages in one transaction
 *   singles.c   handler inside: one by one with savepoints, live or parked
 *   settle.c    settlements without a run: window, results of outside runs, rows given back
 *   outside.c   handler outside: look, start, poll
 *   parked.c    leasing parked rows that are due
 *   report.c    state, totals, snapshot, the report in the lease row
 *
 * Invariants
 *   - What the gate knows of blocked keys changes only after the commit that changed the store.
 *   - A delivery is acknowledged only after the commit that settled it, or that made it known.
 *   - No transaction begins after the lease ran out by the monotonic clock.
 *   - While parked rows are in hand of an inside handler, no others are leased.
 */
#ifndef TDI_CONSUMER_INTERNAL_H
#define TDI_CONSUMER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "consumer/consumer.h"
#include "core/gate.h"

#define TDI_SLICE_MAX 64                          /* messages of one call of a store or handler */
#define TDI_ROWS_MAX 64                           /* parked rows in hand */
#define TDI_IDLE_MAX_US (500 * TD_MILLISECOND_US) /* an operator's replay is seen after it */
#define TDI_REPORT_EVERY_US TD_SECOND_US
#define TDI_POLL_BUSY_US (10 * TD_MILLISECOND_US) /* waits for results while deliveries may come */

/* Memory of one fetch, one lease of parked rows or one poll; freed when the last work lets go. */
struct tdi_parcel {
    struct tdi_arena arena;
    size_t refs;
    size_t bytes;            /* of the arena, as counted in c->parcels_bytes */
    struct tdi_parcel *next; /* in c->parcels_free */
};

enum tdi_work_state {
    TDI_WORK_NEW,     /* in hand; nothing was asked or decided */
    TDI_WORK_WAITING, /* outside: the gate keeps it behind another of its key */
    TDI_WORK_READY,   /* outside: may be started */
    TDI_WORK_RUNNING, /* outside: the handler has it */
    TDI_WORK_DECIDED, /* outside, window: its settlement waits in c->decided */
};

enum tdi_work_gate {
    TDI_GATE_REPORT_NONE,
    TDI_GATE_REPORT_END,    /* the gate waits for tdi_gate_end() */
    TDI_GATE_REPORT_PARKED, /* the gate waits for tdi_gate_parked() */
};

/* What the open transaction still has to do for a work of the slice. */
enum tdi_plan {
    TDI_PLAN_NONE,
    TDI_PLAN_RUN,
    TDI_PLAN_SETTLE,
};

/* What the open transaction holds of a work. */
enum tdi_fate {
    TDI_FATE_NONE,
    TDI_FATE_KNOWN,   /* live: its row existed; known_as */
    TDI_FATE_EFFECT,  /* live: the claimed row is the settlement */
    TDI_FATE_SETTLED, /* as in settle */
    TDI_FATE_GONE,    /* parked: the row was otherwise; nothing was done */
};

/* A message in hand: a live delivery or a leased parked row. */
struct tdi_work {
    struct tdi_work *prev, *next;  /* in c->hand (arrival order), c->rows or the free list */
    struct tdi_work *decided_next; /* in c->decided (order of decision) */
    struct tdi_parcel *parcel;     /* holds message, origin, defect */
    struct tdi_parcel *answer;     /* holds the verdict of an outside run, or NULL */
    uint64_t token;                /* index in c->works and a number of this use */
    struct td_message message;     /* id and source are made up where they are missing */
    struct td_str key;             /* absent where the consumer keeps no order */
    struct td_str origin;
    enum tdi_work_state state;
    enum tdi_work_gate gate;
    enum tdi_plan plan;
    enum tdi_fate fate;
    bool parked;    /* a leased row; else a live delivery */
    bool give_back; /* parked: settle as it was, without a run */
    bool suspect;   /* its run ended the store session */
    /* live */
    uint64_t handle;
    uint64_t session;     /* handle is void when c->broker_session differs */
    bool in_window;       /* redelivered after an unclean end: park before running */
    struct td_str defect; /* not empty: no valid envelope */
    bool no_id;
    struct td_inbox_state known_as;
    /* parked */
    int32_t attempts; /* this run included */
    int32_t attempt_limit;
    bool blocks_key;        /* as the row says */
    enum td_dead_code code; /* likewise; EXPIRED: replayed although it has expired */
    td_time_us row_until;   /* mono: the row's lease */
    /* the run */
    td_time_us not_before; /* mono: outside, after an uncharged result */
    bool ran;              /* the decision is that of a run */
    struct td_str fault;   /* not empty: settle as failed, do not run; why */
    char fault_sqlstate[6];
    struct td_settle settle; /* the decision, and what the store answered */
};

struct tdi_work_list {
    struct tdi_work *first, *last;
    size_t count;
};

enum tdi_job {
    TDI_JOB_NONE,
    TDI_JOB_BATCH,
    TDI_JOB_SINGLES,
    TDI_JOB_SETTLE,
};

enum tdi_phase {
    TDI_PHASE_BEGIN,
    TDI_PHASE_SAVEPOINT,
    TDI_PHASE_CLAIM,
    TDI_PHASE_RUN,
    TDI_PHASE_SETTLE,
    TDI_PHASE_KEEP,
    TDI_PHASE_UNDO,
    TDI_PHASE_COMMIT,
};

/* What a call inside a transaction means for the job that made it. */
enum tdi_tx {
    TDI_TX_OK,
    TDI_TX_REFUSED, /* certainly not done and will fail again; c->tx_error. Rolled back next */
    TDI_TX_GONE,    /* not done now: the job ends, works stay in hand; all else is arranged */
};

/* The transaction that is going on, and what it holds. */
struct tdi_transaction {
    enum tdi_job job;
    enum tdi_phase phase;
    bool open;                 /* between begin and finish */
    bool savepoint;            /* between savepoint and its end */
    bool rollback;             /* finish(false) is the next call */
    bool stop;                 /* singles: take no further work, commit what is done */
    td_time_us budget_until;   /* mono: takes no further work after it */
    struct tdi_work **covered; /* works whose fate it holds */
    size_t covered_max;
    size_t covered_count;
    struct tdi_work_list *list;            /* where the works come from */
    struct tdi_work *cursor;               /* next work to take */
    size_t todo;                           /* singles: works left, over several transactions */
    bool alone;                            /* singles, settle: one work a transaction */
    struct tdi_work *slice[TDI_SLICE_MAX]; /* of the call that is being prepared */
    size_t slice_count;
    struct tdi_map tentative; /* key -> blocked or free, valid when it commits */
};

struct tdi_totals {
    int64_t handled, duplicates, retried, dead;
};

struct tdi_consumer {
    struct tdi_consumer_options o; /* defaults filled in */
    bool outside;
    char *lease_name; /* "consumer:NAME:0" */
    uint64_t seed[2];

    /* ---- shared with other threads, under lock ---- */
    pthread_mutex_t lock;
    struct td_store *store; /* NULL: closed. Changed by the loop only, under lock */
    struct td_broker *broker;
    struct tdi_consumer_snapshot snapshot;
    atomic_int stops; /* calls of tdi_consumer_stop() */

    /* ---- sessions ---- */
    struct td_handler *handler; /* for the life of the object */
    bool leaving;               /* only closing is left to do */
    bool leave_clean;           /* and giving the lease back */
    bool ended;
    bool lose;        /* close both sessions, forget everything, take over anew */
    bool interrupted; /* the fetch of this step was: do not wait */
    bool lose_broker; /* close the broker session, forget what is not decided */
    bool suspect;     /* a run ended the store session: open a window at the start */
    bool prepared, leased, totals_read, clock_read, keys_read, subscribed;
    bool owned; /* the last lease_take() said OWNED */
    bool left;  /* the last report is written */
    struct td_lease lease;
    td_time_us lease_until;    /* mono, counted from before it was asked for */
    td_time_us renew_at;       /* look whether the report has changed */
    td_time_us renew_must_at;  /* renew in any case */
    td_time_us store_retry_at; /* no call of the store before it */
    int store_failures;        /* in a row */
    td_time_us broker_retry_at;
    int broker_failures;
    uint64_t broker_session;       /* number of the session */
    td_time_us store_clock_offset; /* store's now - mono */
    td_time_us clock_at;           /* when to ask again */

    /* ---- in hand ---- */
    struct tdi_work *works; /* pool of works_max */
    size_t works_max;
    struct tdi_work_list hand; /* live */
    struct tdi_work_list rows; /* parked */
    struct tdi_work_list spare;
    struct tdi_work *decided_first, *decided_last;
    size_t decided_count;
    size_t running; /* outside */
    uint64_t uses;  /* works taken so far */
    struct tdi_parcel *parcels_free;
    size_t parcels_bytes; /* of all that are in use */
    uint64_t *acks;       /* handles to acknowledge, prefetch at most */
    size_t acks_count;
    struct tdi_gate gate;
    struct tdi_transaction tx;
    struct tdi_arena tx_arena; /* verdicts of inside runs, until the next transaction */
    struct tdi_arena scratch;  /* of one step */
    struct td_error tx_error;

    /* ---- window after an unclean end ---- */
    bool window;        /* open */
    bool window_ending; /* everything that belongs to it has been delivered */
    size_t window_left; /* brokers without a mark: deliveries that still belong */

    /* ---- timers and turns ---- */
    struct tdi_breaker breaker;
    td_time_us parked_at; /* when to ask for due rows */
    td_time_us live_at;   /* inside: after an uncharged result */
    td_time_us prune_at;
    td_time_us counts_at;
    bool counts_wanted;
    struct td_consumer_counts counts;
    bool parked_turn;       /* live messages have had their turn since the last rows */
    bool poll_turn;         /* something was done since results were looked for */
    bool fetch_turn;        /* idle with runs: look for deliveries, else wait for results */
    bool slots_taken;       /* outside: start() said BUSY, nothing ended since */
    td_time_us drain_until; /* 0: not draining */

    /* ---- report ---- */
    struct tdi_totals totals; /* since init */
    struct tdi_buf report;
    struct tdi_buf report_sent; /* as the lease row has it */
    int64_t rate_milli;
    int64_t rate_handled; /* totals.handled at rate_at */
    td_time_us rate_at;
    struct td_error last_error;
    td_time_us last_error_at;      /* wall */
    enum tdi_consumer_state state; /* as logged last */
};

static inline td_time_us tdi_now(const struct tdi_consumer *c)
{
    return tdi_mono(&c->o.clock);
}

static inline bool tdi_draining(const struct tdi_consumer *c)
{
    return atomic_load(&c->stops) > 0;
}

/* Time until the breaker may be probed. */
static inline td_time_us tdi_probe_wait(const struct tdi_consumer *c)
{
    td_time_us wait = c->breaker.probe_at - tdi_now(c);
    return c->breaker.state == TDI_BREAKER_OPEN && wait > 0 ? wait : 0;
}

/* ---- session.c ---- */
/* Each does at most one call and says whether it did something. */
bool tdi_session_close_step(struct tdi_consumer *c); /* what lose, lose_broker ask for */
bool tdi_session_store_step(struct tdi_consumer *c, td_time_us now);  /* up to keys_read */
bool tdi_session_broker_step(struct tdi_consumer *c, td_time_us now); /* up to subscribed */
bool tdi_session_leave_step(struct tdi_consumer *c,
                            bool clean); /* give back, close; false: ended */
bool tdi_session_renew(struct tdi_consumer *c, td_time_us now);
void tdi_session_clear_unclean(struct tdi_consumer *c);
void tdi_session_close_all(struct tdi_consumer *c);
/* A call of the store failed; the class says what follows. */
void tdi_store_failed(struct tdi_consumer *c, const struct td_error *err);
void tdi_store_worked(struct tdi_consumer *c);
void tdi_broker_failed(struct tdi_consumer *c, const struct td_error *err);
void tdi_broker_worked(struct tdi_consumer *c);
/* Close both sessions, forget everything in hand, take the lease over anew. */
void tdi_lose(struct tdi_consumer *c);

/* ---- hand.c ---- */
bool tdi_hand_init(struct tdi_consumer *c);
void tdi_hand_release(struct tdi_consumer *c);
struct tdi_parcel *tdi_parcel_take(struct tdi_consumer *c); /* NULL: out of memory */
void tdi_parcel_ref(struct tdi_consumer *c, struct tdi_parcel *p);
void tdi_parcel_drop(struct tdi_consumer *c, struct tdi_parcel *p); /* if nobody refers to it */
struct tdi_work *tdi_work_new(struct tdi_consumer *c, bool parked, struct tdi_parcel *parcel);
void tdi_work_free(struct tdi_consumer *c, struct tdi_work *w);
struct tdi_work *tdi_work_of(struct tdi_consumer *c, uint64_t token); /* NULL: no longer */
bool tdi_hand_may_fetch(const struct tdi_consumer *c);
size_t tdi_hand_fetch(struct tdi_consumer *c, size_t most, td_time_us deadline); /* how many came */
void tdi_hand_ack(struct tdi_consumer *c);
void tdi_hand_queue_ack(struct tdi_consumer *c, const struct tdi_work *w);
bool tdi_window_done(const struct tdi_consumer *c);
size_t tdi_window_decide(struct tdi_consumer *c);
void tdi_hand_forget(struct tdi_consumer *c);      /* the store session is given up */
void tdi_hand_forget_live(struct tdi_consumer *c); /* the broker session is given up */

/* ---- decide.c: fill w->settle ---- */
void tdi_work_key(struct tdi_consumer *c, struct tdi_work *w);
void tdi_decide_verdict(struct tdi_consumer *c, struct tdi_work *w, const struct td_verdict *v,
                        bool uncharged);
bool tdi_decide_unfit(struct tdi_consumer *c, struct tdi_work *w); /* true: dead without a run */
void tdi_decide_blocked(struct tdi_consumer *c, struct tdi_work *w);
void tdi_decide_window(struct tdi_consumer *c, struct tdi_work *w);
void tdi_decide_give_back(struct tdi_consumer *c, struct tdi_work *w, td_time_us due_after_us);
void tdi_decide_fault(struct tdi_consumer *c, struct tdi_work *w);
void tdi_work_fault(struct tdi_work *w, const struct td_error *err);
bool tdi_known_blocks(const struct tdi_consumer *c, enum td_outcome known);

/* ---- commit.c ---- */
bool tdi_key_blocked(const struct tdi_consumer *c, struct td_str key); /* tentative marks count */
void tdi_key_tentative(struct tdi_consumer *c, struct td_str key, bool blocked);
void tdi_key_tentative_clear(struct tdi_consumer *c);
void tdi_key_mark(struct tdi_consumer *c, struct td_str key, bool blocked);
/* The transaction that held the fate of w is committed. Frees w. */
void tdi_work_committed(struct tdi_consumer *c, struct tdi_work *w);
/* A live message whose row was there already; committed. Frees w. */
void tdi_work_known(struct tdi_consumer *c, struct tdi_work *w);
void tdi_log_work(struct tdi_consumer *c, enum tdi_log_level level, const char *event,
                  const struct tdi_work *w, const char *result);

/* ---- tx.c: calls in a transaction of tx.slice, or of those with a plan in it ---- */
bool tdi_tx_init(struct tdi_consumer *c);
void tdi_tx_release(struct tdi_consumer *c);
void tdi_tx_start(struct tdi_consumer *c, enum tdi_job job, struct tdi_work_list *list);
enum tdi_tx tdi_tx_begin(struct tdi_consumer *c);
enum tdi_tx tdi_tx_savepoint(struct tdi_consumer *c);
enum tdi_tx tdi_tx_savepoint_end(struct tdi_consumer *c, bool keep);
enum tdi_tx tdi_tx_claim(struct tdi_consumer *c);  /* all; fills known_as */
enum tdi_tx tdi_tx_settle(struct tdi_consumer *c); /* PLAN_SETTLE; sets fates */
/* PLAN_RUN, in order; *ret_done verdicts in ret_verdicts. */
enum tdi_tx tdi_tx_run(struct tdi_consumer *c, struct td_verdict *ret_verdicts, size_t *ret_done);
enum tdi_tx tdi_tx_commit(struct tdi_consumer *c); /* OK: covered works are committed and freed */
void tdi_tx_rollback(struct tdi_consumer *c);      /* at the next step; works are as before */
void tdi_tx_rollback_step(struct tdi_consumer *c);
void tdi_tx_end(struct tdi_consumer *c);   /* the job ends */
void tdi_tx_cover(struct tdi_consumer *c); /* the slice joins the covered works */

/* ---- jobs: one call a step ---- */
bool tdi_batch_may(const struct tdi_consumer *c);
void tdi_batch_step(struct tdi_consumer *c);
void tdi_singles_start(struct tdi_consumer *c, struct tdi_work_list *list, size_t todo, bool alone);
void tdi_singles_step(struct tdi_consumer *c);
void tdi_settle_queue(struct tdi_consumer *c, struct tdi_work *w); /* decided: settle it */
void tdi_settle_step(struct tdi_consumer *c);

/* ---- outside.c ---- */
void tdi_gate_drain(struct tdi_consumer *c, struct td_str key);
void tdi_outside_offer(struct tdi_consumer *c, struct tdi_work *w);
bool tdi_outside_look(struct tdi_consumer *c);                  /* false: nothing to look at */
bool tdi_outside_start(struct tdi_consumer *c, td_time_us now); /* false: nothing may start */
td_time_us tdi_outside_ready_at(const struct tdi_consumer *c, td_time_us now);
size_t tdi_outside_poll(struct tdi_consumer *c, td_time_us deadline); /* how many results came */
bool tdi_outside_cancel_one(struct tdi_consumer *c);                  /* false: nothing runs */

/* ---- parked.c ---- */
size_t tdi_parked_room(struct tdi_consumer *c, td_time_us now); /* rows that may be leased */
bool tdi_parked_lease(struct tdi_consumer *c, td_time_us now);  /* false: not now */
size_t tdi_parked_give_back(struct tdi_consumer *c, bool all);  /* how many were decided */

/* ---- report.c ---- */
void tdi_report_init(struct tdi_consumer *c);
void tdi_report_release(struct tdi_consumer *c);
void tdi_report_build(struct tdi_consumer *c, td_time_us now); /* c->report */
void tdi_report_read(struct tdi_consumer *c, struct td_str json);
void tdi_report_publish(struct tdi_consumer *c); /* the snapshot */
void tdi_report_error(struct tdi_consumer *c, const struct td_error *err);
bool tdi_paused(const struct tdi_consumer *c); /* too many parked rows */

#endif
