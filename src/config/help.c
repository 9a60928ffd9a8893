/*
 * The table as text for a terminal and as a page in Markdown.
 */
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "config/internal.h"

#define SUMMARY_BYTES_MAX 512
#define TEXT_WIDTH 92

/* ---- pieces of both --------------------------------------------------------------------- */

static void add_choices(struct tdi_buf *out, const struct tdi_param_def *def, const char *quote)
{
    bool later = false;
    const char *gap = "";
    struct td_str word;
    for (size_t n = 0; (word = tdi_param_choice(def, n, &later)).data != NULL; n++) {
        if (!later) {
            tdi_buf_printf(out, "%s%s%.*s%s", gap, quote, (int)word.len, word.data, quote);
            gap = ", ";
        }
    }
}

static bool is_word(const struct tdi_param_def *def)
{
    return def->type == TDI_PARAM_CHOICE || def->type == TDI_PARAM_FLAG ||
           def->type == TDI_PARAM_DRIVER;
}

/* "a duration from 1ms to 30d", "none, skip, block" */
static void add_type(struct tdi_buf *out, const struct tdi_param_def *def, const char *quote)
{
    if (is_word(def)) {
        add_choices(out, def, quote);
        return;
    }
    tdi_buf_add_cstr(out, tdi_param_type_name(def));
    if (def->type == TDI_PARAM_CLASSIFY) {
        tdi_buf_add_cstr(out, ": ");
        add_choices(out, def, quote);
    }
    if (def->min != NULL) {
        tdi_buf_printf(out, " from %s to %s", def->min, def->max);
    }
}

/* ---- which keys are meant --------------------------------------------------------------- */

/* One step of a path: the next word. [] and an index are left out. */
static struct td_str next_word(const char **at, const char *end)
{
    struct td_str word = TD_STR_NONE;
    while (*at < end && (word.len == 0 || tdi_str_is(word, "[]"))) {
        const char *dot = memchr(*at, '.', (size_t)(end - *at));
        const char *stop = dot != NULL ? dot : end;
        word = (struct td_str){.data = *at, .len = (size_t)(stop - *at)};
        *at = dot != NULL ? dot + 1 : end;
    }
    return tdi_str_is(word, "[]") ? TD_STR_NONE : word;
}

/* Is the definition at or below the path? */
static bool is_below(const struct tdi_param_def *def, struct td_str key)
{
    const char *at = def->path;
    const char *end = at + strlen(at);
    const char *key_at = key.data;
    for (;;) {
        struct td_str wanted = next_word(&key_at, key.data + key.len);
        if (wanted.len == 0) {
            return true;
        }
        struct td_str word = next_word(&at, end);
        if (word.len == 0 || (!tdi_str_is(word, "*") && !tdi_str_eq(word, wanted))) {
            return false;
        }
    }
}

/* Is its last word the key, or that of one above it? `retry` for consumers.*.retry.initial. */
static bool is_named(const struct tdi_param_def *def, struct td_str key)
{
    const char *at = def->path;
    const char *end = at + strlen(at);
    struct td_str word;
    while ((word = next_word(&at, end)).len > 0) {
        if (tdi_str_eq(word, key)) {
            return true;
        }
    }
    return false;
}

/* ---- text ------------------------------------------------------------------------------- */

/* Words broken into lines of TEXT_WIDTH, four spaces in. */
static void add_wrapped(struct tdi_buf *out, const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, " ");
        if (column > 0 && column + 1 + len > TEXT_WIDTH) {
            tdi_buf_add_char(out, '\n');
            column = 0;
        }
        tdi_buf_add_cstr(out, column == 0 ? "    " : " ");
        tdi_buf_add(out, text, len);
        column += len + (column == 0 ? 4 : 1);
        text += len;
        text += strspn(text, " ");
    }
    tdi_buf_add_char(out, '\n');
}

static void add_text(struct tdi_buf *out, const struct tdi_param_def *def)
{
    tdi_buf_printf(out, "%s\n", def->path);
    if ((def->flags & TDI_PARAM_LATER) != 0) {
        tdi_buf_add_cstr(out, "    Not in this version: refused.\n");
        return;
    }
    add_wrapped(out, def->text);
    if (def->type == TDI_PARAM_GROUP) {
        return;
    }
    tdi_buf_add_cstr(out, "    ");
    size_t start = out->len;
    add_type(out, def, "");
    if (def->fallback != NULL) {
        tdi_buf_printf(out, "; default %s", def->fallback);
    }
    if ((def->flags & TDI_PARAM_REQUIRED) != 0) {
        tdi_buf_add_cstr(out, "; required");
    }
    if ((def->flags & TDI_PARAM_RELOAD) != 0) {
        tdi_buf_add_cstr(out, "; a reload may change it");
    }
    if (def->example != NULL) {
        bool fits = out->len - start + strlen(def->example) < TEXT_WIDTH - 12;
        tdi_buf_printf(out, "%s example: %s", fits ? ";" : "\n   ", def->example);
    }
    tdi_buf_add_char(out, '\n');
}

static void no_such_key(struct tdi_buf *out, struct td_str key)
{
    size_t count = 0;
    const struct tdi_param_def *defs = tdi_params(&count);
    struct tdi_guess guess;
    char meant[TDI_DID_YOU_MEAN_MAX];
    char shown[64];
    tdi_guess_init(&guess, key);
    for (size_t i = 0; i < count; i++) {
        tdi_guess_offer(&guess, tdi_str(defs[i].path));
        tdi_guess_offer(&guess, tdi_str(tdi_param_key(&defs[i])));
    }
    tdi_buf_printf(out, "there is no key '%s'%s\n", tdi_shown(key, shown),
                   tdi_guess_text(&guess, meant));
}

bool tdi_config_help(struct tdi_buf *out, struct td_str key)
{
    size_t count = 0;
    const struct tdi_param_def *defs = tdi_params(&count);
    bool found = false;
    /* As a path first; a single word that is none may be a key anywhere. */
    for (int by_name = 0; by_name < 2 && !found; by_name++) {
        for (size_t i = 0; i < count; i++) {
            if (by_name == 0 ? !is_below(&defs[i], key) : !is_named(&defs[i], key)) {
                continue;
            }
            tdi_buf_add_cstr(out, found ? "\n" : "");
            add_text(out, &defs[i]);
            found = true;
        }
    }
    if (!found) {
        no_such_key(out, key);
    }
    return found;
}

/* ---- Markdown --------------------------------------------------------------------------- */

static const char intro[] =
    "# Configuration\n"
    "\n"
    "<!-- Made from the table of parameters in src/config/params.c; do not edit. -->\n"
    "\n"
    "One YAML file. It is the one named by `--config`, else by `$TIDINGS_CONFIG`, else the first of\n"
    "`./tidings.yaml`, `$XDG_CONFIG_HOME/tidings/tidings.yaml` (`~/.config/tidings/tidings.yaml`) and\n"
    "`/etc/tidings/tidings.yaml`. Paths in it are relative to its own folder.\n"
    "\n"
    "- `${VAR}` in a value is replaced from the environment, `${VAR:-default}` also where the variable\n"
    "  is unset or empty; an unset one without a default is a mistake. `$${` is a plain `${`.\n"
    "- Every value can be set from the environment: `TIDINGS_` and the path, `__` between levels, in\n"
    "  upper case, `-` as `_`: `TIDINGS_CONSUMERS__POINTS__RETRY__ATTEMPTS=3`. Named things must be in\n"
    "  the file. Lists are written as in YAML: `[\"order.*\", \"stock.#\"]`. A variable that matches nothing\n"
    "  is a mistake.\n"
    "- Names have 1 to 63 letters, digits, `-` and single `_`, and begin with a letter or digit.\n"
    "- Durations need a unit (`250ms`, `10s`, `1h 30m`, `7d`), sizes may have one (`64KiB`, `1MiB`).\n"
    "- Duplicate keys, anchors, aliases, tags and a second document are mistakes. All mistakes are told\n"
    "  at once; the exit code is 78. What is marked *not in this version* is refused.\n"
    "- `tidings help config KEY` prints the same in the terminal.\n"
    "\n"
    "In the column *default*, **required** means that there is none; `↻` marks what a reload may change.\n";

/* A cell: a pipe would end it. */
static void add_cell(struct tdi_buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        tdi_buf_add_cstr(out, *text == '|' ? "\\" : "");
        tdi_buf_add_char(out, *text);
    }
}

static void add_row(struct tdi_buf *out, const struct tdi_param_def *def)
{
    tdi_buf_printf(out, "| `%s` | ", def->path);
    if ((def->flags & TDI_PARAM_LATER) != 0) {
        tdi_buf_add_cstr(out, "| | *not in this version* |\n");
        return;
    }
    add_type(out, def, "`");
    tdi_buf_add_cstr(out, " | ");
    if (def->fallback != NULL) {
        tdi_buf_printf(out, "`%s`", def->fallback);
    } else if ((def->flags & TDI_PARAM_REQUIRED) != 0) {
        tdi_buf_add_cstr(out, "**required**");
    }
    tdi_buf_add_cstr(out, (def->flags & TDI_PARAM_RELOAD) != 0 ? " ↻ | " : " | ");
    add_cell(out, def->text);
    if (def->example != NULL) {
        tdi_buf_add_cstr(out, " Example: `");
        add_cell(out, def->example);
        tdi_buf_add_char(out, '`');
    }
    tdi_buf_add_cstr(out, " |\n");
}

void tdi_config_markdown(struct tdi_buf *out)
{
    size_t count = 0;
    const struct tdi_param_def *defs = tdi_params(&count);
    tdi_buf_add_cstr(out, intro);
    for (size_t i = 0; i < count; i++) {
        if (strchr(defs[i].path, '.') == NULL) {
            tdi_buf_printf(out, "\n## %s\n\n| key | value | default | |\n|---|---|---|---|\n",
                           defs[i].path);
        }
        add_row(out, &defs[i]);
    }
}
