/* The embedded driver for its unit tests: one instance in a temporary folder, any VFS. */
#ifndef EMB_RIG_H
#define EMB_RIG_H

#include "../../conformance/broker_rig.h"
#include "../../conformance/broker_temp.h"

struct emb_rig {
    struct broker_rig base; /* for the helpers of broker_rig.h; .ctx points here */
    char dir[BROKER_TEMP_BYTES];
    struct td_broker_instance *instance;
    struct td_str vfs;
    bool threads;
    bool remote; /* publish over the socket */
};

void emb_rig_init(struct emb_rig *e, const char *vfs, bool threads);
void emb_rig_end(struct emb_rig *e);
enum td_err emb_rig_open(struct emb_rig *e, bool create, struct td_error *err);
/* Open, or a failed test. */
void emb_rig_start(struct emb_rig *e, bool create);
void emb_rig_stop(struct emb_rig *e);

#endif
