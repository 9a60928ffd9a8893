/*
 * Power cuts, failed syncs and full disks, on a file system in memory. Everything that was confirmed
 * is there after the cut, once and in order; with syncs that lie it is not, so the test can see.
 */
#include <stdio.h>
#include <string.h>

#include "emb_rig.h"
#include "memvfs.h"

enum {
    IDS = 600,
    QUEUES = 2
};

static const char *const queue_names[QUEUES] = {"shop.a", "shop.b"};

struct history {
    bool confirmed[IDS];
    bool acked[QUEUES][IDS];
    size_t submitted; /* ids below it may be anywhere */
    size_t body;
};

#define BODY_SMALL 700
#define BODY_LARGE 40000 /* so that the WAL is moved into the file and begins anew */

static void declare(struct emb_rig *e)
{
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q[QUEUES];
    for (size_t i = 0; i < QUEUES; i++) {
        q[i] = (struct td_queue){.consumer = tdi_str(queue_names[i]), .topic = t.name};
    }
    broker_declare(&e->base, &t, 1, q, QUEUES);
}

/* Submit up to n new ids; false: the broker has ended. */
static bool submit(struct td_broker *p, struct history *h, size_t n)
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

static bool collect(struct td_broker *p, struct history *h)
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

static bool consume(struct td_broker *c, struct history *h, size_t queue, size_t n)
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

/* Work until the power goes off, or all is done. */
static void work(struct emb_rig *e, struct history *h, struct tdi_random *r)
{
    struct td_broker *p = broker_open(&e->base, TD_BROKER_PUBLISH);
    struct td_broker *c[QUEUES];
    for (size_t i = 0; i < QUEUES; i++) {
        c[i] = broker_subscribe(&e->base, queue_names[i], "orders", 50);
    }
    bool good = true;
    while (good && !memvfs_is_off() && h->submitted < IDS) {
        size_t queue = (size_t)tdi_random_below(r, QUEUES);
        switch (tdi_random_below(r, 4)) {
        case 0:
        case 1:
            good = submit(p, h, (size_t)tdi_random_below(r, 60));
            break;
        case 2:
            good = collect(p, h);
            break;
        default:
            good = consume(c[queue], h, queue, (size_t)tdi_random_below(r, 20) + 1);
            break;
        }
    }
    for (size_t i = 0; i < QUEUES; i++) {
        tdi_broker_close(c[i]);
    }
    tdi_broker_close(p);
}

/* What the queue holds, checked for order and doubles; ids that must be there and are not. */
static size_t missing(struct emb_rig *e, const struct history *h, size_t queue, size_t upto)
{
    struct tdi_arena a;
    bool seen[IDS] = {false};
    int64_t last = -1;
    struct td_broker *c = broker_open(&e->base, TD_BROKER_CONSUME);
    struct td_subscription all = {.consumer = tdi_str(queue_names[queue]),
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

/* After UNKNOWN everything is published again under the same ids, as a relay does it. */
static void publish_again(struct emb_rig *e, struct history *h)
{
    struct td_broker *p = broker_open(&e->base, TD_BROKER_PUBLISH);
    size_t upto = h->submitted;
    h->submitted = 0;
    while (h->submitted < upto) {
        size_t left = upto - h->submitted;
        assert_true(submit(p, h, left < 50 ? left : 50));
        assert_true(collect(p, h));
    }
    for (size_t i = 0; i < upto; i++) {
        assert_true(h->confirmed[i]);
    }
    tdi_broker_close(p);
}

static size_t one_cut(uint64_t seed, bool lie)
{
    struct emb_rig e;
    struct history h = {.body = BODY_SMALL};
    struct tdi_random r;
    tdi_random_seed(&r, seed);
    memvfs_reset();
    emb_rig_init(&e, MEMVFS_NAME, false);
    emb_rig_start(&e, true);
    declare(&e);
    memvfs_lie_sync(lie);
    h.body = seed % 4 == 0 ? BODY_LARGE : BODY_SMALL;
    memvfs_cut_after((size_t)tdi_random_below(&r, h.body == BODY_LARGE ? 30000 : 900) + 1);
    work(&e, &h, &r);
    memvfs_power_off();
    emb_rig_stop(&e);
    memvfs_lie_sync(false);
    memvfs_power_on(seed, lie ? 0 : (unsigned)tdi_random_below(&r, 100));
    emb_rig_start(&e, false);
    size_t lost = 0;
    for (size_t i = 0; i < QUEUES; i++) {
        lost += missing(&e, &h, i, h.submitted);
    }
    if (!lie) {
        publish_again(&e, &h);
        for (size_t i = 0; i < QUEUES; i++) {
            lost += missing(&e, &h, i, h.submitted);
        }
    }
    emb_rig_end(&e);
    return lost;
}

static void what_was_confirmed_outlives_a_power_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        size_t lost = one_cut(seed, false);
        if (lost > 0) {
            fail_msg("seed %d: %zu confirmed messages are lost", (int)seed, lost);
        }
    }
}

static void without_syncs_it_is_lost(void **state)
{
    size_t lost = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        lost += one_cut(seed, true);
    }
    assert_true(lost > 0);
}

/* ---- failed syncs ---- */

static void failed_sync(bool threads)
{
    struct emb_rig e;
    struct history h = {.body = BODY_SMALL};
    struct td_error err = {0};
    struct td_published got = {0};
    struct td_clock clock = tdi_clock_system();
    size_t n = 0;
    memvfs_reset();
    emb_rig_init(&e, MEMVFS_NAME, threads);
    emb_rig_start(&e, true);
    declare(&e);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    struct td_broker *c = broker_subscribe(&e.base, "shop.a", "orders", 50);
    assert_int_equal(p->driver->instance_health(e.instance, &err), TD_OK);
    memvfs_fail_sync(true);
    assert_true(submit(p, &h, 1));
    assert_int_equal(p->driver->collect(p, tdi_mono(&clock) + BROKER_WAIT_US, &got, 1, &n, &err),
                     TD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(got.result, TD_PUBLISH_UNKNOWN);
    assert_int_equal(got.class_, TD_CLASS_UNKNOWN);
    /* It is final, even when the disk is well again. */
    memvfs_fail_sync(false);
    size_t syncs = memvfs_syncs();
    assert_int_not_equal(p->driver->instance_health(e.instance, &err), TD_OK);
    assert_int_equal(err.class_, TD_CLASS_FATAL);
    assert_true(err.text[0] != '\0');
    assert_false(submit(p, &h, 1));
    struct tdi_arena a;
    struct td_fetch f = {0};
    tdi_arena_init(&a, 0);
    assert_int_not_equal(c->driver->fetch(c, 1, 0, &a, &f, &err), TD_OK);
    tdi_arena_release(&a);
    assert_int_not_equal(p->driver->collect(p, 0, &got, 1, &n, &err), TD_OK);
    tdi_broker_close(c);
    tdi_broker_close(p);
    assert_int_equal(memvfs_syncs(), syncs);
    emb_rig_stop(&e);
    /* The next owner finds a sound file. */
    e.threads = false;
    emb_rig_start(&e, false);
    publish_again(&e, &h);
    assert_int_equal(missing(&e, &h, 0, h.submitted), 0);
    emb_rig_end(&e);
}

static void a_failed_sync_is_final(void **state)
{
    (void)state;
    failed_sync(false);
}

static void a_failed_sync_is_final_with_threads(void **state)
{
    (void)state;
    failed_sync(true);
}

/* ---- full disks ---- */

static enum td_err publish_one(struct td_broker *p, struct history *h, enum td_err_class *ret)
{
    struct td_published got = {0};
    struct td_clock clock = tdi_clock_system();
    size_t n = 0;
    assert_true(submit(p, h, 1));
    assert_int_equal(p->driver->collect(p, tdi_mono(&clock) + BROKER_WAIT_US, &got, 1, &n, NULL),
                     TD_OK);
    assert_int_equal(n, 1);
    if (got.result == TD_PUBLISH_ACCEPTED) {
        h->confirmed[got.token] = true;
        return TD_OK;
    }
    assert_int_equal(got.result, TD_PUBLISH_REFUSED);
    *ret = got.class_;
    h->submitted--;
    return got.code;
}

static void full_disk(bool threads)
{
    struct emb_rig e;
    struct history h = {.body = BODY_SMALL};
    enum td_err_class class_ = TD_CLASS_FATAL;
    memvfs_reset();
    emb_rig_init(&e, MEMVFS_NAME, threads);
    emb_rig_start(&e, true);
    declare(&e);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    struct td_broker *c = broker_subscribe(&e.base, "shop.a", "orders", 50);
    memvfs_limit(memvfs_size() + 1024 * 1024);
    enum td_err rc = TD_OK;
    while (rc == TD_OK && h.submitted < IDS) {
        rc = publish_one(p, &h, &class_);
    }
    assert_int_equal(rc, TD_ERR_DISK_FULL);
    assert_int_equal(class_, TD_CLASS_RETRY);
    assert_true(h.submitted > 10);
    assert_int_equal(p->driver->instance_health(e.instance, NULL), TD_OK);
    /* Consuming goes on. */
    size_t before = h.submitted;
    assert_true(consume(c, &h, 0, 30));
    /* Space comes back: no restart, the same session. */
    memvfs_limit(0);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(publish_one(p, &h, &class_), TD_OK);
    }
    assert_int_equal(h.submitted, before + 20);
    tdi_broker_close(c);
    tdi_broker_close(p);
    emb_rig_stop(&e);
    e.threads = false;
    emb_rig_start(&e, false);
    for (size_t i = 0; i < QUEUES; i++) {
        assert_int_equal(missing(&e, &h, i, h.submitted), 0);
    }
    emb_rig_end(&e);
}

static void a_full_disk_heals(void **state)
{
    (void)state;
    full_disk(false);
}

static void a_full_disk_heals_with_threads(void **state)
{
    (void)state;
    full_disk(true);
}

static void a_power_cut_while_opening_is_survived(void **state)
{
    (void)state;
    for (size_t calls = 1; calls < 60; calls++) {
        struct emb_rig e;
        struct td_error err = {0};
        memvfs_reset();
        emb_rig_init(&e, MEMVFS_NAME, false);
        memvfs_cut_after(calls);
        if (emb_rig_open(&e, true, &err) == TD_OK) {
            memvfs_power_off();
            emb_rig_stop(&e);
        }
        memvfs_power_on(calls, 50);
        emb_rig_start(&e, true);
        declare(&e);
        emb_rig_end(&e);
    }
}

int main(void)
{
    memvfs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_confirmed_outlives_a_power_cut),
        cmocka_unit_test(without_syncs_it_is_lost),
        cmocka_unit_test(a_failed_sync_is_final),
        cmocka_unit_test(a_failed_sync_is_final_with_threads),
        cmocka_unit_test(a_full_disk_heals),
        cmocka_unit_test(a_full_disk_heals_with_threads),
        cmocka_unit_test(a_power_cut_while_opening_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
