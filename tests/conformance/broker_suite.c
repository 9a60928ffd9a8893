/* Runs the lists of the broker suite. Must not know: any driver. */
#include <stdio.h>

#include "broker_rig.h"

#define SUITE_MAX 128

static int setup(void **state)
{
    struct broker_rig *r = *state;
    r->start(r);
    return 0;
}

static int teardown(void **state)
{
    struct broker_rig *r = *state;
    r->stop(r);
    return 0;
}

static size_t add(struct CMUnitTest *tests, char (*names)[128], size_t count, struct broker_rig *r,
                  const struct broker_test *list)
{
    for (; list->name != NULL && count < SUITE_MAX; list++) {
        (void)snprintf(names[count], sizeof(names[count]), "%s: %s", r->label, list->name);
        tests[count] = (struct CMUnitTest){.name = names[count],
                                           .test_func = list->run,
                                           .setup_func = setup,
                                           .teardown_func = teardown,
                                           .initial_state = r};
        count++;
    }
    return count;
}

int broker_suite(struct broker_rig *r)
{
    static struct CMUnitTest tests[SUITE_MAX];
    static char names[SUITE_MAX][128];
    size_t count = add(tests, names, 0, r, broker_publish_tests);
    count = add(tests, names, count, r, broker_consume_tests);
    count = add(tests, names, count, r, broker_topology_tests);
    return _cmocka_run_group_tests(r->label, tests, count, NULL, NULL);
}
