/*
 * Decoding and comparing strings of JSON. They were checked by the reader: escapes are complete,
 * but a surrogate may stand alone, which has no UTF-8.
 */
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "base/utf8.h"

static unsigned hex4(const unsigned char *p)
{
    unsigned code = 0;
    for (size_t i = 0; i < 4; i++) {
        code = code << 4 | (unsigned)tdi_hex_digit(p[i]);
    }
    return code;
}

static size_t utf8_put(unsigned code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 63));
        out[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 63));
    out[2] = (char)(0x80 | (code >> 6 & 63));
    out[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* Decode the escape at raw.data[*at], move *at behind it. Bytes written; 0: a lone surrogate. */
static size_t unescape(struct td_str raw, size_t *at, char out[4])
{
    static const char from[] = "bfnrt";
    static const char to[] = "\b\f\n\r\t";
    const unsigned char *p = (const unsigned char *)raw.data + *at;
    if (p[1] != 'u') {
        const char *known = strchr(from, p[1]);
        out[0] = known != NULL ? to[known - from] : (char)p[1];
        *at += 2;
        return 1;
    }
    unsigned code = hex4(p + 2);
    *at += 6;
    if (code < 0xd800 || code > 0xdfff) {
        return utf8_put(code, out);
    }
    if (code > 0xdbff || raw.len - *at < 6 || p[6] != '\\' || p[7] != 'u') {
        return 0;
    }
    unsigned low = hex4(p + 8);
    if (low < 0xdc00 || low > 0xdfff) {
        return 0;
    }
    *at += 6;
    return utf8_put(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), out);
}

bool tdi_json_text(const struct tdi_json_token *t, struct tdi_arena *a, struct td_str *ret)
{
    if (!t->escaped) {
        *ret = t->raw;
        return true;
    }
    char *out = tdi_arena_alloc(a, t->raw.len + 1); /* no escape is shorter than what it means */
    if (out == NULL) {
        return false;
    }
    size_t len = 0;
    size_t at = 0;
    while (at < t->raw.len) {
        const char *slash = memchr(t->raw.data + at, '\\', t->raw.len - at);
        size_t plain = slash != NULL ? (size_t)(slash - t->raw.data) - at : t->raw.len - at;
        memcpy(out + len, t->raw.data + at, plain);
        len += plain;
        at += plain;
        if (slash != NULL) {
            char c[4];
            size_t n = unescape(t->raw, &at, c);
            if (n == 0) {
                return false;
            }
            memcpy(out + len, c, n);
            len += n;
        }
    }
    *ret = (struct td_str){.data = out, .len = len};
    return true;
}

bool tdi_json_text_eq(const struct tdi_json_token *t, struct td_str s)
{
    if (!t->escaped) {
        return tdi_str_eq(t->raw, s);
    }
    size_t at = 0;
    size_t done = 0;
    while (at < t->raw.len) {
        char c[4] = {t->raw.data[at]};
        size_t n = 1;
        if (c[0] == '\\') {
            n = unescape(t->raw, &at, c);
        } else {
            at++;
        }
        if (n == 0 || s.len - done < n || memcmp(s.data + done, c, n) != 0) {
            return false;
        }
        done += n;
    }
    return done == s.len;
}

bool tdi_json_text_is(const struct tdi_json_token *t, const char *cstr)
{
    return tdi_json_text_eq(t, tdi_str(cstr));
}
