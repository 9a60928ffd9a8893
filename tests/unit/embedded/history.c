#include "history.h"

#include <stdio.h>
#include <string.h>

const char *const history_queues[QUEUES] = {"shop.a", "shop.b"};

void history_declare(struct emb_rig *e)
{
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q[QUEUES];
    for (size_t i = 0; i < QUEUES; i++) {
        q[i] = (struct td_queue){.consumer = tdi_str(history_queues[i]), .topic = t.name};
    }
    broker_declare(&e->base, &t, 1, q, QUEUES);
}

bool history_submit(struct td_broker *p, struct history *h, size_t n)
{
    static char body[BODY_LARGE];
    memset(body, 'b', sizeof(body));
    for (size_t i = 0; i < n && h->submitted < IDS; i++) {
        char id[16];
        size_t taken = 0;
        (void)snprintf(id, sizeof(id), "m%zu", h->submitted);
        struct td_message m = broker_message(id, "order.paid", NULL);
        m.body = (struct td_bytes){.data = body, .len = h->body};
        struct td_publish item = {
            .topic = TD_STR_LIT("orders"), .message = &m, .token = h->submitted};
        if (p->driver->submit(p, &item, 1, &taken, NULL) != TD_OK) {
            return false;
        }
        assert_int_equal(taken, 1);
        h->submitted++;
    }
    return true;
}

bool history_collect(struct td_broker *p, struct history *h)
{
    struct td_published got[64];
    size_t n = 64;
    while (n == 64) {
        if (p->driver->collect(p, 0, got, 64, &n, NULL) != TD_OK) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            if (got[i].result == TD_PUBLISH_ACCEPTED) {
                h->confirmed[got[i].token] = true;
            }
        }
    }
    return true;
}

static size_t number_of(const struct td_delivery *d)
{
    int64_t n = -1;
    struct td_str digits = {.data = d->message.id.data + 1, .len = d->message.id.len - 1};
    assert_true(tdi_str_to_i64(digits, &n));
    assert_true(n >= 0 && n < IDS);
    return (size_t)n;
}

bool history_consume(struct td_broker *c, struct history *h, size_t queue, size_t n)
{
    struct tdi_arena a;
    struct td_fetch f = {0};
    bool good = true;
    tdi_arena_init(&a, 0);
    good = c->driver->fetch(c, n, 0, &a, &f, NULL) == TD_OK;
    for (size_t i = 0; good && i < f.count; i++) {
        size_t id = number_of(&f.deliveries[i]);
        good = c->driver->ack(c, &f.deliveries[i].handle, 1, NULL) == TD_OK;
        h->acked[queue][id] = true;
    }
    tdi_arena_release(&a);
    return good;
}

size_t history_missing(struct emb_rig *e, const struct history *h, size_t queue, size_t upto)
{
    struct tdi_arena a;
    bool seen[IDS] = {false};
    int64_t last = -1;
    struct td_broker *c = broker_open(&e->base, TD_BROKER_CONSUME);
    struct td_subscription all = {.consumer = tdi_str(history_queues[queue]),
                                  .topic = TD_STR_LIT("orders"),
                                  .prefetch = IDS,
                                  .prefetch_bytes = SIZE_MAX / 2};
    assert_int_equal(c->driver->subscribe(c, &all, NULL), TD_OK);
    tdi_arena_init(&a, 0);
    for (;;) {
        struct td_fetch f = {0};
        assert_int_equal(c->driver->fetch(c, IDS, 0, &a, &f, NULL), TD_OK);
        if (f.count == 0) {
            assert_true(f.caught_up);
            break;
        }
        for (size_t i = 0; i < f.count; i++) {
            size_t id = number_of(&f.deliveries[i]);
            assert_false(seen[id]);
            assert_true((int64_t)id > last);
            seen[id] = true;
            last = (int64_t)id;
        }
    }
    tdi_broker_close(c);
    tdi_arena_release(&a);
    size_t lost = 0;
    for (size_t i = 0; i < upto; i++) {
        lost += h->confirmed[i] && !h->acked[queue][i] && !seen[i] ? 1 : 0;
    }
    return lost;
}

void history_publish_again(struct emb_rig *e, struct history *h)
{
    struct td_broker *p = broker_open(&e->base, TD_BROKER_PUBLISH);
    size_t upto = h->submitted;
    h->submitted = 0;
    while (h->submitted < upto) {
        size_t left = upto - h->submitted;
        assert_true(history_submit(p, h, left < 50 ? left : 50));
        assert_true(history_collect(p, h));
    }
    for (size_t i = 0; i < upto; i++) {
        assert_true(h->confirmed[i]);
    }
    tdi_broker_close(p);
}
