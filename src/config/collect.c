/*
 * Leaves that are lists or maps of scalars: patterns, commands, delays, parameters, verdicts.
 *
 * Invariant: a mistake in one item leaves the whole field as it is.
 */
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "config/convert.h"
#include "core/sqlparams.h"

/* A pointer and the count right behind it, as all our arrays are. */
static void set_array(void *field, void *items, size_t count)
{
    memcpy(field, &items, sizeof(items));
    memcpy((char *)field + sizeof(items), &count, sizeof(count));
}

_Static_assert(offsetof(struct tdi_config_topic, types_count) ==
                   offsetof(struct tdi_config_topic, types) + sizeof(void *),
               "set_array() needs the count behind the pointer");

/* A list or map of scalars with something in it. false: a mistake was told. */
static bool is_collection(struct tdi_leaf *f, enum tdi_node_kind kind)
{
    const struct tdi_config_node *n = f->node;
    if (n->kind != kind) {
        tdi_config_mistake(f->l, n, "'%s' must be %s, such as %s", tdi_leaf_key(f),
                           tdi_param_type_name(f->def), f->def->example);
        return false;
    }
    if (n->children == 0 || n->children > TDI_LIST_MAX) {
        tdi_config_mistake(f->l, n, n->children == 0 ? "'%s' is empty" : "'%s' holds more than 64",
                           tdi_leaf_key(f));
        return false;
    }
    bool good = true;
    for (const struct tdi_config_node *c = n->first; c != NULL; c = c->next) {
        if (c->kind != TDI_NODE_SCALAR || (c->plain && c->text.len == 0)) {
            tdi_config_mistake(f->l, c, "'%s' must be %s, such as %s", tdi_leaf_key(f),
                               tdi_param_type_name(f->def), f->def->example);
            good = false;
        }
        good = good && !c->failed;
    }
    return good;
}

void tdi_leaf_texts(struct tdi_leaf *f, void *field)
{
    const struct tdi_config_node *list = f->node;
    if (!is_collection(f, TDI_NODE_LIST)) {
        return;
    }
    struct td_str *items = tdi_arena_array(f->l->arena, list->children, sizeof(*items));
    if (items == NULL) {
        f->l->exhausted = true;
        return;
    }
    bool good = true;
    for (f->node = list->first; f->node != NULL; f->node = f->node->next) {
        items[f->node->index] = f->node->text;
        good = (f->def->type != TDI_PARAM_PATTERNS || tdi_leaf_pattern_valid(f)) && good;
    }
    if (good && items[0].len == 0) {
        tdi_config_mistake(f->l, list->first, "the name of the program is empty");
        return;
    }
    if (good) {
        set_array(field, items, list->children);
    }
}

void tdi_leaf_delays(struct tdi_leaf *f, struct tdi_retry_policy *policy)
{
    const struct tdi_config_node *list = f->node;
    if (!is_collection(f, TDI_NODE_LIST)) {
        return;
    }
    if (list->children > TDI_RETRY_DELAYS_MAX) {
        tdi_config_mistake(f->l, list, "'%s' holds more than 32", tdi_leaf_key(f));
        return;
    }
    struct tdi_retry_policy made = *policy;
    bool good = true;
    for (f->node = list->first; f->node != NULL; f->node = f->node->next) {
        good = tdi_leaf_number(f, &made.delays[f->node->index]) && good;
    }
    if (good) {
        made.delays_count = list->children;
        *policy = made;
    }
}

static bool is_identifier(struct td_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(i > 0 && c >= '0' && c <= '9')) {
            return false;
        }
    }
    return name.len > 0 && name.len <= TDI_NAME_BYTES_MAX;
}

static bool source_valid(struct tdi_leaf *f)
{
    struct td_str s = f->node->text;
    struct td_str name;
    if (tdi_param_origin(s, &name) != TDI_PARAM_WRONG) {
        return true;
    }
    if (tdi_str_starts(s, "/")) {
        tdi_leaf_wrong(f, "not a JSON pointer; ~ is written ~0 and / inside a key ~1");
        return false;
    }
    tdi_leaf_wrong(
        f, tdi_str_starts(s, "$")
               ? "there is no such attribute; such as $id, $type, $key, $time, or $header.NAME"
               : "it must be a /pointer into the body, an $attribute or $header.NAME");
    return false;
}

void tdi_leaf_sources(struct tdi_leaf *f, void *field)
{
    const struct tdi_config_node *map = f->node;
    if (!is_collection(f, TDI_NODE_MAP)) {
        return;
    }
    struct td_param *items = tdi_arena_array(f->l->arena, map->children, sizeof(*items));
    if (items == NULL) {
        f->l->exhausted = true;
        return;
    }
    bool good = true;
    for (f->node = map->first; f->node != NULL; f->node = f->node->next) {
        if (!is_identifier(f->node->key)) {
            tdi_config_mistake_key(f->l, f->node,
                                   "'%s' cannot be a parameter: letters, digits and"
                                   " _ only, not beginning with a digit",
                                   tdi_leaf_key(f));
            good = false;
        }
        good = source_valid(f) && good;
        items[f->node->index] = (struct td_param){.name = f->node->key, .from = f->node->text};
    }
    if (good) {
        set_array(field, items, map->children);
    }
}

void tdi_leaf_classify(struct tdi_leaf *f, void *field)
{
    const struct tdi_config_node *map = f->node;
    if (!is_collection(f, TDI_NODE_MAP)) {
        return;
    }
    struct td_classify *items = tdi_arena_array(f->l->arena, map->children, sizeof(*items));
    if (items == NULL) {
        f->l->exhausted = true;
        return;
    }
    bool good = true;
    for (f->node = map->first; f->node != NULL; f->node = f->node->next) {
        unsigned n = 0;
        struct td_str word;
        good = tdi_leaf_choice(f, &n, &word) && good;
        items[f->node->index] =
            (struct td_classify){.match = f->node->key, .verdict = (enum td_verdict_kind)n};
    }
    if (good) {
        set_array(field, items, map->children);
    }
}
