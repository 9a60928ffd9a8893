/* See consumer_store.h. */
#include "fake/consumer_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"
#include "fake/consumer_tables.h"
#include "fake/consumer_unused.h"

struct fake_store {
    struct td_store head;
    struct fake_world *w;
    int64_t session;
    bool open;
    bool refuse_commit;
};

static struct fake_store *of(struct td_store *s)
{
    return (struct fake_store *)s;
}

struct fake_store_data *fake_store_data_new(void)
{
    struct fake_store_data *d = calloc(1, sizeof(*d));
    TDI_ASSERT(d != NULL);
    return d;
}

void fake_store_data_free(struct fake_store_data *d)
{
    for (size_t i = 0; i < sizeof(d->all) / sizeof(d->all[0]); i++) {
        tables_release(&d->all[i]);
    }
    free(d);
}

/* ---- sessions ---- */

static enum td_err fs_open(struct td_store *head, const struct td_store_options *o,
                           struct td_error *err)
{
    struct fake_store *s = of(head);
    s->w = fake_world_of(&o->clock);
    s->w->calls_of_open++;
    if (fake_call(s->w, "store.open", err, NULL)) {
        return err->code;
    }
    s->session = ++s->w->store->sessions;
    return TD_OK;
}

static void fs_close(struct td_store *head)
{
    struct fake_store *s = of(head);
    struct fake_store_data *d = s->w->store;
    s->w->calls++;
    s->w->calls_of_open += s->session == 0 ? 1 : 0;
    if (d->writer == s->session && s->session != 0) {
        d->writer = 0;
    }
    if (d->now.lease.session == s->session) {
        d->now.lease.alive = false; /* seen at once: its lock is free */
    }
}

static void fs_interrupt(struct td_store *head)
{
    (void)head;
}

static enum td_err fs_now(struct td_store *head, td_time_us *ret_now, struct td_error *err)
{
    struct fake_store *s = of(head);
    if (fake_call(s->w, "store.now", err, NULL)) {
        return err->code;
    }
    *ret_now = s->w->now;
    return TD_OK;
}

/* May this session write now? */
static enum td_err may_write(struct fake_store *s, struct td_error *err)
{
    struct fake_store_data *d = s->w->store;
    if (d->writer != 0 || d->pending) {
        return td_error_set(err, TD_ERR_BUSY, "somebody else writes");
    }
    return TD_OK;
}

/* ---- transactions ---- */

static enum td_err fs_begin(struct td_store *head, struct td_error *err)
{
    struct fake_store *s = of(head);
    if (fake_call(s->w, "store.begin", err, NULL)) {
        return err->code;
    }
    enum td_err rc = may_write(s, err);
    if (rc == TD_OK) {
        s->w->store->writer = s->session;
        s->w->store->changes = 0;
        s->refuse_commit = false;
        tables_copy(&s->w->store->staged, &s->w->store->now);
    }
    return rc;
}

static struct fake_tables *staged(struct fake_store *s)
{
    TDI_ASSERT(s->w->store->writer == s->session);
    return &s->w->store->staged;
}

static enum td_err fs_savepoint(struct td_store *head, struct td_error *err)
{
    struct fake_store *s = of(head);
    if (fake_call(s->w, "store.savepoint", err, NULL)) {
        return err->code;
    }
    tables_copy(&s->w->store->saved, staged(s));
    s->w->store->changes_saved = s->w->store->changes;
    return TD_OK;
}

static enum td_err fs_savepoint_end(struct td_store *head, bool keep, struct td_error *err)
{
    struct fake_store *s = of(head);
    if (fake_call(s->w, "store.savepoint_end", err, NULL)) {
        return err->code;
    }
    if (!keep) {
        tables_copy(staged(s), &s->w->store->saved);
        s->w->store->changes = s->w->store->changes_saved;
        s->refuse_commit = false;
    }
    return TD_OK;
}

static void make_current(struct fake_store_data *d, const struct fake_tables *t)
{
    struct fake_lease lease = d->now.lease;
    tables_copy(&d->now, t);
    d->now.lease = lease; /* changed by transactions of its own only */
    d->commits++;
    d->largest = d->changes > d->largest ? d->changes : d->largest;
}

static enum td_err commit_fails(struct fake_store *s, const struct fake_fault *f,
                                struct td_error *err)
{
    struct fake_store_data *d = s->w->store;
    if (err->class_ != TD_CLASS_UNKNOWN) {
        return err->code;
    }
    enum fake_unknown how =
        f != NULL && f->unknown ? f->how : (enum fake_unknown)tdi_random_below(&s->w->random, 3);
    switch (how) {
    case FAKE_COMMITTED:
        make_current(d, &d->staged);
        break;
    case FAKE_ROLLED_BACK:
        break;
    case FAKE_LATE:
        tables_copy(&d->late, &d->staged);
        d->pending = true;
        break;
    }
    fake_say(s->w, "COMMIT is not answered (%d)", (int)how);
    return err->code;
}

static enum td_err fs_finish(struct td_store *head, bool commit, struct td_error *err)
{
    struct fake_store *s = of(head);
    struct fake_store_data *d = s->w->store;
    const struct fake_fault *f = NULL;
    (void)staged(s);
    bool fails = fake_call(s->w, commit ? "store.commit" : "store.rollback", err, &f);
    d->writer = 0;
    if (fails) {
        return commit_fails(s, f, err);
    }
    if (commit && s->refuse_commit) {
        td_error_set(err, TD_ERR_STATEMENT, "a deferred constraint is violated");
        snprintf(err->sqlstate, sizeof(err->sqlstate), "23503");
        return err->code;
    }
    if (commit) {
        make_current(d, &d->staged);
    }
    return TD_OK;
}

bool fake_resolve_pending(struct fake_world *w, bool commit)
{
    struct fake_store_data *d = w->store;
    if (!d->pending) {
        return false;
    }
    d->pending = false;
    if (commit) {
        make_current(d, &d->late);
    }
    fake_say(w, "the old backend %s", commit ? "commits" : "rolls back");
    return true;
}

/* ---- the lease ---- */

static enum td_err fs_lease_take(struct td_store *head, struct td_str name, td_time_us ttl_us,
                                 struct td_lease *ret, struct td_error *err)
{
    struct fake_store *s = of(head);
    struct fake_store_data *d = s->w->store;
    TDI_ASSERT(tdi_str_is(name, "consumer:shop.points:0"));
    if (fake_call(s->w, "store.lease_take", err, NULL)) {
        return err->code;
    }
    struct fake_lease *l = &d->now.lease;
    if (l->owned && l->alive && l->until > s->w->now && l->session != s->session) {
        ret->owner_pid = 4121;
        return td_error_set(err, TD_ERR_OWNED, "owned by process 4121");
    }
    /* A take-over waits for the transaction in hand. */
    fake_resolve_pending(s->w, tdi_random_below(&s->w->random, 2) == 0 || d->late_commits);
    enum td_err rc = may_write(s, err);
    if (rc != TD_OK) {
        return rc;
    }
    l->unclean = l->unclean || (l->owned && l->session != s->session);
    l->owned = true;
    l->alive = true;
    l->session = s->session;
    l->until = s->w->now + ttl_us;
    l->fence++;
    *ret = (struct td_lease){.fence = l->fence, .unclean = l->unclean};
    fake_say(s->w, "session %d has the lease, fence %d%s", (int)s->session, (int)l->fence,
             l->unclean ? ", unclean" : "");
    return TD_OK;
}

/* Own transaction on the lease row. */
static enum td_err lease_write(struct fake_store *s, const char *op, int64_t fence,
                               struct td_error *err)
{
    if (fake_call(s->w, op, err, NULL)) {
        return err->code;
    }
    enum td_err rc = may_write(s, err);
    if (rc == TD_OK && s->w->store->now.lease.fence != fence) {
        rc = td_error_set(err, TD_ERR_FENCED, "a newer owner has taken over");
    }
    return rc;
}

static enum td_err fs_lease_renew(struct td_store *head, struct td_str name, int64_t fence,
                                  td_time_us ttl_us, struct td_str report, struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)name;
    enum td_err rc = lease_write(s, "store.lease_renew", fence, err);
    if (rc == TD_OK) {
        struct fake_lease *l = &s->w->store->now.lease;
        l->until = s->w->now + ttl_us;
        if (report.len > 0) {
            snprintf(l->report, sizeof(l->report), "%.*s", (int)report.len, report.data);
        }
    }
    return rc;
}

static enum td_err fs_lease_clear(struct td_store *head, struct td_str name, int64_t fence,
                                  struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)name;
    enum td_err rc = lease_write(s, "store.lease_clear_unclean", fence, err);
    if (rc == TD_OK) {
        s->w->store->now.lease.unclean = false;
        fake_say(s->w, "the mark of the unclean end is cleared");
    }
    return rc;
}

static enum td_err fs_lease_release(struct td_store *head, struct td_str name, int64_t fence,
                                    struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)name;
    enum td_err rc = lease_write(s, "store.lease_release", fence, err);
    if (rc == TD_OK) {
        s->w->store->now.lease.owned = false;
        fake_say(s->w, "the lease is given back");
    }
    return rc;
}

static enum td_err fs_lease_scan(struct td_store *head, struct tdi_arena *a,
                                 struct td_lease_state **ret, size_t *ret_count,
                                 struct td_error *err)
{
    struct fake_store *s = of(head);
    if (fake_call(s->w, "store.lease_scan", err, NULL)) {
        return err->code;
    }
    const struct fake_lease *l = &s->w->store->now.lease;
    struct td_lease_state *states = tdi_arena_array(a, 2, sizeof(*states));
    TDI_ASSERT(states != NULL);
    states[0].name = TD_STR_LIT("consumer:shop.mail:0");
    states[0].report = TD_STR_LIT("{\"handled_total\":77}");
    states[1].name = TD_STR_LIT("consumer:shop.points:0");
    TDI_ASSERT(tdi_arena_str(a, tdi_str(l->report), &states[1].report));
    *ret = states;
    *ret_count = 2;
    return TD_OK;
}

static enum td_err check_fence(struct fake_store *s, int64_t fence, struct td_error *err)
{
    return fence != 0 && s->w->store->now.lease.fence != fence
               ? td_error_set(err, TD_ERR_FENCED, "a newer owner has taken over")
               : TD_OK;
}

/* ---- inbox and parked rows; the rules are in consumer_tables.c ---- */

static enum td_err fs_look(struct td_store *head, struct td_str consumer,
                           const struct td_message_ref *refs, size_t count,
                           struct td_inbox_state *ret, struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)consumer;
    if (fake_call(s->w, "store.inbox_look", err, NULL)) {
        return err->code;
    }
    for (size_t i = 0; i < count; i++) {
        ret[i] = tables_state(&s->w->store->now, &refs[i]);
    }
    return TD_OK;
}

static enum td_err fs_claim(struct td_store *head, struct td_str consumer, struct td_str lease,
                            int64_t fence, struct td_claim *claims, size_t count,
                            struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)consumer;
    (void)lease;
    if (fake_call(s->w, "store.inbox_claim", err, NULL) || check_fence(s, fence, err) != TD_OK) {
        return err->code;
    }
    for (size_t i = 0; i < count; i++) {
        claims[i].former = tables_state(staged(s), &claims[i].ref);
        if (claims[i].former.outcome == TD_OUTCOME_NONE) {
            tables_put(staged(s), &claims[i].ref, TD_OUTCOME_EFFECT, 1);
            s->w->store->changes++;
        }
    }
    return TD_OK;
}

static enum td_err fs_settle(struct td_store *head, struct td_str consumer, int32_t shard,
                             struct td_str lease, int64_t fence, struct td_settle *items,
                             size_t count, struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)consumer;
    (void)shard;
    (void)lease;
    if (fake_call(s->w, "store.inbox_settle", err, NULL) || check_fence(s, fence, err) != TD_OK) {
        return err->code;
    }
    for (size_t i = 0; i < count; i++) {
        tables_settle(staged(s), s->w->now, &items[i]);
        s->w->store->changes += items[i].settled ? 1 : 0;
        fake_say(s->w, "settle %.*s outcome %d attempts %d/%d%s", (int)items[i].ref.id.len,
                 items[i].ref.id.data, (int)items[i].outcome, (int)items[i].attempts,
                 (int)items[i].attempt_limit, items[i].settled ? "" : ": was otherwise");
    }
    return TD_OK;
}

static enum td_err fs_due(struct td_store *head, struct td_str lease,
                          const struct td_parked_due *ask, struct tdi_arena *a,
                          struct td_parked_batch *ret, struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)lease;
    if (fake_call(s->w, "store.parked_due", err, NULL) ||
        check_fence(s, ask->fence, err) != TD_OK) {
        return err->code;
    }
    enum td_err rc = may_write(s, err);
    if (rc == TD_OK) {
        tables_due(&s->w->store->now, s->w->now, ask, a, ret);
        for (size_t i = 0; i < ret->count; i++) {
            fake_say(s->w, "leased %.*s, attempt %d", (int)ret->rows[i].message.id.len,
                     ret->rows[i].message.id.data, (int)ret->rows[i].attempts);
        }
    }
    return rc;
}

static enum td_err fs_keys(struct td_store *head, struct td_str consumer, int32_t shard,
                           struct tdi_arena *a, struct td_str **ret_keys, size_t *ret_count,
                           struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)consumer;
    (void)shard;
    if (fake_call(s->w, "store.parked_keys", err, NULL)) {
        return err->code;
    }
    tables_keys(&s->w->store->now, a, ret_keys, ret_count);
    return TD_OK;
}

static enum td_err fs_prune(struct td_store *head, struct td_str consumer, td_time_us keep_us,
                            td_time_us parked_keep_us, size_t max, size_t *ret_removed,
                            struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)consumer;
    (void)keep_us;
    (void)parked_keep_us;
    (void)max;
    if (fake_call(s->w, "store.inbox_prune", err, NULL)) {
        return err->code;
    }
    *ret_removed = 0; /* tests prune by fake_forget() */
    return may_write(s, err);
}

static enum td_err fs_counts(struct td_store *head, struct td_str consumer,
                             struct td_consumer_counts *ret, struct td_error *err)
{
    struct fake_store *s = of(head);
    (void)consumer;
    if (fake_call(s->w, "store.counts", err, NULL)) {
        return err->code;
    }
    *ret = (struct td_consumer_counts){
        .retrying = (int64_t)tables_parked_count(&s->w->store->now, TD_OUTCOME_RETRY),
        .blocked = (int64_t)tables_parked_count(&s->w->store->now, TD_OUTCOME_BLOCKED),
        .dead = (int64_t)tables_parked_count(&s->w->store->now, TD_OUTCOME_DEAD),
        .oldest_due_us = TD_TIME_NONE,
    };
    return TD_OK;
}

const struct td_store_driver fake_store_driver = {
    .abi = TD_STORE_ABI,
    .struct_size = sizeof(struct td_store_driver),
    .name = "fake",
    .caps = TD_STORE_SERIAL_WRITER,
    .session_size = sizeof(struct fake_store),
    .open = fs_open,
    .close = fs_close,
    .interrupt = fs_interrupt,
    .now = fs_now,
    .begin = fs_begin,
    .savepoint = fs_savepoint,
    .savepoint_end = fs_savepoint_end,
    .finish = fs_finish,
    .lease_take = fs_lease_take,
    .lease_renew = fs_lease_renew,
    .lease_clear_unclean = fs_lease_clear,
    .lease_release = fs_lease_release,
    .lease_scan = fs_lease_scan,
    .inbox_look = fs_look,
    .inbox_claim = fs_claim,
    .inbox_settle = fs_settle,
    .parked_due = fs_due,
    .parked_keys = fs_keys,
    .inbox_prune = fs_prune,
    .counts = fs_counts,
    STORE_UNUSED,
};

/* ---- for handlers and tests ---- */

void fake_store_effect(struct td_store *store, const struct td_message *m)
{
    tables_effect(staged(of(store)), m->id);
}

void fake_store_refuse_commit(struct td_store *store)
{
    of(store)->refuse_commit = true;
}

void fake_store_worker_settles(struct fake_world *w, const char *source, const char *id,
                               int32_t attempts)
{
    struct td_message_ref ref = {tdi_str(source), tdi_str(id)};
    tables_put(&w->store->now, &ref, TD_OUTCOME_EFFECT, attempts);
    tables_effect(&w->store->now, tdi_str(id));
}

static struct td_inbox_state state_of(const struct fake_world *w, const char *id)
{
    struct td_message_ref ref = {TD_STR_LIT("shop"), tdi_str(id)};
    return tables_state(&w->store->now, &ref);
}

enum td_outcome fake_outcome(const struct fake_world *w, const char *id)
{
    return state_of(w, id).outcome;
}

int32_t fake_attempts(const struct fake_world *w, const char *id)
{
    return state_of(w, id).attempts;
}

size_t fake_inbox_count(const struct fake_world *w)
{
    return w->store->now.inbox_count;
}

enum td_outcome fake_inbox_at(const struct fake_world *w, size_t index, const char **ret_id)
{
    *ret_id = w->store->now.inbox[index].id;
    return w->store->now.inbox[index].outcome;
}

const struct fake_parked *fake_parked_of(const struct fake_world *w, const char *id)
{
    struct td_message_ref ref = {TD_STR_LIT("shop"), tdi_str(id)};
    return tables_parked(&w->store->now, &ref);
}

size_t fake_parked_count(const struct fake_world *w, enum td_outcome outcome)
{
    return tables_parked_count(&w->store->now, outcome);
}

int fake_effects(const struct fake_world *w, const char *id)
{
    int count = 0;
    for (size_t i = 0; i < w->store->now.effects_count; i++) {
        count += strcmp(w->store->now.effects[i].id, id) == 0 ? 1 : 0;
    }
    return count;
}

size_t fake_effects_count(const struct fake_world *w)
{
    return w->store->now.effects_count;
}

const char *fake_effect_id(const struct fake_world *w, size_t index)
{
    return w->store->now.effects[index].id;
}

size_t fake_emitted(const struct fake_world *w)
{
    return w->store->now.emitted;
}

int fake_commits(const struct fake_world *w)
{
    return w->store->commits;
}

size_t fake_largest_commit(const struct fake_world *w)
{
    return w->store->largest;
}

int64_t fake_fence(const struct fake_world *w)
{
    return w->store->now.lease.fence;
}

bool fake_unclean(const struct fake_world *w)
{
    return w->store->now.lease.unclean;
}

bool fake_lease_free(const struct fake_world *w)
{
    return !w->store->now.lease.owned;
}

const char *fake_report(const struct fake_world *w)
{
    return w->store->now.lease.report;
}

void fake_set_report(struct fake_world *w, const char *json)
{
    snprintf(w->store->now.lease.report, sizeof(w->store->now.lease.report), "%s", json);
}

void fake_set_unclean(struct fake_world *w, bool unclean)
{
    w->store->now.lease.unclean = unclean;
}

void fake_steal_lease(struct fake_world *w, td_time_us ttl_us)
{
    struct fake_lease *l = &w->store->now.lease;
    l->owned = true;
    l->alive = true;
    l->session = -1;
    l->until = w->now + ttl_us;
    l->fence++;
}

bool fake_replay(struct fake_world *w, const char *id, int32_t more)
{
    struct td_message_ref ref = {TD_STR_LIT("shop"), tdi_str(id)};
    return w->store->writer == 0 && !w->store->pending &&
           tables_replay(&w->store->now, w->now, &ref, more);
}

bool fake_discard(struct fake_world *w, const char *id)
{
    struct td_message_ref ref = {TD_STR_LIT("shop"), tdi_str(id)};
    return w->store->writer == 0 && !w->store->pending &&
           tables_discard(&w->store->now, w->now, &ref);
}

void fake_park(struct fake_world *w, const char *id, const char *key, td_time_us due_after_us)
{
    struct td_message m = {.id = tdi_str(id),
                           .source = TD_STR_LIT("shop"),
                           .type = TD_STR_LIT("order.paid"),
                           .key = tdi_str(key),
                           .published_at = w->now,
                           .expires_at = TD_TIME_NONE};
    struct td_settle s = {.ref = {m.source, m.id},
                          .outcome = TD_OUTCOME_RETRY,
                          .attempts = 1,
                          .attempt_limit = 3,
                          .due_after_us = due_after_us,
                          .blocks_key = key != NULL,
                          .message = &m};
    tables_settle(&w->store->now, w->now, &s);
}

void fake_forget(struct fake_world *w, const char *id)
{
    struct td_message_ref ref = {TD_STR_LIT("shop"), tdi_str(id)};
    tables_remove(&w->store->now, &ref);
}
