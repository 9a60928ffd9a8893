/*
 * What was submitted, confirmed and acknowledged under faults, and whether it is all there. Topic
 * `orders`, two queues that take everything, ids m0, m1, ...
 */
#ifndef HISTORY_H
#define HISTORY_H

#include "emb_rig.h"

enum {
    IDS = 600,
    QUEUES = 2
};

extern const char *const history_queues[QUEUES];

struct history {
    bool confirmed[IDS];
    bool acked[QUEUES][IDS];
    size_t submitted; /* ids below it may be anywhere */
    size_t body;
};

#define BODY_SMALL 700
#define BODY_LARGE 40000 /* so that the WAL is moved into the file and begins anew */

void history_declare(struct emb_rig *e);
/* Submit up to n new ids; false: the broker has ended. */
bool history_submit(struct td_broker *p, struct history *h, size_t n);
/* Without waiting. */
bool history_collect(struct td_broker *p, struct history *h);
/* Deliver and acknowledge up to n. */
bool history_consume(struct td_broker *c, struct history *h, size_t queue, size_t n);
/* What the queue holds, checked for order and doubles; the number of ids that must be there and are
 * not. */
size_t history_missing(struct emb_rig *e, const struct history *h, size_t queue, size_t upto);
/* After UNKNOWN everything is published again under the same ids, as a relay does it. */
void history_publish_again(struct emb_rig *e, struct history *h);

#endif
