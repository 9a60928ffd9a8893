/*
 * The exec handler: long-lived worker processes that take deliveries and give verdicts as JSON lines.
 *
 * A worker's life:
 *
 *     NONE --start()--> GREETING --its hello--> READY --close()--> LEAVING
 *       ^                  |                      |                   |
 *       +------------------+----- it ends --------+-------------------+
 *
 * After an end that was not asked for, the next start of that worker waits, doubling from 100 ms to 30 s until
 * a delivery has been answered again.
 *
 * Invariants
 *   - A delivery is in exactly one worker's list, or its result is in `ended`, or it was cancelled.
 *   - A worker that dies or is killed charges its oldest unanswered delivery; the others get an uncharged
 *     retry.
 *   - A delivery handed to a worker that never said hello is uncharged: it was not sent.
 *
 * Must not know: stores, transactions, who decides about retries.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "handler/exec/protocol.h"
#include "handler/exec/worker.h"
#include "tidings/handler.h"

#define WORKERS_MAX 64
#define COMMAND_MAX 64
#define HELLO_US (5 * TD_SECOND_US)
#define IDLE_PING_US (10 * TD_SECOND_US)
#define PONG_US (5 * TD_SECOND_US)
#define RESTART_MIN_US (100 * TD_MILLISECOND_US)
#define RESTART_MAX_US (30 * TD_SECOND_US)
#define LEAVE_TERM_SHARE 2 /* SIGTERM when half of the time to the deadline is over */
#define TURN_MAX_US (50 * TD_MILLISECOND_US)
#define REASON_MAX 400

enum worker_state {
    WORKER_NONE,
    WORKER_GREETING,
    WORKER_READY,
    WORKER_LEAVING,
};

struct delivery {
    int64_t number;
    struct td_run run; /* message and consumer are borrowed from the caller */
    bool sent;
};

struct worker {
    struct tdd_exec_process process;
    enum worker_state state;
    struct delivery deliveries[TDD_EXEC_WINDOW_MAX]; /* oldest first */
    size_t count;
    size_t window;           /* as its hello said; 1 before */
    td_time_us hello_by_us;  /* GREETING */
    td_time_us heard_us;     /* last line of any kind */
    td_time_us pong_by_us;   /* TD_TIME_NONE: no ping is out */
    td_time_us start_at_us;  /* NONE: not before */
    int failures;            /* ends in a row without an answer in between */
};

/* A run that has ended and was not polled yet; its reason and answer live in `text`. */
struct ended {
    struct td_run run;
    struct td_verdict verdict; /* without texts */
    struct tdi_buf reason;
    struct tdi_buf error_type;
    struct tdi_buf emit; /* raw JSON array, or empty */
};

struct tdd_exec {
    struct td_handler base;
    struct tdi_arena memory;
    struct td_clock clock;
    struct tdi_log *log;
    struct tdd_exec_command command;
    struct td_str consumer;
    td_time_us timeout_us;
    struct td_classify *classify;
    size_t classify_count;
    struct worker *workers;
    size_t workers_count;
    struct ended *ended; /* ring; never more than deliveries plus what was not polled */
    size_t ended_cap, ended_head, ended_count;
    int64_t next_delivery, next_ping;
    bool opened;
};

/* ---- open ---- */

static enum td_err out_of_memory(struct td_error *err)
{
    return td_error_set(err, TD_ERR_NOMEM, "no memory for the workers of a handler");
}

static enum td_err copy_command(struct tdd_exec *h, const struct td_handler_options *o,
                                struct td_error *err)
{
    struct td_str text;
    char **argv = tdi_arena_array(&h->memory, o->command_count + 1, sizeof(*argv));
    if (argv == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < o->command_count; i++) {
        /* Room of our own, since exec's argv is not const. */
        argv[i] = tdi_arena_alloc(&h->memory, o->command[i].len + 1);
        if (argv[i] == NULL) {
            return out_of_memory(err);
        }
        memcpy(argv[i], o->command[i].data, o->command[i].len);
    }
    h->command.argv = argv;
    if (!tdi_arena_str(&h->memory, o->consumer, &h->consumer)) {
        return out_of_memory(err);
    }
    h->command.consumer = h->consumer.data;
    if (!tdi_str_empty(o->directory)) {
        if (!tdi_arena_str(&h->memory, o->directory, &text)) {
            return out_of_memory(err);
        }
        h->command.directory = text.data;
    }
    return TD_OK;
}

static enum td_err copy_classify(struct tdd_exec *h, const struct td_handler_options *o,
                                 struct td_error *err)
{
    h->classify = tdi_arena_array(&h->memory, o->classify_count, sizeof(*h->classify));
    if (h->classify == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < o->classify_count; i++) {
        h->classify[i].verdict = o->classify[i].verdict;
        if (!tdi_arena_str(&h->memory, o->classify[i].match, &h->classify[i].match)) {
            return out_of_memory(err);
        }
    }
    h->classify_count = o->classify_count;
    return TD_OK;
}

static enum td_err exec_open(struct td_handler *handler, const struct td_handler_options *o,
                             struct td_error *err)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    tdi_arena_init(&h->memory, 0);
    h->opened = true;
    h->clock = o->clock;
    h->log = o->log;
    h->timeout_us = o->timeout_us;
    if (o->command_count == 0 || o->command_count > COMMAND_MAX) {
        return td_error_set(err, TD_ERR_CONFIG, "command needs 1 to %d words", COMMAND_MAX);
    }
    if (o->workers < 1 || o->workers > WORKERS_MAX) {
        return td_error_set(err, TD_ERR_CONFIG, "workers must be 1 to %d", WORKERS_MAX);
    }
    if (o->timeout_us <= 0) {
        return td_error_set(err, TD_ERR_CONFIG, "timeout must be more than 0");
    }
    enum td_err rc = copy_command(h, o, err);
    if (rc == TD_OK) {
        rc = copy_classify(h, o, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    h->ended_cap = (size_t)o->workers * TDD_EXEC_WINDOW_MAX * 2;
    h->ended = calloc(h->ended_cap, sizeof(*h->ended));
    h->workers = calloc((size_t)o->workers, sizeof(*h->workers));
    if (h->workers == NULL || h->ended == NULL) {
        return out_of_memory(err);
    }
    h->workers_count = (size_t)o->workers;
    for (size_t i = 0; i < h->workers_count; i++) {
        tdd_exec_process_init(&h->workers[i].process);
        h->workers[i].window = 1;
        h->workers[i].start_at_us = TD_TIME_NONE;
        h->workers[i].pong_by_us = TD_TIME_NONE;
    }
    return TD_OK;
}

/* ---- results ---- */

static bool match_exit(const struct tdd_exec *h, int status, enum td_verdict_kind *ret)
{
    char text[16];
    if ((status & 0x7f) != 0) {
        return false; /* a signal */
    }
    snprintf(text, sizeof(text), "%d", (status >> 8) & 0xff);
    for (size_t i = 0; i < h->classify_count; i++) {
        if (tdi_str_is(h->classify[i].match, text)) {
            *ret = h->classify[i].verdict;
            return true;
        }
    }
    return false;
}

static struct ended *end_run(struct tdd_exec *h, const struct td_run *run, struct td_verdict v,
                             const char *reason, const char *error_type)
{
    TDI_ASSERT(h->ended_count < h->ended_cap); /* start() keeps room */
    struct ended *e = &h->ended[(h->ended_head + h->ended_count) % h->ended_cap];
    h->ended_count++;
    memset(e, 0, sizeof(*e));
    e->run = *run;
    e->verdict = v;
    tdi_buf_init(&e->reason, REASON_MAX + 8);
    tdi_buf_init(&e->error_type, 64);
    tdi_buf_init(&e->emit, TDD_EXEC_LINE_MAX);
    tdi_buf_add(&e->reason, reason, strnlen(reason, REASON_MAX));
    tdi_buf_add_cstr(&e->error_type, error_type);
    return e;
}

static void release_ended(struct ended *e)
{
    tdi_buf_release(&e->reason);
    tdi_buf_release(&e->error_type);
    tdi_buf_release(&e->emit);
}

static void remove_delivery(struct worker *w, size_t at)
{
    w->count--;
    memmove(&w->deliveries[at], &w->deliveries[at + 1],
            (w->count - at) * sizeof(w->deliveries[0]));
}

/* ---- ends of workers ---- */

static void log_worker(struct tdd_exec *h, enum tdi_log_level level, const char *event,
                       const struct worker *w, struct td_str text)
{
    TDI_LOG(h->log, level, event, TDI_LOG_STR("consumer", h->consumer),
            TDI_LOG_INT("worker", (int64_t)(w - h->workers) + 1), TDI_LOG_STR("text", text));
}

static void plan_restart(struct tdd_exec *h, struct worker *w)
{
    td_time_us delay = RESTART_MIN_US;
    w->failures++;
    for (int i = 1; i < w->failures && delay < RESTART_MAX_US; i++) {
        delay *= 2;
    }
    w->start_at_us = tdi_mono(&h->clock) + (delay < RESTART_MAX_US ? delay : RESTART_MAX_US);
}

/* The process is gone: settle what it had. `why` is what the oldest delivery is charged with. */
static void worker_gone(struct tdd_exec *h, struct worker *w, const char *why,
                        const char *error_type, const enum td_verdict_kind *verdict)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct delivery *d = &w->deliveries[i];
        struct td_verdict v = {.kind = TD_VERDICT_RETRY, .broken = true};
        if (!d->sent) {
            v.uncharged = true;
            end_run(h, &d->run, v, why, error_type);
        } else if (i == 0) {
            v.verdictless = verdict == NULL;
            v.kind = verdict != NULL ? *verdict : TD_VERDICT_RETRY;
            v.broken = v.kind == TD_VERDICT_RETRY;
            v.code = v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE;
            end_run(h, &d->run, v, why, error_type);
        } else {
            v.uncharged = true;
            v.broken = false;
            end_run(h, &d->run, v, "its worker ended while it ran another message", error_type);
        }
    }
    w->count = 0;
    w->state = WORKER_NONE;
    w->pong_by_us = TD_TIME_NONE;
    plan_restart(h, w);
    log_worker(h, TDI_LOG_WARN, "worker ended", w, tdi_str(why));
}

static void kill_worker(struct tdd_exec *h, struct worker *w, const char *why,
                        const char *error_type)
{
    int status = 0;
    tdd_exec_process_kill(&w->process, &status);
    worker_gone(h, w, why, error_type, NULL);
}

/* It closed its stdout, or waitpid says that it has ended. */
static void worker_ended(struct tdd_exec *h, struct worker *w)
{
    char text[48], why[80], type[24];
    int status = 0;
    enum td_verdict_kind verdict;
    if (!tdd_exec_process_reap(&w->process, &status)) {
        tdd_exec_process_kill(&w->process, &status);
    }
    snprintf(why, sizeof(why), "the worker %s", tdd_exec_status_text(status, text));
    snprintf(type, sizeof(type), "status %d", status);
    worker_gone(h, w, why, type, match_exit(h, status, &verdict) ? &verdict : NULL);
}

/* ---- sending ---- */

static void send_delivery(struct tdd_exec *h, struct worker *w, struct delivery *d)
{
    td_time_us remaining = d->run.deadline_us - tdi_mono(&h->clock);
    tdd_exec_write_delivery(&w->process.to, d->number, &d->run, remaining > 0 ? remaining : 0);
    d->sent = true;
}

static enum td_err start_worker(struct tdd_exec *h, struct worker *w, struct td_error *err)
{
    enum td_err rc = tdd_exec_process_start(&w->process, &h->command, err);
    if (rc != TD_OK) {
        plan_restart(h, w);
        return rc;
    }
    w->state = WORKER_GREETING;
    w->window = 1;
    w->heard_us = tdi_mono(&h->clock);
    w->hello_by_us = w->heard_us + HELLO_US;
    w->pong_by_us = TD_TIME_NONE;
    tdd_exec_write_hello(&w->process.to, h->consumer, h->timeout_us);
    tdd_exec_process_flush(&w->process); /* a broken pipe shows as the end of its stdout */
    return TD_OK;
}

/* The worker for one more delivery: the least loaded that runs, else one that may be started. */
static struct worker *choose_worker(struct tdd_exec *h)
{
    struct worker *best = NULL;
    td_time_us now = tdi_mono(&h->clock);
    for (size_t i = 0; i < h->workers_count; i++) {
        struct worker *w = &h->workers[i];
        bool may_start = w->state == WORKER_NONE && w->start_at_us <= now;
        bool has_room = (w->state == WORKER_READY || w->state == WORKER_GREETING) &&
                        w->count < w->window;
        if ((may_start || has_room) &&
            (best == NULL || w->count < best->count ||
             (w->count == best->count && w->state == WORKER_READY && best->state != WORKER_READY))) {
            best = w;
        }
    }
    return best;
}

static enum td_err exec_start(struct td_handler *handler, const struct td_run *run,
                              struct td_error *err)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    struct worker *w = choose_worker(h);
    if (w == NULL || h->ended_count + h->workers_count * TDD_EXEC_WINDOW_MAX >= h->ended_cap) {
        bool none_runs = true;
        for (size_t i = 0; i < h->workers_count; i++) {
            none_runs = none_runs && h->workers[i].state == WORKER_NONE;
        }
        return none_runs ? td_error_set(err, TD_ERR_UNAVAILABLE,
                                        "no worker runs: the last one ended, the next is started "
                                        "after a pause")
                         : td_error_set(err, TD_ERR_BUSY, "every worker is busy");
    }
    if (w->state == WORKER_NONE) {
        enum td_err rc = start_worker(h, w, err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    struct delivery *d = &w->deliveries[w->count++];
    *d = (struct delivery){.number = h->next_delivery++, .run = *run};
    if (w->state == WORKER_READY) {
        send_delivery(h, w, d);
        tdd_exec_process_flush(&w->process);
    }
    return TD_OK;
}

static size_t exec_free_slots(struct td_handler *handler)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    size_t n = 0;
    td_time_us now = tdi_mono(&h->clock);
    if (h->ended_count + h->workers_count * TDD_EXEC_WINDOW_MAX >= h->ended_cap) {
        return 0;
    }
    for (size_t i = 0; i < h->workers_count; i++) {
        const struct worker *w = &h->workers[i];
        if (w->state == WORKER_READY || w->state == WORKER_GREETING) {
            n += w->window > w->count ? w->window - w->count : 0;
        } else if (w->state == WORKER_NONE && w->start_at_us <= now) {
            n++;
        }
    }
    return n;
}

/* ---- receiving ---- */

static void on_hello(struct tdd_exec *h, struct worker *w, const struct tdd_exec_line *line)
{
    char why[96];
    if (w->state != WORKER_GREETING) {
        log_worker(h, TDI_LOG_WARN, "worker said hello twice", w, TD_STR_NONE);
        return;
    }
    if (line->protocol != TDD_EXEC_PROTOCOL_VERSION) {
        snprintf(why, sizeof(why), "the worker speaks protocol %" PRId64 ", not %d",
                 line->protocol, TDD_EXEC_PROTOCOL_VERSION);
        kill_worker(h, w, why, "protocol");
        return;
    }
    w->state = WORKER_READY;
    w->window = (size_t)line->window;
    for (size_t i = 0; i < w->count; i++) {
        send_delivery(h, w, &w->deliveries[i]);
    }
}

static struct td_verdict verdict_of(const struct tdd_exec_line *line)
{
    struct td_verdict v = {.kind = line->result, .after_us = line->after_us};
    v.code = v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE;
    v.broken = v.kind == TD_VERDICT_RETRY;
    return v;
}

static void on_answer(struct tdd_exec *h, struct worker *w, const struct tdd_exec_line *line,
                      struct tdi_arena *a)
{
    size_t at = 0;
    while (at < w->count && w->deliveries[at].number != line->number) {
        at++;
    }
    if (at == w->count || !w->deliveries[at].sent) {
        log_worker(h, TDI_LOG_WARN, "late or unknown answer ignored", w, TD_STR_NONE);
        return;
    }
    w->failures = 0;
    const struct td_run *run = &w->deliveries[at].run;
    struct td_str reason = tdi_arena_printf(a, "%.*s", (int)(line->reason.len > REASON_MAX
                                                                 ? REASON_MAX
                                                                 : line->reason.len),
                                            line->reason.data != NULL ? line->reason.data : "");
    if (!line->result_valid) {
        struct td_verdict v = {.kind = TD_VERDICT_RETRY, .broken = true};
        end_run(h, run, v, "the worker's answer has no result of ok, retry, dead, drop", "answer");
    } else {
        struct ended *e = end_run(h, run, verdict_of(line),
                                  reason.data != NULL ? reason.data : "", "worker");
        tdi_buf_add_str(&e->emit, line->emit);
    }
    remove_delivery(w, at);
}

static void on_line(struct tdd_exec *h, struct worker *w, struct td_str text)
{
    struct tdi_arena a;
    struct tdd_exec_line line;
    tdi_arena_init(&a, 2 * TDD_EXEC_LINE_MAX);
    tdd_exec_read_line(text, &a, &line);
    w->heard_us = tdi_mono(&h->clock);
    w->pong_by_us = TD_TIME_NONE; /* any line shows that it lives */
    switch (line.kind) {
    case TDD_EXEC_STRAY:
        log_worker(h, TDI_LOG_WARN, "stray line on a worker's stdout", w, tdi_str(line.why));
        break;
    case TDD_EXEC_HELLO:
        on_hello(h, w, &line);
        break;
    case TDD_EXEC_PONG:
        break;
    case TDD_EXEC_ANSWER:
        on_answer(h, w, &line, &a);
        break;
    }
    tdi_arena_release(&a);
}

/* Lines that are there. The worker may be killed by one of them. */
static void take_lines(struct tdd_exec *h, struct worker *w)
{
    struct td_str text;
    size_t used = 0;
    struct tdi_buf rest = w->process.from; /* a view that moves on; the buffer is cut once, after */
    while (w->process.pid != 0 && tdd_exec_line_of(&rest, &text)) {
        on_line(h, w, text);
        used += text.len + 1;
        rest.data = w->process.from.data + used;
        rest.len = w->process.from.len - used;
    }
    tdi_buf_consume(&w->process.from, used);
    if (w->process.pid != 0 && w->process.from.len > TDD_EXEC_LINE_MAX) {
        kill_worker(h, w, "the worker wrote a line that is too long", "line");
    }
}

static void take_stderr(struct tdd_exec *h, struct worker *w)
{
    struct td_str text;
    tdd_exec_process_read_err(&w->process);
    while (tdd_exec_line_of(&w->process.said, &text)) {
        log_worker(h, TDI_LOG_INFO, "worker says", w, text);
        tdi_buf_consume(&w->process.said, text.len + 1);
    }
    if (w->process.said.len > 0 && (w->process.err < 0 || w->process.said.len >= 4096)) {
        log_worker(h, TDI_LOG_INFO, "worker says", w, tdi_buf_str(&w->process.said));
        tdi_buf_clear(&w->process.said);
    }
}

static void serve(struct tdd_exec *h, struct worker *w)
{
    bool open = tdd_exec_process_read(&w->process);
    take_stderr(h, w);
    take_lines(h, w);
    if (w->process.pid == 0) {
        return;
    }
    if (w->process.from.failed) {
        kill_worker(h, w, "the worker wrote a line that is too long", "line");
    } else if (!open) {
        worker_ended(h, w);
    } else {
        tdd_exec_process_flush(&w->process);
    }
}

/* ---- time ---- */

static td_time_us first_deadline(const struct worker *w, td_time_us far)
{
    td_time_us t = far;
    if (w->state == WORKER_GREETING && w->hello_by_us < t) {
        t = w->hello_by_us;
    }
    if (w->pong_by_us != TD_TIME_NONE && w->pong_by_us < t) {
        t = w->pong_by_us;
    }
    for (size_t i = 0; i < w->count; i++) {
        t = w->deliveries[i].run.deadline_us < t ? w->deliveries[i].run.deadline_us : t;
    }
    return t;
}

/* The delivery that has run out of time is the one that is charged, whoever is oldest. */
static void time_out(struct tdd_exec *h, struct worker *w, size_t at)
{
    char why[80], text[48];
    struct delivery late = w->deliveries[at];
    snprintf(why, sizeof(why), "no answer within %s", tdi_duration_format(h->timeout_us, text));
    memmove(&w->deliveries[1], &w->deliveries[0], at * sizeof(late));
    w->deliveries[0] = late;
    kill_worker(h, w, why, "timeout");
}

static void check_time(struct tdd_exec *h, struct worker *w)
{
    td_time_us now = tdi_mono(&h->clock);
    if (w->state == WORKER_GREETING && now >= w->hello_by_us) {
        kill_worker(h, w, "the worker did not say hello within 5 s", "hello");
        return;
    }
    for (size_t i = 0; i < w->count; i++) {
        if (now >= w->deliveries[i].run.deadline_us) {
            time_out(h, w, i);
            return;
        }
    }
    if (w->pong_by_us != TD_TIME_NONE && now >= w->pong_by_us) {
        kill_worker(h, w, "the worker did not answer a ping within 5 s", "ping");
        return;
    }
    if (w->state == WORKER_READY && w->count == 0 && w->pong_by_us == TD_TIME_NONE &&
        now >= w->heard_us + IDLE_PING_US) {
        tdd_exec_write_ping(&w->process.to, h->next_ping++);
        w->pong_by_us = now + PONG_US;
        tdd_exec_process_flush(&w->process);
    }
}

/* One turn: wait for the workers' descriptors until `until_us` at most, then serve them. */
static void turn(struct tdd_exec *h, td_time_us until_us)
{
    struct pollfd fds[WORKERS_MAX * 3];
    struct worker *owner[WORKERS_MAX * 3];
    nfds_t n = 0;
    for (size_t i = 0; i < h->workers_count; i++) {
        struct worker *w = &h->workers[i];
        const int fd[] = {w->process.out, w->process.err, w->process.in};
        const short events[] = {POLLIN, POLLIN, POLLOUT};
        for (size_t k = 0; w->process.pid != 0 && k < 3; k++) {
            if (fd[k] >= 0 && (k < 2 || w->process.to.len > 0)) {
                fds[n] = (struct pollfd){.fd = fd[k], .events = events[k]};
                owner[n++] = w;
            }
        }
        until_us = first_deadline(w, until_us);
    }
    td_time_us wait = until_us - tdi_mono(&h->clock);
    wait = wait < 0 ? 0 : wait > TURN_MAX_US ? TURN_MAX_US : wait;
    poll(fds, n, (int)((wait + TD_MILLISECOND_US - 1) / TD_MILLISECOND_US));
    for (nfds_t i = 0; i < n; i++) {
        if (fds[i].revents != 0 && owner[i]->process.pid != 0) {
            serve(h, owner[i]);
        }
    }
    for (size_t i = 0; i < h->workers_count; i++) {
        if (h->workers[i].process.pid != 0) {
            check_time(h, &h->workers[i]);
        }
    }
}

static struct td_str copy_text(struct tdi_arena *a, const struct tdi_buf *b)
{
    struct td_str s = TD_STR_NONE;
    if (b->len == 0 || !tdi_arena_str(a, tdi_buf_str(b), &s)) {
        return TD_STR_NONE;
    }
    return s;
}

/* Hand out the oldest result; texts and events move into the caller's arena. */
static enum td_err hand_out(struct tdd_exec *h, struct tdi_arena *a, struct td_run_result *ret,
                            struct td_error *err)
{
    struct ended *e = &h->ended[h->ended_head];
    struct td_verdict v = e->verdict;
    struct td_error why;
    if (e->emit.len > 0) {
        struct td_str json = copy_text(a, &e->emit);
        struct td_message *events = NULL;
        enum td_err rc = json.data == NULL ? TD_ERR_NOMEM
                                           : tdd_exec_read_emit(json, &e->run, a, &events,
                                                                &v.emit_count, &why);
        if (rc == TD_ERR_NOMEM) {
            return td_error_set(err, TD_ERR_NOMEM, "no memory for the answer of a worker");
        }
        v.emit = events;
        if (rc != TD_OK) {
            v = (struct td_verdict){.kind = TD_VERDICT_RETRY};
            tdi_buf_clear(&e->reason);
            tdi_buf_add(&e->reason, why.text, strnlen(why.text, REASON_MAX));
        }
    }
    v.reason = copy_text(a, &e->reason);
    v.error_type = copy_text(a, &e->error_type);
    v.error_message = v.reason;
    *ret = (struct td_run_result){.token = e->run.token, .verdict = v};
    release_ended(e);
    h->ended_head = (h->ended_head + 1) % h->ended_cap;
    h->ended_count--;
    return TD_OK;
}

static enum td_err exec_poll(struct td_handler *handler, td_time_us deadline_us,
                             struct tdi_arena *a, struct td_run_result *ret, size_t max,
                             size_t *ret_count, struct td_error *err)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    size_t n = 0;
    turn(h, h->ended_count > 0 ? INT64_MIN / 2 : deadline_us);
    while (h->ended_count == 0 && tdi_mono(&h->clock) < deadline_us) {
        turn(h, deadline_us);
    }
    while (n < max && h->ended_count > 0) {
        enum td_err rc = hand_out(h, a, &ret[n], err);
        if (rc != TD_OK && n == 0) {
            return rc;
        }
        if (rc != TD_OK) {
            break;
        }
        n++;
    }
    *ret_count = n;
    return TD_OK;
}

static void exec_cancel(struct td_handler *handler, uint64_t token)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    for (size_t i = 0; i < h->workers_count; i++) {
        struct worker *w = &h->workers[i];
        for (size_t k = 0; k < w->count; k++) {
            if (w->deliveries[k].run.token == token) {
                bool sent = w->deliveries[k].sent;
                remove_delivery(w, k);
                if (sent) {
                    kill_worker(h, w, "its delivery was cancelled", "cancel");
                    w->failures = 0; /* our doing, not its */
                    w->start_at_us = TD_TIME_NONE;
                }
                return;
            }
        }
    }
}

/* ---- close ---- */

static bool any_runs(const struct tdd_exec *h)
{
    for (size_t i = 0; i < h->workers_count; i++) {
        if (h->workers[i].process.pid != 0) {
            return true;
        }
    }
    return false;
}

/* Wait until all have ended or `until_us`, throwing away what they still say on stdout. */
static void wait_for_ends(struct tdd_exec *h, td_time_us until_us)
{
    while (any_runs(h) && tdi_mono(&h->clock) < until_us) {
        turn(h, until_us);
        for (size_t i = 0; i < h->workers_count; i++) {
            int status;
            tdd_exec_process_reap(&h->workers[i].process, &status);
        }
    }
}

static void exec_close(struct td_handler *handler, td_time_us deadline_us)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    if (!h->opened) {
        return;
    }
    td_time_us now = h->workers_count > 0 ? tdi_mono(&h->clock) : 0;
    for (size_t i = 0; i < h->workers_count; i++) {
        struct worker *w = &h->workers[i];
        if (w->process.pid != 0) {
            w->count = 0; /* no result will be asked for */
            w->state = WORKER_LEAVING;
            w->pong_by_us = TD_TIME_NONE;
            tdd_exec_write_shutdown(&w->process.to);
            tdd_exec_process_flush(&w->process);
        }
    }
    wait_for_ends(h, now + (deadline_us - now) / LEAVE_TERM_SHARE);
    for (size_t i = 0; i < h->workers_count; i++) {
        tdd_exec_process_signal(&h->workers[i].process, SIGTERM);
    }
    wait_for_ends(h, deadline_us);
    for (size_t i = 0; i < h->workers_count; i++) {
        int status;
        tdd_exec_process_kill(&h->workers[i].process, &status);
        tdd_exec_process_release(&h->workers[i].process);
    }
    for (; h->ended_count > 0; h->ended_count--) {
        release_ended(&h->ended[h->ended_head]);
        h->ended_head = (h->ended_head + 1) % h->ended_cap;
    }
    free(h->workers);
    free(h->ended);
    tdi_arena_release(&h->memory);
}

const struct td_handler_driver tdd_exec_handler = {
    .abi = TD_HANDLER_ABI,
    .struct_size = sizeof(struct td_handler_driver),
    .name = "exec",
    .place = TD_HANDLER_OUTSIDE,
    .session_size = sizeof(struct tdd_exec),
    .open = exec_open,
    .close = exec_close,
    .start = exec_start,
    .poll = exec_poll,
    .cancel = exec_cancel,
    .free_slots = exec_free_slots,
};
