/* The broker suite on the embedded driver: inline, with threads, and publishing over the socket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker_rig.h"
#include "broker_temp.h"

struct embedded {
    char dir[BROKER_TEMP_BYTES];
    struct td_broker_instance *instance;
    bool threads;
    bool remote; /* publishers are not given the instance */
};

static void open_instance(struct broker_rig *r, bool create)
{
    struct embedded *e = r->ctx;
    struct td_error err = {0};
    struct td_broker_options o = {.location = tdi_str(e->dir),
                                  .service = TD_STR_LIT("shop"),
                                  .clock = tdi_clock_system(),
                                  .create = create,
                                  .threads = e->threads};
    if (tdi_broker_driver(tdi_str(r->driver))->instance_open(&o, &e->instance, &err) != TD_OK) {
        fail_msg("instance_open: %s", err.text);
    }
}

static void start(struct broker_rig *r)
{
    struct embedded *e = r->ctx;
    broker_temp_make(e->dir);
    open_instance(r, true);
}

static void stop(struct broker_rig *r)
{
    struct embedded *e = r->ctx;
    tdi_broker_driver(tdi_str(r->driver))->instance_close(e->instance);
    e->instance = NULL;
    broker_temp_remove(e->dir);
}

static void restart(struct broker_rig *r)
{
    struct embedded *e = r->ctx;
    tdi_broker_driver(tdi_str(r->driver))->instance_close(e->instance);
    open_instance(r, false);
}

static void options(struct broker_rig *r, enum td_broker_role role, struct td_broker_options *o)
{
    struct embedded *e = r->ctx;
    o->location = tdi_str(e->dir);
    o->service = TD_STR_LIT("shop");
    o->instance = e->remote && role == TD_BROKER_PUBLISH ? NULL : e->instance;
}

int main(void)
{
    static struct embedded inline_, threads = {.threads = true},
                                    remote = {.threads = true, .remote = true};
    struct broker_rig rigs[] = {
        {.label = "embedded inline", .ctx = &inline_},
        {.label = "embedded threads", .ctx = &threads},
        {.label = "embedded socket", .ctx = &remote},
    };
    int failed = 0;
    for (size_t i = 0; i < 3; i++) {
        rigs[i].driver = "embedded";
        rigs[i].start = start;
        rigs[i].stop = stop;
        rigs[i].restart = restart;
        rigs[i].options = options;
        failed += broker_suite(&rigs[i]);
    }
    return failed;
}
