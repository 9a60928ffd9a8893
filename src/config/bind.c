/*
 * The tree against the table: what is unknown, missing or of the wrong kind, and every value into
 * its struct.
 *
 * Invariants: all named things have their struct, with its name, before the first leaf is bound, so
 * that references may point forwards in the file; defaults are in place before the values.
 */
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"
#include "config/internal.h"

/* ---- the structs of named things -------------------------------------------------------- */

static size_t owner_size(enum tdi_param_owner owner)
{
    switch (owner) {
    case TDI_OWNER_CONFIG:
        return sizeof(struct tdi_config);
    case TDI_OWNER_STORE:
        return sizeof(struct tdi_config_store);
    case TDI_OWNER_BROKER:
        return sizeof(struct tdi_config_broker);
    case TDI_OWNER_TOPIC:
        return sizeof(struct tdi_config_topic);
    case TDI_OWNER_OUTBOX:
        return sizeof(struct tdi_config_outbox);
    case TDI_OWNER_CONSUMER:
        return sizeof(struct tdi_config_consumer);
    case TDI_OWNER_STEP:
        return sizeof(struct td_sql_step);
    }
    return 0;
}

/* Every default of the table that belongs to this kind of struct. */
static void set_defaults(struct tdi_loader *l, enum tdi_param_owner owner, void *target)
{
    size_t count = 0;
    const struct tdi_param_def *defs = tdi_params(&count);
    for (size_t i = 0; i < count; i++) {
        if (defs[i].owner == owner && defs[i].fallback != NULL) {
            struct tdi_config_node node = {.kind = TDI_NODE_SCALAR,
                                           .text = tdi_str(defs[i].fallback)};
            tdi_config_convert(l, &defs[i], &node, (char *)target + defs[i].offset);
        }
    }
}

/* Where array and count of this kind are kept in the configuration. */
static void set_things(struct tdi_config *c, enum tdi_param_owner owner, void *things, size_t count)
{
    switch (owner) {
    case TDI_OWNER_STORE:
        c->stores = things;
        c->stores_count = count;
        break;
    case TDI_OWNER_BROKER:
        c->brokers = things;
        c->brokers_count = count;
        break;
    case TDI_OWNER_TOPIC:
        c->topics = things;
        c->topics_count = count;
        break;
    case TDI_OWNER_OUTBOX:
        c->outboxes = things;
        c->outboxes_count = count;
        break;
    case TDI_OWNER_CONSUMER:
        c->consumers = things;
        c->consumers_count = count;
        break;
    case TDI_OWNER_CONFIG:
    case TDI_OWNER_STEP:
        TDI_ASSERT(owner == TDI_OWNER_STORE); /* only named things are kept in arrays */
    }
}

/* The map itself is sound? Its names too; a wrong one is told and bound all the same. */
static void check_names(struct tdi_loader *l, const struct tdi_config_node *map)
{
    char shown[64];
    char other[64];
    for (const struct tdi_config_node *n = map->first; n != NULL; n = n->next) {
        if (!tdi_config_name_valid(n->key)) {
            tdi_config_mistake_key(l, n,
                                   "'%s' in %s is not a name: 1 to 63 letters, digits, - and"
                                   " single _, beginning with a letter or digit",
                                   tdi_shown(n->key, shown), tdi_param_key(map->def));
        }
        for (const struct tdi_config_node *m = map->first; m != n; m = m->next) {
            if (tdi_config_same_name(m->key, n->key)) {
                tdi_config_mistake_key(l, n,
                                       "'%s' and '%s' in %s differ only by case or - and _;"
                                       " databases and the environment cannot tell them apart",
                                       tdi_shown(m->key, other), tdi_shown(n->key, shown),
                                       tdi_param_key(map->def));
            }
        }
    }
}

static void make_things(struct tdi_loader *l, const struct tdi_param_def *def,
                        struct tdi_config_node *map)
{
    size_t size = owner_size(def->owner);
    char *things = tdi_arena_array(l->arena, map->children, size);
    if (things == NULL) {
        l->exhausted = true;
        return;
    }
    map->def = def;
    map->target = things;
    for (struct tdi_config_node *n = map->first; n != NULL; n = n->next) {
        n->target = things + n->index * size;
        memcpy(n->target, &n->key, sizeof(n->key)); /* the name is the first field of all of them */
        set_defaults(l, def->owner, n->target);
    }
    check_names(l, map);
    set_things(l->config, def->owner, things, map->children);
}

_Static_assert(offsetof(struct tdi_config_store, name) == 0 &&
                   offsetof(struct tdi_config_broker, name) == 0 &&
                   offsetof(struct tdi_config_topic, name) == 0 &&
                   offsetof(struct tdi_config_outbox, name) == 0 &&
                   offsetof(struct tdi_config_consumer, name) == 0,
               "make_things() writes the name to the start");

static void make_all_things(struct tdi_loader *l)
{
    size_t cursor = 0;
    const struct tdi_param_def *def = NULL;
    while ((def = tdi_param_next(NULL, &cursor)) != NULL && !l->exhausted) {
        struct tdi_config_node *map = tdi_tree_child(l->root, def->path);
        if (def->type == TDI_PARAM_NAMED && map != NULL && map->kind == TDI_NODE_MAP) {
            make_things(l, def, map);
        }
    }
}

static void make_steps(struct tdi_loader *l, struct tdi_config_node *list)
{
    struct tdi_config_consumer *c = list->parent->target;
    struct td_sql_step *steps = tdi_arena_array(l->arena, list->children, sizeof(*steps));
    if (steps == NULL) {
        l->exhausted = true;
        return;
    }
    for (struct tdi_config_node *n = list->first; n != NULL; n = n->next) {
        n->target = &steps[n->index];
        set_defaults(l, TDI_OWNER_STEP, n->target);
    }
    c->steps = steps;
    c->steps_count = list->children;
}

/* ---- one node --------------------------------------------------------------------------- */

static void unknown_key(struct tdi_loader *l, const struct tdi_config_node *node)
{
    const struct tdi_param_def *parent = node->parent->def;
    char path[TDI_TREE_PATH_MAX];
    char shown[64];
    char meant[TDI_DID_YOU_MEAN_MAX];
    struct tdi_guess guess;
    size_t cursor = 0;
    const struct tdi_param_def *def = NULL;
    tdi_guess_init(&guess, node->key);
    while ((def = tdi_param_next(parent, &cursor)) != NULL) {
        if ((def->flags & TDI_PARAM_LATER) == 0) {
            tdi_guess_offer(&guess, tdi_str(tdi_param_key(def)));
        }
    }
    struct td_str place = tdi_tree_path(node->parent, path);
    tdi_config_mistake_key(l, node, "unknown key '%s'%s%s%s", tdi_shown(node->key, shown),
                           place.len > 0 ? " in " : "", place.data, tdi_guess_text(&guess, meant));
}

/* A plain empty scalar where a map is wanted is an empty map: `log:` and nothing below. */
static bool has_kind(struct tdi_loader *l, struct tdi_config_node *node)
{
    enum tdi_node_kind wanted = node->def->type == TDI_PARAM_ITEMS ? TDI_NODE_LIST : TDI_NODE_MAP;
    if (node->kind == TDI_NODE_SCALAR && node->plain && node->text.len == 0) {
        node->kind = wanted;
    }
    if (node->kind == wanted) {
        return true;
    }
    char path[TDI_TREE_PATH_MAX];
    static const char *const names[] = {"a single value", "a list", "a map"};
    if (!node->failed) {
        tdi_config_mistake(l, node, "%s must be %s, not %s", tdi_tree_path(node, path).data,
                           tdi_param_type_name(node->def), names[node->kind]);
    }
    return false;
}

static void check_required(struct tdi_loader *l, const struct tdi_config_node *node)
{
    char path[TDI_TREE_PATH_MAX];
    size_t cursor = 0;
    const struct tdi_param_def *def = NULL;
    while ((def = tdi_param_next(node->def, &cursor)) != NULL) {
        const char *key = tdi_param_key(def);
        if ((def->flags & TDI_PARAM_REQUIRED) == 0 || tdi_tree_child(node, key) != NULL) {
            continue;
        }
        struct td_str place = tdi_tree_path(node, path);
        tdi_config_mistake_key(
            l, node, "%s%s'%s' is missing%s%s%s%s", place.data, place.len > 0 ? ": " : "", key,
            def->example != NULL ? "; such as " : "", def->example != NULL ? key : "",
            def->example != NULL ? ": " : "", def->example != NULL ? def->example : "");
    }
}

/* Returns whether the nodes below are to be left out. */
static bool bind_container(struct tdi_loader *l, struct tdi_config_node *node)
{
    if (!has_kind(l, node)) {
        return true;
    }
    if (node->def->type == TDI_PARAM_ITEMS) {
        make_steps(l, node);
    } else if (node->def->type == TDI_PARAM_GROUP) {
        if (node->target == NULL) {
            node->target = node->parent->target;
        }
        check_required(l, node);
    }
    return false;
}

static bool bind_node(struct tdi_loader *l, struct tdi_config_node *node)
{
    char path[TDI_TREE_PATH_MAX];
    node->def = tdi_param_child(node->parent->def, node->key);
    if (node->def == NULL) {
        unknown_key(l, node);
        return true;
    }
    if ((node->def->flags & TDI_PARAM_LATER) != 0) {
        tdi_config_mistake_key(l, node, "%s: not in this version", tdi_tree_path(node, path).data);
        return true;
    }
    if (tdi_param_is_container(node->def)) {
        return bind_container(l, node);
    }
    tdi_config_convert(l, node->def, node, (char *)node->parent->target + node->def->offset);
    return true;
}

/* ---- what follows from the rest --------------------------------------------------------- */

static void finish_steps(struct tdi_config_consumer *c, const struct tdi_config_node *node)
{
    const struct tdi_config_node *list = tdi_tree_find(node, "handler.sql");
    for (const struct tdi_config_node *n = list != NULL ? list->first : NULL; n != NULL;
         n = n->next) {
        if (tdi_tree_find(n, "rows.0") != NULL && n->index < c->steps_count) {
            c->steps[n->index].rows_0_set = true;
        }
    }
}

static void finish_consumer(struct tdi_loader *l, struct tdi_config_consumer *c,
                            const struct tdi_config_node *node)
{
    struct td_str service = l->config->service;
    c->full_name =
        tdi_arena_printf(l->arena, "%.*s.%.*s", (int)service.len,
                         service.data != NULL ? service.data : "", (int)c->name.len, c->name.data);
    l->exhausted |= c->full_name.data == NULL;
    c->handler =
        tdi_tree_find(node, "handler.exec") != NULL ? TD_STR_LIT("exec") : TD_STR_LIT("sql");
    if (c->directory.data == NULL) {
        c->directory = l->config->folder;
    }
    if (tdi_tree_child(node, "batch") == NULL && c->batch > c->prefetch) {
        c->batch = c->prefetch;
    }
    /* Tiers of the file are not cut by the default of another parameter. */
    for (size_t i = 0; i < c->retry.delays_count; i++) {
        if (tdi_tree_find(node, "retry.max_delay") == NULL &&
            c->retry.delays[i] > c->retry.max_delay_us) {
            c->retry.max_delay_us = c->retry.delays[i];
        }
    }
    finish_steps(c, node);
}

void tdi_config_bind(struct tdi_loader *l)
{
    struct tdi_config_node *root = l->root;
    root->def = NULL;
    root->target = l->config;
    set_defaults(l, TDI_OWNER_CONFIG, l->config);
    make_all_things(l);
    check_required(l, root);
    bool skip = false;
    for (struct tdi_config_node *n = tdi_tree_next(root, root, false); n != NULL && !l->exhausted;
         n = tdi_tree_next(n, root, skip)) {
        skip = bind_node(l, n);
    }
    const struct tdi_config_node *consumers = tdi_tree_child(root, "consumers");
    if (l->config->consumers_count == 0 || l->exhausted) {
        return;
    }
    for (const struct tdi_config_node *n = consumers->first; n != NULL; n = n->next) {
        finish_consumer(l, n->target, n);
    }
}
