/*
 * The relay's inside, shared by the files of this folder only.
 *
 *   relay.c     life, the step, the way from a closed store to a held lease
 *   session.c   opening and closing sessions; what follows from a failure
 *   run.c       what to do next while the lease is held
 *   read.c      outbox -> window: reading, judging rows, durability, purging
 *   publish.c   window -> broker: submitting, collecting
 *   settle.c    window -> position
 *   letters.c   dead letters that an operator replays
 *   report.c    snapshot, report of the lease row, log
 *
 * Invariants: the broker session is closed before rows that it may point to are freed; rows are
 * freed batch by batch, when all of a batch have left the window; every driver call is the last
 * thing of its step.
 */
#ifndef TDI_RELAY_INTERNAL_H
#define TDI_RELAY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/window.h"
#include "relay/relay.h"

#define TDI_RELAY_BATCHES_MAX 64 /* more than small reads fit into a position interval */
#define TDI_RELAY_HAND_READS 8   /* read_bytes in hand, at most so often */
#define TDI_RELAY_SUBMIT_MAX 256
#define TDI_RELAY_COLLECT_MAX 256
#define TDI_RELAY_DEAD_MAX 256                        /* dead rows of one settlement */
#define TDI_RELAY_READ_GAP_US (2 * TD_MILLISECOND_US) /* between reads; doubles up to poll_us */
#define TDI_RELAY_BLOCK_US TD_SECOND_US               /* no slot is asked to wait longer */
#define TDI_RELAY_REPORT_US TD_SECOND_US
#define TDI_RELAY_REPORT_BYTES_MAX 4096
#define TDI_RELAY_STATS_US (5 * TD_SECOND_US)
#define TDI_RELAY_STANDBY_US TD_SECOND_US       /* asks for the lease so often */
#define TDI_RELAY_HALTED_US (10 * TD_SECOND_US) /* looks so often whether it was mended */
#define TDI_RELAY_PURGE_ROWS 500
#define TDI_RELAY_PURGE_US (60 * TD_SECOND_US)
#define TDI_RELAY_PURGE_MORE_US (10 * TD_MILLISECOND_US) /* after a full batch */
#define TDI_RELAY_LOCK_WAIT_US (3 * TD_MILLISECOND_US)   /* of a write, before rows go on */
#define TDI_RELAY_LOCK_GAP_US (2 * TD_MILLISECOND_US)    /* until it is tried again */
#define TDI_RELAY_LOCK_US (5 * TD_SECOND_US)             /* without the lock for so long: trouble */
#define TDI_RELAY_LETTERS_MAX 64                         /* in hand */
#define TDI_RELAY_LETTERS_US (500 * TD_MILLISECOND_US)   /* asks for due ones at least so often */
#define TDI_RELAY_LETTERS_GAP_US (10 * TD_MILLISECOND_US) /* and at most */
#define TDI_RELAY_LETTERS_CALM 8 /* calm: the window is filled to an eighth at most */
#define TDI_RELAY_LETTERS_PATIENCE_US (5 * TD_SECOND_US) /* waits so long for a calm moment */
#define TDI_RELAY_LETTERS_LEASE_US (60 * TD_SECOND_US)   /* of the parked row */
#define TDI_RELAY_BUSY_MAX 3                             /* so often in a row it is no trouble */

enum tdi_relay_phase {
    TDI_PHASE_OPEN, /* no store session */
    TDI_PHASE_DECLARE,
    TDI_PHASE_LEASE,  /* standby stays here */
    TDI_PHASE_HALTED, /* keeps the lease, so that its row says why */
    TDI_PHASE_POSITION,
    TDI_PHASE_STATS,
    TDI_PHASE_RUN,
    TDI_PHASE_RELEASE,
    TDI_PHASE_LEAVE, /* close what is open */
    TDI_PHASE_ENDED,
};

/* What the window does not keep of a row. Lies at token % window capacity. */
struct tdi_relay_slot {
    struct td_outbox_row *row;
    struct td_str topic; /* of the catalogue */
};

/* Rows of one read and what they point to. */
struct tdi_relay_batch {
    struct tdi_arena arena;
    uint64_t end; /* token behind its last row */
};

enum tdi_letter_state {
    TDI_LETTER_READY,
    TDI_LETTER_SUBMITTED,
    TDI_LETTER_DECIDED,
};

enum tdi_letters_tx {
    TDI_LETTERS_TX_NONE,
    TDI_LETTERS_TX_BEGUN,
    TDI_LETTERS_TX_SETTLED,
    TDI_LETTERS_TX_UNDO, /* tx_error says why */
};

#define TDI_LETTER_TOKEN (UINT64_C(1) << 63) /* the window's tokens never get there */

/* Replayed letters in hand; arrays run side by side with rows. */
struct tdi_relay_letters {
    struct td_str consumer; /* "relay:NAME" */
    char consumer_text[TD_TYPE_BYTES_MAX + 8];
    struct tdi_arena arena; /* of the rows, and of reasons */
    struct td_parked_row *rows;
    size_t count;
    size_t submitted;
    size_t decided;
    enum tdi_letter_state states[TDI_RELAY_LETTERS_MAX];
    struct td_settle settles[TDI_RELAY_LETTERS_MAX]; /* of decided ones */
    enum tdi_letters_tx tx;
    struct td_error tx_error;
    bool broken; /* ordered: one was refused, the session takes nothing more */
    td_time_us ask_at;
};

struct tdi_relay {
    struct tdi_relay_options o; /* defaults filled in */
    enum tdi_relay_phase phase;
    atomic_int stop_calls;
    bool stopping;
    td_time_us drain_until;

    /* ---- sessions; the pointers change under `lock` (interrupt) ---- */
    pthread_mutex_t lock;
    struct td_store *store;
    struct td_broker *broker;
    bool store_close; /* at the next step */
    bool broker_close;
    bool forget; /* everything in hand, once the broker session is closed */

    /* ---- trouble ---- */
    int store_failures; /* in a row */
    td_time_us store_retry_at;
    enum td_err store_code; /* of the last of them */
    td_time_us write_at;    /* no write before: another writer has the lock; reading goes on */
    td_time_us busy_since;  /* of the first write in a row that did not get it; TD_TIME_NONE */
    int broker_failures;    /* until something is accepted */
    td_time_us broker_retry_at;
    int refusals;         /* RETRY-refused, until something is accepted */
    td_time_us submit_at; /* not before */
    bool halted;
    bool halted_by_settle; /* a successful read does not end it, a settlement does */
    td_time_us look_at;    /* halted: whether it was mended */
    bool standby;
    int64_t owner_pid;
    struct td_error last_error;
    td_time_us last_error_at;

    /* ---- lease ---- */
    int64_t fence;          /* 0: none */
    td_time_us lease_until; /* mono, counted from before it was asked for */
    td_time_us renew_at;
    td_time_us report_at;
    struct tdi_buf report;
    struct tdi_buf reported; /* what the lease row holds */

    /* ---- in hand ---- */
    struct tdi_window window;
    struct tdi_relay_slot *slots;
    struct tdi_relay_batch batches[TDI_RELAY_BATCHES_MAX]; /* ring, oldest first */
    size_t batches_first;
    size_t batches_count;
    struct tdi_window_front front; /* valid unless front_stale */
    bool front_stale;
    bool undurable;         /* rows were read since the last outbox_durable() */
    bool pipeline_full;     /* until something is collected */
    td_time_us progress_at; /* last answer, or first submit after none was in flight */
    uint64_t tokens[TDI_RELAY_SUBMIT_MAX];
    struct td_publish items[TDI_RELAY_SUBMIT_MAX];
    struct td_published results[TDI_RELAY_COLLECT_MAX];
    struct td_relay_dead dead[TDI_RELAY_DEAD_MAX];

    struct tdi_relay_letters letters;

    /* ---- reading ---- */
    struct td_position read_position; /* after the last row in the window */
    struct tdi_buf read_data;         /* its data */
    bool read_once;                   /* since the lease was taken: position and table fit */
    bool caught_up;                   /* the last read found no more than it gave */
    td_time_us read_at;
    td_time_us read_gap_us;
    td_time_us purge_at;
    td_time_us stats_at;

    /* ---- numbers ---- */
    td_time_us settled_at; /* mono of the last position write */
    int64_t position_order;
    int64_t published_total;
    int64_t dead_total;
    int64_t pending_counted; /* by the last relay_stats(), less what was settled since */
    td_time_us oldest_counted_us;
    int64_t rate;
    int64_t rate_total; /* published_total at rate_at */
    td_time_us rate_at;
    enum tdi_relay_state state_logged;
    struct tdi_relay_snapshot snapshot; /* under `lock` */
};

static inline td_time_us tdi_earlier(td_time_us a, td_time_us b)
{
    return a < b ? a : b;
}

static inline td_time_us tdi_later(td_time_us a, td_time_us b)
{
    return a > b ? a : b;
}

/* relay.c */
void tdi_relay_release_rows(struct tdi_relay *r); /* batches whose rows have all left the window */
void tdi_relay_forget(struct tdi_relay *r);
void tdi_relay_set_position(struct tdi_relay *r, struct tdi_buf *take_data, int64_t order);

/* session.c */
enum td_err tdi_relay_store_open(struct tdi_relay *r, struct td_error *err);
void tdi_relay_store_close(struct tdi_relay *r);
enum td_err tdi_relay_broker_open(struct tdi_relay *r, struct td_error *err);
/* What was in flight is queued again. */
void tdi_relay_broker_close(struct tdi_relay *r);
/* What follows from a failed slot of the store: keep and retry, standby, or forget and reopen. */
enum tdi_step tdi_relay_store_failed(struct tdi_relay *r, const struct td_error *e);
void tdi_relay_store_worked(struct tdi_relay *r);
void tdi_relay_wrote(struct tdi_relay *r); /* the same, of a write */
/* A write did not get the store's write lock, and it is not yet trouble: true, and it is tried again
 * soon while rows go on being read and published. */
bool tdi_relay_lock_missed(struct tdi_relay *r, const struct td_error *e);
/* The session is not to be trusted any more: a new one after a while. */
enum tdi_step tdi_relay_broker_failed(struct tdi_relay *r, const struct td_error *e);

/* run.c */
enum tdi_step tdi_relay_renew(struct tdi_relay *r); /* with r->report */
enum tdi_step tdi_relay_run(struct tdi_relay *r, td_time_us now, td_time_us *ret_wake);

/* read.c */
struct tdi_relay_judgement {
    bool ours;
    struct tdi_route route;
    struct td_str topic; /* if it may be published */
    enum td_dead_code dead;
    struct td_str reason;
};
/* May it be published by this relay now, and where to? */
struct tdi_relay_judgement tdi_relay_judge(const struct tdi_relay *r, const struct td_message *m,
                                           struct td_str defect, td_time_us wall,
                                           struct tdi_arena *a);
/* Publishing rows does not stop because something beside it was refused. */
enum tdi_step tdi_relay_housekeeping_failed(struct tdi_relay *r, const struct td_error *e);
bool tdi_relay_read_allowed(const struct tdi_relay *r); /* room for it, and worth it */
enum tdi_step tdi_relay_read(struct tdi_relay *r, td_time_us now);
enum tdi_step tdi_relay_durable(struct tdi_relay *r);
enum tdi_step tdi_relay_purge(struct tdi_relay *r, td_time_us now);
enum tdi_step tdi_relay_stats(struct tdi_relay *r, td_time_us now);
bool tdi_relay_expired(const struct td_message *m, td_time_us wall);

/* publish.c */
bool tdi_relay_submit_wanted(struct tdi_relay *r); /* but for submit_at */
enum tdi_step tdi_relay_submit(struct tdi_relay *r, td_time_us now);
enum tdi_step tdi_relay_collect(struct tdi_relay *r, td_time_us deadline_us);
/* The message's own fault? Then the code of its dead letter, else NONE: try again. */
enum td_dead_code tdi_relay_fault_of(const struct td_published *p);
struct td_str tdi_relay_fault_reason(enum td_dead_code code);

/* settle.c */
const struct tdi_window_front *tdi_relay_front(struct tdi_relay *r);
enum tdi_step tdi_relay_settle(struct tdi_relay *r, td_time_us now);

/* letters.c */
void tdi_relay_letters_init(struct tdi_relay *r);
void tdi_relay_letters_forget(struct tdi_relay *r);           /* the broker has none of them */
bool tdi_relay_letters_unanswered(const struct tdi_relay *r); /* rows wait meanwhile */
bool tdi_relay_letters_decided(const struct tdi_relay *r);    /* all, and to be settled */
td_time_us tdi_relay_letters_at(const struct tdi_relay *r);   /* when to ask for due ones */
enum tdi_step tdi_relay_letters_lease(struct tdi_relay *r, td_time_us now);
bool tdi_relay_letters_submit_wanted(const struct tdi_relay *r);
enum tdi_step tdi_relay_letters_submit(struct tdi_relay *r, td_time_us now);
/* false: it is not a letter's. */
bool tdi_relay_letters_answer(struct tdi_relay *r, const struct td_published *p);
void tdi_relay_letters_session_lost(struct tdi_relay *r);
void tdi_relay_letters_give_back(struct tdi_relay *r); /* those that were not sent */
/* One call of the transaction; goes on with it as long as one is open. */
enum tdi_step tdi_relay_letters_settle(struct tdi_relay *r);

/* report.c */
enum tdi_relay_state tdi_relay_state(const struct tdi_relay *r);
/* Counts the rate, builds r->report. false: it says what the lease row says already. */
bool tdi_relay_report(struct tdi_relay *r, td_time_us now);
/* After every step: snapshot, and a line in the log if the state changed. */
void tdi_relay_publish_state(struct tdi_relay *r);
void tdi_relay_remember(struct tdi_relay *r, const struct td_error *e);

#endif
