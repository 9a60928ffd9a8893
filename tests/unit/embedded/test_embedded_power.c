/*
 * Power cuts on a file system in memory. Everything that was confirmed is there after the cut, once
 * and in order; with syncs that lie it is not, so the test can see.
 */
#include "history.h"
#include "memvfs.h"

/* Work until the power goes off, or all is done. */
static void work(struct emb_rig *e, struct history *h, struct tdi_random *r)
{
    struct td_broker *p = broker_open(&e->base, TD_BROKER_PUBLISH);
    struct td_broker *c[QUEUES];
    for (size_t i = 0; i < QUEUES; i++) {
        c[i] = broker_subscribe(&e->base, history_queues[i], "orders", 50);
    }
    bool good = true;
    while (good && !memvfs_is_off() && h->submitted < IDS) {
        size_t queue = (size_t)tdi_random_below(r, QUEUES);
        switch (tdi_random_below(r, 4)) {
        case 0:
        case 1:
            good = history_submit(p, h, (size_t)tdi_random_below(r, 60));
            break;
        case 2:
            good = history_collect(p, h);
            break;
        default:
            good = history_consume(c[queue], h, queue, (size_t)tdi_random_below(r, 20) + 1);
            break;
        }
    }
    for (size_t i = 0; i < QUEUES; i++) {
        tdi_broker_close(c[i]);
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
    history_declare(&e);
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
        lost += history_missing(&e, &h, i, h.submitted);
    }
    if (!lie) {
        history_publish_again(&e, &h);
        for (size_t i = 0; i < QUEUES; i++) {
            lost += history_missing(&e, &h, i, h.submitted);
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
        history_declare(&e);
        emb_rig_end(&e);
    }
}

int main(void)
{
    memvfs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_confirmed_outlives_a_power_cut),
        cmocka_unit_test(without_syncs_it_is_lost),
        cmocka_unit_test(a_power_cut_while_opening_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
