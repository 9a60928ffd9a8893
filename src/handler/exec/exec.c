/*
 * The exec handler: long-lived worker processes that take deliveries and give verdicts as JSON lines.
 * Here are its slots and the turn that serves all workers; session.h tells the life of a worker.
 *
 * All slots, close() included, are called by one thread, and that thread outlives the workers: the
 * kernel kills them when it ends.
 *
 * Must not know: stores, transactions, who decides about retries.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "handler/exec/session.h"

#define WORKERS_MAX 64
#define COMMAND_MAX 64
#define LEAVE_TERM_SHARE 2 /* SIGTERM when half of the time to the deadline is over */
#define TURN_MAX_US (50 * TD_MILLISECOND_US)
#define TURN_LEAVING_US (5 * TD_MILLISECOND_US) /* an end without open pipes wakes nobody */

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

/* ---- running ---- */

/* The worker for one more delivery: the least loaded that runs, else one that may be started. */
static struct tdd_exec_worker *choose_worker(struct tdd_exec *h)
{
    struct tdd_exec_worker *best = NULL;
    td_time_us now = tdi_mono(&h->clock);
    for (size_t i = 0; i < h->workers_count; i++) {
        struct tdd_exec_worker *w = &h->workers[i];
        bool may_start = w->state == TDD_EXEC_NONE && w->start_at_us <= now;
        bool has_room =
            (w->state == TDD_EXEC_READY || w->state == TDD_EXEC_GREETING) && w->count < w->window;
        bool better = best == NULL || w->count < best->count ||
                      (w->count == best->count && w->state == TDD_EXEC_READY &&
                       best->state != TDD_EXEC_READY);
        if ((may_start || has_room) && better) {
            best = w;
        }
    }
    return best;
}

static enum td_err none_free(const struct tdd_exec *h, struct td_error *err)
{
    for (size_t i = 0; i < h->workers_count; i++) {
        if (h->workers[i].state != TDD_EXEC_NONE) {
            return td_error_set(err, TD_ERR_BUSY, "every worker is busy");
        }
    }
    return td_error_set(err, TD_ERR_UNAVAILABLE,
                        "no worker runs: the last one ended, the next is started after a pause");
}

static enum td_err exec_start(struct td_handler *handler, const struct td_run *run,
                              struct td_error *err)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    if (!tdd_exec_has_room(h)) {
        return td_error_set(err, TD_ERR_BUSY, "the results of earlier runs were not taken yet");
    }
    struct tdd_exec_worker *w = choose_worker(h);
    if (w == NULL) {
        return none_free(h, err);
    }
    if (w->state == TDD_EXEC_NONE) {
        enum td_err rc = tdd_exec_start_worker(h, w, err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    td_time_us ours = tdi_mono(&h->clock) + h->timeout_us;
    td_time_us theirs = run->deadline_us == TD_TIME_NONE ? INT64_MAX : run->deadline_us;
    w->deliveries[w->count++] = (struct tdd_exec_delivery){
        .number = h->next_delivery++,
        .run = *run,
        .deadline_us = ours < theirs ? ours : theirs,
        .timed = theirs >= ours || ours - theirs < TD_SECOND_US / 2,
    };
    if (w->state == TDD_EXEC_READY && tdd_exec_send(h, w, w->count - 1)) {
        tdd_exec_process_flush(&w->process);
    }
    return TD_OK;
}

static size_t exec_free_slots(struct td_handler *handler)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    size_t n = 0;
    td_time_us now = tdi_mono(&h->clock);
    if (!tdd_exec_has_room(h)) {
        return 0;
    }
    for (size_t i = 0; i < h->workers_count; i++) {
        const struct tdd_exec_worker *w = &h->workers[i];
        if (w->state == TDD_EXEC_READY || w->state == TDD_EXEC_GREETING) {
            n += w->window > w->count ? w->window - w->count : 0;
        } else if (w->state == TDD_EXEC_NONE && w->start_at_us <= now) {
            n++;
        }
    }
    return n;
}

struct watch {
    struct pollfd fds[WORKERS_MAX * 3];
    struct tdd_exec_worker *owner[WORKERS_MAX * 3];
    nfds_t count;
};

static void watch_worker(struct watch *p, struct tdd_exec_worker *w)
{
    const struct pollfd fds[] = {
        {.fd = w->process.out, .events = POLLIN},
        {.fd = w->process.err, .events = POLLIN},
        {.fd = tdd_exec_process_unwritten(&w->process) ? w->process.in : -1, .events = POLLOUT},
    };
    for (size_t k = 0; w->process.pid != 0 && k < sizeof(fds) / sizeof(fds[0]); k++) {
        if (fds[k].fd >= 0) {
            p->fds[p->count] = fds[k];
            p->owner[p->count++] = w;
        }
    }
}

/* Something happened to this worker's pipes, or it has ended: a child of it may hold them open. */
static bool wants_service(const struct watch *p, const struct tdd_exec_worker *w)
{
    for (nfds_t i = 0; i < p->count; i++) {
        if (p->owner[i] == w && p->fds[i].revents != 0) {
            return true;
        }
    }
    return tdd_exec_process_ended(&w->process);
}

/* One turn: wait for the workers' descriptors until `until_us` at most, then serve them. */
static void turn(struct tdd_exec *h, td_time_us until_us)
{
    struct watch p = {.count = 0};
    td_time_us most = TURN_MAX_US;
    for (size_t i = 0; i < h->workers_count; i++) {
        watch_worker(&p, &h->workers[i]);
        until_us = tdd_exec_first_deadline(&h->workers[i], until_us);
        most = h->workers[i].state == TDD_EXEC_LEAVING ? TURN_LEAVING_US : most;
    }
    td_time_us now = tdi_mono(&h->clock);
    td_time_us wait = until_us <= now ? 0 : until_us - now;
    wait = wait > most ? most : wait;
    poll(p.fds, p.count, (int)((wait + TD_MILLISECOND_US - 1) / TD_MILLISECOND_US));
    for (size_t i = 0; i < h->workers_count; i++) {
        struct tdd_exec_worker *w = &h->workers[i];
        if (w->process.pid != 0 && wants_service(&p, w)) {
            tdd_exec_serve(h, w);
        }
        if (w->process.pid != 0) {
            tdd_exec_check_time(h, w);
        }
    }
}

static enum td_err exec_poll(struct td_handler *handler, td_time_us deadline_us,
                             struct tdi_arena *a, struct td_run_result *ret, size_t max,
                             size_t *ret_count, struct td_error *err)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    size_t n = 0;
    td_time_us until = deadline_us == TD_TIME_NONE ? INT64_MAX : deadline_us;
    turn(h, h->ended_count > 0 ? 0 : until);
    while (h->ended_count == 0 && tdi_mono(&h->clock) < until) {
        turn(h, until);
    }
    while (n < max && h->ended_count > 0) {
        enum td_err rc = tdd_exec_hand_out(h, a, &ret[n], err);
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

/* Who has the delivery, and where in its list; NULL: nobody. */
static struct tdd_exec_worker *worker_of(struct tdd_exec *h, uint64_t token, size_t *ret_at)
{
    for (size_t i = 0; i < h->workers_count; i++) {
        struct tdd_exec_worker *w = &h->workers[i];
        for (size_t k = 0; k < w->count; k++) {
            if (w->deliveries[k].run.token == token) {
                *ret_at = k;
                return w;
            }
        }
    }
    return NULL;
}

static void exec_cancel(struct td_handler *handler, uint64_t token)
{
    static const struct tdd_exec_end cancelled = {
        .why = "another message of this worker was cancelled",
        .error_type = "cancel",
        .blame = false,
    };
    struct tdd_exec *h = (struct tdd_exec *)handler;
    size_t at = 0;
    struct tdd_exec_worker *w = tdd_exec_forget(h, token) ? NULL : worker_of(h, token, &at);
    if (w != NULL) {
        bool sent = w->deliveries[at].sent;
        tdd_exec_remove(w, at);
        if (sent) {
            tdd_exec_kill_worker(h, w, &cancelled);
        }
    }
}

/* ---- close ---- */

static void ask_to_leave(struct tdd_exec_worker *w)
{
    w->count = 0; /* no result will be asked for */
    w->state = TDD_EXEC_LEAVING;
    w->pong_by_us = TD_TIME_NONE;
    tdd_exec_write_shutdown(&w->process.to);
    tdd_exec_process_flush(&w->process);
}

static bool any_runs(const struct tdd_exec *h)
{
    for (size_t i = 0; i < h->workers_count; i++) {
        if (h->workers[i].process.pid != 0) {
            return true;
        }
    }
    return false;
}

static void wait_for_ends(struct tdd_exec *h, td_time_us until_us)
{
    while (any_runs(h) && tdi_mono(&h->clock) < until_us) {
        turn(h, until_us);
    }
}

static void exec_close(struct td_handler *handler, td_time_us deadline_us)
{
    struct tdd_exec *h = (struct tdd_exec *)handler;
    if (!h->opened) {
        return;
    }
    td_time_us now = tdi_mono(&h->clock);
    for (size_t i = 0; i < h->workers_count; i++) {
        if (h->workers[i].process.pid != 0) {
            ask_to_leave(&h->workers[i]);
        }
    }
    if (deadline_us > now) {
        wait_for_ends(h, now + (deadline_us - now) / LEAVE_TERM_SHARE);
    }
    for (size_t i = 0; i < h->workers_count; i++) {
        tdd_exec_process_signal(&h->workers[i].process, SIGTERM);
    }
    wait_for_ends(h, deadline_us);
    for (size_t i = 0; i < h->workers_count; i++) {
        struct tdd_exec_worker *w = &h->workers[i];
        int status;
        if (w->process.pid != 0) {
            tdd_exec_log(h, TDI_LOG_WARN, "worker killed, it did not leave in time", w,
                         TD_STR_NONE);
        }
        tdd_exec_process_kill(&w->process, &status);
        tdd_exec_process_release(&w->process);
    }
    tdd_exec_results_release(h);
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
