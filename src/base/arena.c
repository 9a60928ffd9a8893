/*
 * Arena: a list of blocks, the newest ordinary one in front and filled from its start.
 *
 * Invariants: head is the only block that is still filled; a block made for one large allocation is
 * linked behind it. bytes counts whole blocks, their heads included. Under AddressSanitizer the
 * part of a block that was not handed out is poisoned, so that a use after reset is found.
 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#if defined(ARENA_ASAN)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define ARENA_ALIGN _Alignof(max_align_t)
#define ARENA_BYTES_MAX_DEFAULT ((size_t)256 << 20)
/* From this size on an allocation gets a block of its own, so that little of the head is wasted. */
#define ARENA_LARGE_BYTES (TDI_ARENA_BLOCK_BYTES / 4)

struct tdi_arena_block {
    struct tdi_arena_block *older;
    size_t size; /* of data */
    size_t used;
    _Alignas(max_align_t) char data[];
};

void tdi_arena_init(struct tdi_arena *a, size_t bytes_max)
{
    *a = (struct tdi_arena){.bytes_max = bytes_max != 0 ? bytes_max : ARENA_BYTES_MAX_DEFAULT};
}

static void block_free(struct tdi_arena *a, struct tdi_arena_block *block)
{
    UNPOISON(block->data, block->size);
    a->bytes -= sizeof(*block) + block->size;
    free(block);
}

void tdi_arena_release(struct tdi_arena *a)
{
    while (a->head != NULL) {
        struct tdi_arena_block *block = a->head;
        a->head = block->older;
        block_free(a, block);
    }
}

void tdi_arena_reset(struct tdi_arena *a)
{
    struct tdi_arena_block *keep = NULL;
    while (a->head != NULL) {
        struct tdi_arena_block *block = a->head;
        a->head = block->older;
        if (keep == NULL && sizeof(*block) + block->size == TDI_ARENA_BLOCK_BYTES) {
            keep = block;
        } else {
            block_free(a, block);
        }
    }
    if (keep != NULL) {
        keep->older = NULL;
        keep->used = 0;
        POISON(keep->data, keep->size);
        a->head = keep;
    }
}

/* A block with room for size bytes, an ordinary one if the limit allows it. */
static struct tdi_arena_block *block_add(struct tdi_arena *a, size_t size)
{
    size_t left = a->bytes_max > a->bytes ? a->bytes_max - a->bytes : 0;
    if (left < sizeof(struct tdi_arena_block) || size > left - sizeof(struct tdi_arena_block)) {
        return NULL;
    }
    size_t total = sizeof(struct tdi_arena_block) + size;
    if (size < ARENA_LARGE_BYTES) {
        total = left < TDI_ARENA_BLOCK_BYTES ? left : TDI_ARENA_BLOCK_BYTES;
    }
    struct tdi_arena_block *block = malloc(total);
    if (block == NULL) {
        return NULL;
    }
    *block = (struct tdi_arena_block){.size = total - sizeof(*block)};
    POISON(block->data, block->size);
    a->bytes += total;
    if (size >= ARENA_LARGE_BYTES && a->head != NULL) {
        block->older = a->head->older;
        a->head->older = block;
    } else {
        block->older = a->head;
        a->head = block;
    }
    return block;
}

/* Aligned, not zeroed. */
static void *take(struct tdi_arena *a, size_t size)
{
    if (size > SIZE_MAX - ARENA_ALIGN) {
        return NULL;
    }
    size_t step = size == 0 ? ARENA_ALIGN : (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
    struct tdi_arena_block *block = a->head;
    if (block == NULL || block->size - block->used < step) {
        block = block_add(a, step);
        if (block == NULL) {
            return NULL;
        }
    }
    char *p = block->data + block->used;
    block->used += step;
    UNPOISON(p, size);
    return p;
}

void *tdi_arena_alloc(struct tdi_arena *a, size_t size)
{
    void *p = take(a, size);
    if (p != NULL && size > 0) {
        memset(p, 0, size);
    }
    return p;
}

void *tdi_arena_array(struct tdi_arena *a, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    return tdi_arena_alloc(a, count * size);
}

/* A terminated copy; NULL: exhausted. */
static char *copy(struct tdi_arena *a, const void *data, size_t len)
{
    if (len == SIZE_MAX) {
        return NULL;
    }
    char *p = take(a, len + 1);
    if (p == NULL) {
        return NULL;
    }
    if (len > 0) {
        memcpy(p, data, len);
    }
    p[len] = '\0';
    return p;
}

bool tdi_arena_str(struct tdi_arena *a, struct td_str s, struct td_str *ret)
{
    if (s.data == NULL) {
        *ret = TD_STR_NONE;
        return true;
    }
    char *p = copy(a, s.data, s.len);
    if (p == NULL) {
        return false;
    }
    *ret = (struct td_str){.data = p, .len = s.len};
    return true;
}

bool tdi_arena_bytes(struct tdi_arena *a, struct td_bytes b, struct td_bytes *ret)
{
    if (b.data == NULL) {
        *ret = TD_BYTES_NONE;
        return true;
    }
    char *p = copy(a, b.data, b.len);
    if (p == NULL) {
        return false;
    }
    *ret = (struct td_bytes){.data = p, .len = b.len};
    return true;
}

struct td_str tdi_arena_printf(struct tdi_arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0) {
        return TD_STR_NONE;
    }
    char *p = take(a, (size_t)len + 1);
    if (p == NULL) {
        return TD_STR_NONE;
    }
    va_start(args, fmt);
    vsnprintf(p, (size_t)len + 1, fmt, args);
    va_end(args);
    return (struct td_str){.data = p, .len = (size_t)len};
}
