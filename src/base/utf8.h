/*
 * What the readers of text share: one UTF-8 sequence (RFC 3629), eight bytes at a time, hex digits. Only for src/base: others use str.h.
 */
#ifndef TDI_BASE_UTF8_H
#define TDI_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TDI_SWAR_ONES UINT64_C(0x0101010101010101)
#define TDI_SWAR_HIGHS UINT64_C(0x8080808080808080)

static inline uint64_t tdi_load64(const void *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof(w));
    return w;
}

/* 0..15, or -1. */
static inline int tdi_hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

/* Length of the valid sequence that starts with the byte p[0] >= 0x80; 0: there is none within n
 * bytes (n > 0). Overlong forms, surrogates and what is beyond U+10FFFF are not valid. */
static inline size_t tdi_utf8_sequence(const unsigned char *p, size_t n)
{
    unsigned char c = p[0];
    if (c >= 0xe1 && c <= 0xef) {
        if (n < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 || (c == 0xed && p[1] > 0x9f)) {
            return 0;
        }
        return 3;
    }
    if (c >= 0xc2 && c <= 0xdf) {
        return n >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
    }
    if (c == 0xe0) {
        return n >= 3 && p[1] >= 0xa0 && p[1] <= 0xbf && (p[2] & 0xc0) == 0x80 ? 3 : 0;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        unsigned char low = c == 0xf0 ? 0x90 : 0x80;
        unsigned char high = c == 0xf4 ? 0x8f : 0xbf;
        if (n < 4 || p[1] < low || p[1] > high || (p[2] & 0xc0) != 0x80 || (p[3] & 0xc0) != 0x80) {
            return 0;
        }
        return 4;
    }
    return 0;
}

#endif
