/*
 * JSON (RFC 8259): a pull reader over borrowed bytes, RFC 6901 pointers, and a writer.
 *
 * The reader checks the whole grammar, UTF-8 included, keeps number literals as text and reports
 * duplicate keys as they come. No recursion; nesting is limited. It never copies: strings are raw
 * spans (with escapes) until they are decoded on demand.
 */
#ifndef TDI_BASE_JSON_H
#define TDI_BASE_JSON_H

#include "tidings/error.h"
#include "tidings/types.h"

struct tdi_arena;
struct tdi_buf;

#define TDI_JSON_DEPTH_MAX 128

enum tdi_json_kind {
    TDI_JSON_END, /* after the one value of the document */
    TDI_JSON_OBJECT_BEGIN,
    TDI_JSON_OBJECT_END,
    TDI_JSON_ARRAY_BEGIN,
    TDI_JSON_ARRAY_END,
    TDI_JSON_KEY,
    TDI_JSON_STRING,
    TDI_JSON_NUMBER,
    TDI_JSON_TRUE,
    TDI_JSON_FALSE,
    TDI_JSON_NULL,
    TDI_JSON_ERROR,
};

struct tdi_json_token {
    enum tdi_json_kind kind;
    struct td_str raw; /* the token as written; strings and keys without the quotes */
    bool escaped;      /* raw holds escapes */
    size_t offset;     /* of its first byte, quote included */
    size_t end;        /* just behind it */
};

struct tdi_json {
    struct td_str text;
    size_t at;
    unsigned depth;
    uint8_t stack[TDI_JSON_DEPTH_MAX]; /* '{' or '[' */
    uint8_t state;
    const char *why; /* after ERROR: static sentence */
};

void tdi_json_init(struct tdi_json *j, struct td_str text);
enum tdi_json_kind tdi_json_next(struct tdi_json *j, struct tdi_json_token *ret);
/* After a BEGIN token: skip to behind its END. After others: nothing. false: malformed. */
bool tdi_json_skip(struct tdi_json *j, const struct tdi_json_token *t);
/* Decoded text of a STRING or KEY, from the arena only if it holds escapes. NUL characters are
 * kept. false: exhausted, or a lone surrogate (which has no UTF-8). */
bool tdi_json_text(const struct tdi_json_token *t, struct tdi_arena *a, struct td_str *ret);
bool tdi_json_text_is(const struct tdi_json_token *t, const char *cstr);
bool tdi_json_text_eq(const struct tdi_json_token *t, struct td_str s); /* without decoding */

/* The whole text is one JSON value? *ret_why, *ret_offset on failure; may be NULL. */
bool tdi_json_valid(struct td_str text, const char **ret_why, size_t *ret_offset);

/* The value that an RFC 6901 pointer names. ret: its first token, raw = the whole value's text for
 * objects and arrays. INVALID: not JSON; NOT_FOUND: the pointer leads nowhere. The whole text is
 * validated; of duplicate keys the last counts. */
enum td_err tdi_json_pointer(struct td_str text, struct td_str pointer, struct tdi_arena *a,
                             struct tdi_json_token *ret, struct td_error *err);
bool tdi_json_pointer_valid(struct td_str pointer);

/* A number literal: an integer of 64 bits? */
bool tdi_json_int(struct td_str raw, int64_t *ret);

/* ---- writing: plain appends; the caller keeps commas right with `first` ---- */
void tdi_json_add_string(struct tdi_buf *b,
                         struct td_str s); /* absent: null; invalid UTF-8: U+FFFD */
void tdi_json_add_key(struct tdi_buf *b, bool *first, const char *key); /* [,]"key": */
void tdi_json_add_member(struct tdi_buf *b, bool *first, const char *key, struct td_str s);
void tdi_json_add_member_int(struct tdi_buf *b, bool *first, const char *key, int64_t v);
/* Token by token: a copy of a valid JSON text in which line feeds between tokens are spaces. */
void tdi_json_add_line(struct tdi_buf *b, struct td_str valid_json);

#endif
