/*
 * What the files of the exec handler share. A worker's life:
 *
 *     NONE --start()--> GREETING --its hello--> READY --close()--> LEAVING
 *       ^                  |                      |
 *       +------------------+----- it ends --------+
 *
 * After an end that was not asked for, the next start of that worker waits, doubling from 100 ms to 30 s
 * until a delivery has been answered again.
 *
 * Invariants
 *   - A delivery is in exactly one worker's list, or its result is in the ring, or it was cancelled.
 *   - A worker that dies, or is killed for a fault of its own, charges its oldest unanswered delivery, or
 *     the one that ran out of time; the others get an uncharged retry.
 *   - A delivery handed to a worker that never said hello is uncharged: it was not sent.
 */
#ifndef TDD_EXEC_SESSION_H
#define TDD_EXEC_SESSION_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/log.h"
#include "handler/exec/protocol.h"
#include "handler/exec/worker.h"
#include "tidings/handler.h"

#define TDD_EXEC_REASON_MAX 400 /* bytes; fits TD_REASON_TEXT_MAX */

enum tdd_exec_state {
    TDD_EXEC_NONE,
    TDD_EXEC_GREETING,
    TDD_EXEC_READY,
    TDD_EXEC_LEAVING,
};

struct tdd_exec_delivery {
    int64_t number;
    struct td_run run;      /* message and consumer are borrowed from the caller */
    td_time_us deadline_us; /* the run's, and at most our time-out from now */
    bool timed;             /* the deadline is our time-out, not an earlier one of the caller */
    bool sent;
};

struct tdd_exec_worker {
    struct tdd_exec_process process;
    enum tdd_exec_state state;
    struct tdd_exec_delivery deliveries[TDD_EXEC_WINDOW_MAX]; /* oldest first */
    size_t count;
    size_t window;          /* as its hello said; 1 before */
    td_time_us hello_by_us; /* GREETING */
    td_time_us heard_us;    /* last line of any kind */
    td_time_us pong_by_us;  /* TD_TIME_NONE: no ping is out */
    td_time_us start_at_us; /* NONE: not before */
    int failures;           /* ends in a row without an answer in between */
};

/* A run that has ended and was not polled yet. */
struct tdd_exec_ended {
    struct td_run run;
    struct td_verdict verdict; /* without texts */
    struct tdi_buf reason;
    char error_type[24];
    struct tdi_buf emit; /* raw JSON array, or empty */
};

struct tdd_exec {
    struct td_handler base;
    struct tdi_arena memory; /* copies of the options */
    struct td_clock clock;
    struct tdi_log *log;
    struct tdd_exec_command command;
    struct td_str consumer;
    td_time_us timeout_us;
    struct td_classify *classify;
    size_t classify_count;
    struct tdd_exec_worker *workers;
    size_t workers_count;
    struct tdd_exec_ended *ended; /* ring */
    size_t ended_cap, ended_head, ended_count;
    int64_t next_delivery, next_ping;
    bool opened;
};

/* What becomes of a worker's deliveries when it has gone. */
struct tdd_exec_end {
    const char *why;        /* one sentence */
    const char *error_type; /* a word */
    bool blame;             /* the first sent delivery is charged; false: nobody is */
    bool judged;            /* blame: with this verdict, as the exit code is classified */
    enum td_verdict_kind verdict;
};

/* ---- results.c: the ring of ended runs ---- */

/* Room for the results of everything that can be in flight. */
bool tdd_exec_has_room(const struct tdd_exec *h);
void tdd_exec_end_run(struct tdd_exec *h, const struct td_run *run, struct td_verdict v,
                      struct td_str reason, const char *error_type, struct td_str emit);
/* Drop the result of a token; false: there is none. */
bool tdd_exec_forget(struct tdd_exec *h, uint64_t token);
/* Hand out the oldest; texts and events move into the arena. NOMEM: it stays. */
enum td_err tdd_exec_hand_out(struct tdd_exec *h, struct tdi_arena *a, struct td_run_result *ret,
                              struct td_error *err);
void tdd_exec_results_release(struct tdd_exec *h);

/* ---- life.c: starting and ending workers, and time ---- */

enum td_err tdd_exec_start_worker(struct tdd_exec *h, struct tdd_exec_worker *w,
                                  struct td_error *err);
/* It ended by itself, or closed one of its pipes. */
void tdd_exec_worker_ended(struct tdd_exec *h, struct tdd_exec_worker *w);
void tdd_exec_kill_worker(struct tdd_exec *h, struct tdd_exec_worker *w,
                          const struct tdd_exec_end *end);
/* Nothing happens with this worker by time alone before that, or `far`. */
td_time_us tdd_exec_first_deadline(const struct tdd_exec_worker *w, td_time_us far);
void tdd_exec_check_time(struct tdd_exec *h, struct tdd_exec_worker *w);
void tdd_exec_log(struct tdd_exec *h, enum tdi_log_level level, const char *event,
                  const struct tdd_exec_worker *w, struct td_str text);

/* ---- lines.c: what goes to and comes from a worker ---- */

/* Write the delivery's line. One that does not fit into memory ends as an uncharged retry: then it is
 * gone from the list, false. */
bool tdd_exec_send(struct tdd_exec *h, struct tdd_exec_worker *w, size_t at);
void tdd_exec_remove(struct tdd_exec_worker *w, size_t at);
/* Read and write what is possible now. The worker may be gone after it. */
void tdd_exec_serve(struct tdd_exec *h, struct tdd_exec_worker *w);

#endif
