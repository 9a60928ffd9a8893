/* The world of a conformance test, the same for every store. */
#include "store_rig.h"

#include <stdlib.h>
#include <string.h>

#include "store/registry.h"

static const struct store_rig *current;

void world_use(const struct store_rig *rig)
{
    current = rig;
}

static td_time_us world_wall(void *ctx)
{
    const struct store_world *w = ctx;
    return w->now;
}

static td_time_us world_mono(void *ctx)
{
    (void)ctx;
    struct td_clock system = tdi_clock_system();
    return tdi_mono(&system);
}

struct td_store *world_open(struct store_world *w)
{
    struct td_store *s = NULL;
    assert_ok(tdi_store_open(w->rig->driver, &w->options, &s, &w->err));
    return s;
}

void world_kill(struct td_store **session)
{
    tdi_store_close(*session);
    *session = NULL;
}

int world_setup(void **state)
{
    struct store_world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    *state = w;
    w->rig = current;
    w->now = INT64_C(1790000000000000);
    tdi_random_seed(&w->random, 7);
    tdi_arena_init(&w->arena, 0);
    w->rig->make(w);
    w->options = (struct td_store_options){
        .location = tdi_str(w->location),
        .service = LIT("shop"),
        .clock = {.wall = world_wall, .mono = world_mono, .ctx = w},
        .random = &w->random,
        .operation_timeout_us = 200 * TD_MILLISECOND_US,
        .create = true,
        .schema_any = true,
    };
    w->a = world_open(w);
    assert_ok(w->a->driver->migrate(w->a, &w->err));
    w->options.create = false;
    w->options.schema_any = false;
    w->b = world_open(w);
    return 0;
}

int world_teardown(void **state)
{
    struct store_world *w = *state;
    tdi_store_close(w->a);
    tdi_store_close(w->b);
    w->rig->remove(w);
    tdi_arena_release(&w->arena);
    free(w);
    return 0;
}

struct td_message message_of(const char *id, const char *type, const char *key, const char *body)
{
    return (struct td_message){
        .id = tdi_str(id),
        .source = LIT("shop"),
        .type = tdi_str(type),
        .key = tdi_str(key),
        .time = INT64_C(1780000000000000),
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
        .body = {body, body != NULL ? strlen(body) : 0},
    };
}

struct td_settle settle_of(const struct td_message *m, enum td_outcome outcome)
{
    return (struct td_settle){
        .ref = {m->source, m->id},
        .claimed = true,
        .expected = TD_OUTCOME_NONE,
        .outcome = outcome,
        .attempts = 1,
        .attempt_limit = 3,
        .message = m,
    };
}

void settle_alone(struct store_world *w, struct td_store *s, const char *consumer,
                  struct td_settle *item)
{
    assert_ok(CALL(s, begin, &w->err));
    assert_ok(CALL(s, inbox_settle, tdi_str(consumer), 0, LIT(""), 0, item, 1, &w->err));
    assert_ok(CALL(s, finish, true, &w->err));
}

struct td_settle deliver(struct store_world *w, struct td_store *s, const char *consumer,
                         const struct td_message *m, enum td_outcome outcome, int32_t limit)
{
    struct td_claim claim = {.ref = {m->source, m->id}, .published_at = TD_TIME_NONE};
    struct td_settle item = settle_of(m, outcome);
    item.attempt_limit = limit;
    item.attempts = outcome == TD_OUTCOME_BLOCKED ? 0 : 1;
    item.blocks_key = m->key.data != NULL;
    if (outcome == TD_OUTCOME_RETRY || outcome == TD_OUTCOME_DEAD) {
        item.code = TD_DEAD_REJECTED;
        item.reason = LIT("the worker said no");
        item.handler = LIT("exec");
    }
    assert_ok(CALL(s, begin, &w->err));
    assert_ok(CALL(s, inbox_claim, tdi_str(consumer), LIT(""), 0, &claim, 1, &w->err));
    assert_int_equal(claim.former.outcome, TD_OUTCOME_NONE);
    assert_ok(CALL(s, inbox_settle, tdi_str(consumer), 0, LIT(""), 0, &item, 1, &w->err));
    assert_ok(CALL(s, finish, true, &w->err));
    assert_true(item.settled);
    return item;
}

struct td_parked_batch due_with(struct store_world *w, struct td_store *s, struct td_parked_due ask,
                                const char *lease)
{
    struct td_parked_batch batch = {.count = 99};
    ask.consumer = LIT(CONSUMER);
    ask.max = ask.max > 0 ? ask.max : 10;
    ask.lease_us = 30 * TD_SECOND_US;
    assert_ok(CALL(s, parked_due, tdi_str(lease), &ask, &w->arena, &batch, &w->err));
    assert_ask(DISAGREE, "0");
    return batch;
}

struct td_parked_batch due_now(struct store_world *w, struct td_store *s)
{
    return due_with(w, s, (struct td_parked_due){.fence = 0}, "");
}

/* The settlement of a run that parked_due() gave out. */
struct td_settle verdict_of(const struct td_parked_row *row, enum td_outcome outcome)
{
    struct td_settle item = settle_of(&row->message, outcome);
    item.claimed = false;
    item.expected = TD_OUTCOME_RETRY;
    item.expected_attempts = row->attempts;
    item.attempts = row->attempts;
    item.attempt_limit = row->attempt_limit;
    item.blocks_key = row->blocks_key;
    if (outcome == TD_OUTCOME_RETRY || outcome == TD_OUTCOME_DEAD) {
        item.code = TD_DEAD_EXHAUSTED;
        item.reason = LIT("smtp 451");
    }
    return item;
}

bool key_is_blocked(struct store_world *w, const char *key)
{
    struct td_str *keys = NULL;
    size_t count = 0;
    bool found = false;
    assert_ok(CALL(w->b, parked_keys, LIT(CONSUMER), 0, &w->arena, &keys, &count, &w->err));
    for (size_t i = 0; i < count; i++) {
        found = found || tdi_str_is(keys[i], key);
    }
    return found;
}

struct td_position nowhere(void)
{
    return (struct td_position){.order = 0};
}

size_t read_rows(struct store_world *w, const struct td_position *after, size_t max,
                 struct td_outbox_row **ret)
{
    size_t count = 0;
    assert_ok(CALL(w->b, outbox_read, after, max, 1 << 20, &w->arena, ret, &count, &w->err));
    return count;
}

int64_t own_lease(struct store_world *w, struct td_store *s, const char *name)
{
    struct td_lease lease;
    assert_ok(CALL(s, lease_take, tdi_str(name), 10 * TD_SECOND_US, &lease, &w->err));
    return lease.fence;
}

struct td_relay_settle settle_up_to(const char *relay, int64_t fence,
                                    const struct td_outbox_row *rows, size_t count)
{
    return (struct td_relay_settle){
        .relay = tdi_str(relay),
        .fence = fence,
        .position = rows[count - 1].position,
        .from_seq = rows[0].message.sequence,
        .to_seq = rows[count - 1].message.sequence,
        .published = (int64_t)count,
        .evidence = LIT("confirmed"),
    };
}
