/*
 * The sql handler: statements of the configuration, run in the inbox transaction with parameters from
 * envelope and body. It knows the store's interface and no database.
 *
 * Invariants: one message's statements run in order and never interleave with another's; consecutive
 * messages that need one and the same single statement go to the store together. A verdict other than
 * OK ends a batch: statements of later messages may have run already, and those of the message itself
 * before the one that decided, so the caller undoes the batch and runs its messages singly.
 */
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"
#include "core/route.h"
#include "core/sqlparams.h"
#include "handler/sql/classify.h"
#include "handler/sql/params.h"
#include "tidings/handler.h"

#define STEPS_MAX 64
#define ROWS_MAX 256 /* a statement_run() at most */
#define MEMORY_MAX ((size_t)4 * 1024 * 1024)

struct step {
    struct td_sql_step text;
    struct tdi_sql_params params;
    struct tdd_sql_source sources[TDI_SQL_PARAMS_MAX]; /* of params.names, same order */
    int handle;                                        /* of the store, after prepare() */
};

struct tdd_sql {
    struct td_handler base;
    struct tdi_arena memory; /* the steps and copies of the options' texts */
    struct step *steps;
    size_t steps_count;
    bool missing_null;
    struct td_classify *classify;
    size_t classify_count;
};

static enum td_err out_of_memory(struct td_error *err)
{
    return td_error_set(err, TD_ERR_NOMEM, "no memory for the statements of a handler");
}

static const struct td_param *find_param(const struct td_handler_options *o, struct td_str name)
{
    for (size_t i = 0; i < o->params_count; i++) {
        if (tdi_str_eq(o->params[i].name, name)) {
            return &o->params[i];
        }
    }
    return NULL;
}

static enum td_err check_pattern(struct td_str on, size_t at, struct td_error *err)
{
    const char *why;
    if (tdi_str_empty(on) || tdi_pattern_valid(on, &why)) {
        return TD_OK;
    }
    return td_error_set(err, TD_ERR_CONFIG, "statement %zu: on: '%.*s': %s", at + 1,
                        (int)(on.len < TD_TYPE_BYTES_MAX ? on.len : TD_TYPE_BYTES_MAX), on.data,
                        why);
}

static enum td_err open_step(struct tdd_sql *h, const struct td_handler_options *o, size_t at,
                             struct td_error *err)
{
    enum td_err rc = check_pattern(o->steps[at].on, at, err);
    if (rc != TD_OK) {
        return rc;
    }
    struct step *step = &h->steps[at];
    step->text = o->steps[at];
    step->handle = -1;
    if (!tdi_arena_str(&h->memory, o->steps[at].run, &step->text.run) ||
        !tdi_arena_str(&h->memory, o->steps[at].on, &step->text.on)) {
        return out_of_memory(err);
    }
    if (!tdi_sql_params(step->text.run, &step->params)) {
        return td_error_set(err, TD_ERR_CONFIG, "statement %zu has more than %d parameters", at + 1,
                            TDI_SQL_PARAMS_MAX);
    }
    for (size_t i = 0; i < step->params.count; i++) {
        const struct td_param *given = find_param(o, step->params.names[i]);
        struct td_param param = {.name = step->params.names[i]};
        if (given == NULL) {
            return td_error_set(err, TD_ERR_CONFIG,
                                "statement %zu uses :%.*s, but params does not say where it comes "
                                "from",
                                at + 1, (int)param.name.len, param.name.data);
        }
        if (!tdi_arena_str(&h->memory, given->from, &param.from)) {
            return out_of_memory(err);
        }
        rc = tdd_sql_source_parse(&param, &step->sources[i], err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return TD_OK;
}

static enum td_err sql_open(struct td_handler *handler, const struct td_handler_options *o,
                            struct td_error *err)
{
    struct tdd_sql *h = (struct tdd_sql *)handler;
    tdi_arena_init(&h->memory, MEMORY_MAX);
    h->missing_null = o->params_missing_null;
    if (o->steps_count == 0 || o->steps_count > STEPS_MAX) {
        return td_error_set(err, TD_ERR_CONFIG, "a sql handler needs 1 to %d statements",
                            STEPS_MAX);
    }
    h->steps = tdi_arena_array(&h->memory, o->steps_count, sizeof(*h->steps));
    h->classify = tdi_arena_array(&h->memory, o->classify_count, sizeof(*h->classify));
    if (h->steps == NULL || h->classify == NULL) {
        return out_of_memory(err);
    }
    h->steps_count = o->steps_count;
    h->classify_count = o->classify_count;
    for (size_t i = 0; i < o->classify_count; i++) {
        h->classify[i].verdict = o->classify[i].verdict;
        if (!tdi_arena_str(&h->memory, o->classify[i].match, &h->classify[i].match)) {
            return out_of_memory(err);
        }
    }
    for (size_t i = 0; i < o->steps_count; i++) {
        enum td_err rc = open_step(h, o, i, err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return TD_OK;
}

static void sql_close(struct td_handler *handler, td_time_us deadline_us)
{
    struct tdd_sql *h = (struct tdd_sql *)handler;
    (void)deadline_us; /* nothing runs outside a call */
    tdi_arena_release(&h->memory);
}

static enum td_err sql_prepare(struct td_handler *handler, struct td_store *store,
                               struct td_error *err)
{
    struct tdd_sql *h = (struct tdd_sql *)handler;
    for (size_t i = 0; i < h->steps_count; i++) {
        struct step *step = &h->steps[i];
        struct td_statement statement = {
            .sql = step->text.run,
            .names = step->params.names,
            .names_count = step->params.count,
        };
        enum td_err rc = store->driver->statement_prepare(store, &statement, &step->handle, err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return TD_OK;
}

static bool applies(const struct step *step, const struct td_message *m)
{
    return tdi_str_empty(step->text.on) || tdi_pattern_match(step->text.on, m->type);
}

/* The one step that applies to the message; NULL: none or several. */
static struct step *only_step(struct tdd_sql *h, const struct td_message *m)
{
    struct step *found = NULL;
    for (size_t i = 0; i < h->steps_count; i++) {
        if (applies(&h->steps[i], m)) {
            if (found != NULL) {
                return NULL;
            }
            found = &h->steps[i];
        }
    }
    return found;
}

/* What one call of run() works with. */
struct call {
    struct tdd_sql *h;
    struct td_store *store;
    struct tdi_arena *arena;
    struct td_error *err;
};

/* Values of one row. INVALID: *ret_verdict says why there are none. */
static enum td_err fill_row(const struct call *c, const struct step *step, const struct td_run *run,
                            struct td_value *row, struct td_verdict *ret_verdict)
{
    for (size_t i = 0; i < step->params.count; i++) {
        enum td_err rc = tdd_sql_source_value(&step->sources[i], run, c->h->missing_null, c->arena,
                                              &row[i], ret_verdict, c->err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return TD_OK;
}

/* The verdict for a message whose statement failed by its fault. */
static enum td_err failed(const struct call *c, const struct td_error *why, struct td_verdict *ret)
{
    struct td_verdict v = tdd_sql_classify(why->sqlstate, c->h->classify, c->h->classify_count);
    v.reason = tdi_arena_printf(c->arena, "%s", why->text);
    v.error_type = tdi_arena_printf(c->arena, "%s", why->sqlstate);
    v.error_message = v.reason;
    if (v.reason.data == NULL || v.error_type.data == NULL) {
        return td_error_set(c->err, TD_ERR_NOMEM, "no memory for the reason of a failure");
    }
    *ret = v;
    return TD_OK;
}

static struct td_verdict judge(const struct call *c, const struct step *step, int64_t changed)
{
    struct td_verdict v = {.kind = TD_VERDICT_OK};
    if (changed == 0 && step->text.rows_0_set && step->text.rows_0 != TD_VERDICT_OK) {
        v.kind = step->text.rows_0;
        v.code = v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE;
        v.reason =
            tdi_arena_printf(c->arena, "statement %td changed no row", step - c->h->steps + 1);
        v.error_type = TD_STR_LIT("rows");
        v.error_message = v.reason;
    }
    return v;
}

struct rows {
    struct td_value *values; /* row after row */
    int64_t *changed;
    size_t count;
    bool unfit; /* the message behind the rows has no values; its verdict is set */
};

/* The rows of messages from the first on, up to one that has no values. */
static enum td_err fill_rows(const struct call *c, const struct step *step,
                             const struct td_run *runs, size_t count, struct rows *ret,
                             struct td_verdict *verdicts)
{
    size_t width = step->params.count;
    *ret = (struct rows){
        .values = tdi_arena_array(c->arena, count * (width + 1), sizeof(*ret->values)),
        .changed = tdi_arena_array(c->arena, count, sizeof(*ret->changed)),
    };
    if (ret->values == NULL || ret->changed == NULL) {
        return td_error_set(c->err, TD_ERR_NOMEM, "no memory for the parameters of %zu rows",
                            count);
    }
    while (ret->count < count && !ret->unfit) {
        size_t at = ret->count;
        enum td_err rc = fill_row(c, step, &runs[at], ret->values + at * width, &verdicts[at]);
        if (rc != TD_OK && rc != TD_ERR_INVALID) {
            return rc;
        }
        ret->unfit = rc == TD_ERR_INVALID;
        ret->count += ret->unfit ? 0 : 1;
    }
    return TD_OK;
}

/* Run one step for `count` messages. *ret_done verdicts are set; the last may be another than OK. A
 * failure of the store that is no message's fault is the error. */
static enum td_err run_step(const struct call *c, const struct step *step,
                            const struct td_run *runs, size_t count, struct td_verdict *verdicts,
                            size_t *ret_done)
{
    struct rows rows;
    struct td_error why;
    TDI_ASSERT(step->handle >= 0);
    enum td_err rc = fill_rows(c, step, runs, count, &rows, verdicts);
    if (rc != TD_OK) {
        return rc;
    }
    size_t ran = rows.count;
    if (rows.count > 0) {
        rc = c->store->driver->statement_run(c->store, step->handle, rows.values, rows.count,
                                             rows.changed, &ran, &why);
    }
    if (rc != TD_OK && rc != TD_ERR_STATEMENT) {
        if (c->err != NULL) {
            *c->err = why;
            if (rc == TD_ERR_TIMEOUT) {
                /* The message's own statement is too slow: charged, else it would hold up all. */
                c->err->class_ = TD_CLASS_PERMANENT;
            }
        }
        return rc;
    }
    ran = rc == TD_OK ? rows.count : ran;
    for (size_t i = 0; i < ran; i++) {
        verdicts[i] = judge(c, step, rows.changed[i]);
        if (verdicts[i].kind != TD_VERDICT_OK) {
            *ret_done = i + 1;
            return TD_OK;
        }
    }
    if (rc != TD_OK) {
        TDI_ASSERT(ran < rows.count);
        *ret_done = ran + 1;
        return failed(c, &why, &verdicts[ran]);
    }
    *ret_done = rows.count + (rows.unfit ? 1 : 0);
    return TD_OK;
}

/* All steps of one message, in order, until one fails. */
static enum td_err run_message(const struct call *c, const struct td_run *run,
                               struct td_verdict *ret)
{
    *ret = (struct td_verdict){.kind = TD_VERDICT_OK};
    for (size_t i = 0; i < c->h->steps_count && ret->kind == TD_VERDICT_OK; i++) {
        size_t done = 0;
        if (!applies(&c->h->steps[i], run->message)) {
            continue;
        }
        enum td_err rc = run_step(c, &c->h->steps[i], run, 1, ret, &done);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return TD_OK;
}

/* How many messages from the first on need exactly this step and no other. */
static size_t same_step(struct tdd_sql *h, const struct step *step, const struct td_run *runs,
                        size_t count)
{
    size_t n = 0;
    while (n < count && n < ROWS_MAX && only_step(h, runs[n].message) == step) {
        n++;
    }
    return n;
}

static enum td_err sql_run(struct td_handler *handler, struct td_store *store,
                           const struct td_run *runs, size_t count, struct tdi_arena *a,
                           struct td_verdict *ret_verdicts, size_t *ret_done, struct td_error *err)
{
    struct tdd_sql *h = (struct tdd_sql *)handler;
    const struct call c = {.h = h, .store = store, .arena = a, .err = err};
    size_t at = 0;
    while (at < count) {
        struct step *step = only_step(h, runs[at].message);
        size_t done = 1;
        enum td_err rc;
        if (step == NULL) {
            rc = run_message(&c, &runs[at], &ret_verdicts[at]);
        } else {
            size_t n = same_step(h, step, runs + at, count - at);
            rc = run_step(&c, step, runs + at, n, ret_verdicts + at, &done);
        }
        if (rc != TD_OK) {
            return rc;
        }
        at += done;
        if (ret_verdicts[at - 1].kind != TD_VERDICT_OK) {
            break;
        }
    }
    *ret_done = at;
    return TD_OK;
}

const struct td_handler_driver tdd_sql_handler = {
    .abi = TD_HANDLER_ABI,
    .struct_size = sizeof(struct td_handler_driver),
    .name = "sql",
    .place = TD_HANDLER_INSIDE,
    .session_size = sizeof(struct tdd_sql),
    .open = sql_open,
    .close = sql_close,
    .prepare = sql_prepare,
    .run = sql_run,
};
