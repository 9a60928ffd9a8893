/* The dedupe window; see dedupe.h. */
#include "broker/embedded/dedupe.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define SET_CAP_MIN 1024
#define PART_BYTES_MAX 512 /* more than any of the three parts of an identity */

/* ---- one set: open addressing, at most three quarters full ---- */

static bool hash_eq(struct tdd_emb_hash x, struct tdd_emb_hash y)
{
    return x.a == y.a && x.b == y.b;
}

static bool set_has(const struct tdd_emb_set *s, struct tdd_emb_hash h)
{
    if (s->cap == 0) {
        return false;
    }
    size_t i = (size_t)h.a & (s->cap - 1);
    while ((s->slots[i].a | s->slots[i].b) != 0) {
        if (hash_eq(s->slots[i], h)) {
            return true;
        }
        i = (i + 1) & (s->cap - 1);
    }
    return false;
}

static void set_place(struct tdd_emb_set *s, struct tdd_emb_hash h)
{
    size_t i = (size_t)h.a & (s->cap - 1);
    while ((s->slots[i].a | s->slots[i].b) != 0) {
        i = (i + 1) & (s->cap - 1);
    }
    s->slots[i] = h;
    s->count++;
}

static bool set_reserve(struct tdd_emb_set *s, size_t more)
{
    size_t cap = s->cap > 0 ? s->cap : SET_CAP_MIN;
    while ((s->count + more) * 4 > cap * 3) {
        cap *= 2;
    }
    if (cap == s->cap) {
        return true;
    }
    struct tdd_emb_set bigger = {.slots = calloc(cap, sizeof(*bigger.slots)), .cap = cap};
    if (bigger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < s->cap; i++) {
        if ((s->slots[i].a | s->slots[i].b) != 0) {
            set_place(&bigger, s->slots[i]);
        }
    }
    free(s->slots);
    *s = bigger;
    return true;
}

static void set_release(struct tdd_emb_set *s)
{
    free(s->slots);
    memset(s, 0, sizeof(*s));
}

/* ---- generations ---- */

void tdd_emb_dedupe_init(struct tdd_emb_dedupe *d, td_time_us mono)
{
    memset(d, 0, sizeof(*d));
    d->since = mono;
    d->generation_max = TDD_EMB_DEDUPE_IDS_MAX / 2;
}

void tdd_emb_dedupe_release(struct tdd_emb_dedupe *d)
{
    set_release(&d->now);
    set_release(&d->before);
    set_release(&d->staged);
    free(d->order);
    d->order = NULL;
}

static void next_generation(struct tdd_emb_dedupe *d, int64_t row, td_time_us mono)
{
    set_release(&d->before);
    d->before = d->now;
    memset(&d->now, 0, sizeof(d->now));
    d->keep_row = d->now_row;
    d->now_row = row;
    d->since = mono;
}

static size_t put_part(unsigned char *to, struct td_str part)
{
    size_t len = part.len < PART_BYTES_MAX ? part.len : PART_BYTES_MAX;
    to[0] = (unsigned char)(len >> 8);
    to[1] = (unsigned char)(len & 0xff);
    if (len > 0) {
        memcpy(to + 2, part.data, len);
    }
    return len + 2;
}

struct tdd_emb_hash tdd_emb_dedupe_hash(const uint64_t key[2], struct td_str source,
                                        struct td_str topic, struct td_str id)
{
    /* Checked messages are well below PART_BYTES_MAX; lengths keep ("a","bc") from ("ab","c"). */
    unsigned char text[3 * (PART_BYTES_MAX + 2)];
    size_t len = put_part(text, source);
    len += put_part(text + len, topic);
    len += put_part(text + len, id);
    unsigned char out[16];
    tdi_siphash128(key, text, len, out);
    struct tdd_emb_hash h;
    memcpy(&h, out, sizeof(h));
    if ((h.a | h.b) == 0) {
        h.b = 1;
    }
    return h;
}

enum tdd_emb_seen tdd_emb_dedupe_stage(struct tdd_emb_dedupe *d, struct tdd_emb_hash h)
{
    if (set_has(&d->now, h) || set_has(&d->before, h) || set_has(&d->staged, h)) {
        return TDD_EMB_SEEN;
    }
    if (d->order_count == d->order_cap) {
        size_t cap = d->order_cap > 0 ? d->order_cap * 2 : SET_CAP_MIN;
        struct tdd_emb_hash *order = realloc(d->order, cap * sizeof(*order));
        if (order == NULL) {
            return TDD_EMB_SEEN_NOMEM;
        }
        d->order = order;
        d->order_cap = cap;
    }
    /* Room in `now` is made here, so that keeping cannot fail after the commit. */
    if (!set_reserve(&d->staged, 1) || !set_reserve(&d->now, d->order_count + 1)) {
        return TDD_EMB_SEEN_NOMEM;
    }
    set_place(&d->staged, h);
    d->order[d->order_count++] = h;
    return TDD_EMB_FRESH;
}

void tdd_emb_dedupe_undo(struct tdd_emb_dedupe *d)
{
    if (d->order_count > 0) {
        memset(d->staged.slots, 0, d->staged.cap * sizeof(*d->staged.slots));
        d->staged.count = 0;
        d->order_count = 0;
    }
}

void tdd_emb_dedupe_keep(struct tdd_emb_dedupe *d, int64_t row, td_time_us mono)
{
    for (size_t i = 0; i < d->order_count; i++) {
        set_place(&d->now, d->order[i]);
    }
    tdd_emb_dedupe_undo(d);
    if (d->now.count >= d->generation_max || mono - d->since >= TDD_EMB_DEDUPE_WINDOW_US) {
        next_generation(d, row + 1, mono);
    }
}

bool tdd_emb_dedupe_load(struct tdd_emb_dedupe *d, struct td_bytes ids, int64_t row,
                         td_time_us mono)
{
    size_t count = ids.len / sizeof(struct tdd_emb_hash);
    const unsigned char *p = ids.data;
    if (!set_reserve(&d->now, count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct tdd_emb_hash h;
        memcpy(&h, p + i * sizeof(h), sizeof(h));
        if ((h.a | h.b) != 0 && !set_has(&d->now, h)) {
            set_place(&d->now, h);
        }
    }
    if (d->now.count >= d->generation_max) {
        next_generation(d, row + 1, mono);
    }
    return true;
}
