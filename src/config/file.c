/*
 * Which file is meant, and its bytes, as far as they are text at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"
#include "config/internal.h"

#define PLACES_MAX 3

const char *tdi_env_get(const char *const *env, struct td_str name)
{
    for (size_t i = 0; env != NULL && env[i] != NULL; i++) {
        if (strncmp(env[i], name.data, name.len) == 0 && env[i][name.len] == '=') {
            return env[i] + name.len + 1;
        }
    }
    return NULL;
}

static enum td_err refuse(struct tdi_loader *l, struct td_error *err, struct tdi_source_pos pos,
                          const char *why)
{
    tdi_diagnostics_add(l->diagnostics, TDI_SEVERITY_MISTAKE, pos, "%s", why);
    return td_error_set(err, TD_ERR_CONFIG, "the configuration cannot be read: %s", why);
}

static enum td_err refuse_errno(struct tdi_loader *l, struct td_error *err, int number)
{
    char buf[128];
    char why[160];
    (void)snprintf(why, sizeof(why), "cannot be read: %s", strerror_r(number, buf, sizeof(buf)));
    return refuse(l, err, (struct tdi_source_pos){0}, why);
}

/* ---- which file ------------------------------------------------------------------------- */

/* The user's own; absent where neither variable is set. */
static struct td_str xdg_place(const struct tdi_loader *l)
{
    const char *folder = tdi_env_get(l->env, TD_STR_LIT("XDG_CONFIG_HOME"));
    if (folder != NULL && folder[0] == '/') {
        return tdi_arena_printf(l->arena, "%s/tidings/tidings.yaml", folder);
    }
    const char *home = tdi_env_get(l->env, TD_STR_LIT("HOME"));
    if (home != NULL && home[0] != '\0') {
        return tdi_arena_printf(l->arena, "%s/.config/tidings/tidings.yaml", home);
    }
    return TD_STR_NONE;
}

static enum td_err find(struct tdi_loader *l, const char *path, struct td_error *err)
{
    struct tdi_diagnostics *d = l->diagnostics;
    const char *named = path;
    if (named == NULL) {
        named = tdi_env_get(l->env, TD_STR_LIT("TIDINGS_CONFIG"));
    }
    if (named != NULL && named[0] != '\0') {
        return tdi_arena_str(l->arena, tdi_str(named), &d->file)
                   ? TD_OK
                   : td_error_set(err, TD_ERR_LIMIT, "no memory for the configuration");
    }
    struct td_str places[PLACES_MAX] = {TD_STR_LIT("tidings.yaml"), xdg_place(l),
                                        TD_STR_LIT("/etc/tidings/tidings.yaml")};
    for (size_t i = 0; i < PLACES_MAX; i++) {
        /* One that exists and cannot be read is a mistake, not a reason to look further. */
        if (places[i].data != NULL && (access(places[i].data, F_OK) == 0 || errno != ENOENT)) {
            d->file = places[i];
            return TD_OK;
        }
    }
    struct td_str why = tdi_arena_printf(
        l->arena,
        "no configuration found: neither ./tidings.yaml nor %s%s/etc/tidings/tidings.yaml is there;"
        " name one with --config FILE or $TIDINGS_CONFIG",
        places[1].data != NULL ? places[1].data : "", places[1].data != NULL ? " nor " : "");
    return refuse(l, err, (struct tdi_source_pos){0}, why.data != NULL ? why.data : "none found");
}

/* ---- its bytes -------------------------------------------------------------------------- */

static enum td_err read_all(struct tdi_loader *l, int fd, struct tdi_buf *b, struct td_error *err)
{
    char chunk[16384];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n == 0) {
            return TD_OK;
        }
        if (n < 0 && errno != EINTR) {
            return refuse_errno(l, err, errno);
        }
        if (n > 0) {
            tdi_buf_add(b, chunk, (size_t)n);
        }
        if (b->failed) {
            return b->len + (size_t)n > TDI_CONFIG_FILE_BYTES_MAX
                       ? refuse(l, err, (struct tdi_source_pos){0},
                                "larger than 1 MiB; is this a configuration?")
                       : td_error_set(err, TD_ERR_NOMEM, "no memory for the configuration");
        }
    }
}

/* What YAML would allow, or refuse in an unclear way, at the beginning of a line. NULL: nothing. */
static const char *line_mistake(struct td_str line)
{
    if (line.data[0] == '\t' && strspn(line.data, " \t\r\n") < line.len) {
        return "a tab; YAML is indented with spaces";
    }
    return line.data[0] == '%' ? "a YAML directive (%); the file needs none" : NULL;
}

static enum td_err check_text(struct tdi_loader *l, struct td_error *err)
{
    struct td_str source = l->diagnostics->source;
    const char *nul = source.len > 0 ? memchr(source.data, '\0', source.len) : NULL;
    if (nul != NULL) {
        return refuse(l, err, tdi_source_at(source, (size_t)(nul - source.data)),
                      "a NUL byte; this must be UTF-8 text");
    }
    for (size_t at = 0; at < source.len;) {
        const char *end = memchr(source.data + at, '\n', source.len - at);
        size_t next = end != NULL ? (size_t)(end - source.data) + 1 : source.len;
        struct td_str line = {.data = source.data + at, .len = next - at};
        if (!tdi_utf8_valid(line)) {
            return refuse(l, err, tdi_source_at(source, at), "this line is not UTF-8");
        }
        const char *why = line_mistake(line);
        if (why != NULL && l->diagnostics->count < TDI_CONFIG_DIAGNOSTICS_MAX) {
            tdi_diagnostics_add(l->diagnostics, TDI_SEVERITY_MISTAKE, tdi_source_at(source, at),
                                "%s", why);
        }
        at = next;
    }
    return l->diagnostics->mistakes > 0
               ? td_error_set(err, TD_ERR_CONFIG, "the configuration is no plain YAML")
               : TD_OK;
}

enum td_err tdi_config_read(struct tdi_loader *l, const char *path, struct td_error *err)
{
    struct tdi_diagnostics *d = l->diagnostics;
    enum td_err code = find(l, path, err);
    if (code != TD_OK) {
        return code;
    }
    int fd = open(d->file.data, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return refuse_errno(l, err, errno);
    }
    struct tdi_buf b;
    tdi_buf_init(&b, TDI_CONFIG_FILE_BYTES_MAX);
    code = read_all(l, fd, &b, err);
    (void)close(fd);
    if (code == TD_OK) {
        struct td_str text = tdi_buf_str(&b);
        if (text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0) {
            text = (struct td_str){.data = text.data + 3, .len = text.len - 3};
        }
        if (!tdi_arena_str(l->arena, text.data != NULL ? text : TD_STR_LIT(""), &d->source)) {
            code = td_error_set(err, TD_ERR_LIMIT, "no memory for the configuration");
        }
    }
    tdi_buf_release(&b);
    return code == TD_OK ? check_text(l, err) : code;
}
