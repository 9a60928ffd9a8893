/*
 * Arena: memory that is freed all at once. A batch of messages lives in one.
 *
 * Invariants: pointers stay valid until reset or release; never grows past bytes_max (then NULL is
 * returned and the caller reports TD_ERR_LIMIT or TD_ERR_NOMEM). One thread at a time.
 */
#ifndef TDI_BASE_ARENA_H
#define TDI_BASE_ARENA_H

#include "tidings/types.h"

#define TDI_ARENA_BLOCK_BYTES 16384

struct tdi_arena_block;

struct tdi_arena {
    struct tdi_arena_block *head; /* newest block, linked to the older ones */
    size_t bytes;                 /* of all blocks */
    size_t bytes_max;             /* 0: 256 MiB */
};

void tdi_arena_init(struct tdi_arena *a, size_t bytes_max);
void tdi_arena_release(struct tdi_arena *a);
/* Forget everything, keep one ordinary block for the next batch. */
void tdi_arena_reset(struct tdi_arena *a);
/* Zeroed, aligned for any type; NULL when exhausted. size 0 gives a valid pointer. */
void *tdi_arena_alloc(struct tdi_arena *a, size_t size);
/* Zeroed array; NULL also when count * size overflows. */
void *tdi_arena_array(struct tdi_arena *a, size_t count, size_t size);
/* A copy that is also terminated. An absent text stays absent. false: exhausted. */
bool tdi_arena_str(struct tdi_arena *a, struct td_str s, struct td_str *ret);
bool tdi_arena_bytes(struct tdi_arena *a, struct td_bytes b, struct td_bytes *ret);
/* Formatted text, terminated; absent when exhausted. */
struct td_str tdi_arena_printf(struct tdi_arena *a, const char *fmt, ...) TD_PRINTF(2, 3);

#endif
