/* See consumer_tables.h. */
#include "fake/consumer_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"

/* ---- memory ---- */

static void grow(void **rows, size_t *cap, size_t wanted, size_t size)
{
    if (wanted > *cap) {
        size_t larger = wanted * 2 + 16;
        *rows = realloc(*rows, larger * size);
        TDI_ASSERT(*rows != NULL);
        *cap = larger;
    }
}

static void copy_rows(void **to, size_t *to_cap, const void *from, size_t count, size_t size)
{
    grow(to, to_cap, count, size);
    if (count > 0) {
        memcpy(*to, from, count * size);
    }
}

void tables_release(struct fake_tables *t)
{
    free(t->inbox);
    free(t->parked);
    free(t->effects);
}

void tables_copy(struct fake_tables *to, const struct fake_tables *from)
{
    void *inbox = to->inbox;
    void *parked = to->parked;
    void *effects = to->effects;
    copy_rows(&inbox, &to->inbox_cap, from->inbox, from->inbox_count, sizeof(*from->inbox));
    copy_rows(&parked, &to->parked_cap, from->parked, from->parked_count, sizeof(*from->parked));
    copy_rows(&effects, &to->effects_cap, from->effects, from->effects_count,
              sizeof(*from->effects));
    to->inbox = inbox;
    to->parked = parked;
    to->effects = effects;
    to->inbox_count = from->inbox_count;
    to->parked_count = from->parked_count;
    to->effects_count = from->effects_count;
    to->arrivals = from->arrivals;
    to->emitted = from->emitted;
}

static void put(char *to, size_t size, struct td_str s)
{
    snprintf(to, size, "%.*s", (int)s.len, s.data != NULL ? s.data : "");
}

/* ---- inbox ---- */

static struct fake_inbox *inbox_find(const struct fake_tables *t, const struct td_message_ref *ref)
{
    for (size_t i = 0; i < t->inbox_count; i++) {
        if (tdi_str_is(ref->id, t->inbox[i].id) && tdi_str_is(ref->source, t->inbox[i].source)) {
            return &t->inbox[i];
        }
    }
    return NULL;
}

struct td_inbox_state tables_state(const struct fake_tables *t, const struct td_message_ref *ref)
{
    const struct fake_inbox *row = inbox_find(t, ref);
    struct td_inbox_state s = {.outcome = TD_OUTCOME_NONE};
    if (row != NULL) {
        s.outcome = row->outcome;
        s.attempts = row->attempts;
        s.parked = tables_parked(t, ref) != NULL;
    }
    return s;
}

void tables_put(struct fake_tables *t, const struct td_message_ref *ref, enum td_outcome outcome,
                int32_t attempts)
{
    struct fake_inbox *row = inbox_find(t, ref);
    if (row == NULL) {
        void *rows = t->inbox;
        grow(&rows, &t->inbox_cap, t->inbox_count + 1, sizeof(*t->inbox));
        t->inbox = rows;
        row = &t->inbox[t->inbox_count++];
        put(row->id, sizeof(row->id), ref->id);
        put(row->source, sizeof(row->source), ref->source);
    }
    row->outcome = outcome;
    row->attempts = attempts;
}

void tables_remove(struct fake_tables *t, const struct td_message_ref *ref)
{
    struct fake_inbox *row = inbox_find(t, ref);
    TDI_ASSERT(row != NULL);
    *row = t->inbox[--t->inbox_count];
}

void tables_effect(struct fake_tables *t, struct td_str id)
{
    void *rows = t->effects;
    grow(&rows, &t->effects_cap, t->effects_count + 1, sizeof(*t->effects));
    t->effects = rows;
    put(t->effects[t->effects_count].id, FAKE_TEXT_MAX, id);
    t->effects_count++;
}

/* ---- parked ---- */

struct fake_parked *tables_parked(const struct fake_tables *t, const struct td_message_ref *ref)
{
    for (size_t i = 0; i < t->parked_count; i++) {
        if (tdi_str_is(ref->id, t->parked[i].id) && tdi_str_is(ref->source, t->parked[i].source)) {
            return &t->parked[i];
        }
    }
    return NULL;
}

size_t tables_parked_count(const struct fake_tables *t, enum td_outcome outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < t->parked_count; i++) {
        count += t->parked[i].outcome == outcome ? 1 : 0;
    }
    return count;
}

static bool unfinished(enum td_outcome o)
{
    return o == TD_OUTCOME_RETRY || o == TD_OUTCOME_BLOCKED || o == TD_OUTCOME_DEAD;
}

static bool key_blocked(const struct fake_tables *t, const char *key, int64_t before)
{
    for (size_t i = 0; i < t->parked_count; i++) {
        const struct fake_parked *p = &t->parked[i];
        if (p->has_key && p->blocks_key && unfinished(p->outcome) && p->arrival < before &&
            strcmp(p->key, key) == 0) {
            return true;
        }
    }
    return false;
}

static struct td_message_ref ref_of(const struct fake_parked *p)
{
    return (struct td_message_ref){tdi_str(p->source), tdi_str(p->id)};
}

static void set_outcome(struct fake_tables *t, struct fake_parked *p, enum td_outcome outcome)
{
    struct td_message_ref ref = ref_of(p);
    p->outcome = outcome;
    tables_put(t, &ref, outcome, p->attempts);
}

static bool release_next(struct fake_tables *t, td_time_us now, const char *key)
{
    struct fake_parked *first = NULL;
    for (size_t i = 0; i < t->parked_count; i++) {
        struct fake_parked *p = &t->parked[i];
        if (p->has_key && p->outcome == TD_OUTCOME_BLOCKED && strcmp(p->key, key) == 0 &&
            (first == NULL || p->arrival < first->arrival)) {
            first = p;
        }
    }
    if (first == NULL || key_blocked(t, key, first->arrival)) {
        return false;
    }
    set_outcome(t, first, TD_OUTCOME_RETRY);
    first->due_at = now;
    return true;
}

static struct fake_parked *add_parked(struct fake_tables *t, const struct td_message *m)
{
    void *rows = t->parked;
    grow(&rows, &t->parked_cap, t->parked_count + 1, sizeof(*t->parked));
    t->parked = rows;
    struct fake_parked *p = &t->parked[t->parked_count++];
    *p = (struct fake_parked){
        .arrival = ++t->arrivals,
        .has_key = m->key.data != NULL,
        .published_at = m->published_at,
        .expires_at = m->expires_at,
        .body = true,
    };
    put(p->id, sizeof(p->id), m->id);
    put(p->source, sizeof(p->source), m->source);
    put(p->type, sizeof(p->type), m->type);
    put(p->key, sizeof(p->key), m->key);
    return p;
}

static void update_parked(struct fake_tables *t, td_time_us now, const struct td_settle *s,
                          enum td_outcome outcome, int32_t attempts)
{
    struct fake_parked *p = tables_parked(t, &s->ref);
    if (p == NULL && !unfinished(outcome)) {
        return;
    }
    if (p == NULL) {
        TDI_ASSERT(s->message != NULL);
        p = add_parked(t, s->message);
    }
    p->outcome = outcome;
    p->attempts = attempts;
    p->running = false;
    p->body = unfinished(outcome);
    if (unfinished(outcome)) {
        p->attempt_limit = s->attempt_limit;
        p->blocks_key = s->blocks_key;
        p->alone = s->unfinished_run;
        p->code = s->code;
        p->due_at = now + (s->outcome == TD_OUTCOME_RETRY ? s->due_after_us : 0);
        put(p->reason, sizeof(p->reason), s->reason);
    }
}

static bool as_expected(const struct td_settle *s, const struct td_inbox_state *state)
{
    if (s->claimed) {
        return state->outcome == TD_OUTCOME_EFFECT && state->attempts == 1;
    }
    if (s->expected == TD_OUTCOME_NONE) {
        return state->outcome == TD_OUTCOME_NONE;
    }
    return state->outcome == s->expected && state->attempts == s->expected_attempts;
}

void tables_settle(struct fake_tables *t, td_time_us now, struct td_settle *s)
{
    struct td_inbox_state state = tables_state(t, &s->ref);
    bool worker = !s->claimed && s->outcome == TD_OUTCOME_EFFECT &&
                  state.outcome == TD_OUTCOME_EFFECT && state.attempts == s->attempts;
    s->settled = as_expected(s, &state) || worker;
    s->found = state;
    s->next_released = false;
    s->key_blocked = false;
    if (!s->settled) {
        return;
    }
    struct fake_parked *p = tables_parked(t, &s->ref);
    struct td_str key_text = s->message != NULL ? s->message->key : TD_STR_NONE;
    char key[FAKE_TEXT_MAX];
    put(key, sizeof(key), p != NULL ? tdi_str(p->key) : key_text);
    bool has_key = p != NULL ? p->has_key : key_text.data != NULL;
    enum td_outcome outcome = s->outcome;
    if (outcome == TD_OUTCOME_BLOCKED && !key_blocked(t, key, p != NULL ? p->arrival : INT64_MAX)) {
        outcome = TD_OUTCOME_RETRY;
    }
    TDI_ASSERT(s->claimed || s->attempts >= state.attempts);
    if (!worker) {
        tables_put(t, &s->ref, outcome, s->attempts);
    }
    update_parked(t, now, s, outcome, s->attempts);
    t->emitted += s->emit_count;
    if (has_key && s->release_next) {
        s->next_released = release_next(t, now, key);
    }
    s->key_blocked = has_key && key_blocked(t, key, INT64_MAX);
}

/* ---- leasing ---- */

static bool due(const struct fake_parked *p, td_time_us now, int64_t fence)
{
    if (p->outcome != TD_OUTCOME_RETRY) {
        return false;
    }
    return p->running ? p->lease_fence != fence || p->row_until <= now : p->due_at <= now;
}

static void fill_row(struct tdi_arena *a, const struct fake_parked *p, struct td_parked_row *row)
{
    *row = (struct td_parked_row){
        .arrival = p->arrival,
        .outcome = p->outcome,
        .attempts = p->attempts,
        .attempt_limit = p->attempt_limit,
        .due_at = p->due_at,
        .code = p->code,
        .blocks_key = p->blocks_key,
        .message = {.time = p->published_at,
                    .sequence = TD_NUMBER_NONE,
                    .aggregate_version = TD_NUMBER_NONE,
                    .deliver_at = TD_TIME_NONE,
                    .expires_at = p->expires_at,
                    .published_at = p->published_at},
    };
    struct td_message *m = &row->message;
    TDI_ASSERT(p->body);
    TDI_ASSERT(tdi_arena_str(a, tdi_str(p->id), &m->id) &&
               tdi_arena_str(a, tdi_str(p->source), &m->source) &&
               tdi_arena_str(a, tdi_str(p->type), &m->type) &&
               tdi_arena_str(a, p->has_key ? tdi_str(p->key) : TD_STR_NONE, &m->key) &&
               tdi_arena_str(a, tdi_str(p->reason), &row->reason));
}

static void settle_used_up(struct fake_tables *t, td_time_us now, struct fake_parked *p,
                           bool release)
{
    p->code = p->running ? TD_DEAD_POISON : TD_DEAD_EXHAUSTED;
    p->running = false;
    set_outcome(t, p, TD_OUTCOME_DEAD);
    if (release && p->blocks_key) {
        p->blocks_key = false;
        release_next(t, now, p->key);
    }
}

/* A worker wrote the inbox row in a transaction of its own, and nobody settled the parked one. */
static bool finish_settled(struct fake_tables *t, td_time_us now, struct fake_parked *p)
{
    struct td_message_ref ref = ref_of(p);
    enum td_outcome outcome = tables_state(t, &ref).outcome;
    if (outcome == TD_OUTCOME_RETRY) {
        return false;
    }
    bool blocked = p->blocks_key;
    p->outcome = outcome;
    p->running = false;
    if (blocked) {
        release_next(t, now, p->key);
    }
    return true;
}

void tables_due(struct fake_tables *t, td_time_us now, const struct td_parked_due *ask,
                struct tdi_arena *a, struct td_parked_batch *ret)
{
    struct td_parked_batch batch = {.next_due_us = TD_TIME_NONE};
    batch.rows = tdi_arena_array(a, ask->max, sizeof(*batch.rows));
    batch.dead = tdi_arena_array(a, t->parked_count, sizeof(*batch.dead));
    batch.done = tdi_arena_array(a, t->parked_count, sizeof(*batch.done));
    TDI_ASSERT(batch.rows != NULL && batch.dead != NULL && batch.done != NULL);
    for (size_t i = 0; i < t->parked_count; i++) {
        struct fake_parked *p = &t->parked[i];
        if (!due(p, now, ask->fence)) {
            if (p->outcome == TD_OUTCOME_RETRY && !p->running &&
                (batch.next_due_us == TD_TIME_NONE || p->due_at < batch.next_due_us)) {
                batch.next_due_us = p->due_at;
            }
            continue;
        }
        if (finish_settled(t, now, p)) {
            fill_row(a, p, &batch.done[batch.done_count]);
            batch.done[batch.done_count++].key_blocked =
                p->has_key && key_blocked(t, p->key, INT64_MAX);
            continue;
        }
        bool alone = p->running || p->alone;
        if (p->attempts >= p->attempt_limit) {
            settle_used_up(t, now, p, ask->release_on_dead);
            fill_row(a, p, &batch.dead[batch.dead_count]);
            batch.dead[batch.dead_count++].key_blocked =
                p->has_key && key_blocked(t, p->key, INT64_MAX);
            continue;
        }
        if (batch.count >= ask->max || (alone && batch.count > 0)) {
            batch.next_due_us = now;
            continue;
        }
        struct td_message_ref ref = ref_of(p);
        p->attempts++;
        p->running = true;
        p->lease_fence = ask->fence;
        p->row_until = now + ask->lease_us;
        tables_put(t, &ref, TD_OUTCOME_RETRY, p->attempts);
        fill_row(a, p, &batch.rows[batch.count++]);
        if (alone) {
            batch.next_due_us = now;
            break;
        }
    }
    *ret = batch;
}

void tables_keys(const struct fake_tables *t, struct tdi_arena *a, struct td_str **ret,
                 size_t *ret_count)
{
    struct td_str *keys = tdi_arena_array(a, t->parked_count, sizeof(*keys));
    size_t count = 0;
    TDI_ASSERT(keys != NULL);
    for (size_t i = 0; i < t->parked_count; i++) {
        const struct fake_parked *p = &t->parked[i];
        if (p->has_key && p->blocks_key && unfinished(p->outcome)) {
            TDI_ASSERT(tdi_arena_str(a, tdi_str(p->key), &keys[count]));
            count++;
        }
    }
    *ret = keys;
    *ret_count = count;
}

/* ---- the operator ---- */

bool tables_replay(struct fake_tables *t, td_time_us now, const struct td_message_ref *ref,
                   int32_t more)
{
    struct fake_parked *p = tables_parked(t, ref);
    if (p == NULL || p->outcome != TD_OUTCOME_DEAD) {
        return false;
    }
    p->attempt_limit = p->attempts + more;
    p->due_at = now;
    p->running = false;
    set_outcome(t, p, TD_OUTCOME_RETRY);
    return true;
}

bool tables_discard(struct fake_tables *t, td_time_us now, const struct td_message_ref *ref)
{
    struct fake_parked *p = tables_parked(t, ref);
    if (p == NULL || !unfinished(p->outcome)) {
        return false;
    }
    bool blocked = p->blocks_key;
    p->blocks_key = false;
    set_outcome(t, p, TD_OUTCOME_DISCARDED);
    if (blocked) {
        release_next(t, now, p->key);
    }
    return true;
}
