/*
 * Hash map: open addressing with linear probing over one byte a slot (0: free, else 0x80 and seven
 * bits of the hash), so that most probes touch neither slots nor keys. Short keys, such as UUIDs,
 * lie in the slot itself.
 *
 * Invariants: at most 3/4 of the slots are taken. Between the slot where a key's search starts and
 * the slot where it lies no slot is free; deleting moves followers back, so there are no tombstones.
 */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MAP_FIRST_SLOTS 16
#define MAP_LINE_BYTES 64 /* a cache line */
#define MAP_NEAR_BYTES 40 /* makes a slot one line */

struct tdi_map_slot {
    uint64_t hash;
    void *value;
    size_t len;
    union {
        char near[MAP_NEAR_BYTES];
        char *far; /* heap, when len > MAP_NEAR_BYTES */
    } key;
};

void tdi_map_init(struct tdi_map *m, const uint64_t seed[2], size_t max)
{
    *m = (struct tdi_map){.max = max, .seed = {seed[0], seed[1]}};
}

/* The tags lie behind the slots, in the same allocation. */
static uint8_t *tags_of(struct tdi_map_slot *slots, size_t cap)
{
    return slots != NULL ? (uint8_t *)(slots + cap) : NULL;
}

static uint8_t tag_of(uint64_t hash)
{
    return (uint8_t)(0x80 | hash >> 57);
}

static const char *key_of(const struct tdi_map_slot *slot)
{
    return slot->len > MAP_NEAR_BYTES ? slot->key.far : slot->key.near;
}

void tdi_map_release(struct tdi_map *m)
{
    const uint8_t *tags = tags_of(m->slots, m->cap);
    for (size_t i = 0; i < m->cap; i++) {
        if (tags[i] != 0 && m->slots[i].len > MAP_NEAR_BYTES) {
            free(m->slots[i].key.far);
        }
    }
    free(m->slots);
    m->slots = NULL;
    m->cap = 0;
    m->count = 0;
}

/* The slot of a key, or the free one where it would go; the map has slots. */
static size_t find(const struct tdi_map *m, struct td_str key, uint64_t hash)
{
    const uint8_t *tags = tags_of(m->slots, m->cap);
    uint8_t tag = tag_of(hash);
    size_t i = hash & (m->cap - 1);
    for (; tags[i] != 0; i = (i + 1) & (m->cap - 1)) {
        const struct tdi_map_slot *slot = &m->slots[i];
        if (tags[i] == tag && slot->hash == hash && slot->len == key.len &&
            (key.len == 0 || memcmp(key_of(slot), key.data, key.len) == 0)) {
            break;
        }
    }
    return i;
}

void *tdi_map_get(const struct tdi_map *m, struct td_str key)
{
    if (m->count == 0) {
        return NULL;
    }
    size_t i = find(m, key, tdi_siphash(m->seed, key.data, key.len));
    return tags_of(m->slots, m->cap)[i] != 0 ? m->slots[i].value : NULL;
}

static struct tdi_map_slot *slots_new(size_t cap)
{
    if (cap > SIZE_MAX / 2 / sizeof(struct tdi_map_slot)) {
        return NULL;
    }
    size_t bytes = cap * sizeof(struct tdi_map_slot) + cap;
    bytes = (bytes + MAP_LINE_BYTES - 1) & ~(size_t)(MAP_LINE_BYTES - 1);
    struct tdi_map_slot *slots = aligned_alloc(MAP_LINE_BYTES, bytes);
    if (slots != NULL) {
        memset(tags_of(slots, cap), 0, cap);
    }
    return slots;
}

static bool grow(struct tdi_map *m)
{
    size_t cap = m->cap == 0 ? MAP_FIRST_SLOTS : m->cap * 2;
    struct tdi_map_slot *slots = slots_new(cap);
    if (slots == NULL) {
        return false;
    }
    uint8_t *tags = tags_of(slots, cap);
    const uint8_t *old_tags = tags_of(m->slots, m->cap);
    for (size_t i = 0; i < m->cap; i++) {
        if (old_tags[i] != 0) {
            size_t k = m->slots[i].hash & (cap - 1);
            while (tags[k] != 0) {
                k = (k + 1) & (cap - 1);
            }
            tags[k] = old_tags[i];
            slots[k] = m->slots[i];
        }
    }
    free(m->slots);
    m->slots = slots;
    m->cap = cap;
    return true;
}

bool tdi_map_put(struct tdi_map *m, struct td_str key, void *value)
{
    uint64_t hash = tdi_siphash(m->seed, key.data, key.len);
    size_t i = 0;
    if (m->cap > 0) {
        i = find(m, key, hash);
        if (tags_of(m->slots, m->cap)[i] != 0) {
            m->slots[i].value = value;
            return true;
        }
    }
    if (m->max != 0 && m->count >= m->max) {
        return false;
    }
    if (m->count >= m->cap / 4 * 3) {
        if (!grow(m)) {
            return false;
        }
        i = find(m, key, hash);
    }
    struct tdi_map_slot *slot = &m->slots[i];
    char *copy = slot->key.near;
    if (key.len > MAP_NEAR_BYTES) {
        copy = malloc(key.len);
        if (copy == NULL) {
            return false;
        }
        slot->key.far = copy;
    }
    if (key.len > 0) {
        memcpy(copy, key.data, key.len);
    }
    slot->hash = hash;
    slot->len = key.len;
    slot->value = value;
    tags_of(m->slots, m->cap)[i] = tag_of(hash);
    m->count++;
    return true;
}

void *tdi_map_del(struct tdi_map *m, struct td_str key)
{
    if (m->count == 0) {
        return NULL;
    }
    size_t mask = m->cap - 1;
    uint8_t *tags = tags_of(m->slots, m->cap);
    size_t hole = find(m, key, tdi_siphash(m->seed, key.data, key.len));
    if (tags[hole] == 0) {
        return NULL;
    }
    void *value = m->slots[hole].value;
    if (m->slots[hole].len > MAP_NEAR_BYTES) {
        free(m->slots[hole].key.far);
    }
    for (size_t i = (hole + 1) & mask; tags[i] != 0; i = (i + 1) & mask) {
        /* Its search may start at or before the hole: then it moves there. */
        if (((i - m->slots[i].hash) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            tags[hole] = tags[i];
            hole = i;
        }
    }
    tags[hole] = 0;
    m->count--;
    return value;
}

bool tdi_map_next(const struct tdi_map *m, size_t *cursor, struct td_str *ret_key, void **ret_value)
{
    const uint8_t *tags = tags_of(m->slots, m->cap);
    for (; *cursor < m->cap; ++*cursor) {
        if (tags[*cursor] != 0) {
            const struct tdi_map_slot *slot = &m->slots[*cursor];
            *ret_key = (struct td_str){.data = key_of(slot), .len = slot->len};
            *ret_value = slot->value;
            ++*cursor;
            return true;
        }
    }
    return false;
}
