/*
 * From the text of a leaf to its field: one function a type, limits from the table.
 *
 * Invariant: a mistake leaves the field as it is, so that defaults stay.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"
#include "config/convert.h"
#include "core/route.h"

#define WORDS_BYTES_MAX 160

const char *tdi_leaf_key(struct tdi_leaf *f)
{
    if (f->node->key.data == NULL) {
        return tdi_param_key(f->def);
    }
    return tdi_shown(f->node->key, f->key_buf);
}

void tdi_leaf_wrong(struct tdi_leaf *f, const char *why)
{
    tdi_config_mistake(f->l, f->node, "'%s' is %s: %s", tdi_leaf_key(f),
                       tdi_shown(f->node->text, f->shown), why);
}

/* ---- numbers with and without a unit ---------------------------------------------------- */

static bool parse_percent(struct td_str s, int64_t *ret, const char **ret_why)
{
    *ret_why = "a percentage is needed, such as 50%";
    struct td_str digits = {.data = s.data, .len = s.len > 0 ? s.len - 1 : 0};
    return s.len > 1 && s.data[s.len - 1] == '%' && tdi_str_to_i64(digits, ret);
}

static bool parse_size(struct td_str s, int64_t *ret, const char **ret_why)
{
    uint64_t size = 0;
    if (!tdi_size_parse(s, &size, ret_why)) {
        return false;
    }
    *ret_why = "the size is too large";
    *ret = (int64_t)size;
    return size <= INT64_MAX;
}

static bool parse_number(const struct tdi_param_def *def, struct td_str s, int64_t *ret,
                         const char **ret_why)
{
    if (def->type == TDI_PARAM_DURATION || def->type == TDI_PARAM_DELAYS) {
        return tdi_duration_parse(s, ret, ret_why);
    }
    if (def->type == TDI_PARAM_PERCENT) {
        return parse_percent(s, ret, ret_why);
    }
    if (def->type == TDI_PARAM_SIZE) {
        return parse_size(s, ret, ret_why);
    }
    *ret_why = "an integer is needed";
    return tdi_str_to_i64(s, ret);
}

static bool only_digits(struct td_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9') {
            return false;
        }
    }
    return s.len > 0 && s.len < 16;
}

static bool in_range(const struct tdi_param_def *def, int64_t value)
{
    const char *why = NULL;
    int64_t min = INT64_MIN;
    int64_t max = INT64_MAX;
    if (def->min != NULL) {
        (void)parse_number(def, tdi_str(def->min), &min, &why);
        (void)parse_number(def, tdi_str(def->max), &max, &why);
    }
    return value >= min && value <= max;
}

bool tdi_leaf_number(struct tdi_leaf *f, int64_t *ret)
{
    struct td_str text = f->node->text;
    const char *why = NULL;
    bool duration = f->def->type == TDI_PARAM_DURATION || f->def->type == TDI_PARAM_DELAYS;
    int64_t value = 0;
    char buf[WORDS_BYTES_MAX];
    if (duration && only_digits(text)) {
        int len = (int)text.len;
        (void)snprintf(buf, sizeof(buf), "a unit is missing; write %.*ss (or %.*sms, %.*sm)", len,
                       text.data, len, text.data, len, text.data);
        tdi_leaf_wrong(f, buf);
        return false;
    }
    if (!parse_number(f->def, text, &value, &why)) {
        tdi_leaf_wrong(f, why);
        return false;
    }
    if (!in_range(f->def, value)) {
        (void)snprintf(buf, sizeof(buf), "it must be from %s to %s", f->def->min, f->def->max);
        tdi_leaf_wrong(f, buf);
        return false;
    }
    *ret = value;
    return true;
}

static void convert_number(struct tdi_leaf *f, void *field)
{
    int64_t value = 0;
    if (!tdi_leaf_number(f, &value)) {
        return;
    }
    if (f->def->type == TDI_PARAM_INT || f->def->type == TDI_PARAM_PERCENT) {
        int32_t narrow = (int32_t)value; /* the limits of the table are within it */
        memcpy(field, &narrow, sizeof(narrow));
        return;
    }
    memcpy(field, &value, sizeof(value));
}

/* Digits with at most one point; strtod alone would take "inf", "0x1p3" and blanks. */
static void convert_decimal(struct tdi_leaf *f, void *field)
{
    struct td_str s = f->node->text;
    size_t points = 0;
    size_t digits = 0;
    for (size_t i = 0; i < s.len; i++) {
        points += s.data[i] == '.';
        digits += s.data[i] >= '0' && s.data[i] <= '9';
    }
    double value = s.len < 32 ? strtod(s.data, NULL) : 0;
    char why[WORDS_BYTES_MAX];
    if (digits == 0 || points > 1 || digits + points != s.len ||
        value < strtod(f->def->min, NULL) || value > strtod(f->def->max, NULL)) {
        (void)snprintf(why, sizeof(why), "it must be a number from %s to %s", f->def->min,
                       f->def->max);
        tdi_leaf_wrong(f, why);
        return;
    }
    memcpy(field, &value, sizeof(value));
}

/* ---- words ------------------------------------------------------------------------------ */

/* "none, skip or block" */
static void words_of(const struct tdi_param_def *def, char buf[WORDS_BYTES_MAX])
{
    bool later = false;
    size_t len = 0;
    struct td_str word;
    struct td_str last = TD_STR_NONE;
    buf[0] = '\0';
    for (size_t n = 0; (word = tdi_param_choice(def, n, &later)).data != NULL; n++) {
        if (later) {
            continue;
        }
        if (last.data != NULL) {
            len += (size_t)snprintf(buf + len, WORDS_BYTES_MAX - len, "%s%.*s", len > 0 ? ", " : "",
                                    (int)last.len, last.data);
        }
        last = word;
    }
    (void)snprintf(buf + len, WORDS_BYTES_MAX - len, "%s%.*s", len > 0 ? " or " : "", (int)last.len,
                   last.data);
}

bool tdi_leaf_choice(struct tdi_leaf *f, unsigned *ret, struct td_str *ret_word)
{
    char words[WORDS_BYTES_MAX];
    char meant[TDI_DID_YOU_MEAN_MAX];
    char why[WORDS_BYTES_MAX * 2];
    struct tdi_guess guess;
    bool later = false;
    struct td_str word;
    words_of(f->def, words);
    tdi_guess_init(&guess, f->node->text);
    for (unsigned n = 0; (word = tdi_param_choice(f->def, n, &later)).data != NULL; n++) {
        if (!tdi_str_eq(word, f->node->text)) {
            if (!later) {
                tdi_guess_offer(&guess, word);
            }
            continue;
        }
        if (later) {
            (void)snprintf(why, sizeof(why), "not in this version; it has %s", words);
            tdi_leaf_wrong(f, why);
            return false;
        }
        *ret = n;
        *ret_word = word;
        return true;
    }
    (void)snprintf(why, sizeof(why), "it must be %s%s", words, tdi_guess_text(&guess, meant));
    tdi_leaf_wrong(f, why);
    return false;
}

static void convert_choice(struct tdi_leaf *f, void *field)
{
    unsigned n = 0;
    struct td_str word;
    if (!tdi_leaf_choice(f, &n, &word)) {
        return;
    }
    if (f->def->type == TDI_PARAM_FLAG) {
        bool flag = n == 1;
        memcpy(field, &flag, sizeof(flag));
    } else if (f->def->type == TDI_PARAM_DRIVER) {
        f->l->exhausted |= !tdi_arena_str(f->l->arena, word, field);
    } else {
        memcpy(field, &n, sizeof(n)); /* our enums are unsigned int */
    }
}

/* ---- texts ------------------------------------------------------------------------------ */

bool tdi_config_name_valid(struct td_str name)
{
    if (name.len == 0 || name.len > TDI_NAME_BYTES_MAX) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        bool sign = i > 0 && (c == '-' || (c == '_' && name.data[i - 1] != '_'));
        if (!alnum && !sign) {
            return false;
        }
    }
    return true;
}

static void convert_path(struct tdi_leaf *f, struct td_str *field)
{
    struct td_str folder = f->l->config->folder;
    struct td_str text = f->node->text;
    if (folder.len == 0 || text.data[0] == '/') {
        *field = text;
        return;
    }
    const char *gap = folder.data[folder.len - 1] == '/' ? "" : "/";
    struct td_str path = tdi_arena_printf(f->l->arena, "%s%s%s", folder.data, gap, text.data);
    f->l->exhausted |= path.data == NULL;
    *field = path;
}

bool tdi_leaf_pattern_valid(struct tdi_leaf *f)
{
    const char *why = NULL;
    if (tdi_pattern_valid(f->node->text, &why)) {
        return true;
    }
    tdi_leaf_wrong(f, why);
    return false;
}

static void convert_text(struct tdi_leaf *f, struct td_str *field)
{
    if (f->node->text.len == 0) {
        tdi_config_mistake(f->l, f->node, "'%s' is empty", tdi_leaf_key(f));
    } else if (f->def->type == TDI_PARAM_NAME && !tdi_config_name_valid(f->node->text)) {
        tdi_leaf_wrong(
            f, "a name has 1 to 63 letters, digits, - and single _, and begins with a letter or"
               " digit");
    } else if (f->def->type == TDI_PARAM_PATH) {
        convert_path(f, field);
    } else if (f->def->type != TDI_PARAM_PATTERN || tdi_leaf_pattern_valid(f)) {
        *field = f->node->text;
    }
}

/* ---- references ------------------------------------------------------------------------- */

#define OFFER_ALL(guess, array, count)                                                             \
    for (size_t i_ = 0; i_ < (count); i_++) {                                                      \
        tdi_guess_offer((guess), (array)[i_].name);                                                \
    }

static void convert_reference(struct tdi_leaf *f, void *field)
{
    const struct tdi_config *c = f->l->config;
    const void *found = NULL;
    const char *what = "topic";
    struct tdi_guess guess;
    char meant[TDI_DID_YOU_MEAN_MAX];
    char why[WORDS_BYTES_MAX];
    tdi_guess_init(&guess, f->node->text);
    if (f->def->type == TDI_PARAM_STORE) {
        what = "store";
        found = tdi_config_store_find(c, f->node->text);
        OFFER_ALL(&guess, c->stores, c->stores_count);
    } else if (f->def->type == TDI_PARAM_BROKER) {
        what = "broker";
        found = tdi_config_broker_find(c, f->node->text);
        OFFER_ALL(&guess, c->brokers, c->brokers_count);
    } else {
        found = tdi_config_topic_find(c, f->node->text);
        OFFER_ALL(&guess, c->topics, c->topics_count);
    }
    if (found == NULL) {
        (void)snprintf(why, sizeof(why), "there is no such %s%s", what,
                       tdi_guess_text(&guess, meant));
        tdi_leaf_wrong(f, why);
        return;
    }
    memcpy(field, &found, sizeof(found));
}

/* ---- all of them ------------------------------------------------------------------------ */

/* A scalar with something in it. "null" is nothing too, unless it is a word of the table. */
static bool is_scalar(struct tdi_leaf *f)
{
    const struct tdi_config_node *n = f->node;
    if (n->kind != TDI_NODE_SCALAR) {
        tdi_config_mistake(f->l, n, "'%s' must be %s, not a %s", tdi_leaf_key(f),
                           tdi_param_type_name(f->def), n->kind == TDI_NODE_MAP ? "map" : "list");
        return false;
    }
    bool null =
        tdi_str_is(n->text, "~") || (tdi_str_is(n->text, "null") && f->def->choices == NULL);
    if (n->plain && (n->text.len == 0 || null)) {
        tdi_config_mistake(f->l, n, "'%s' has no value; write one, or leave the key out",
                           tdi_leaf_key(f));
        return false;
    }
    return true;
}

static void convert_scalar(struct tdi_leaf *f, void *field)
{
    switch (f->def->type) {
    case TDI_PARAM_TEXT:
    case TDI_PARAM_NAME:
    case TDI_PARAM_PATH:
    case TDI_PARAM_PATTERN:
        convert_text(f, field);
        break;
    case TDI_PARAM_CHOICE:
    case TDI_PARAM_FLAG:
    case TDI_PARAM_DRIVER:
        convert_choice(f, field);
        break;
    case TDI_PARAM_INT:
    case TDI_PARAM_LONG:
    case TDI_PARAM_PERCENT:
    case TDI_PARAM_DURATION:
    case TDI_PARAM_SIZE:
        convert_number(f, field);
        break;
    case TDI_PARAM_DECIMAL:
        convert_decimal(f, field);
        break;
    case TDI_PARAM_STORE:
    case TDI_PARAM_BROKER:
    case TDI_PARAM_TOPIC:
        convert_reference(f, field);
        break;
    case TDI_PARAM_GROUP:
    case TDI_PARAM_NAMED:
    case TDI_PARAM_ITEMS:
    case TDI_PARAM_DELAYS:
    case TDI_PARAM_PATTERNS:
    case TDI_PARAM_COMMAND:
    case TDI_PARAM_SOURCES:
    case TDI_PARAM_CLASSIFY:
        break; /* no scalars */
    }
}

void tdi_config_convert(struct tdi_loader *l, const struct tdi_param_def *def,
                        const struct tdi_config_node *node, void *field)
{
    struct tdi_leaf f = {.l = l, .def = def, .node = node};
    if (node->failed) {
        return;
    }
    if (def->type == TDI_PARAM_PATTERNS || def->type == TDI_PARAM_COMMAND) {
        tdi_leaf_texts(&f, field);
    } else if (def->type == TDI_PARAM_DELAYS) {
        tdi_leaf_delays(&f, field);
    } else if (def->type == TDI_PARAM_SOURCES) {
        tdi_leaf_sources(&f, field);
    } else if (def->type == TDI_PARAM_CLASSIFY) {
        tdi_leaf_classify(&f, field);
    } else if (is_scalar(&f)) {
        convert_scalar(&f, field);
    }
}
