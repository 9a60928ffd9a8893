/*
 * Lines to and from workers: deliveries out; hello, answers and what is neither in.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "handler/exec/session.h"

#define READS_MAX 32       /* of one pipe at a time; 64 KiB each */
#define SAID_LINE_MAX 2048 /* a longer line of stderr is logged in pieces */

/* ---- out ---- */

void tdd_exec_remove(struct tdd_exec_worker *w, size_t at)
{
    w->count--;
    memmove(&w->deliveries[at], &w->deliveries[at + 1], (w->count - at) * sizeof(w->deliveries[0]));
}

bool tdd_exec_send(struct tdd_exec *h, struct tdd_exec_worker *w, size_t at)
{
    struct tdd_exec_delivery *d = &w->deliveries[at];
    struct tdi_buf *to = &w->process.to;
    size_t before = to->len;
    td_time_us remaining = d->deadline_us - tdi_mono(&h->clock);
    tdd_exec_write_delivery(to, d->number, &d->run, remaining > 0 ? remaining : 0);
    if (to->failed) {
        const struct td_verdict v = {.kind = TD_VERDICT_RETRY, .uncharged = true};
        to->len = before; /* half a line must not go out */
        to->failed = false;
        tdd_exec_end_run(h, &d->run, v, TD_STR_LIT("no memory to hand the message to a worker"),
                         "memory", TD_STR_NONE);
        tdd_exec_remove(w, at);
        return false;
    }
    d->sent = true;
    return true;
}

/* ---- in ---- */

static void on_hello(struct tdd_exec *h, struct tdd_exec_worker *w,
                     const struct tdd_exec_line *line)
{
    char why[96];
    if (w->state != TDD_EXEC_GREETING) {
        tdd_exec_log(h, TDI_LOG_WARN, "worker said hello twice", w, TD_STR_NONE);
        return;
    }
    if (line->number != TDD_EXEC_PROTOCOL_VERSION) {
        const struct tdd_exec_end end = {.why = why, .error_type = "protocol", .blame = true};
        snprintf(why, sizeof(why), "the worker speaks protocol %" PRId64 ", not %d", line->number,
                 TDD_EXEC_PROTOCOL_VERSION);
        tdd_exec_kill_worker(h, w, &end);
        return;
    }
    w->state = TDD_EXEC_READY;
    w->window = (size_t)line->window;
    for (size_t i = 0; i < w->count;) {
        i += tdd_exec_send(h, w, i) ? 1 : 0;
    }
}

static void on_answer(struct tdd_exec *h, struct tdd_exec_worker *w,
                      const struct tdd_exec_line *line)
{
    size_t at = 0;
    while (at < w->count && w->deliveries[at].number != line->number) {
        at++;
    }
    if (at == w->count || !w->deliveries[at].sent) {
        tdd_exec_log(h, TDI_LOG_WARN, "late or unknown answer ignored", w, TD_STR_NONE);
        return;
    }
    struct td_verdict v = {.kind = TD_VERDICT_RETRY, .broken = true};
    struct td_str reason = line->reason;
    if (line->result_valid) {
        v.kind = line->result;
        v.code = v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE;
        v.broken = v.kind == TD_VERDICT_RETRY;
        v.after_us = v.kind == TD_VERDICT_RETRY ? line->after_us : 0;
    } else {
        reason = TD_STR_LIT("the worker's answer has no result of ok, retry, dead, drop");
    }
    tdd_exec_end_run(h, &w->deliveries[at].run, v, reason, line->result_valid ? "worker" : "answer",
                     v.kind == TD_VERDICT_OK ? line->emit : TD_STR_NONE);
    w->failures = 0;
    tdd_exec_remove(w, at);
}

static void on_line(struct tdd_exec *h, struct tdd_exec_worker *w, struct td_str text)
{
    struct tdi_arena a;
    struct tdd_exec_line line;
    tdi_arena_init(&a, 2 * TDD_EXEC_LINE_MAX);
    tdd_exec_read_line(text, &a, &line);
    w->heard_us = tdi_mono(&h->clock);
    w->pong_by_us = TD_TIME_NONE; /* any line shows that it lives */
    switch (line.kind) {
    case TDD_EXEC_STRAY:
        tdd_exec_log(h, TDI_LOG_WARN, "stray line on a worker's stdout", w, tdi_str(line.why));
        break;
    case TDD_EXEC_HELLO:
        on_hello(h, w, &line);
        break;
    case TDD_EXEC_PONG:
        break;
    case TDD_EXEC_ANSWER:
        on_answer(h, w, &line);
        break;
    }
    tdi_arena_release(&a);
}

/* Lines that are there. The worker may be killed by one of them. */
static void take_lines(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    static const struct tdd_exec_end endless = {
        .why = "the worker wrote a line that is too long",
        .error_type = "line",
        .blame = true,
    };
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
    if (w->process.pid != 0 &&
        (w->process.from.failed || w->process.from.len > TDD_EXEC_LINE_MAX)) {
        tdd_exec_kill_worker(h, w, &endless);
    }
}

static void take_stderr(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    struct tdi_buf *said = &w->process.said;
    enum tdd_exec_read more = TDD_EXEC_READ_MORE;
    for (int i = 0; i < READS_MAX && more == TDD_EXEC_READ_MORE; i++) {
        struct td_str text;
        more = tdd_exec_process_read_err(&w->process);
        while (tdd_exec_line_of(said, &text)) {
            tdd_exec_log(h, TDI_LOG_INFO, "worker says", w, text);
            tdi_buf_consume(said, text.len + 1);
        }
        if (said->len > SAID_LINE_MAX || said->failed ||
            (said->len > 0 && more == TDD_EXEC_READ_END)) {
            tdd_exec_log(h, TDI_LOG_INFO, "worker says", w, tdi_buf_str(said));
            tdi_buf_clear(said);
        }
    }
}

/* Answers that come while it leaves have nobody who waits for them. */
static enum tdd_exec_read take_stdout(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    enum tdd_exec_read more = TDD_EXEC_READ_MORE;
    for (int i = 0; i < READS_MAX && more == TDD_EXEC_READ_MORE && w->process.pid != 0; i++) {
        more = tdd_exec_process_read(&w->process);
        if (w->state == TDD_EXEC_LEAVING) {
            tdi_buf_clear(&w->process.from);
        } else {
            take_lines(h, w);
        }
    }
    return more;
}

static void serve_leaving(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    if (tdd_exec_process_ended(&w->process)) {
        tdd_exec_worker_ended(h, w);
    } else if (!tdd_exec_process_flush(&w->process) || w->process.to.len == 0) {
        tdd_exec_process_close_in(&w->process); /* who does not know the word sees the end */
    }
}

void tdd_exec_serve(struct tdd_exec *h, struct tdd_exec_worker *w)
{
    bool ended = tdd_exec_process_ended(&w->process); /* before the read: it takes all there is */
    enum tdd_exec_read more = take_stdout(h, w);
    take_stderr(h, w);
    if (w->process.pid == 0) {
        return;
    }
    if (w->state == TDD_EXEC_LEAVING) {
        serve_leaving(h, w);
        return;
    }
    ended = ended && more != TDD_EXEC_READ_MORE;
    if (!ended && more != TDD_EXEC_READ_END && tdd_exec_process_flush(&w->process)) {
        return;
    }
    /* What it wrote before it closed its stdin was perhaps not there a moment ago. */
    take_stdout(h, w);
    if (w->process.pid != 0) {
        tdd_exec_worker_ended(h, w);
    }
}
