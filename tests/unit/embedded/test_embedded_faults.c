/* Failed syncs and full disks, on a file system in memory, inline and with threads. */
#include "history.h"
#include "memvfs.h"

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
    history_declare(&e);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    struct td_broker *c = broker_subscribe(&e.base, "shop.a", "orders", 50);
    assert_int_equal(p->driver->instance_health(e.instance, &err), TD_OK);
    memvfs_fail_sync(true);
    assert_true(history_submit(p, &h, 1));
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
    assert_false(history_submit(p, &h, 1));
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
    history_publish_again(&e, &h);
    assert_int_equal(history_missing(&e, &h, 0, h.submitted), 0);
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

static enum td_err publish_one(struct td_broker *p, struct history *h, enum td_err_class *ret)
{
    struct td_published got = {0};
    struct td_clock clock = tdi_clock_system();
    size_t n = 0;
    assert_true(history_submit(p, h, 1));
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
    history_declare(&e);
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
    assert_true(history_consume(c, &h, 0, 30));
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
        assert_int_equal(history_missing(&e, &h, i, h.submitted), 0);
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

int main(void)
{
    memvfs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_sync_is_final),
        cmocka_unit_test(a_failed_sync_is_final_with_threads),
        cmocka_unit_test(a_full_disk_heals),
        cmocka_unit_test(a_full_disk_heals_with_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
