/*
 * Growable buffer. Grows by doubling, never past bytes_max (the terminating NUL is not counted).
 *
 * Invariants: len <= bytes_max; cap is 0 or greater than len. A failed buffer keeps what it had.
 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST_BYTES 64

void tdi_buf_init(struct tdi_buf *b, size_t bytes_max)
{
    *b = (struct tdi_buf){.bytes_max = bytes_max};
}

void tdi_buf_release(struct tdi_buf *b)
{
    free(b->data);
    *b = (struct tdi_buf){.bytes_max = b->bytes_max};
}

void tdi_buf_clear(struct tdi_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

/* Room for more bytes and a NUL? */
static bool reserve(struct tdi_buf *b, size_t more)
{
    if (b->failed || b->bytes_max == SIZE_MAX || more > b->bytes_max - b->len) {
        b->failed = true;
        return false;
    }
    if (more < b->cap - b->len) {
        return true;
    }
    size_t need = b->len + more + 1;
    size_t cap = b->cap > BUF_FIRST_BYTES ? b->cap : BUF_FIRST_BYTES;
    while (cap < need) {
        cap = cap > b->bytes_max / 2 ? b->bytes_max + 1 : cap * 2;
    }
    char *data = realloc(b->data, cap);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void tdi_buf_add(struct tdi_buf *b, const void *data, size_t len)
{
    if (!reserve(b, len)) {
        return;
    }
    if (len > 0) {
        memcpy(b->data + b->len, data, len);
    }
    b->len += len;
    b->data[b->len] = '\0';
}

void tdi_buf_add_str(struct tdi_buf *b, struct td_str s)
{
    tdi_buf_add(b, s.data, s.len);
}

void tdi_buf_add_cstr(struct tdi_buf *b, const char *s)
{
    tdi_buf_add(b, s, strlen(s));
}

void tdi_buf_add_char(struct tdi_buf *b, char c)
{
    tdi_buf_add(b, &c, 1);
}

void tdi_buf_printf(struct tdi_buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0) {
        b->failed = true;
        return;
    }
    if (!reserve(b, (size_t)len)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(b->data + b->len, (size_t)len + 1, fmt, args);
    va_end(args);
    b->len += (size_t)len;
}

void tdi_buf_consume(struct tdi_buf *b, size_t n)
{
    if (n == 0 || b->len == 0) {
        return;
    }
    size_t gone = n < b->len ? n : b->len;
    memmove(b->data, b->data + gone, b->len - gone + 1);
    b->len -= gone;
}

struct td_str tdi_buf_str(const struct tdi_buf *b)
{
    /* Nothing appended yet is empty, not absent. */
    return (struct td_str){.data = b->data != NULL ? b->data : "", .len = b->len};
}
