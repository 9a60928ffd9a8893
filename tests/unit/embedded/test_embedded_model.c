/*
 * Random publishing, fetching, settling, closing and restarting, against a naive model of queues:
 * an array of messages, each ready, held by a session, or gone. One thread, so every answer is
 * known: a fetch gives the first ready ones, in order.
 */
#include <stdio.h>
#include <string.h>

#include "emb_rig.h"
#include "memvfs.h"

enum {
    IDS = 3000,
    SESSIONS = 3,
    QUEUES = 2,
    HELD_MAX = 64,
    OPERATIONS = 1500
};

static const char *const queue_names[QUEUES] = {"shop.paid", "shop.all"};
static const char *const type_names[2] = {"order.paid", "order.sent"};

struct model_message {
    size_t id;
    int held_by; /* a session, or -1 */
    bool gone, delivered;
};

struct model_queue {
    struct model_message messages[IDS * 2]; /* a replay is one more */
    size_t count;
};

struct model {
    struct model_queue queues[QUEUES];
    bool published[IDS];
};

struct session {
    struct td_broker *b;
    size_t queue, prefetch, held;
    uint64_t handles[HELD_MAX];
    size_t at[HELD_MAX]; /* index in the model's queue */
};

struct run {
    struct emb_rig e;
    struct tdi_random r;
    struct model m;
    struct session s[SESSIONS];
    struct td_broker *p;
};

static size_t below(struct run *x, size_t n)
{
    return (size_t)tdi_random_below(&x->r, n);
}

static void add(struct model_queue *q, size_t id)
{
    q->messages[q->count++] = (struct model_message){.id = id, .held_by = -1};
}

static void publish(struct run *x)
{
    enum {
        MAX = 30
    };
    struct td_message m[MAX];
    struct td_publish items[MAX];
    struct td_published got[MAX];
    char ids[MAX][16];
    bool duplicate[MAX];
    size_t n = below(x, MAX) + 1;
    size_t taken = 0;
    for (size_t i = 0; i < n; i++) {
        size_t id = below(x, IDS);
        bool replay = below(x, 20) == 0;
        bool paid = id % 2 == 0;
        (void)snprintf(ids[i], sizeof(ids[i]), "m%zu", id);
        m[i] = broker_message(ids[i], type_names[paid ? 0 : 1], "{}");
        items[i] = (struct td_publish){
            .topic = TD_STR_LIT("orders"), .message = &m[i], .token = i, .replay = replay};
        duplicate[i] = x->m.published[id] && !replay;
        if (!duplicate[i] && x->m.queues[1].count < IDS * 2) {
            if (paid) {
                add(&x->m.queues[0], id);
            }
            add(&x->m.queues[1], id);
        }
        x->m.published[id] = x->m.published[id] || !replay;
    }
    assert_int_equal(x->p->driver->submit(x->p, items, n, &taken, NULL), TD_OK);
    assert_int_equal(taken, n);
    broker_collect(x->p, got, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i].result, TD_PUBLISH_ACCEPTED);
        assert_int_equal(got[i].duplicate, duplicate[i]);
    }
}

static size_t first_ready(const struct model_queue *q, size_t from)
{
    while (from < q->count && (q->messages[from].gone || q->messages[from].held_by >= 0)) {
        from++;
    }
    return from;
}

static void fetch(struct run *x, size_t which)
{
    struct session *s = &x->s[which];
    struct model_queue *q = &x->m.queues[s->queue];
    struct tdi_arena a;
    struct td_fetch f = {0};
    size_t max = below(x, 40) + 1;
    tdi_arena_init(&a, 0);
    assert_int_equal(s->b->driver->fetch(s->b, max, 0, &a, &f, NULL), TD_OK);
    size_t at = first_ready(q, 0);
    size_t room = s->prefetch - s->held;
    assert_true(f.count <= max && f.count <= room);
    /* Fewer than could be is allowed, none is not. */
    assert_int_equal(f.count == 0, room == 0 || at == q->count);
    for (size_t i = 0; i < f.count; i++) {
        char id[16];
        assert_true(at < q->count);
        struct model_message *m = &q->messages[at];
        (void)snprintf(id, sizeof(id), "m%zu", m->id);
        assert_true(tdi_str_is(f.deliveries[i].message.id, id));
        assert_int_equal(f.deliveries[i].redelivered, m->delivered);
        m->held_by = (int)which;
        m->delivered = true;
        s->handles[s->held] = f.deliveries[i].handle;
        s->at[s->held++] = at;
        at = first_ready(q, at);
    }
    assert_true(!f.caught_up || at == q->count);
    tdi_arena_release(&a);
}

static void settle(struct run *x, size_t which, bool ack)
{
    struct session *s = &x->s[which];
    struct model_queue *q = &x->m.queues[s->queue];
    uint64_t handles[HELD_MAX];
    size_t n = 0;
    size_t kept = 0;
    for (size_t i = 0; i < s->held; i++) {
        if (below(x, 2) == 0) {
            struct model_message *m = &q->messages[s->at[i]];
            m->held_by = -1;
            m->gone = ack;
            handles[n++] = s->handles[i];
        } else {
            s->handles[kept] = s->handles[i];
            s->at[kept++] = s->at[i];
        }
    }
    s->held = kept;
    enum td_err rc = ack ? s->b->driver->ack(s->b, handles, n, NULL)
                         : s->b->driver->nack(s->b, handles, n, NULL);
    assert_int_equal(rc, TD_OK);
}

static void close_session(struct run *x, size_t which)
{
    struct session *s = &x->s[which];
    struct model_queue *q = &x->m.queues[s->queue];
    for (size_t i = 0; i < s->held; i++) {
        q->messages[s->at[i]].held_by = -1;
    }
    s->held = 0;
    tdi_broker_close(s->b);
    s->b = NULL;
}

static void open_session(struct run *x, size_t which)
{
    struct session *s = &x->s[which];
    s->queue = below(x, QUEUES);
    s->prefetch = below(x, HELD_MAX) + 1;
    s->b = broker_subscribe(&x->e.base, queue_names[s->queue], "orders", s->prefetch);
}

static void check_lag(struct run *x)
{
    struct td_broker *b = broker_open(&x->e.base, TD_BROKER_ADMIN);
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    for (size_t i = 0; i < QUEUES; i++) {
        const struct model_queue *q = &x->m.queues[i];
        struct td_lag *lag = NULL;
        size_t n = 0;
        int64_t waiting = 0;
        int64_t held = 0;
        for (size_t k = 0; k < q->count; k++) {
            held += q->messages[k].held_by >= 0 ? 1 : 0;
            waiting += !q->messages[k].gone && q->messages[k].held_by < 0 ? 1 : 0;
        }
        assert_int_equal(b->driver->lag(b, tdi_str(queue_names[i]), &a, &lag, &n, NULL), TD_OK);
        assert_int_equal(n, 1);
        assert_int_equal(lag->waiting, waiting);
        assert_int_equal(lag->in_flight, held);
    }
    tdi_arena_release(&a);
    tdi_broker_close(b);
}

static void restart(struct run *x)
{
    for (size_t i = 0; i < SESSIONS; i++) {
        close_session(x, i);
    }
    tdi_broker_close(x->p);
    emb_rig_stop(&x->e);
    emb_rig_start(&x->e, false);
    x->p = broker_open(&x->e.base, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < SESSIONS; i++) {
        open_session(x, i);
    }
}

static void one_operation(struct run *x)
{
    size_t which = below(x, SESSIONS);
    size_t dice = below(x, 100);
    if (dice < 25) {
        publish(x);
    } else if (dice < 60) {
        fetch(x, which);
    } else if (dice < 80) {
        settle(x, which, true);
    } else if (dice < 90) {
        settle(x, which, false);
    } else if (dice < 96) {
        close_session(x, which);
        open_session(x, which);
    } else if (dice < 99) {
        check_lag(x);
    } else {
        restart(x);
    }
}

static void one_run(uint64_t seed)
{
    static struct run x;
    struct td_str paid[] = {TD_STR_LIT("order.paid")};
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q[QUEUES] = {
        {.consumer = TD_STR_LIT("shop.paid"), .topic = t.name, .types = paid, .types_count = 1},
        {.consumer = TD_STR_LIT("shop.all"), .topic = t.name}};
    memset(&x, 0, sizeof(x));
    memvfs_reset();
    tdi_random_seed(&x.r, seed);
    emb_rig_init(&x.e, MEMVFS_NAME, false);
    emb_rig_start(&x.e, true);
    broker_declare(&x.e.base, &t, 1, q, QUEUES);
    x.p = broker_open(&x.e.base, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < SESSIONS; i++) {
        open_session(&x, i);
    }
    for (size_t i = 0; i < OPERATIONS; i++) {
        one_operation(&x);
    }
    restart(&x);
    check_lag(&x);
    for (size_t i = 0; i < SESSIONS; i++) {
        close_session(&x, i);
    }
    tdi_broker_close(x.p);
    emb_rig_end(&x.e);
}

static void queues_are_as_the_model_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        one_run(seed);
    }
}

int main(void)
{
    memvfs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_are_as_the_model_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
