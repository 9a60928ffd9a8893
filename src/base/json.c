/*
 * The JSON reader: a state machine over borrowed bytes.
 *
 * Invariants: never reads outside text.data[0..len); at only grows; after ERROR or END every
 * further call gives the same again. Text inside strings goes eight bytes at a time.
 */
#include "base/json.h"

#include <string.h>

#include "base/utf8.h"

enum json_state {
    STATE_VALUE,          /* a value must come */
    STATE_VALUE_OR_CLOSE, /* just behind '[' */
    STATE_KEY,            /* behind ',' in an object */
    STATE_KEY_OR_CLOSE,   /* just behind '{' */
    STATE_AFTER,          /* behind a value inside a container */
    STATE_DONE,           /* behind the one value */
    STATE_FAILED,
};

void tdi_json_init(struct tdi_json *j, struct td_str text)
{
    j->text = text;
    j->at = 0;
    j->depth = 0;
    j->state = STATE_VALUE;
    j->why = NULL;
}

static enum tdi_json_kind fail(struct tdi_json *j, struct tdi_json_token *ret, const char *why)
{
    j->state = STATE_FAILED;
    j->why = why;
    *ret = (struct tdi_json_token){.kind = TDI_JSON_ERROR, .offset = j->at, .end = j->at};
    return TDI_JSON_ERROR;
}

static inline void skip_space(struct tdi_json *j)
{
    const char *p = j->text.data;
    size_t at = j->at;
    while (at < j->text.len && (p[at] == ' ' || p[at] == '\n' || p[at] == '\t' || p[at] == '\r')) {
        at++;
    }
    j->at = at;
}

static inline enum tdi_json_kind emit(struct tdi_json *j, struct tdi_json_token *ret,
                                      enum tdi_json_kind kind, size_t start)
{
    *ret = (struct tdi_json_token){
        .kind = kind,
        .raw = {.data = j->text.data + start, .len = j->at - start},
        .offset = start,
        .end = j->at,
    };
    return kind;
}

/* The same, and what may come next: this was the end of a value. */
static inline enum tdi_json_kind emit_value(struct tdi_json *j, struct tdi_json_token *ret,
                                            enum tdi_json_kind kind, size_t start)
{
    j->state = j->depth == 0 ? STATE_DONE : STATE_AFTER;
    return emit(j, ret, kind, start);
}

/* High bits set at bytes that end a plain run: controls, quote, backslash, not ASCII. The lowest
 * one is exact; those above it may be too many, for borrows go upwards. */
static inline uint64_t not_plain(uint64_t w)
{
    uint64_t quote = w ^ (TDI_SWAR_ONES * '"');
    uint64_t slash = w ^ (TDI_SWAR_ONES * '\\');
    return (w | ((w - TDI_SWAR_ONES * 0x20) & ~w) | ((quote - TDI_SWAR_ONES) & ~quote) |
            ((slash - TDI_SWAR_ONES) & ~slash)) &
           TDI_SWAR_HIGHS;
}

/* First position from at on that is not a plain character of a string. */
static inline size_t plain_run(const unsigned char *p, size_t at, size_t len)
{
    while (len - at >= 8) {
        uint64_t stop = not_plain(tdi_load64(p + at));
        if (stop != 0) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            return at + (size_t)__builtin_ctzll(stop) / 8;
#else
            break;
#endif
        }
        at += 8;
    }
    while (at < len && p[at] >= 0x20 && p[at] < 0x80 && p[at] != '"' && p[at] != '\\') {
        at++;
    }
    return at;
}

/* Length of the escape whose backslash is p[0], 0: not one. n > 0. */
static size_t escape_length(const unsigned char *p, size_t n)
{
    if (n < 2) {
        return 0;
    }
    switch (p[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return 2;
    case 'u':
        if (n < 6) {
            return 0;
        }
        for (size_t i = 2; i < 6; i++) {
            if (tdi_hex_digit(p[i]) < 0) {
                return 0;
            }
        }
        return 6;
    default: /* any byte may stand here */
        return 0;
    }
}

/* at is on the opening quote. On success at is behind the closing one. NULL, or what is wrong. */
static const char *scan_string(struct tdi_json *j, struct tdi_json_token *ret)
{
    const unsigned char *p = (const unsigned char *)j->text.data;
    size_t len = j->text.len;
    size_t start = j->at;
    size_t at = start + 1;
    bool escaped = false;
    const char *why = NULL;
    for (;;) {
        at = plain_run(p, at, len);
        if (at == len) {
            why = "the text ends within a string";
            break;
        }
        if (p[at] == '"') {
            break;
        }
        if (p[at] == '\\') {
            size_t n = escape_length(p + at, len - at);
            if (n == 0) {
                why = "not an escape of JSON";
                break;
            }
            escaped = true;
            at += n;
            continue;
        }
        if (p[at] < 0x20) {
            why = "a control character within a string must be escaped";
            break;
        }
        while (at < len && p[at] >= 0x80) {
            size_t n = tdi_utf8_sequence(p + at, len - at);
            if (n == 0) {
                j->at = at;
                return "not UTF-8";
            }
            at += n;
        }
    }
    j->at = at;
    if (why == NULL) {
        j->at++;
        *ret = (struct tdi_json_token){
            .kind = TDI_JSON_STRING,
            .raw = {.data = j->text.data + start + 1, .len = at - start - 1},
            .escaped = escaped,
            .offset = start,
            .end = j->at,
        };
    }
    return why;
}

static inline size_t digits(const char *p, size_t at, size_t len)
{
    while (at < len && p[at] >= '0' && p[at] <= '9') {
        at++;
    }
    return at;
}

static enum tdi_json_kind number(struct tdi_json *j, struct tdi_json_token *ret)
{
    const char *p = j->text.data;
    size_t len = j->text.len;
    size_t start = j->at;
    size_t at = start + (p[start] == '-' ? 1 : 0);
    size_t first = at;
    at = digits(p, at, len);
    bool ok = at > first && (p[first] != '0' || at == first + 1);
    if (ok && at < len && p[at] == '.') {
        first = at + 1;
        at = digits(p, first, len);
        ok = at > first;
    }
    if (ok && at < len && (p[at] == 'e' || p[at] == 'E')) {
        at++;
        if (at < len && (p[at] == '+' || p[at] == '-')) {
            at++;
        }
        first = at;
        at = digits(p, first, len);
        ok = at > first;
    }
    if (!ok) {
        j->at = at;
        return fail(j, ret, "not a number of JSON");
    }
    j->at = at;
    return emit_value(j, ret, TDI_JSON_NUMBER, start);
}

static enum tdi_json_kind literal(struct tdi_json *j, struct tdi_json_token *ret, const char *word,
                                  size_t len, enum tdi_json_kind kind)
{
    size_t start = j->at;
    if (j->text.len - start < len || memcmp(j->text.data + start, word, len) != 0) {
        return fail(j, ret, "a value is expected");
    }
    j->at += len;
    return emit_value(j, ret, kind, start);
}

static enum tdi_json_kind open_container(struct tdi_json *j, struct tdi_json_token *ret, char c)
{
    if (j->depth == TDI_JSON_DEPTH_MAX) {
        return fail(j, ret, "nested too deeply");
    }
    j->stack[j->depth++] = (uint8_t)c;
    j->at++;
    j->state = c == '{' ? STATE_KEY_OR_CLOSE : STATE_VALUE_OR_CLOSE;
    return emit(j, ret, c == '{' ? TDI_JSON_OBJECT_BEGIN : TDI_JSON_ARRAY_BEGIN, j->at - 1);
}

static enum tdi_json_kind close_container(struct tdi_json *j, struct tdi_json_token *ret)
{
    bool object = j->stack[--j->depth] == '{';
    j->at++;
    return emit_value(j, ret, object ? TDI_JSON_OBJECT_END : TDI_JSON_ARRAY_END, j->at - 1);
}

static enum tdi_json_kind value(struct tdi_json *j, struct tdi_json_token *ret)
{
    const char *why;
    char c = j->text.data[j->at];
    switch (c) {
    case '{':
    case '[':
        return open_container(j, ret, c);
    case '"':
        why = scan_string(j, ret);
        if (why != NULL) {
            return fail(j, ret, why);
        }
        j->state = j->depth == 0 ? STATE_DONE : STATE_AFTER;
        return TDI_JSON_STRING;
    case 't':
        return literal(j, ret, "true", 4, TDI_JSON_TRUE);
    case 'f':
        return literal(j, ret, "false", 5, TDI_JSON_FALSE);
    case 'n':
        return literal(j, ret, "null", 4, TDI_JSON_NULL);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return number(j, ret);
    default: /* any byte may stand here */
        return fail(j, ret, "a value is expected");
    }
}

static enum tdi_json_kind key(struct tdi_json *j, struct tdi_json_token *ret)
{
    if (j->text.data[j->at] != '"') {
        return fail(j, ret, "a key is expected");
    }
    const char *why = scan_string(j, ret);
    if (why != NULL) {
        return fail(j, ret, why);
    }
    skip_space(j);
    if (j->at == j->text.len || j->text.data[j->at] != ':') {
        return fail(j, ret, "a colon is expected");
    }
    j->at++;
    j->state = STATE_VALUE;
    ret->kind = TDI_JSON_KEY;
    return TDI_JSON_KEY;
}

/* Behind a value in a container: what follows the comma, or the end of the container. */
static enum tdi_json_kind after(struct tdi_json *j, struct tdi_json_token *ret)
{
    bool object = j->stack[j->depth - 1] == '{';
    char c = j->text.data[j->at];
    if (c == (object ? '}' : ']')) {
        return close_container(j, ret);
    }
    if (c != ',') {
        return fail(j, ret, object ? "a comma or } is expected" : "a comma or ] is expected");
    }
    j->at++;
    skip_space(j);
    j->state = object ? STATE_KEY : STATE_VALUE;
    if (j->at == j->text.len) {
        return fail(j, ret, "the text ends too early");
    }
    return object ? key(j, ret) : value(j, ret);
}

enum tdi_json_kind tdi_json_next(struct tdi_json *j, struct tdi_json_token *ret)
{
    if (j->state == STATE_FAILED) {
        return fail(j, ret, j->why);
    }
    skip_space(j);
    if (j->state == STATE_DONE) {
        if (j->at < j->text.len) {
            return fail(j, ret, "something follows the value");
        }
        return emit(j, ret, TDI_JSON_END, j->at);
    }
    if (j->at == j->text.len) {
        return fail(j, ret, j->at == 0 ? "the text is empty" : "the text ends too early");
    }
    char c = j->text.data[j->at];
    switch ((enum json_state)j->state) {
    case STATE_VALUE:
        return value(j, ret);
    case STATE_VALUE_OR_CLOSE:
        return c == ']' ? close_container(j, ret) : value(j, ret);
    case STATE_KEY:
        return key(j, ret);
    case STATE_KEY_OR_CLOSE:
        return c == '}' ? close_container(j, ret) : key(j, ret);
    case STATE_AFTER:
        return after(j, ret);
    case STATE_DONE:
    case STATE_FAILED:
        break; /* handled above */
    }
    return fail(j, ret, "a value is expected");
}

bool tdi_json_skip(struct tdi_json *j, const struct tdi_json_token *t)
{
    if (t->kind != TDI_JSON_OBJECT_BEGIN && t->kind != TDI_JSON_ARRAY_BEGIN) {
        return t->kind != TDI_JSON_ERROR;
    }
    unsigned outside = j->depth - 1;
    struct tdi_json_token inner;
    while (j->depth > outside) {
        if (tdi_json_next(j, &inner) == TDI_JSON_ERROR) {
            return false;
        }
    }
    return true;
}

bool tdi_json_valid(struct td_str text, const char **ret_why, size_t *ret_offset)
{
    struct tdi_json j;
    struct tdi_json_token t;
    tdi_json_init(&j, text);
    enum tdi_json_kind kind;
    do {
        kind = tdi_json_next(&j, &t);
    } while (kind != TDI_JSON_END && kind != TDI_JSON_ERROR);
    if (kind == TDI_JSON_END) {
        return true;
    }
    if (ret_why != NULL) {
        *ret_why = j.why;
    }
    if (ret_offset != NULL) {
        *ret_offset = j.at;
    }
    return false;
}
