/* What other threads may call: snapshot, interrupt, stop. Meant for ThreadSanitizer. */
#include <pthread.h>
#include <stdio.h>

#include "rig.h"

struct watch {
    struct tdi_consumer *c;
    int64_t last;
    int snapshots;
};

/* Watches until everything is handled, then stops the consumer. */
static void *watch(void *arg)
{
    struct watch *w = arg;
    struct tdi_consumer_snapshot s;
    do {
        tdi_consumer_snapshot(w->c, &s);
        tdi_consumer_interrupt(w->c);
        w->snapshots += s.handled_total >= w->last ? 1 : 0;
        w->last = s.handled_total;
    } while (s.handled_total < FAKE_MESSAGES_MAX);
    tdi_consumer_stop(w->c);
    return NULL;
}

static void others_may_watch_and_stop(void **state)
{
    (void)state;
    struct rig r = rig_new(TDI_ORDER_NONE, false);
    r.o.prefetch = 4;
    for (int i = 0; i < FAKE_MESSAGES_MAX; i++) {
        char id[8];
        snprintf(id, sizeof(id), "m%d", i);
        fake_publish_key(r.w, id, NULL);
    }
    fake_fail(r.w, "broker.ack", 20, TD_ERR_CLOSED);
    fake_fail(r.w, "store.commit", 50, TD_ERR_CLOSED);
    rig_start(&r);
    struct watch w = {.c = r.c};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    td_time_us wake = 0;
    enum tdi_step s = TDI_STEP_AGAIN;
    while (s != TDI_STEP_ENDED) {
        s = rig_step(&r, r.c, &wake);
        r.w->now = s == TDI_STEP_WAIT && wake > r.w->now ? wake : r.w->now;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(fake_effects_count(r.w), FAKE_MESSAGES_MAX);
    assert_true(w.snapshots > 0);
    assert_true(fake_lease_free(r.w));
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_may_watch_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
