#include "emb_rig.h"

static void options(struct broker_rig *r, enum td_broker_role role, struct td_broker_options *o)
{
    struct emb_rig *e = r->ctx;
    o->location = tdi_str(e->dir);
    o->vfs = e->vfs;
    o->instance = e->remote && role == TD_BROKER_PUBLISH ? NULL : e->instance;
}

void emb_rig_init(struct emb_rig *e, const char *vfs, bool threads)
{
    *e = (struct emb_rig){.vfs = tdi_str(vfs), .threads = threads};
    e->base = (struct broker_rig){.label = "embedded", .driver = "embedded", .options = options};
    e->base.ctx = e;
    broker_temp_make(e->dir);
}

void emb_rig_end(struct emb_rig *e)
{
    emb_rig_stop(e);
    broker_temp_remove(e->dir);
}

enum td_err emb_rig_open(struct emb_rig *e, bool create, struct td_error *err)
{
    struct td_broker_options o = {.location = tdi_str(e->dir),
                                  .service = TD_STR_LIT("shop"),
                                  .vfs = e->vfs,
                                  .clock = tdi_clock_system(),
                                  .create = create,
                                  .threads = e->threads};
    return tdi_broker_driver(TD_STR_LIT("embedded"))->instance_open(&o, &e->instance, err);
}

void emb_rig_start(struct emb_rig *e, bool create)
{
    struct td_error err = {0};
    if (emb_rig_open(e, create, &err) != TD_OK) {
        fail_msg("instance_open: %s", err.text);
    }
}

void emb_rig_stop(struct emb_rig *e)
{
    tdi_broker_driver(TD_STR_LIT("embedded"))->instance_close(e->instance);
    e->instance = NULL;
}
