/*
 * The JSON writer: plain appends to a buffer. What it writes is valid UTF-8 whatever it is given,
 * and holds no control character that a terminal would obey.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"
#include "base/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Length of the run of bytes that go out as they are. */
static size_t verbatim(const unsigned char *p, size_t len)
{
    size_t at = 0;
    while (at < len) {
        if (p[at] < 0x20 || p[at] == '"' || p[at] == '\\' || p[at] == 0x7f) {
            break;
        }
        if (p[at] < 0x80) {
            at++;
            continue;
        }
        size_t n = tdi_utf8_sequence(p + at, len - at);
        if (n == 0 || (p[at] == 0xc2 && p[at + 1] < 0xa0)) { /* C1 controls are escaped */
            break;
        }
        at += n;
    }
    return at;
}

/* What verbatim() stopped at; bytes consumed. */
static size_t add_special(struct tdi_buf *b, const unsigned char *p, size_t len)
{
    static const char short_escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    unsigned char c = p[0];
    if (c >= 0x80 && tdi_utf8_sequence(p, len) == 0) {
        tdi_buf_add_cstr(b, REPLACEMENT);
        return 1;
    }
    for (size_t i = 0; i + 1 < sizeof(short_escapes); i += 2) {
        if (c == (unsigned char)short_escapes[i]) {
            char out[2] = {'\\', short_escapes[i + 1]};
            tdi_buf_add(b, out, sizeof(out));
            return 1;
        }
    }
    bool c1 = c == 0xc2;
    tdi_buf_printf(b, "\\u%04x", c1 ? p[1] : c);
    return c1 ? 2 : 1;
}

void tdi_json_add_string(struct tdi_buf *b, struct td_str s)
{
    if (s.data == NULL) {
        tdi_buf_add(b, "null", 4);
        return;
    }
    const unsigned char *p = (const unsigned char *)s.data;
    size_t left = s.len;
    tdi_buf_add_char(b, '"');
    while (left > 0) {
        size_t n = verbatim(p, left);
        tdi_buf_add(b, p, n);
        p += n;
        left -= n;
        if (left > 0) {
            n = add_special(b, p, left);
            p += n;
            left -= n;
        }
    }
    tdi_buf_add_char(b, '"');
}

void tdi_json_add_key(struct tdi_buf *b, bool *first, const char *key)
{
    if (!*first) {
        tdi_buf_add_char(b, ',');
    }
    *first = false;
    tdi_json_add_string(b, tdi_str(key));
    tdi_buf_add_char(b, ':');
}

void tdi_json_add_member(struct tdi_buf *b, bool *first, const char *key, struct td_str s)
{
    tdi_json_add_key(b, first, key);
    tdi_json_add_string(b, s);
}

void tdi_json_add_member_int(struct tdi_buf *b, bool *first, const char *key, int64_t v)
{
    tdi_json_add_key(b, first, key);
    tdi_buf_printf(b, "%" PRId64, v);
}

void tdi_json_add_line(struct tdi_buf *b, struct td_str valid_json)
{
    /* Inside strings JSON has neither of them, so each one lies between tokens. Carriage returns
     * too, for many readers of lines end a line there. */
    size_t from = b->len;
    tdi_buf_add_str(b, valid_json);
    for (size_t i = from; i < b->len; i++) {
        if (b->data[i] == '\n' || b->data[i] == '\r') {
            b->data[i] = ' ';
        }
    }
}
