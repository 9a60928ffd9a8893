/*
 * Starting and ending workers: hello, time-outs, pings, restarts, and who is charged for an end.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/str.h"
#include "handler/exec/session.h"

#define HELLO_US (5 * TD_SECOND_US)
#define IDLE_PING_US (10 * TD_SECOND_US)
#define PONG_US (5 * TD_SECOND_US)
#define RESTART_MIN_US (100 * TD_MILLISECOND_US)
#define RESTART_MAX_US (30 * TD_SECOND_US)

void tdd_exec_log(struct tdd_exec *h, enum tdi_log_level level, const char *event,
                  const struct tdd_exec_worker *w, struct td_str text)
{
    TDI_LOG(h->log, level, event, TDI_LOG_STR("consumer", h->consumer),
            TDI_LOG_INT("worker", (int64_t)(w - h->workers) + 1), TDI_LOG_STR("text", text));
}

/* ---- starting ---- */

static void plan_restart(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    td_time_us delay = RESTART_MIN_US;
    w->failures++;
    for (int i = 1; i < w->failures && delay < RESTART_MAX_US; i++) {
        delay *= 2;
    }
    w->start_at_us = tdi_mono(&h->clock) + (delay < RESTART_MAX_US ? delay : RESTART_MAX_US);
}

enum td_err tdd_exec_start_worker(struct tdd_exec *h, struct tdd_exec_worker *w,
                                  struct td_error *err)
{
    enum td_err rc = tdd_exec_process_start(&w->process, &h->command, err);
    if (rc != TD_OK) {
        plan_restart(h, w);
        return rc;
    }
    w->state = TDD_EXEC_GREETING;
    w->window = 1;
    w->heard_us = tdi_mono(&h->clock);
    w->hello_by_us = w->heard_us + HELLO_US;
    w->pong_by_us = TD_TIME_NONE;
    tdd_exec_write_hello(&w->process.to, h->consumer, h->timeout_us);
    tdd_exec_process_flush(&w->process); /* a broken pipe shows when it is served */
    return TD_OK;
}

/* ---- ending ---- */

static void settle(struct tdd_exec *h, const struct tdd_exec_delivery *d,
                   const struct tdd_exec_end *end, bool first)
{
    struct td_verdict v = {.kind = TD_VERDICT_RETRY, .uncharged = true};
    const char *why = end->why;
    if (!d->sent) {
        v.broken = end->blame;
    } else if (!first || !end->blame) {
        why = "its worker ended while it ran another message";
    } else {
        v.uncharged = false;
        v.verdictless = !end->judged;
        v.kind = end->judged ? end->verdict : TD_VERDICT_RETRY;
        v.broken = v.kind == TD_VERDICT_RETRY;
        v.code = v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE;
    }
    tdd_exec_end_run(h, &d->run, v, tdi_str(why), end->error_type, TD_STR_NONE);
}

/* The process is gone: what it had is settled, and whether it is started again. */
static void gone(struct tdd_exec *h, struct tdd_exec_worker *w, const struct tdd_exec_end *end)
{
    bool leaving = w->state == TDD_EXEC_LEAVING;
    for (size_t i = 0; i < w->count; i++) {
        settle(h, &w->deliveries[i], end, i == 0);
    }
    w->count = 0;
    w->state = TDD_EXEC_NONE;
    w->pong_by_us = TD_TIME_NONE;
    if (leaving || !end->blame) {
        w->failures = 0; /* our doing, not its */
        w->start_at_us = TD_TIME_NONE;
    } else {
        plan_restart(h, w);
    }
    tdd_exec_log(h, leaving || !end->blame ? TDI_LOG_DEBUG : TDI_LOG_WARN, "worker ended", w,
                 tdi_str(end->why));
}

static bool match_exit(const struct tdd_exec *h, int status, enum td_verdict_kind *ret)
{
    char text[16];
    if (!WIFEXITED(status)) {
        return false;
    }
    snprintf(text, sizeof(text), "%d", WEXITSTATUS(status));
    for (size_t i = 0; i < h->classify_count; i++) {
        if (tdi_str_is(h->classify[i].match, text)) {
            *ret = h->classify[i].verdict;
            return true;
        }
    }
    return false;
}

void tdd_exec_worker_ended(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    char text[48], why[80], type[24];
    int status;
    struct tdd_exec_end end = {.why = why, .error_type = type, .blame = true};
    /* It may have closed a pipe and live on; or it is about to end, and then the signal comes too
     * late to change its status. */
    bool before = tdd_exec_process_ended(&w->process);
    tdd_exec_process_kill(&w->process, &status);
    end.judged = match_exit(h, status, &end.verdict);
    snprintf(why, sizeof(why), "the worker %s",
             before || !WIFSIGNALED(status) ? tdd_exec_status_text(status, text)
                                            : "closed its stdin or stdout, or was killed");
    if (WIFSIGNALED(status)) {
        snprintf(type, sizeof(type), "signal %d", WTERMSIG(status));
    } else {
        snprintf(type, sizeof(type), "exit %d", WEXITSTATUS(status));
    }
    gone(h, w, &end);
}

void tdd_exec_kill_worker(struct tdd_exec *h, struct tdd_exec_worker *w,
                          const struct tdd_exec_end *end)
{
    int status;
    tdd_exec_process_kill(&w->process, &status);
    gone(h, w, end);
}

/* ---- time ---- */

td_time_us tdd_exec_first_deadline(const struct tdd_exec_worker *w, td_time_us far)
{
    td_time_us t = far;
    if (w->state == TDD_EXEC_GREETING && w->hello_by_us < t) {
        t = w->hello_by_us;
    }
    if (w->pong_by_us != TD_TIME_NONE && w->pong_by_us < t) {
        t = w->pong_by_us;
    }
    for (size_t i = 0; i < w->count; i++) {
        t = w->deliveries[i].deadline_us < t ? w->deliveries[i].deadline_us : t;
    }
    return t;
}

/* The delivery that has run out of time is the one that is charged, whoever is oldest. One that waits
 * for its worker's hello ends alone: a slow start is no reason to start again. */
static void time_out(struct tdd_exec *h, struct tdd_exec_worker *w, size_t at)
{
    char why[80], text[48];
    struct tdd_exec_delivery late = w->deliveries[at];
    struct tdd_exec_end end = {.why = why, .error_type = "timeout", .blame = true};
    if (late.timed) {
        snprintf(why, sizeof(why), "no answer within %s", tdi_duration_format(h->timeout_us, text));
    } else {
        snprintf(why, sizeof(why), "no answer before its deadline");
    }
    if (!late.sent) {
        end.why = "the worker did not say hello before the message's deadline";
        settle(h, &late, &end, true);
        tdd_exec_remove(w, at);
        return;
    }
    memmove(&w->deliveries[1], &w->deliveries[0], at * sizeof(late));
    w->deliveries[0] = late;
    tdd_exec_kill_worker(h, w, &end);
}

static void check_deliveries(struct tdd_exec *h, struct tdd_exec_worker *w, td_time_us now)
{
    size_t i = 0;
    while (i < w->count) {
        if (now >= w->deliveries[i].deadline_us) {
            time_out(h, w, i);
            i = 0;
        } else {
            i++;
        }
    }
}

static void check_pong(struct tdd_exec *h, struct tdd_exec_worker *w, td_time_us now)
{
    static const struct tdd_exec_end deaf = {
        .why = "the worker did not answer a ping within 5 s",
        .error_type = "ping",
        .blame = true,
    };
    if (w->pong_by_us != TD_TIME_NONE && now >= w->pong_by_us) {
        tdd_exec_kill_worker(h, w, &deaf);
        return;
    }
    if (w->count == 0 && w->pong_by_us == TD_TIME_NONE && now >= w->heard_us + IDLE_PING_US) {
        tdd_exec_write_ping(&w->process.to, h->next_ping++);
        w->pong_by_us = now + PONG_US;
        tdd_exec_process_flush(&w->process);
    }
}

void tdd_exec_check_time(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    static const struct tdd_exec_end silent = {
        .why = "the worker did not say hello within 5 s",
        .error_type = "hello",
        .blame = true,
    };
    td_time_us now = tdi_mono(&h->clock);
    switch (w->state) {
    case TDD_EXEC_GREETING:
        if (now >= w->hello_by_us) {
            tdd_exec_kill_worker(h, w, &silent);
        } else {
            check_deliveries(h, w, now);
        }
        break;
    case TDD_EXEC_READY:
        check_deliveries(h, w, now);
        if (w->state == TDD_EXEC_READY) {
            check_pong(h, w, now);
        }
        break;
    case TDD_EXEC_NONE:
    case TDD_EXEC_LEAVING:
        break;
    }
}
