/*
 * What contradicts what between the parts of the file; single consumers in check_consumer.c.
 *
 * Must hold after mistakes too, so that all are told at once: references may be NULL.
 */
#include <stdio.h>

#include "base/str.h"
#include "config/internal.h"
#include "core/route.h"

#define NAMES_BYTES_MAX 128
#define TOPIC_TYPES_MAX 2048 /* in all topics: each is compared with each */

/* ---- references that were left out ------------------------------------------------------ */

/* The names there are, for the sentence: "crm, shop". All named structs begin with their name. */
static const char *names_of(const struct tdi_config_node *map, char buf[NAMES_BYTES_MAX])
{
    size_t len = 0;
    buf[0] = '\0';
    for (const struct tdi_config_node *n = map->first; n != NULL && len + 1 < NAMES_BYTES_MAX;
         n = n->next) {
        char shown[64];
        len += (size_t)snprintf(buf + len, NAMES_BYTES_MAX - len, "%s%s", len > 0 ? ", " : "",
                                tdi_shown(n->key, shown));
    }
    return buf;
}

/* The one thing of its kind, where the file leaves out which; a mistake unless there is one. */
static const void *only_one(struct tdi_loader *l, const struct tdi_config_node *node,
                            const char *key, const char *section)
{
    const struct tdi_config_node *map = tdi_tree_child(l->root, section);
    char path[TDI_TREE_PATH_MAX];
    char names[NAMES_BYTES_MAX];
    if (tdi_tree_child(node, key) != NULL || (map != NULL && map->kind != TDI_NODE_MAP)) {
        return NULL; /* it was said, and a mistake was told; or the section is no map */
    }
    if (map == NULL || map->children == 0) {
        tdi_config_mistake_key(l, node, "%s needs a %s, and %s: has none",
                               tdi_tree_path(node, path).data, key, section);
        return NULL;
    }
    if (map->children > 1) {
        tdi_config_mistake_key(l, node, "%s: '%s' is missing; there is more than one: %s",
                               tdi_tree_path(node, path).data, key, names_of(map, names));
        return NULL;
    }
    return map->first->target;
}

/* ---- topics ----------------------------------------------------------------------------- */

static bool is_wildcard(char c)
{
    return c == '*' || c == '#';
}

/* Do they differ before the first wildcard, or behind the last? Most pairs do, and need no more. */
static bool differ_plainly(struct td_str a, struct td_str b)
{
    for (size_t i = 0; i < a.len && i < b.len; i++) {
        char ac = a.data[i];
        char bc = b.data[i];
        if (is_wildcard(ac) || is_wildcard(bc)) {
            break;
        }
        if (ac != bc) {
            return true;
        }
    }
    for (size_t i = 1; i <= a.len && i <= b.len; i++) {
        char ac = a.data[a.len - i];
        char bc = b.data[b.len - i];
        if (is_wildcard(ac) || is_wildcard(bc)) {
            break;
        }
        if (ac != bc) {
            return true;
        }
    }
    return false;
}

static void check_overlap(struct tdi_loader *l, const struct tdi_config_topic *a,
                          const struct tdi_config_topic *b, const struct tdi_config_node *b_node)
{
    const struct tdi_config_node *types = tdi_tree_child(b_node, "types");
    char shown[2][64];
    for (size_t i = 0; i < a->types_count * b->types_count; i++) {
        struct td_str ap = a->types[i / b->types_count];
        struct td_str bp = b->types[i % b->types_count];
        if (!differ_plainly(ap, bp) && tdi_patterns_overlap(ap, bp)) {
            tdi_config_mistake(l, types,
                               "topics %s and %s: an event can match both %s and %s, and"
                               " must belong to one topic",
                               a->name.data, b->name.data, tdi_shown(ap, shown[0]),
                               tdi_shown(bp, shown[1]));
            return;
        }
    }
}

/* What the broker does not do is said, for the same file may serve another one. */
static void note_ignored(struct tdi_loader *l, const struct tdi_config_topic *t,
                         const struct tdi_config_node *node)
{
    static const char *const ignored[] = {"retention", "partitions"};
    if (t->broker == NULL || !tdi_str_is(t->broker->driver, "embedded")) {
        return;
    }
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        const struct tdi_config_node *n = tdi_tree_child(node, ignored[i]);
        if (n != NULL) {
            tdi_diagnostics_add(l->diagnostics, TDI_SEVERITY_NOTE, n->key_pos,
                                "topics.%s: %s has no meaning on the embedded broker", t->name.data,
                                ignored[i]);
        }
    }
}

static bool too_many_types(struct tdi_loader *l, const struct tdi_config_node *map)
{
    size_t count = 0;
    for (size_t i = 0; i < l->config->topics_count; i++) {
        count += l->config->topics[i].types_count;
    }
    if (count > TOPIC_TYPES_MAX) {
        tdi_config_mistake_key(l, map, "%zu types in all topics; %d at most", count,
                               TOPIC_TYPES_MAX);
    }
    return count > TOPIC_TYPES_MAX;
}

static void check_topics(struct tdi_loader *l, const struct tdi_config_node *map)
{
    bool compare = !too_many_types(l, map);
    for (const struct tdi_config_node *n = map->first; n != NULL; n = n->next) {
        struct tdi_config_topic *t = n->target;
        if (t->broker == NULL && n->kind == TDI_NODE_MAP) {
            t->broker = only_one(l, n, "broker", "brokers");
        }
        for (const struct tdi_config_node *m = map->first; compare && m != n; m = m->next) {
            check_overlap(l, m->target, t, n);
        }
        note_ignored(l, t, n);
    }
}

/* ---- stores, brokers, outboxes ---------------------------------------------------------- */

static void check_locations(struct tdi_loader *l, const struct tdi_config_node *map, size_t offset)
{
    for (const struct tdi_config_node *n = map->first; n != NULL; n = n->next) {
        const struct td_str *here = (const void *)((const char *)n->target + offset);
        for (const struct tdi_config_node *m = map->first; m != n; m = m->next) {
            const struct td_str *there = (const void *)((const char *)m->target + offset);
            char shown[2][64];
            if (here->data != NULL && tdi_str_eq(*here, *there)) {
                tdi_config_mistake_key(l, n, "%s %s and %s are the same: %s", map->key.data,
                                       tdi_shown(m->key, shown[0]), tdi_shown(n->key, shown[1]),
                                       here->data);
                break;
            }
        }
    }
}

static void check_outboxes(struct tdi_loader *l, const struct tdi_config_node *map)
{
    for (const struct tdi_config_node *n = map->first; n != NULL; n = n->next) {
        struct tdi_config_outbox *o = n->target;
        if (o->store == NULL && n->kind == TDI_NODE_MAP) {
            o->store = only_one(l, n, "store", "stores");
        }
        for (const struct tdi_config_node *m = map->first; m != n; m = m->next) {
            const struct tdi_config_outbox *other = m->target;
            if (o->store != NULL && o->store == other->store) {
                tdi_config_mistake_key(l, n, "outboxes %s and %s are one table, that of store %s",
                                       other->name.data, o->name.data, o->store->name.data);
                break;
            }
        }
    }
}

static void check_consumers(struct tdi_loader *l, const struct tdi_config_node *map)
{
    for (const struct tdi_config_node *n = map->first; n != NULL; n = n->next) {
        struct tdi_config_consumer *c = n->target;
        if (c->store == NULL && n->kind == TDI_NODE_MAP) {
            c->store = only_one(l, n, "store", "stores");
        }
        tdi_config_check_consumer(l, c, n);
    }
}

/* ---- all of them ------------------------------------------------------------------------ */

/* A section whose things were made; NULL: it is not there, or no map. */
static const struct tdi_config_node *section(const struct tdi_loader *l, const char *key)
{
    const struct tdi_config_node *map = tdi_tree_child(l->root, key);
    return map != NULL && map->kind == TDI_NODE_MAP && map->first != NULL ? map : NULL;
}

void tdi_config_check(struct tdi_loader *l)
{
    const struct tdi_config_node *map = section(l, "stores");
    if (map != NULL) {
        check_locations(l, map, offsetof(struct tdi_config_store, location));
    }
    map = section(l, "brokers");
    if (map != NULL) {
        check_locations(l, map, offsetof(struct tdi_config_broker, location));
    }
    map = section(l, "topics");
    if (map != NULL) {
        check_topics(l, map);
    }
    map = section(l, "outboxes");
    if (map != NULL) {
        check_outboxes(l, map);
    }
    map = section(l, "consumers");
    if (map != NULL) {
        check_consumers(l, map);
    }
}
