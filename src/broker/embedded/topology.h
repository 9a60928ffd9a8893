/* The topology as the file has it, shared by diff and apply. */
#ifndef TDD_EMBEDDED_TOPOLOGY_H
#define TDD_EMBEDDED_TOPOLOGY_H

#include "broker/embedded/internal.h"

#define TDD_EMB_TYPES_MAX 256 /* patterns of one queue */

struct tdd_emb_have_topic {
    int64_t id;
    struct td_str name;
    int64_t max_bytes;
};

struct tdd_emb_have_queue {
    int64_t id;
    struct td_str name;
    struct td_str topic;
    bool ordered;
    int64_t depth;
    struct td_str *types;
    size_t types_count;
};

struct tdd_emb_have {
    struct tdd_emb_have_topic *topics;
    size_t topics_count;
    struct tdd_emb_have_queue *queues;
    size_t queues_count;
};

struct tdd_emb_differences {
    struct tdi_arena *a;
    struct td_topology_difference *items;
    size_t count, max;
    bool done; /* tell what was done, not what is to be done */
};

enum td_err tdd_emb_have_read(struct tdi_db *db, struct tdi_arena *a, struct tdd_emb_have *h,
                              struct td_error *err);
const struct tdd_emb_have_topic *tdd_emb_have_topic(const struct tdd_emb_have *h,
                                                    struct td_str name);
const struct tdd_emb_have_queue *tdd_emb_have_queue(const struct tdd_emb_have *h,
                                                    struct td_str name);

/* Does what is wanted make sense at all? CONFIG, LIMIT. */
enum td_err tdd_emb_wanted_check(const struct td_topology *w, struct td_error *err);
enum td_err tdd_emb_differences(const struct td_topology *w, const struct tdd_emb_have *h,
                                struct tdd_emb_differences *l, struct td_error *err);
bool tdd_emb_queue_equal(const struct td_queue *w, const struct tdd_emb_have_queue *h);

#endif
