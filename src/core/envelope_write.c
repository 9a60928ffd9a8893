/*
 * Writing the envelope and the headers column as JSON. What it writes is valid JSON whatever is in
 * the message, since rows that are dead because they are invalid are written too: bytes that are no
 * UTF-8 become U+FFFD, and a time outside of the years 0000 to 9999 is left out.
 */
#include "core/attribute.h"
#include "core/envelope.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"

#include <string.h>

#define INT64_CHARS 20 /* a sign and 19 digits */

static size_t format_int(int64_t v, char out[INT64_CHARS])
{
    char digits[INT64_CHARS];
    size_t count = 0;
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    size_t len = 0;
    if (v < 0) {
        out[len++] = '-';
    }
    while (count > 0) {
        out[len++] = digits[--count];
    }
    return len;
}

/* ,"name":VALUE or ,"name":"VALUE" in one append. value: no character that needs an escape. */
static void add_member(struct tdi_buf *b, const struct tdi_attribute *a, struct td_str value,
                       bool quoted)
{
    char out[64 + TDI_TIME_BYTES];
    size_t len = a->member.len;
    memcpy(out, a->member.data, len);
    if (quoted) {
        out[len++] = '"';
    }
    memcpy(out + len, value.data, value.len);
    len += value.len;
    if (quoted) {
        out[len++] = '"';
    }
    tdi_buf_add(b, out, len);
}

static void add_attribute(struct tdi_buf *b, const struct td_message *m,
                          const struct tdi_attribute *a)
{
    if (a->kind == TDI_ATTRIBUTE_TEXT) {
        struct td_str text = tdi_attribute_get_text(m, a);
        if (text.data) {
            tdi_buf_add_str(b, a->member);
            tdi_json_add_string(b, text);
        }
        return;
    }
    int64_t number = tdi_attribute_get_number(m, a);
    if (number == TD_NUMBER_NONE) {
        return;
    }
    if (a->kind == TDI_ATTRIBUTE_TIME) {
        char buf[TDI_TIME_BYTES];
        if (tdi_time_writable(number)) {
            add_member(b, a, tdi_str(tdi_time_format(number, buf)), true);
        }
        return;
    }
    char digits[INT64_CHARS];
    struct td_str text = {.data = digits, .len = format_int(number, digits)};
    add_member(b, a, text, a->kind == TDI_ATTRIBUTE_SEQUENCE);
}

void tdi_headers_write(struct tdi_buf *b, const struct td_header *headers, size_t count)
{
    tdi_buf_add_char(b, '{');
    for (size_t i = 0; i < count; i++) {
        struct td_str value = headers[i].value;
        if (i > 0) {
            tdi_buf_add_char(b, ',');
        }
        tdi_json_add_string(b, headers[i].name);
        tdi_buf_add_char(b, ':');
        tdi_json_add_string(b, value.data ? value : TD_STR_LIT(""));
    }
    tdi_buf_add_char(b, '}');
}

void tdi_envelope_write_open(struct tdi_buf *b, const struct td_message *m)
{
    tdi_buf_add_str(b, TD_STR_LIT("{\"specversion\":\"1.0\""));
    for (size_t i = 0; i < TDI_ATTRIBUTES; i++) {
        add_attribute(b, m, &tdi_attributes[i]);
    }
    if (m->headers_count > 0) {
        tdi_buf_add_str(b, TD_STR_LIT(",\"headers\":"));
        tdi_headers_write(b, m->headers, m->headers_count);
    }
}

void tdi_envelope_write(struct tdi_buf *b, const struct td_message *m)
{
    tdi_envelope_write_open(b, m);
    tdi_buf_add_char(b, '}');
}
