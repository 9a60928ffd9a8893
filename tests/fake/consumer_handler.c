/* See consumer_handler.h. */
#include "fake/consumer_handler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"
#include "fake/consumer_store.h"

#define SCRIPTS_MAX 64
#define LOG_MAX 20000
#define SLOTS_MAX 64
#define ID_MAX 96

struct one_run {
    char id[ID_MAX];
    int32_t attempt;
    bool killed;
};

struct slot {
    bool used;
    uint64_t token;
    char id[ID_MAX];
    char source[ID_MAX];
    int32_t attempt;
    struct fake_script script;
    td_time_us done_at;
};

struct fake_handler_data {
    struct fake_script scripts[SCRIPTS_MAX];
    size_t scripts_count;
    struct one_run log[LOG_MAX];
    size_t log_count;
    size_t slots;   /* of each session */
    size_t running; /* in all sessions */
    bool killed;
    fake_decide_fn decide;
};

struct fake_handler {
    struct td_handler head;
    struct fake_world *w;
    struct slot slots[SLOTS_MAX]; /* outside */
};

struct fake_handler_data *fake_handler_data_new(void)
{
    struct fake_handler_data *h = calloc(1, sizeof(*h));
    TDI_ASSERT(h != NULL);
    h->slots = 4;
    return h;
}

void fake_handler_data_free(struct fake_handler_data *h)
{
    free(h);
}

void fake_script(struct fake_world *w, const struct fake_script *s)
{
    TDI_ASSERT(w->handler->scripts_count < SCRIPTS_MAX);
    w->handler->scripts[w->handler->scripts_count++] = *s;
}

void fake_no_scripts(struct fake_world *w)
{
    w->handler->scripts_count = 0;
}

void fake_decide(struct fake_world *w, fake_decide_fn decide)
{
    w->handler->decide = decide;
}

bool fake_take_kill(struct fake_world *w)
{
    bool killed = w->handler->killed;
    w->handler->killed = false;
    return killed;
}

static int count_log(const struct fake_world *w, const char *id, bool kills)
{
    int count = 0;
    for (size_t i = 0; i < w->handler->log_count; i++) {
        const struct one_run *r = &w->handler->log[i];
        count += strcmp(r->id, id) == 0 && (!kills || r->killed) ? 1 : 0;
    }
    return count;
}

int fake_runs(const struct fake_world *w, const char *id)
{
    return count_log(w, id, false);
}

int fake_kills(const struct fake_world *w, const char *id)
{
    return count_log(w, id, true);
}

size_t fake_log_count(const struct fake_world *w)
{
    return w->handler->log_count;
}

const char *fake_log_id(const struct fake_world *w, size_t index)
{
    return w->handler->log[index].id;
}

int32_t fake_log_attempt(const struct fake_world *w, size_t index)
{
    return w->handler->log[index].attempt;
}

size_t fake_running(const struct fake_world *w)
{
    return w->handler->running;
}

void fake_slots(struct fake_world *w, size_t slots)
{
    TDI_ASSERT(slots <= SLOTS_MAX);
    w->handler->slots = slots;
}

/* What happens in this run; a script is used up by it. */
static struct fake_script next_script(struct fake_world *w, const struct td_run *run)
{
    struct fake_script s = {.kind = TD_VERDICT_OK};
    struct fake_handler_data *h = w->handler;
    if (h->decide != NULL) {
        h->decide(w, run, &s);
        return s;
    }
    for (size_t i = 0; i < h->scripts_count; i++) {
        struct fake_script *one = &h->scripts[i];
        if (one->times != 0 && (one->id == NULL || tdi_str_is(run->message->id, one->id))) {
            one->times -= one->times > 0 ? 1 : 0;
            return *one;
        }
    }
    return s;
}

static void log_run(struct fake_world *w, const struct td_run *run, const struct fake_script *s)
{
    struct fake_handler_data *h = w->handler;
    TDI_ASSERT(h->log_count < LOG_MAX);
    struct one_run *r = &h->log[h->log_count++];
    snprintf(r->id, sizeof(r->id), "%.*s", (int)run->message->id.len, run->message->id.data);
    r->attempt = run->attempt;
    r->killed = s->kills;
    h->killed = h->killed || s->kills;
    fake_say(w, "handler runs %s, attempt %d: %s", r->id, (int)run->attempt,
             s->kills                   ? "dies"
             : s->kind == TD_VERDICT_OK ? "ok"
                                        : "fails");
}

static void fill_verdict(struct fake_world *w, struct tdi_arena *a, const struct fake_script *s,
                         struct td_str id, struct td_verdict *v)
{
    (void)w;
    *v = (struct td_verdict){
        .kind = s->kind,
        .code = s->code,
        .after_us = s->after_us,
        .broken = s->broken,
        .uncharged = s->uncharged,
        .verdictless = s->verdictless,
    };
    if (s->kind == TD_VERDICT_RETRY || s->kind == TD_VERDICT_DEAD) {
        v->reason = tdi_arena_printf(a, "scripted for %.*s", (int)id.len, id.data);
    }
    if (s->emit) {
        struct td_message *m = tdi_arena_array(a, 1, sizeof(*m));
        TDI_ASSERT(m != NULL);
        m->id = tdi_arena_printf(a, "emit-%.*s", (int)id.len, id.data);
        m->type = TD_STR_LIT("points.added");
        v->emit = m;
        v->emit_count = 1;
    }
}

/* ---- both places ---- */

static struct fake_handler *of(struct td_handler *h)
{
    return (struct fake_handler *)h;
}

static void slot_free(struct fake_handler *h, struct slot *s)
{
    h->w->handler->running -= s->used ? 1 : 0;
    s->used = false;
}

static enum td_err fh_open(struct td_handler *head, const struct td_handler_options *o,
                           struct td_error *err)
{
    struct fake_handler *h = of(head);
    (void)err;
    h->w = fake_world_of(&o->clock);
    return TD_OK;
}

static void fh_close(struct td_handler *head, td_time_us deadline_us)
{
    struct fake_handler *h = of(head);
    (void)deadline_us;
    for (size_t i = 0; i < SLOTS_MAX && h->w != NULL; i++) {
        slot_free(h, &h->slots[i]);
    }
}

/* ---- inside ---- */

static enum td_err fh_prepare(struct td_handler *head, struct td_store *store, struct td_error *err)
{
    (void)store;
    return fake_call(of(head)->w, "handler.prepare", err, NULL) ? err->code : TD_OK;
}

static enum td_err fh_run(struct td_handler *head, struct td_store *store,
                          const struct td_run *runs, size_t count, struct tdi_arena *a,
                          struct td_verdict *ret_verdicts, size_t *ret_done, struct td_error *err)
{
    struct fake_world *w = of(head)->w;
    if (fake_call(w, "handler.run", err, NULL)) {
        return err->code;
    }
    for (size_t i = 0; i < count; i++) {
        struct fake_script s = next_script(w, &runs[i]);
        log_run(w, &runs[i], &s);
        w->now += s.takes_us;
        if (s.error != TD_OK) {
            return td_error_set(err, s.error, "scripted");
        }
        if (s.bad_commit) {
            fake_store_refuse_commit(store);
        }
        if (s.kind == TD_VERDICT_OK) {
            fake_store_effect(store, runs[i].message);
        }
        fill_verdict(w, a, &s, runs[i].message->id, &ret_verdicts[i]);
        *ret_done = i + 1;
        if (s.kind != TD_VERDICT_OK) {
            /* Something was written before that verdict: it must be undone. */
            fake_store_effect(store, runs[i].message);
            break;
        }
    }
    return TD_OK;
}

const struct td_handler_driver fake_inside_driver = {
    .abi = TD_HANDLER_ABI,
    .struct_size = sizeof(struct td_handler_driver),
    .name = "fake",
    .place = TD_HANDLER_INSIDE,
    .session_size = sizeof(struct fake_handler),
    .open = fh_open,
    .close = fh_close,
    .prepare = fh_prepare,
    .run = fh_run,
};

/* ---- outside ---- */

static enum td_err fh_start(struct td_handler *head, const struct td_run *run, struct td_error *err)
{
    struct fake_world *w = of(head)->w;
    if (fake_call(w, "handler.start", err, NULL)) {
        return err->code;
    }
    for (size_t i = 0; i < w->handler->slots; i++) {
        struct slot *s = &of(head)->slots[i];
        if (s->used) {
            continue;
        }
        struct fake_script script = next_script(w, run);
        if (script.start_error != TD_OK) {
            return td_error_set(err, script.start_error, "scripted");
        }
        log_run(w, run, &script);
        *s = (struct slot){
            .used = true,
            .token = run->token,
            .attempt = run->attempt,
            .script = script,
            .done_at = w->now + script.takes_us,
        };
        w->handler->running++;
        const struct td_message *m = run->message;
        snprintf(s->id, sizeof(s->id), "%.*s", (int)m->id.len, m->id.data);
        snprintf(s->source, sizeof(s->source), "%.*s", (int)m->source.len, m->source.data);
        return TD_OK;
    }
    return td_error_set(err, TD_ERR_BUSY, "no worker is free");
}

static enum td_err fh_poll(struct td_handler *head, td_time_us deadline_us, struct tdi_arena *a,
                           struct td_run_result *ret, size_t max, size_t *ret_count,
                           struct td_error *err)
{
    struct fake_world *w = of(head)->w;
    (void)deadline_us;
    if (fake_call(w, "handler.poll", err, NULL)) {
        return err->code;
    }
    size_t count = 0;
    for (size_t i = 0; i < w->handler->slots && count < max; i++) {
        struct slot *s = &of(head)->slots[i];
        if (!s->used || s->done_at > w->now) {
            continue;
        }
        struct td_run_result *r = &ret[count++];
        r->token = s->token;
        fill_verdict(w, a, &s->script, tdi_str(s->id), &r->verdict);
        if (s->script.worker_settles) {
            fake_store_worker_settles(w, s->source, s->id, s->attempt);
        }
        fake_say(w, "handler ends %s", s->id);
        slot_free(of(head), s);
    }
    *ret_count = count;
    return TD_OK;
}

static void fh_cancel(struct td_handler *head, uint64_t token)
{
    struct fake_world *w = of(head)->w;
    w->calls++;
    for (size_t i = 0; i < w->handler->slots; i++) {
        struct slot *s = &of(head)->slots[i];
        if (s->used && s->token == token) {
            slot_free(of(head), s);
            fake_say(w, "handler's %s is cancelled", s->id);
        }
    }
}

static size_t fh_free_slots(struct td_handler *head)
{
    size_t slots = of(head)->w->handler->slots;
    size_t used = 0;
    for (size_t i = 0; i < slots; i++) {
        used += of(head)->slots[i].used ? 1 : 0;
    }
    return slots - used;
}

const struct td_handler_driver fake_outside_driver = {
    .abi = TD_HANDLER_ABI,
    .struct_size = sizeof(struct td_handler_driver),
    .name = "fake",
    .place = TD_HANDLER_OUTSIDE,
    .session_size = sizeof(struct fake_handler),
    .open = fh_open,
    .close = fh_close,
    .start = fh_start,
    .poll = fh_poll,
    .cancel = fh_cancel,
    .free_slots = fh_free_slots,
};
