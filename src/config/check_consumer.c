/*
 * What a consumer says against itself, its topic and its outbox.
 *
 * Must hold after mistakes too: topic and store may be NULL, whatever was refused has its default.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"
#include "config/inbox_window.h"
#include "config/internal.h"
#include "core/route.h"
#include "core/sqlparams.h"

/* One consumer while it is checked. */
struct subject {
    struct tdi_loader *l;
    const struct tdi_config_consumer *c;
    const struct tdi_config_node *node;
    const char *name;
    char name_buf[64];
};

static const struct tdi_config_node *at(const struct subject *s, const char *path)
{
    return tdi_tree_find(s->node, path);
}

/* ---- handler ---------------------------------------------------------------------------- */

static void check_handler(const struct subject *s)
{
    const struct tdi_config_node *handler = at(s, "handler");
    const struct tdi_config_node *sql = at(s, "handler.sql");
    const struct tdi_config_node *exec = at(s, "handler.exec");
    if (handler == NULL) {
        return; /* told as missing */
    }
    if (sql != NULL && exec != NULL) {
        tdi_config_mistake_key(s->l, handler,
                               "consumers.%s: two handlers, sql and exec; a consumer"
                               " has one",
                               s->name);
    } else if (handler->kind == TDI_NODE_MAP && handler->children == 0) {
        tdi_config_mistake_key(s->l, handler,
                               "consumers.%s: the handler is empty; it is one of sql,"
                               " exec",
                               s->name);
    } else if (sql != NULL && sql->kind == TDI_NODE_LIST && sql->children == 0) {
        tdi_config_mistake_key(s->l, sql, "consumers.%s: sql has no statement", s->name);
    } else if (sql != NULL && sql->children > TDI_LIST_MAX) {
        tdi_config_mistake_key(s->l, sql, "consumers.%s: more than 64 statements", s->name);
    }
    static const char *const sql_only[] = {"params", "params_missing"};
    for (size_t i = 0; exec != NULL && sql == NULL && i < 2; i++) {
        const struct tdi_config_node *n = at(s, sql_only[i]);
        if (n != NULL) {
            tdi_config_mistake_key(s->l, n,
                                   "consumers.%s: %s is for sql; a worker gets the whole"
                                   " event",
                                   s->name, sql_only[i]);
        }
    }
    if (exec != NULL && s->c->workers > s->c->prefetch) {
        const struct tdi_config_node *n = at(s, "handler.exec.workers");
        tdi_config_mistake_key(s->l, n != NULL ? n : exec,
                               "consumers.%s: %d workers, but only %d"
                               " messages in hand (prefetch); the rest would idle",
                               s->name, s->c->workers, s->c->prefetch);
    }
}

/* Five or two characters of a SQLSTATE. */
static bool is_sqlstate(struct td_str match)
{
    for (size_t i = 0; i < match.len; i++) {
        char c = match.data[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z')) {
            return false;
        }
    }
    return match.len == 5 || match.len == 2;
}

static bool is_exit_code(struct td_str match)
{
    int64_t code = -1;
    return match.len <= 3 && tdi_str_to_i64(match, &code) && code >= 0 && code <= 255;
}

static void check_classify(const struct subject *s)
{
    const struct tdi_config_node *map = at(s, "classify");
    bool exec = tdi_str_is(s->c->handler, "exec");
    char shown[64];
    if (map == NULL || map->kind != TDI_NODE_MAP) {
        return;
    }
    for (const struct tdi_config_node *n = map->first; n != NULL; n = n->next) {
        if (exec ? !is_exit_code(n->key) : !is_sqlstate(n->key)) {
            tdi_config_mistake_key(s->l, n, "consumers.%s: '%s' is no %s", s->name,
                                   tdi_shown(n->key, shown),
                                   exec ? "exit code (0 to 255)"
                                        : "SQLSTATE (five characters, or the two of a class)");
        }
    }
}

/* ---- parameters ------------------------------------------------------------------------- */

static bool declared(const struct tdi_config_node *params, struct td_str name)
{
    const struct tdi_config_node *n = params != NULL ? params->first : NULL;
    while (n != NULL && !tdi_str_eq(n->key, name)) {
        n = n->next;
    }
    return n != NULL;
}

static void undeclared(const struct subject *s, const struct tdi_config_node *params,
                       const struct tdi_config_node *run, struct td_str name)
{
    struct tdi_guess guess;
    char meant[TDI_DID_YOU_MEAN_MAX];
    char shown[64];
    tdi_guess_init(&guess, name);
    for (const struct tdi_config_node *n = params != NULL ? params->first : NULL; n != NULL;
         n = n->next) {
        tdi_guess_offer(&guess, n->key);
    }
    tdi_config_mistake(s->l, run,
                       "consumers.%s: the statement needs :%s, which params does not"
                       " have%s",
                       s->name, tdi_shown(name, shown), tdi_guess_text(&guess, meant));
}

/* Marks in `used` which parameters a statement names. false: too many to tell. */
static bool check_statement(const struct subject *s, const struct tdi_config_node *params,
                            const struct tdi_config_node *run, bool used[TDI_LIST_MAX])
{
    struct tdi_sql_params found;
    if (!tdi_sql_params(run->text, &found)) {
        tdi_config_mistake(s->l, run, "consumers.%s: more than %d parameters in one statement",
                           s->name, TDI_SQL_PARAMS_MAX);
        return false;
    }
    for (size_t i = 0; i < found.count; i++) {
        if (!declared(params, found.names[i])) {
            undeclared(s, params, run, found.names[i]);
        }
    }
    for (const struct tdi_config_node *n = params != NULL ? params->first : NULL; n != NULL;
         n = n->next) {
        for (size_t i = 0; i < found.count; i++) {
            used[n->index] = used[n->index] || tdi_str_eq(n->key, found.names[i]);
        }
    }
    return true;
}

static void check_params(const struct subject *s)
{
    const struct tdi_config_node *list = at(s, "handler.sql");
    const struct tdi_config_node *params = at(s, "params");
    bool used[TDI_LIST_MAX] = {false};
    char shown[64];
    if (params != NULL && (params->kind != TDI_NODE_MAP || params->children > TDI_LIST_MAX)) {
        return; /* told */
    }
    if (list == NULL || list->kind != TDI_NODE_LIST || list->children == 0) {
        return;
    }
    for (const struct tdi_config_node *n = list->first; n != NULL; n = n->next) {
        const struct tdi_config_node *run = tdi_tree_child(n, "run");
        /* A statement that is not known may use anything. */
        if (run == NULL || run->kind != TDI_NODE_SCALAR || run->failed ||
            !check_statement(s, params, run, used)) {
            return;
        }
    }
    for (const struct tdi_config_node *n = params != NULL ? params->first : NULL; n != NULL;
         n = n->next) {
        if (!used[n->index]) {
            tdi_config_mistake_key(s->l, n, "consumers.%s: no statement uses :%s", s->name,
                                   tdi_shown(n->key, shown));
        }
    }
}

/* ---- retries, order, sizes -------------------------------------------------------------- */

static void check_retry(const struct subject *s)
{
    const struct tdi_retry_policy *p = &s->c->retry;
    static const char *const exponential[] = {"retry.initial", "retry.factor"};
    const struct tdi_config_node *delays = at(s, "retry.delays");
    const struct tdi_config_node *max = at(s, "retry.max_delay");
    for (size_t i = 0; delays != NULL && i < 2; i++) {
        const struct tdi_config_node *n = at(s, exponential[i]);
        if (n != NULL) {
            tdi_config_mistake_key(s->l, n,
                                   "consumers.%s: %s beside retry.delays; write one or the"
                                   " other",
                                   s->name, exponential[i]);
        }
    }
    if (max == NULL || max->failed) {
        return;
    }
    bool long_tier = false;
    for (size_t i = 0; i < p->delays_count; i++) {
        long_tier = long_tier || p->delays[i] > p->max_delay_us;
    }
    if (long_tier || (p->delays_count == 0 && p->initial_us > p->max_delay_us)) {
        tdi_config_mistake_key(s->l, max, "consumers.%s: retry.max_delay is shorter than %s",
                               s->name,
                               long_tier ? "a waiting time of retry.delays" : "retry.initial");
    }
}

static void check_order(const struct subject *s)
{
    const struct tdi_config_node *on_dead = at(s, "on_dead");
    if (on_dead != NULL && s->c->order != TDI_ORDER_BLOCK) {
        tdi_config_mistake_key(s->l, on_dead,
                               "consumers.%s: on_dead is for order: block; with order:"
                               " %s nothing waits behind a dead message",
                               s->name, s->c->order == TDI_ORDER_SKIP ? "skip" : "none");
    }
    const struct tdi_config_node *batch = at(s, "batch");
    if (batch != NULL && s->c->batch > s->c->prefetch) {
        tdi_config_mistake_key(s->l, batch,
                               "consumers.%s: batch is %d, but only %d messages are in"
                               " hand (prefetch)",
                               s->name, s->c->batch, s->c->prefetch);
    }
}

/* A pattern that no event of the topic can match is most likely misspelt. */
static void check_types(const struct subject *s)
{
    const struct tdi_config_topic *t = s->c->topic;
    const struct tdi_config_node *list = at(s, "types");
    if (t == NULL || t->types_count == 0 || list == NULL || list->children != s->c->types_count) {
        return;
    }
    const struct tdi_config_node *n = list->first;
    for (size_t i = 0; i < s->c->types_count; i++, n = n->next) {
        bool meets = false;
        for (size_t k = 0; k < t->types_count; k++) {
            meets = meets || tdi_patterns_overlap(s->c->types[i], t->types[k]);
        }
        char shown[64];
        if (!meets) {
            tdi_diagnostics_add(s->l->diagnostics, TDI_SEVERITY_FINDING, n->pos,
                                "consumers.%s: topic %s takes no type that %s matches", s->name,
                                t->name.data, tdi_shown(s->c->types[i], shown));
        }
    }
}

/* ---- the inbox window ------------------------------------------------------------------- */

static const struct tdi_config_outbox *longest_outbox(const struct tdi_config *c)
{
    const struct tdi_config_outbox *longest = NULL;
    for (size_t i = 0; i < c->outboxes_count; i++) {
        if (longest == NULL || c->outboxes[i].keep_us > longest->keep_us) {
            longest = &c->outboxes[i];
        }
    }
    return longest;
}

static void check_window(const struct subject *s)
{
    const struct tdi_config_outbox *outbox = longest_outbox(s->l->config);
    const struct tdi_window_input in = {
        .keep_us = s->c->inbox_keep_us,
        .retry_span_us = tdi_retry_span(&s->c->retry),
        .retention_us = s->c->topic != NULL ? s->c->topic->retention_us : 0,
        .outbox_keep_us = outbox != NULL ? outbox->keep_us : 0,
    };
    struct tdi_inbox_window w = tdi_inbox_window(&in);
    const char *outbox_name = outbox != NULL ? outbox->name.data : "";
    const struct tdi_config_node *keep = at(s, "inbox.keep");
    struct tdi_source_pos pos = keep != NULL ? keep->key_pos : s->node->key_pos;
    char times[5][48];
    (void)tdi_duration_format(in.keep_us, times[0]);
    (void)tdi_duration_format(w.needed_us, times[1]);
    (void)tdi_duration_format(in.retry_span_us, times[2]);
    (void)tdi_duration_format(w.proposal_us, times[3]);
    switch (w.verdict) {
    case TDI_WINDOW_HOLDS:
        break;
    case TDI_WINDOW_GOES_STALE:
        (void)tdi_duration_format(in.retention_us, times[4]);
        tdi_diagnostics_add(
            s->l->diagnostics, TDI_SEVERITY_FINDING, pos,
            "consumers.%s: inbox.keep is %s, but a message can come again for %s\n"
            "(%s%s%sretries %s + as much for a replay) and would go dead as stale;\n"
            "set inbox.keep to %s or more",
            s->name, times[0], times[1], in.retention_us > 0 ? "topic retention " : "",
            in.retention_us > 0 ? times[4] : "", in.retention_us > 0 ? " + " : "", times[2],
            times[3]);
        break;
    case TDI_WINDOW_TWICE:
        (void)tdi_duration_format(in.outbox_keep_us, times[4]);
        tdi_diagnostics_add(
            s->l->diagnostics, TDI_SEVERITY_MISTAKE, pos,
            "consumers.%s: inbox.keep is %s, but a message can come again for %s\n"
            "(outbox %s keeps it %s and may publish it anew + retries %s) and would take effect\n"
            "twice; set inbox.keep to %s or more",
            s->name, times[0], times[1], outbox_name, times[4], times[2], times[3]);
        break;
    }
}

void tdi_config_check_consumer(struct tdi_loader *l, const struct tdi_config_consumer *c,
                               const struct tdi_config_node *node)
{
    struct subject s = {.l = l, .c = c, .node = node};
    s.name = tdi_shown(c->name, s.name_buf);
    if (node->kind != TDI_NODE_MAP) {
        return; /* told */
    }
    check_handler(&s);
    check_classify(&s);
    check_params(&s);
    check_retry(&s);
    check_order(&s);
    check_types(&s);
    check_window(&s);
}
