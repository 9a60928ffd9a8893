/*
 * Mistakes and findings: collecting, ordering, printing with the line and an underline.
 *
 * Must not know: what they are about. Nothing of the file reaches a terminal with control bytes.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"
#include "base/utf8.h"
#include "config/internal.h"

#define TEXT_BYTES_MAX 1024
#define EXCERPT_CHARS_MAX 120
#define GUESS_DISTANCE_MAX 3

void tdi_diagnostics_init(struct tdi_diagnostics *d, struct tdi_arena *a)
{
    *d = (struct tdi_diagnostics){.arena = a};
}

TD_PRINTF(4, 0)
static void add(struct tdi_diagnostics *d, enum tdi_severity severity, struct tdi_source_pos pos,
                const char *fmt, va_list args)
{
    char text[TEXT_BYTES_MAX];
    d->mistakes += severity == TDI_SEVERITY_MISTAKE;
    d->findings += severity == TDI_SEVERITY_FINDING;
    if (d->items == NULL) {
        d->items = tdi_arena_array(d->arena, TDI_CONFIG_DIAGNOSTICS_MAX, sizeof(*d->items));
        d->cap = d->items != NULL ? TDI_CONFIG_DIAGNOSTICS_MAX : 0;
    }
    int len = vsnprintf(text, sizeof(text), fmt, args);
    struct tdi_diagnostic item = {.pos = pos, .severity = severity};
    if (d->items == NULL || d->count == d->cap || len < 0 ||
        !tdi_arena_str(d->arena, tdi_str(text), &item.text)) {
        d->dropped++;
        return;
    }
    d->items[d->count++] = item;
}

void tdi_diagnostics_add(struct tdi_diagnostics *d, enum tdi_severity severity,
                         struct tdi_source_pos pos, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(d, severity, pos, fmt, args);
    va_end(args);
}

void tdi_config_mistake(struct tdi_loader *l, const struct tdi_config_node *node, const char *fmt,
                        ...)
{
    va_list args;
    va_start(args, fmt);
    add(l->diagnostics, TDI_SEVERITY_MISTAKE, node->pos, fmt, args);
    va_end(args);
}

void tdi_config_mistake_key(struct tdi_loader *l, const struct tdi_config_node *node,
                            const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(l->diagnostics, TDI_SEVERITY_MISTAKE, node->key_pos, fmt, args);
    va_end(args);
}

/* ---- printing --------------------------------------------------------------------------- */

static bool comes_before(const struct tdi_diagnostic *a, const struct tdi_diagnostic *b)
{
    if (a->pos.line != b->pos.line) {
        return a->pos.line < b->pos.line;
    }
    return a->pos.column < b->pos.column;
}

/* Those of the environment come last, for they have no line of the file. */
static size_t sorted(const struct tdi_diagnostics *d,
                     const struct tdi_diagnostic *order[TDI_CONFIG_DIAGNOSTICS_MAX])
{
    size_t count = 0;
    for (int from_env = 0; from_env < 2; from_env++) {
        size_t first = count;
        for (size_t i = 0; i < d->count; i++) {
            if ((d->items[i].pos.variable.data != NULL) != (from_env == 1)) {
                continue;
            }
            size_t at = count++;
            for (; at > first && comes_before(&d->items[i], order[at - 1]); at--) {
                order[at] = order[at - 1];
            }
            order[at] = &d->items[i];
        }
    }
    return count;
}

/* Bytes of the character at p; *ret_bad: it must not reach a terminal (C0, DEL, C1, no UTF-8). */
static size_t char_len(const char *p, size_t rest, bool *ret_bad)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t len = u[0] < 0x80 ? 1 : tdi_utf8_sequence(u, rest);
    *ret_bad = len == 0 || u[0] < 0x20 || u[0] == 0x7f || (u[0] == 0xc2 && u[1] < 0xa0);
    return len > 0 ? len : 1;
}

/* Characters first.. of the text, at most max, bad ones as `?`. */
static void add_clean(struct tdi_buf *out, struct td_str text, uint32_t first, uint32_t max)
{
    uint32_t n = 0;
    for (size_t at = 0; at < text.len && n < first + max; n++) {
        bool bad = false;
        size_t len = char_len(text.data + at, text.len - at, &bad);
        if (n >= first) {
            tdi_buf_add(out, bad ? "?" : text.data + at, bad ? 1 : len);
        }
        at += len;
    }
}

static void add_spaces(struct tdi_buf *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tdi_buf_add_char(out, ' ');
    }
}

/* The line, and the underline below it; of a long line the part around the column. */
static void add_excerpt(const struct tdi_diagnostics *d, struct tdi_source_pos pos, bool color,
                        struct tdi_buf *out)
{
    struct td_str line = tdi_source_line(d->source, pos.line);
    uint32_t chars = tdi_source_chars(line);
    uint32_t first = pos.column > EXCERPT_CHARS_MAX / 2 && chars > EXCERPT_CHARS_MAX
                         ? pos.column - EXCERPT_CHARS_MAX / 2
                         : 0;
    if (pos.column == 0 || pos.column > chars + 1) {
        return;
    }
    tdi_buf_printf(out, "%5u | %s", pos.line, first > 0 ? "..." : "");
    add_clean(out, line, first, EXCERPT_CHARS_MAX);
    tdi_buf_add_cstr(out, chars > first + EXCERPT_CHARS_MAX ? "...\n" : "\n");
    tdi_buf_add_cstr(out, "      | ");
    add_spaces(out, pos.column - 1 - first + (first > 0 ? 3 : 0));
    tdi_buf_add_cstr(out, color ? "\033[31m^" : "^");
    for (uint32_t i = 1; i < pos.length && pos.column - 1 + i < first + EXCERPT_CHARS_MAX; i++) {
        tdi_buf_add_char(out, '~');
    }
    tdi_buf_add_cstr(out, color ? "\033[0m\n" : "\n");
}

static void add_item(const struct tdi_diagnostics *d, const struct tdi_diagnostic *item, bool color,
                     struct tdi_buf *out)
{
    size_t start = out->len;
    bool in_file = item->pos.variable.data == NULL;
    struct td_str place = in_file ? d->file : item->pos.variable;
    add_clean(out, place, 0, TEXT_BYTES_MAX);
    if (in_file && item->pos.line > 0) {
        tdi_buf_printf(out, ":%u:%u", item->pos.line, item->pos.column);
    }
    tdi_buf_add_cstr(out, place.data != NULL ? ": " : "");
    if (out->failed) {
        return;
    }
    uint32_t indent =
        tdi_source_chars((struct td_str){.data = out->data + start, .len = out->len - start});
    struct td_str rest = item->text;
    while (rest.len > 0) {
        const char *end = memchr(rest.data, '\n', rest.len);
        size_t len = end != NULL ? (size_t)(end - rest.data) : rest.len;
        add_clean(out, (struct td_str){.data = rest.data, .len = len}, 0, TEXT_BYTES_MAX);
        tdi_buf_add_char(out, '\n');
        size_t taken = len + (end != NULL ? 1 : 0);
        rest = (struct td_str){.data = rest.data + taken, .len = rest.len - taken};
        add_spaces(out, rest.len > 0 ? indent : 0);
    }
    if (in_file && item->pos.line > 0) {
        add_excerpt(d, item->pos, color, out);
    }
}

void tdi_diagnostics_print(const struct tdi_diagnostics *d, bool color, struct tdi_buf *out)
{
    const struct tdi_diagnostic *order[TDI_CONFIG_DIAGNOSTICS_MAX];
    size_t count = sorted(d, order);
    for (size_t i = 0; i < count; i++) {
        add_item(d, order[i], color, out);
    }
    if (d->dropped > 0) {
        tdi_buf_printf(out, "... and %zu more\n", d->dropped);
    }
    if (d->mistakes > 0) {
        tdi_buf_printf(out, "%zu mistake%s", d->mistakes, d->mistakes == 1 ? "" : "s");
    }
    if (d->findings > 0) {
        tdi_buf_printf(out, "%s%zu finding%s", d->mistakes > 0 ? ", " : "", d->findings,
                       d->findings == 1 ? "" : "s");
    }
    if (d->mistakes > 0 || d->findings > 0) {
        tdi_buf_add_char(out, '\n');
    }
}

/* ---- proposals -------------------------------------------------------------------------- */

void tdi_guess_init(struct tdi_guess *g, struct td_str wrong)
{
    *g = (struct tdi_guess){.wrong = wrong, .distance = GUESS_DISTANCE_MAX + 1};
}

void tdi_guess_offer(struct tdi_guess *g, struct td_str word)
{
    unsigned distance = tdi_str_distance(g->wrong, word);
    /* Half of the word must be right, else a short one is like everything. */
    if (distance < g->distance && (size_t)distance * 2 <= word.len) {
        g->distance = distance;
        g->best = word;
    }
}

const char *tdi_guess_text(const struct tdi_guess *g, char buf[TDI_DID_YOU_MEAN_MAX])
{
    buf[0] = '\0';
    if (g->best.data != NULL) {
        (void)snprintf(buf, TDI_DID_YOU_MEAN_MAX, "; did you mean '%.*s'?", (int)g->best.len,
                       g->best.data);
    }
    return buf;
}

const char *tdi_shown(struct td_str value, char buf[64])
{
    size_t len = value.len < 60 ? value.len : 60;
    while (len > 0 && len < value.len && ((unsigned char)value.data[len] & 0xc0) == 0x80) {
        len--; /* not in the middle of a character */
    }
    for (size_t i = 0; i < len; i++) {
        char c = value.data[i];
        buf[i] = c == '\n' || c == '\0' ? ' ' : c;
    }
    (void)snprintf(buf + len, 64 - len, "%s", len < value.len ? "..." : "");
    return buf;
}
