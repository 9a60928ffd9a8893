/*
 * Structured log. A line is built on the stack and written with one write(2): lines of several
 * threads, or of processes on one pipe, do not mix. A log that cannot be written stops nothing.
 *
 * Invariants: a line is never longer than TDI_LOG_LINE_MAX, its line feed included. A JSON line is
 * valid JSON even when it was cut; then its last member is "cut". No control byte gets through.
 */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/utf8.h"

/* Kept free for what must end a line: a quote, the mark of a cut, a brace, a line feed. */
#define LINE_TAIL_BYTES 16
#define ERROR_FIELDS_MAX 7

struct tdi_log {
    int fd;
    atomic_int level;
    enum tdi_log_format format;
    bool color;
    struct td_clock clock;
};

struct line {
    char data[TDI_LOG_LINE_MAX];
    size_t len;
    bool json;
    bool cut; /* something did not fit; nothing more is added */
};

struct level_look {
    const char *json;
    const char *text;
    const char *color;
};

static const struct level_look levels[] = {
    [TDI_LOG_ERROR] = {"error", "ERROR", "\033[31m"},
    [TDI_LOG_WARN] = {"warn", "WARN ", "\033[33m"},
    [TDI_LOG_INFO] = {"info", "INFO ", "\033[32m"},
    [TDI_LOG_DEBUG] = {"debug", "DEBUG", "\033[2m"},
};

struct tdi_log *tdi_log_new(int fd, enum tdi_log_level level, enum tdi_log_format format,
                            bool color, struct td_clock clock)
{
    struct tdi_log *log = malloc(sizeof(*log));
    if (log != NULL) {
        log->fd = fd;
        atomic_init(&log->level, (int)level);
        log->format = format;
        log->color = color;
        log->clock = clock;
    }
    return log;
}

void tdi_log_free(struct tdi_log *log)
{
    free(log);
}

bool tdi_log_on(const struct tdi_log *log, enum tdi_log_level level)
{
    return log != NULL && (int)level <= atomic_load_explicit(&log->level, memory_order_relaxed);
}

void tdi_log_set_level(struct tdi_log *log, enum tdi_log_level level)
{
    atomic_store_explicit(&log->level, (int)level, memory_order_relaxed);
}

/* All of it or, when the line is full, nothing. */
static void put(struct line *l, const char *data, size_t len)
{
    if (l->cut || len > sizeof(l->data) - LINE_TAIL_BYTES - l->len) {
        l->cut = true;
        return;
    }
    memcpy(l->data + l->len, data, len);
    l->len += len;
}

static void put_cstr(struct line *l, const char *s)
{
    put(l, s, strlen(s));
}

/* Into the room that is kept for it. */
static void put_tail(struct line *l, const char *s)
{
    size_t len = strlen(s);
    memcpy(l->data + l->len, s, len);
    l->len += len;
}

/* One character as it may stand in a line; bytes consumed. */
static size_t put_char(struct line *l, const unsigned char *p, size_t n)
{
    char out[8];
    unsigned char c = p[0];
    size_t used = 1;
    size_t len;
    if (c == '"' || c == '\\') {
        len = (size_t)snprintf(out, sizeof(out), "\\%c", c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
        len = (size_t)snprintf(out, sizeof(out), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (c < 0x20 || c == 0x7f) {
        len = (size_t)snprintf(out, sizeof(out), l->json ? "\\u%04x" : "\\x%02x", c);
    } else if (c < 0x80) {
        out[0] = (char)c;
        len = 1;
    } else {
        used = tdi_utf8_sequence(p, n);
        if (used == 0) {
            used = 1;
            len = (size_t)snprintf(out, sizeof(out), l->json ? "\\ufffd" : "\\x%02x", c);
        } else if (c == 0xc2 && p[1] < 0xa0) { /* C1 controls */
            len = (size_t)snprintf(out, sizeof(out), "\\u%04x", p[1]);
        } else {
            memcpy(out, p, used);
            len = used;
        }
    }
    put(l, out, len);
    return used;
}

static void put_escaped(struct line *l, struct td_str s)
{
    const unsigned char *p = (const unsigned char *)s.data;
    size_t left = s.len;
    while (left > 0 && !l->cut) {
        size_t n = put_char(l, p, left);
        p += n;
        left -= n;
    }
}

static bool needs_quotes(struct td_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c < 0x21 || c > 0x7e || c == '"' || c == '\\' || c == '=') {
            return true;
        }
    }
    return s.len == 0;
}

/* Begin a member, or nothing if its beginning does not fit. */
static bool put_name(struct line *l, const char *name, bool quote)
{
    char head[80];
    int len =
        snprintf(head, sizeof(head), l->json ? ",\"%s\":%s" : " %s=%s", name, quote ? "\"" : "");
    if (len < 0 || (size_t)len >= sizeof(head)) {
        l->cut = true; /* names are ours and short */
        return false;
    }
    put(l, head, (size_t)len);
    return !l->cut;
}

static void put_text(struct line *l, const char *name, struct td_str s)
{
    bool quote = l->json || needs_quotes(s);
    if (put_name(l, name, quote)) {
        put_escaped(l, s);
        if (quote) {
            put_tail(l, "\"");
        }
    }
}

static void put_field(struct line *l, const struct tdi_log_field *f)
{
    if (f->is_text) {
        if (f->text.data != NULL) {
            put_text(l, f->name, f->text);
        }
        return;
    }
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRId64, f->number);
    if (l->len + strlen(f->name) + (size_t)len + 4 > sizeof(l->data) - LINE_TAIL_BYTES) {
        l->cut = true; /* half a number would be a lie */
    } else if (put_name(l, f->name, false)) {
        put(l, digits, (size_t)len);
    }
}

static void put_head(struct line *l, const struct tdi_log *log, enum tdi_log_level level,
                     const char *event)
{
    char now[TDI_TIME_BYTES];
    const struct level_look *look = &levels[level];
    tdi_time_format(tdi_wall(&log->clock), now);
    if (l->json) {
        put_cstr(l, "{\"time\":\"");
        put_cstr(l, now);
        put_cstr(l, "\",\"level\":\"");
        put_cstr(l, look->json);
        put_cstr(l, "\"");
        put_text(l, "event", tdi_str(event));
        return;
    }
    put_cstr(l, now);
    put_cstr(l, " ");
    put_cstr(l, log->color ? look->color : "");
    put_cstr(l, look->text);
    put_cstr(l, log->color ? "\033[0m " : " ");
    put_escaped(l, tdi_str(event));
}

static void write_line(const struct tdi_log *log, enum tdi_log_level level, const char *event,
                       const struct tdi_log_field *fields, size_t count)
{
    struct line l;
    l.len = 0;
    l.json = log->format == TDI_LOG_JSON;
    l.cut = false;
    put_head(&l, log, level, event);
    for (size_t i = 0; i < count && !l.cut; i++) {
        put_field(&l, &fields[i]);
    }
    if (l.cut) {
        put_tail(&l, l.json ? ",\"cut\":true" : "...");
    }
    put_tail(&l, l.json ? "}\n" : "\n");
    ssize_t n;
    do {
        n = write(log->fd, l.data, l.len);
    } while (n < 0 && errno == EINTR);
}

void tdi_log_write(struct tdi_log *log, enum tdi_log_level level, const char *event,
                   const struct tdi_log_field *fields, size_t count)
{
    if (tdi_log_on(log, level)) {
        write_line(log, level, event, fields,
                   count < TDI_LOG_FIELDS_MAX ? count : TDI_LOG_FIELDS_MAX);
    }
}

static const char *class_name(enum td_err_class c)
{
    switch (c) {
    case TD_CLASS_RETRY:
        return "retry";
    case TD_CLASS_UNKNOWN:
        return "unknown";
    case TD_CLASS_PERMANENT:
        return "permanent";
    case TD_CLASS_FATAL:
        return "fatal";
    }
    return "fatal";
}

static size_t add_if_set(struct tdi_log_field *fields, size_t count, const char *name,
                         const char *text)
{
    if (text[0] == '\0') {
        return count;
    }
    fields[count] = TDI_LOG_STR(name, tdi_str(text));
    return count + 1;
}

void tdi_log_error(struct tdi_log *log, enum tdi_log_level level, const char *event,
                   const struct td_error *e, const struct tdi_log_field *fields, size_t count)
{
    if (!tdi_log_on(log, level)) {
        return;
    }
    struct tdi_log_field all[TDI_LOG_FIELDS_MAX + ERROR_FIELDS_MAX];
    size_t n = 0;
    for (; n < count && n < TDI_LOG_FIELDS_MAX; n++) {
        all[n] = fields[n];
    }
    all[n++] = TDI_LOG_STR("error", tdi_str(td_err_name(e->code)));
    all[n++] = TDI_LOG_STR("class", tdi_str(class_name(e->class_)));
    n = add_if_set(all, n, "driver", e->driver);
    n = add_if_set(all, n, "op", e->op);
    n = add_if_set(all, n, "peer", e->peer);
    n = add_if_set(all, n, "sqlstate", e->sqlstate);
    n = add_if_set(all, n, "reason", e->text);
    write_line(log, level, event, all, n);
}
