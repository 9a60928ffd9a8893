/*
 * The dedupe window: which messages were stored lately, by keyed hashes of 128 bits over (source,
 * topic, id). Two generations: an id is known for at least the window, unless TDD_EMB_DEDUPE_IDS_MAX
 * came after it.
 *
 * Ids of the commit in hand are staged: seen by later messages of the same commit, kept when it
 * succeeds, forgotten when it fails. Pure but for memory. One thread at a time.
 */
#ifndef TDD_EMBEDDED_DEDUPE_H
#define TDD_EMBEDDED_DEDUPE_H

#include "tidings/types.h"

#define TDD_EMB_DEDUPE_WINDOW_US (600 * TD_SECOND_US)
#define TDD_EMB_DEDUPE_IDS_MAX 2000000

struct tdd_emb_hash {
    uint64_t a, b; /* both 0 is no hash */
};

struct tdd_emb_set {
    struct tdd_emb_hash *slots;
    size_t cap; /* power of two, or 0 */
    size_t count;
};

struct tdd_emb_dedupe {
    struct tdd_emb_set now, before, staged;
    struct tdd_emb_hash *order; /* the staged ones as they came */
    size_t order_count, order_cap;
    td_time_us since;      /* when `now` began (clock.mono) */
    int64_t now_row;       /* first dedup row of `now` */
    int64_t keep_row;      /* rows before it belong to no generation */
    size_t generation_max; /* ids of one generation */
};

void tdd_emb_dedupe_init(struct tdd_emb_dedupe *d, td_time_us mono);
void tdd_emb_dedupe_release(struct tdd_emb_dedupe *d);

struct tdd_emb_hash tdd_emb_dedupe_hash(const uint64_t key[2], struct td_str source,
                                        struct td_str topic, struct td_str id);

enum tdd_emb_seen {
    TDD_EMB_FRESH, /* and staged now */
    TDD_EMB_SEEN,
    TDD_EMB_SEEN_NOMEM,
};
enum tdd_emb_seen tdd_emb_dedupe_stage(struct tdd_emb_dedupe *d, struct tdd_emb_hash h);
void tdd_emb_dedupe_undo(struct tdd_emb_dedupe *d);
/* The staged ids are stored in row `row` of the file. Starts a new generation when due. */
void tdd_emb_dedupe_keep(struct tdd_emb_dedupe *d, int64_t row, td_time_us mono);
/* At open: ids of a stored row. false: out of memory. */
bool tdd_emb_dedupe_load(struct tdd_emb_dedupe *d, struct td_bytes ids, int64_t row,
                         td_time_us mono);

#endif
