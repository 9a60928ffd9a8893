/*
 * From the window to the broker: submit what may go, collect the answers.
 *
 * published_at is the time of the first submission that may have been stored: it is kept when the
 * outcome is unknown (a later copy is not younger than the first one) and set anew after a refusal.
 */
#include "base/assert.h"
#include "core/retry.h"
#include "relay/internal.h"

static struct tdi_relay_slot *slot_of(struct tdi_relay *r, uint64_t token)
{
    return &r->slots[token % r->window.capacity];
}

static struct td_message *message_of(struct tdi_relay *r, uint64_t token)
{
    return &slot_of(r, token)->row->message;
}

/* ---- submitting ------------------------------------------------------------------------- */

bool tdi_relay_submit_wanted(struct tdi_relay *r)
{
    uint64_t token;

    return r->broker != NULL && !r->pipeline_full && !r->undurable && !r->stopping &&
           !tdi_relay_letters_unanswered(r) && tdi_window_ready(&r->window, &token, 1) > 0;
}

/* It waited too long here and never left: given up like a row that was read too late. */
static bool expired_here(struct tdi_relay *r, uint64_t token, td_time_us wall)
{
    const struct td_message *m = message_of(r, token);

    return m->published_at == TD_TIME_NONE && tdi_relay_expired(m, wall);
}

static void expire(struct tdi_relay *r, uint64_t token)
{
    tdi_window_submitted(&r->window, 1);
    tdi_window_refuse(&r->window, token, TD_DEAD_EXPIRED,
                      TD_STR_LIT("it expired while it waited for the broker"));
    r->front_stale = true;
}

static size_t fill_items(struct tdi_relay *r, size_t count, td_time_us wall)
{
    for (size_t i = 0; i < count; i++) {
        if (expired_here(r, r->tokens[i], wall)) {
            return i;
        }
        struct td_message *m = message_of(r, r->tokens[i]);
        if (m->published_at == TD_TIME_NONE) {
            m->published_at = wall;
        }
        r->items[i] = (struct td_publish){
            .topic = slot_of(r, r->tokens[i])->topic,
            .message = m,
            .token = r->tokens[i],
        };
    }
    return count;
}

enum tdi_step tdi_relay_submit(struct tdi_relay *r, td_time_us now)
{
    td_time_us wall = tdi_wall(&r->o.clock);
    size_t ready = tdi_window_ready(&r->window, r->tokens, TDI_RELAY_SUBMIT_MAX);
    size_t count = fill_items(r, ready, wall);
    size_t taken = 0;
    struct td_error err;

    TDI_ASSERT(r->fence > 0 && now < r->lease_until);
    if (count == 0) {
        expire(r, r->tokens[0]);
        return TDI_STEP_AGAIN;
    }
    enum td_err e = r->broker->driver->submit(r->broker, r->items, count, &taken, &err);
    if (e != TD_OK) {
        return tdi_relay_broker_failed(r, &err);
    }
    TDI_ASSERT(taken <= count);
    if (taken > 0) {
        if (r->window.submitted == 0) {
            r->progress_at = now;
        }
        tdi_window_submitted(&r->window, taken);
    }
    if (taken < count) {
        r->pipeline_full = r->window.submitted > 0;
        r->submit_at = r->pipeline_full ? r->submit_at : now + TDI_RELAY_READ_GAP_US;
    }
    return TDI_STEP_AGAIN;
}

/* ---- collecting ------------------------------------------------------------------------- */

enum td_dead_code tdi_relay_fault_of(const struct td_published *p)
{
    if (p->class_ != TD_CLASS_PERMANENT) {
        return TD_DEAD_NONE;
    }
    if (p->code == TD_ERR_UNROUTABLE) {
        return TD_DEAD_UNROUTABLE;
    }
    if (p->code == TD_ERR_TOO_LARGE) {
        return TD_DEAD_TOO_LARGE;
    }
    if (p->code == TD_ERR_DENIED) {
        return TD_DEAD_DENIED;
    }
    return p->code == TD_ERR_INVALID ? TD_DEAD_INVALID : TD_DEAD_NONE;
}

struct td_str tdi_relay_fault_reason(enum td_dead_code code)
{
    if (code == TD_DEAD_UNROUTABLE) {
        return TD_STR_LIT("the broker refused it: it has no such topic, or no queue takes it");
    }
    if (code == TD_DEAD_TOO_LARGE) {
        return TD_STR_LIT("the broker refused it: it is larger than the broker allows");
    }
    if (code == TD_DEAD_DENIED) {
        return TD_STR_LIT("the broker refused it: publishing to this topic is not permitted");
    }
    return TD_STR_LIT("the broker refused it: it does not have the form that it must have");
}

static void accepted(struct tdi_relay *r, const struct td_published *p)
{
    if (tdi_relay_letters_answer(r, p)) {
        return;
    }
    if (tdi_window_accept(&r->window, p->token, p->evidence)) {
        r->broker_failures = 0;
        r->refusals = 0;
        r->submit_at = INT64_MIN;
    }
}

static bool in_window(const struct tdi_relay *r, uint64_t token)
{
    return token >= r->window.first && token < r->window.end;
}

/* true: it was given back, the broker does not want it now. */
static bool refused(struct tdi_relay *r, const struct td_published *p)
{
    enum td_dead_code dead = tdi_relay_fault_of(p);

    if (tdi_relay_letters_answer(r, p)) {
        return false;
    }
    if (dead != TD_DEAD_NONE) {
        tdi_window_refuse(&r->window, p->token, dead, tdi_relay_fault_reason(dead));
        return false;
    }
    if (in_window(r, p->token)) {
        message_of(r, p->token)->published_at = TD_TIME_NONE;
    }
    /* false: behind an earlier failure of an ordered pipeline, queued again already */
    return tdi_window_give_back(&r->window, p->token);
}

static void refused_for_now(struct tdi_relay *r, const struct td_published *p)
{
    struct td_error err = {.code = TD_OK};

    td_error_set(&err, p->code, "the broker does not take messages at the moment: %s",
                 td_err_name(p->code));
    err.class_ = TD_CLASS_RETRY;
    tdi_relay_remember(r, &err);
    r->refusals++;
    r->submit_at = tdi_mono(&r->o.clock) + tdi_backoff(r->refusals, r->o.random);
}

static enum tdi_step unknown(struct tdi_relay *r)
{
    struct td_error err = {.code = TD_OK};

    td_error_set(&err, TD_ERR_OUTCOME_UNKNOWN,
                 "the broker may or may not have stored a message; it is sent again");
    return tdi_relay_broker_failed(r, &err);
}

enum tdi_step tdi_relay_collect(struct tdi_relay *r, td_time_us deadline_us)
{
    struct td_error err;
    size_t count = 0;
    const struct td_published *not_now = NULL;
    bool lost = false;

    enum td_err e = r->broker->driver->collect(r->broker, deadline_us, r->results,
                                               TDI_RELAY_COLLECT_MAX, &count, &err);
    if (e != TD_OK) {
        return tdi_relay_broker_failed(r, &err);
    }
    TDI_ASSERT(count <= TDI_RELAY_COLLECT_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct td_published *p = &r->results[i];
        switch (p->result) {
        case TD_PUBLISH_ACCEPTED:
            accepted(r, p);
            break;
        case TD_PUBLISH_REFUSED:
            not_now = refused(r, p) ? p : not_now;
            break;
        case TD_PUBLISH_UNKNOWN:
            lost = true;
            break;
        }
    }
    if (count > 0) {
        r->front_stale = true;
        r->pipeline_full = false;
        r->progress_at = tdi_mono(&r->o.clock);
    }
    if (not_now != NULL) {
        refused_for_now(r, not_now);
    }
    return lost ? unknown(r) : TDI_STEP_AGAIN;
}
