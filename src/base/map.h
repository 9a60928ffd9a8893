/*
 * Hash map from bytes to a pointer, with keyed hashing (hostile keys cannot collide on purpose).
 * Open addressing; keys are copied. Not for threads.
 */
#ifndef TDI_BASE_MAP_H
#define TDI_BASE_MAP_H

#include "tidings/types.h"

struct tdi_map_slot;

struct tdi_map {
    struct tdi_map_slot *slots;
    size_t cap; /* power of two or 0 */
    size_t count;
    size_t max; /* entries at most; 0: no limit */
    uint64_t seed[2];
};

void tdi_map_init(struct tdi_map *m, const uint64_t seed[2], size_t max);
void tdi_map_release(struct tdi_map *m);                       /* values are the caller's */
void *tdi_map_get(const struct tdi_map *m, struct td_str key); /* NULL: not there */
/* Add or replace; value is not NULL. false: full or out of memory. */
bool tdi_map_put(struct tdi_map *m, struct td_str key, void *value);
/* The value removed, or NULL. */
void *tdi_map_del(struct tdi_map *m, struct td_str key);
/* Iterate: *cursor starts at 0; false at the end. Do not change the map meanwhile. */
bool tdi_map_next(const struct tdi_map *m, size_t *cursor, struct td_str *ret_key,
                  void **ret_value);

#endif
