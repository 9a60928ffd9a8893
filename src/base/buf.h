/*
 * Growable buffer with a maximum. Appending past the maximum or out of memory marks the buffer
 * failed; it then stays as it was and every further append is ignored, so a writer checks once.
 *
 * Invariant: data[len] is always NUL once something was appended.
 */
#ifndef TDI_BASE_BUF_H
#define TDI_BASE_BUF_H

#include "tidings/types.h"

struct tdi_buf {
    char *data;
    size_t len;
    size_t cap;
    size_t bytes_max;
    bool failed;
};

void tdi_buf_init(struct tdi_buf *b, size_t bytes_max);
void tdi_buf_release(struct tdi_buf *b);
void tdi_buf_clear(struct tdi_buf *b); /* keeps the memory, forgets failed */
void tdi_buf_add(struct tdi_buf *b, const void *data, size_t len);
void tdi_buf_add_str(struct tdi_buf *b, struct td_str s);
void tdi_buf_add_cstr(struct tdi_buf *b, const char *s);
void tdi_buf_add_char(struct tdi_buf *b, char c);
void tdi_buf_printf(struct tdi_buf *b, const char *fmt, ...) TD_PRINTF(2, 3);
/* Drop the first n bytes. */
void tdi_buf_consume(struct tdi_buf *b, size_t n);
struct td_str tdi_buf_str(const struct tdi_buf *b);

#endif
