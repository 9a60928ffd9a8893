/*
 * Results of runs that wait to be polled. Their texts outlive the worker's line, so they are copies.
 */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "handler/exec/session.h"

bool tdd_exec_has_room(const struct tdd_exec *h)
{
    return h->ended_count + h->workers_count * TDD_EXEC_WINDOW_MAX < h->ended_cap;
}

static struct tdd_exec_ended *at(const struct tdd_exec *h, size_t i)
{
    return &h->ended[(h->ended_head + i) % h->ended_cap];
}

/* At most max bytes that are still UTF-8. */
static struct td_str cut(struct td_str s, size_t max)
{
    if (s.len > max) {
        s.len = max;
        while (s.len > 0 && ((unsigned char)s.data[s.len] & 0xc0) == 0x80) {
            s.len--;
        }
    }
    return s;
}

void tdd_exec_end_run(struct tdd_exec *h, const struct td_run *run, struct td_verdict v,
                      struct td_str reason, const char *error_type, struct td_str emit)
{
    TDI_ASSERT(h->ended_count < h->ended_cap); /* start() keeps room */
    struct tdd_exec_ended *e = at(h, h->ended_count++);
    memset(e, 0, sizeof(*e));
    e->run = *run;
    e->verdict = v;
    tdi_buf_init(&e->reason, TDD_EXEC_REASON_MAX);
    tdi_buf_init(&e->emit, TDD_EXEC_LINE_MAX);
    snprintf(e->error_type, sizeof(e->error_type), "%s", error_type);
    if (reason.len > 0) {
        tdi_buf_add_str(&e->reason, cut(reason, TDD_EXEC_REASON_MAX));
    }
    if (emit.len > 0) {
        tdi_buf_add_str(&e->emit, emit);
    }
    if (e->emit.failed) {
        e->verdict = (struct td_verdict){.kind = TD_VERDICT_RETRY, .broken = true};
        tdi_buf_clear(&e->reason);
        tdi_buf_add_cstr(&e->reason, "no memory for the events of the worker's answer");
    }
}

static void release(struct tdd_exec_ended *e)
{
    tdi_buf_release(&e->reason);
    tdi_buf_release(&e->emit);
}

bool tdd_exec_forget(struct tdd_exec *h, uint64_t token)
{
    size_t i = 0;
    while (i < h->ended_count && at(h, i)->run.token != token) {
        i++;
    }
    if (i == h->ended_count) {
        return false;
    }
    release(at(h, i));
    for (; i + 1 < h->ended_count; i++) {
        *at(h, i) = *at(h, i + 1);
    }
    h->ended_count--;
    return true;
}

void tdd_exec_results_release(struct tdd_exec *h)
{
    for (size_t i = 0; i < h->ended_count; i++) {
        release(at(h, i));
    }
    h->ended_count = 0;
}

static enum td_err out_of_memory(struct td_error *err)
{
    return td_error_set(err, TD_ERR_NOMEM, "no memory for the answer of a worker");
}

/* The events of an answer of ok. What is wrong with them is a retry: the effect cannot be completed. */
static enum td_err read_emit(const struct tdd_exec_ended *e, struct tdi_arena *a,
                             struct td_verdict *v, struct td_str *reason, struct td_error *err)
{
    struct td_error why;
    struct td_str json;
    struct td_message *events;
    if (e->emit.len == 0) {
        return TD_OK;
    }
    if (!tdi_arena_str(a, tdi_buf_str(&e->emit), &json)) {
        return out_of_memory(err);
    }
    enum td_err rc = tdd_exec_read_emit(json, &e->run, a, &events, &v->emit_count, &why);
    if (rc == TD_OK) {
        v->emit = events;
        return TD_OK;
    }
    if (rc == TD_ERR_NOMEM) {
        return out_of_memory(err);
    }
    *v = (struct td_verdict){.kind = TD_VERDICT_RETRY, .broken = true};
    *reason = tdi_arena_printf(a, "%s", why.text);
    return reason->data != NULL ? TD_OK : out_of_memory(err);
}

enum td_err tdd_exec_hand_out(struct tdd_exec *h, struct tdi_arena *a, struct td_run_result *ret,
                              struct td_error *err)
{
    struct tdd_exec_ended *e = at(h, 0);
    struct td_verdict v = e->verdict;
    struct td_str reason = TD_STR_NONE;
    if (e->reason.len > 0 && !tdi_arena_str(a, tdi_buf_str(&e->reason), &reason)) {
        return out_of_memory(err);
    }
    enum td_err rc = read_emit(e, a, &v, &reason, err);
    if (rc != TD_OK) {
        return rc;
    }
    v.reason = cut(reason, TDD_EXEC_REASON_MAX);
    v.error_message = v.reason;
    if (v.kind != TD_VERDICT_OK && !tdi_arena_str(a, tdi_str(e->error_type), &v.error_type)) {
        return out_of_memory(err);
    }
    *ret = (struct td_run_result){.token = e->run.token, .verdict = v};
    release(e);
    h->ended_head = (h->ended_head + 1) % h->ended_cap;
    h->ended_count--;
    return TD_OK;
}
