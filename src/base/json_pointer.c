/*
 * RFC 6901 pointers over the reader, and integers out of number literals.
 *
 * One pass over the whole text, without recursion. The containers that the pointer goes through are
 * always the outermost ones that are open, so their number (`open`) says how much of the pointer is
 * matched. A key that comes again starts its part anew: the last one counts.
 */
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"

#define POINTER_TEXT_MAX 100 /* of the pointer in an error's sentence */

struct walk {
    struct tdi_json j;
    struct td_str steps[TDI_JSON_DEPTH_MAX]; /* decoded reference tokens */
    size_t steps_count;
    size_t index[TDI_JSON_DEPTH_MAX]; /* of the next element, per open array */
    size_t open;
    bool key_matches; /* the last key; each value of an object comes behind its own */
    bool found;
    bool inside; /* of a found container, whose end is yet to come */
    struct tdi_json_token value;
};

bool tdi_json_pointer_valid(struct td_str pointer)
{
    if (pointer.len > 0 && pointer.data[0] != '/') {
        return false;
    }
    for (size_t i = 0; i < pointer.len; i++) {
        if (pointer.data[i] == '~' &&
            (i + 1 == pointer.len || (pointer.data[i + 1] != '0' && pointer.data[i + 1] != '1'))) {
            return false;
        }
    }
    return tdi_utf8_valid(pointer);
}

/* ~1 is /, ~0 is ~. */
static bool decode_step(struct td_str raw, struct tdi_arena *a, struct td_str *ret)
{
    if (raw.len == 0 || memchr(raw.data, '~', raw.len) == NULL) {
        *ret = raw;
        return true;
    }
    char *out = tdi_arena_alloc(a, raw.len);
    if (out == NULL) {
        return false;
    }
    size_t len = 0;
    for (size_t i = 0; i < raw.len; i++) {
        char c = raw.data[i];
        if (c == '~') {
            c = raw.data[++i] == '1' ? '/' : '~';
        }
        out[len++] = c;
    }
    *ret = (struct td_str){.data = out, .len = len};
    return true;
}

/* *ret_too_deep: more steps than a text may be nested. */
static bool split(struct walk *w, struct td_str pointer, struct tdi_arena *a, bool *ret_too_deep)
{
    size_t at = 0;
    while (at < pointer.len) {
        if (w->steps_count == TDI_JSON_DEPTH_MAX) {
            *ret_too_deep = true;
            return true;
        }
        const char *start = pointer.data + at + 1;
        const char *slash = memchr(start, '/', pointer.len - at - 1);
        size_t len = slash != NULL ? (size_t)(slash - start) : pointer.len - at - 1;
        struct td_str raw = {.data = start, .len = len};
        if (!decode_step(raw, a, &w->steps[w->steps_count++])) {
            return false;
        }
        at += len + 1;
    }
    return true;
}

/* Does the step name this element? "0" or digits without a leading zero. */
static bool is_index(struct td_str step, size_t index)
{
    char text[24];
    size_t len = sizeof(text);
    do {
        text[--len] = (char)('0' + index % 10);
        index /= 10;
    } while (index > 0);
    return tdi_str_eq(step, (struct td_str){.data = text + len, .len = sizeof(text) - len});
}

/* A value begins inside the container number `outside`. */
static void on_value(struct walk *w, const struct tdi_json_token *t, size_t outside)
{
    if (outside != w->open) {
        return;
    }
    if (outside > 0) {
        bool array = w->j.stack[outside - 1] == '[';
        if (array ? !is_index(w->steps[outside - 1], w->index[outside - 1]++) : !w->key_matches) {
            return;
        }
    }
    bool container = t->kind == TDI_JSON_OBJECT_BEGIN || t->kind == TDI_JSON_ARRAY_BEGIN;
    w->found = w->open == w->steps_count;
    if (w->found) {
        w->value = *t;
        w->inside = container;
    } else if (container) {
        w->index[w->open++] = 0;
    }
}

static void on_end(struct walk *w, const struct tdi_json_token *t)
{
    if (w->j.depth < w->open) {
        w->open--;
    } else if (w->inside && w->j.depth == w->open) {
        w->inside = false;
        w->value.raw.len = t->end - w->value.offset;
        w->value.end = t->end;
    }
}

/* The whole text. false: not JSON. */
static bool run(struct walk *w)
{
    struct tdi_json_token t;
    for (;;) {
        switch (tdi_json_next(&w->j, &t)) {
        case TDI_JSON_END:
            return true;
        case TDI_JSON_ERROR:
            return false;
        case TDI_JSON_OBJECT_BEGIN:
        case TDI_JSON_ARRAY_BEGIN:
            on_value(w, &t, w->j.depth - 1);
            break;
        case TDI_JSON_OBJECT_END:
        case TDI_JSON_ARRAY_END:
            on_end(w, &t);
            break;
        case TDI_JSON_KEY:
            if (w->j.depth == w->open) {
                w->key_matches = tdi_json_text_eq(&t, w->steps[w->open - 1]);
            }
            break;
        case TDI_JSON_STRING:
        case TDI_JSON_NUMBER:
        case TDI_JSON_TRUE:
        case TDI_JSON_FALSE:
        case TDI_JSON_NULL:
            on_value(w, &t, w->j.depth);
            break;
        }
    }
}

enum td_err tdi_json_pointer(struct td_str text, struct td_str pointer, struct tdi_arena *a,
                             struct tdi_json_token *ret, struct td_error *err)
{
    if (!tdi_json_pointer_valid(pointer)) {
        return td_error_set(err, TD_ERR_USAGE,
                            "not a JSON pointer: it must be empty or begin "
                            "with /, and ~ must be written ~0");
    }
    struct walk w;
    w.steps_count = 0;
    w.open = 0;
    w.key_matches = false;
    w.found = false;
    w.inside = false;
    tdi_json_init(&w.j, text);
    bool too_deep = false;
    if (!split(&w, pointer, a, &too_deep)) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory is left for a JSON pointer");
    }
    if (!run(&w)) {
        return td_error_set(err, TD_ERR_INVALID, "not JSON: %s, at byte %zu", w.j.why, w.j.at);
    }
    if (!w.found || too_deep) {
        int shown = (int)(pointer.len < POINTER_TEXT_MAX ? pointer.len : POINTER_TEXT_MAX);
        return td_error_set(err, TD_ERR_NOT_FOUND, "nothing is at %.*s", shown, pointer.data);
    }
    *ret = w.value;
    return TD_OK;
}

bool tdi_json_int(struct td_str raw, int64_t *ret)
{
    /* What is left of the grammar of JSON without fraction and exponent is what this takes. */
    return tdi_str_to_i64(raw, ret);
}
