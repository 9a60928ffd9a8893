/*
 * The environment: ${VAR} inside scalars, and TIDINGS_A__B as an override of a.b.
 *
 * Invariant: what comes from the environment is taken as it is, never substituted again.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"
#include "config/internal.h"

#define PREFIX "TIDINGS_"
#define SCALAR_BYTES_MAX 65536
#define SEGMENT_BYTES_MAX 128

/* Not parameters: the name of the file, and the build folder that tests are told. */
static const char *const not_overrides[] = {"CONFIG", "BUILD"};

/* ---- ${VAR} ----------------------------------------------------------------------------- */

static bool is_var_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* One reference, without ${ and }. false: a mistake was told. */
static bool substitute_one(struct tdi_loader *l, const struct tdi_config_node *node,
                           struct td_str inner, struct tdi_buf *out)
{
    char shown[64];
    size_t len = 0;
    while (len < inner.len && is_var_char(inner.data[len], len == 0)) {
        len++;
    }
    struct td_str name = {.data = inner.data, .len = len};
    struct td_str rest = {.data = inner.data + len, .len = inner.len - len};
    if (len == 0 || (rest.len > 0 && !tdi_str_starts(rest, ":-"))) {
        tdi_config_mistake(l, node,
                           "'${%s}' must be ${NAME} or ${NAME:-default}; write $${ for a"
                           " plain ${",
                           tdi_shown(inner, shown));
        return false;
    }
    const char *value = tdi_env_get(l->env, name);
    if (rest.len > 0 && (value == NULL || value[0] == '\0')) {
        tdi_buf_add(out, rest.data + 2, rest.len - 2);
        return true;
    }
    if (value == NULL) {
        (void)tdi_shown(name, shown);
        tdi_config_mistake(l, node,
                           "the environment variable %s is not set; set it, or write"
                           " ${%s:-default}",
                           shown, shown);
        return false;
    }
    tdi_buf_add_cstr(out, value);
    return true;
}

/* false: a mistake was told. */
static bool substitute(struct tdi_loader *l, const struct tdi_config_node *node,
                       struct tdi_buf *out)
{
    struct td_str s = node->text;
    size_t at = 0;
    while (at < s.len) {
        struct td_str rest = {.data = s.data + at, .len = s.len - at};
        if (tdi_str_starts(rest, "$${")) {
            tdi_buf_add_cstr(out, "${");
            at += 3;
            continue;
        }
        if (!tdi_str_starts(rest, "${")) {
            tdi_buf_add_char(out, s.data[at++]);
            continue;
        }
        const char *end = memchr(rest.data, '}', rest.len);
        if (end == NULL) {
            tdi_config_mistake(l, node, "'${' without '}'; write $${ for a plain ${");
            return false;
        }
        size_t len = (size_t)(end - rest.data);
        if (!substitute_one(l, node, (struct td_str){.data = rest.data + 2, .len = len - 2}, out)) {
            return false;
        }
        at += len + 1;
    }
    return true;
}

static void substitute_node(struct tdi_loader *l, struct tdi_config_node *node)
{
    struct tdi_buf out;
    tdi_buf_init(&out, SCALAR_BYTES_MAX);
    node->failed = !substitute(l, node, &out);
    if (!node->failed && out.failed) {
        tdi_config_mistake(l, node, "longer than 64 KiB once its variables are filled in");
        node->failed = true;
    }
    if (!node->failed) {
        struct td_str text = tdi_buf_str(&out);
        node->plain = false; /* an empty variable is an empty text */
        l->exhausted |=
            !tdi_arena_str(l->arena, text.data != NULL ? text : TD_STR_LIT(""), &node->text);
    }
    tdi_buf_release(&out);
}

static bool has_reference(struct td_str text)
{
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.data[i] == '$' && text.data[i + 1] == '{') {
            return true;
        }
    }
    return false;
}

void tdi_config_substitute(struct tdi_loader *l)
{
    for (struct tdi_config_node *n = l->root; n != NULL; n = tdi_tree_next(n, l->root, false)) {
        if (n->kind == TDI_NODE_SCALAR && n->pos.variable.data == NULL && has_reference(n->text)) {
            substitute_node(l, n);
        }
    }
}

/* ---- TIDINGS_A__B ----------------------------------------------------------------------- */

static char folded(char c)
{
    return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool tdi_config_same_name(struct td_str a, struct td_str b)
{
    for (size_t i = 0; a.len == b.len && i < a.len; i++) {
        if (folded(a.data[i]) != folded(b.data[i])) {
            return false;
        }
    }
    return a.len == b.len;
}

/* Where a variable leads: step by step down table and tree at once. */
struct cursor {
    const struct tdi_param_def *def;
    struct tdi_config_node *node;
    bool below_leaf; /* an item or entry of def, a leaf */
};

static struct tdi_config_node *existing(const struct tdi_config_node *node, struct td_str segment)
{
    int64_t index = -1;
    bool number = node->kind == TDI_NODE_LIST && tdi_str_to_i64(segment, &index);
    for (struct tdi_config_node *c = node->first; c != NULL; c = c->next) {
        if (number ? (int64_t)c->index == index : tdi_config_same_name(c->key, segment)) {
            return c;
        }
    }
    return NULL;
}

static const struct tdi_param_def *fixed_child(const struct tdi_param_def *parent,
                                               struct td_str segment)
{
    size_t cursor = 0;
    const struct tdi_param_def *def = NULL;
    while ((def = tdi_param_next(parent, &cursor)) != NULL) {
        if (tdi_config_same_name(tdi_str(tdi_param_key(def)), segment)) {
            break;
        }
    }
    return def;
}

/* A key that the file does not have. */
static struct tdi_config_node *make_child(struct tdi_loader *l, struct tdi_config_node *parent,
                                          const struct tdi_param_def *def, struct td_str variable)
{
    bool container = tdi_param_is_container(def);
    if (parent->children == TDI_TREE_CHILDREN_MAX) {
        return NULL;
    }
    struct tdi_config_node *node =
        tdi_tree_new(l->arena, container ? TDI_NODE_MAP : TDI_NODE_SCALAR);
    if (node == NULL) {
        l->exhausted = true;
        return NULL;
    }
    node->key = tdi_str(tdi_param_key(def));
    node->pos.variable = variable;
    node->key_pos = node->pos;
    tdi_tree_append(parent, node);
    return node;
}

/* false: it leads nowhere. */
static bool step(struct tdi_loader *l, struct cursor *c, struct td_str segment,
                 struct td_str variable)
{
    bool leaf = c->def != NULL && !tdi_param_is_container(c->def);
    bool fixed = c->def == NULL || c->def->type == TDI_PARAM_GROUP;
    /* `log:` with nothing behind it is an empty map. */
    if (fixed && c->node->kind == TDI_NODE_SCALAR && c->node->plain && c->node->text.len == 0) {
        c->node->kind = TDI_NODE_MAP;
    }
    if (!fixed || c->node->kind != TDI_NODE_MAP) {
        c->node = existing(c->node, segment);
        c->below_leaf = leaf;
        c->def = leaf ? c->def : tdi_param_child(c->def, segment);
        return c->node != NULL && c->def != NULL;
    }
    c->def = fixed_child(c->def, segment);
    if (c->def == NULL) {
        return false;
    }
    struct tdi_config_node *child = tdi_tree_child(c->node, tdi_param_key(c->def));
    c->node = child != NULL ? child : make_child(l, c->node, c->def, variable);
    return c->node != NULL;
}

/* Lists and maps are written in YAML's flow form. */
static enum td_err set_value(struct tdi_loader *l, struct tdi_config_node *node,
                             struct td_str variable, struct td_str value, struct td_error *err)
{
    struct tdi_config_node *with = NULL;
    if (value.len > 0 && (value.data[0] == '[' || value.data[0] == '{')) {
        enum td_err code = tdi_tree_parse(value, variable, l->arena, l->diagnostics, &with, err);
        node->failed = code == TD_ERR_CONFIG;
        if (code != TD_OK || with == NULL) {
            return code == TD_ERR_CONFIG ? TD_OK : code;
        }
        tdi_tree_replace(node, with);
        return TD_OK;
    }
    *node = (struct tdi_config_node){.kind = TDI_NODE_SCALAR,
                                     .key = node->key,
                                     .parent = node->parent,
                                     .next = node->next,
                                     .index = node->index};
    node->pos.variable = variable;
    node->key_pos = node->pos;
    node->text = value;
    return TD_OK;
}

static enum td_err override(struct tdi_loader *l, struct td_str variable, struct td_str value,
                            struct td_error *err)
{
    struct tdi_source_pos pos = {.variable = variable};
    struct cursor c = {.node = l->root};
    size_t at = sizeof(PREFIX) - 1;
    while (at <= variable.len) {
        const char *start = variable.data + at;
        const char *end = strstr(start, "__");
        size_t len = end != NULL ? (size_t)(end - start) : variable.len - at;
        if (!step(l, &c, (struct td_str){.data = start, .len = len}, variable)) {
            tdi_diagnostics_add(l->diagnostics, TDI_SEVERITY_MISTAKE, pos,
                                "matches nothing in the configuration: there is no '%.*s'"
                                " (levels are divided by __; named things must be in the file)",
                                (int)(len < SEGMENT_BYTES_MAX ? len : SEGMENT_BYTES_MAX), start);
            return TD_OK;
        }
        at += len + 2;
    }
    if (!c.below_leaf && tdi_param_is_container(c.def)) {
        tdi_diagnostics_add(l->diagnostics, TDI_SEVERITY_MISTAKE, pos,
                            "names %s, not a single value; add __ and a key",
                            tdi_param_type_name(c.def));
        return TD_OK;
    }
    return set_value(l, c.node, variable, value, err);
}

static bool is_override(struct td_str name)
{
    struct td_str rest = {.data = name.data + sizeof(PREFIX) - 1,
                          .len = name.len - (sizeof(PREFIX) - 1)};
    for (size_t i = 0; i < sizeof(not_overrides) / sizeof(not_overrides[0]); i++) {
        if (tdi_str_is(rest, not_overrides[i])) {
            return false;
        }
    }
    return true;
}

enum td_err tdi_config_override(struct tdi_loader *l, struct td_error *err)
{
    for (size_t i = 0; l->env != NULL && l->env[i] != NULL; i++) {
        const char *equals = strchr(l->env[i], '=');
        if (equals == NULL || strncmp(l->env[i], PREFIX, sizeof(PREFIX) - 1) != 0) {
            continue;
        }
        struct td_str name = {.data = l->env[i], .len = (size_t)(equals - l->env[i])};
        if (!is_override(name)) {
            continue;
        }
        struct td_str value = tdi_str(equals + 1);
        if (!tdi_arena_str(l->arena, name, &name) || !tdi_arena_str(l->arena, value, &value)) {
            l->exhausted = true;
            return TD_OK;
        }
        if (!tdi_utf8_valid(value) || value.len > SCALAR_BYTES_MAX) {
            struct tdi_source_pos pos = {.variable = name};
            tdi_diagnostics_add(l->diagnostics, TDI_SEVERITY_MISTAKE, pos,
                                "is not UTF-8, or longer than 64 KiB");
            continue;
        }
        enum td_err code = override(l, name, value, err);
        if (code != TD_OK) {
            return code;
        }
    }
    return TD_OK;
}
