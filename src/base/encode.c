/*
 * Hexadecimal and base64 (RFC 4648, standard alphabet, canonical padding only). Pure.
 */
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Groups written at once, so that the buffer is asked rarely. */
#define ENCODE_GROUPS 256

void tdi_hex_add(struct tdi_buf *b, const void *data, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    char out[2 * ENCODE_GROUPS];
    while (len > 0) {
        size_t n = len < ENCODE_GROUPS ? len : ENCODE_GROUPS;
        for (size_t i = 0; i < n; i++) {
            out[2 * i] = digits[p[i] >> 4];
            out[2 * i + 1] = digits[p[i] & 15];
        }
        tdi_buf_add(b, out, 2 * n);
        p += n;
        len -= n;
    }
}

void tdi_base64_add(struct tdi_buf *b, const void *data, size_t len)
{
    const unsigned char *p = data;
    char out[4 * ENCODE_GROUPS];
    size_t n = 0;
    for (; len >= 3; p += 3, len -= 3) {
        uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        out[n++] = base64_digits[v >> 18];
        out[n++] = base64_digits[v >> 12 & 63];
        out[n++] = base64_digits[v >> 6 & 63];
        out[n++] = base64_digits[v & 63];
        if (n == sizeof(out)) {
            tdi_buf_add(b, out, n);
            n = 0;
        }
    }
    if (len > 0) {
        uint32_t v = (uint32_t)p[0] << 16 | (len == 2 ? (uint32_t)p[1] << 8 : 0);
        out[n++] = base64_digits[v >> 18];
        out[n++] = base64_digits[v >> 12 & 63];
        out[n++] = len == 2 ? base64_digits[v >> 6 & 63] : '=';
        out[n++] = '=';
    }
    tdi_buf_add(b, out, n);
}

/* 0..63; more: not of the alphabet. */
static uint32_t base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (uint32_t)(c - 'A');
    }
    if (c >= 'a' && c <= 'z') {
        return (uint32_t)(c - 'a') + 26;
    }
    if (c >= '0' && c <= '9') {
        return (uint32_t)(c - '0') + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : UINT32_C(1) << 24;
}

bool tdi_base64_decode(struct td_str s, unsigned char *out, size_t *ret_len)
{
    if (s.len % 4 != 0) {
        return false;
    }
    size_t padding = 0;
    if (s.len > 0 && s.data[s.len - 1] == '=') {
        padding = s.data[s.len - 2] == '=' ? 2 : 1;
    }
    size_t n = 0;
    for (size_t i = 0; i < s.len; i += 4) {
        bool last = i + 4 == s.len;
        uint32_t v = base64_value(s.data[i]) << 18 | base64_value(s.data[i + 1]) << 12;
        uint32_t bad = base64_value(s.data[i]) | base64_value(s.data[i + 1]);
        size_t have = last ? 3 - padding : 3;
        if (have >= 2) {
            v |= base64_value(s.data[i + 2]) << 6;
            bad |= base64_value(s.data[i + 2]);
        }
        if (have == 3) {
            v |= base64_value(s.data[i + 3]);
            bad |= base64_value(s.data[i + 3]);
        }
        /* Bits under the padding must be 0, so that bytes have one text only. */
        if (bad > 63 || (v & ((UINT32_C(1) << (8 * (3 - have))) - 1)) != 0) {
            return false;
        }
        for (size_t k = 0; k < have; k++) {
            out[n++] = (unsigned char)(v >> (16 - 8 * k));
        }
    }
    *ret_len = n;
    return true;
}
