/*
 * Walking and changing the tree; no parser here.
 */
#include "config/tree.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"

struct tdi_config_node *tdi_tree_new(struct tdi_arena *a, enum tdi_node_kind kind)
{
    struct tdi_config_node *node = tdi_arena_alloc(a, sizeof(*node));
    if (node != NULL) {
        node->kind = kind;
    }
    return node;
}

void tdi_tree_append(struct tdi_config_node *parent, struct tdi_config_node *child)
{
    TDI_ASSERT(parent->kind != TDI_NODE_SCALAR && child->next == NULL);
    child->parent = parent;
    child->index = parent->children++;
    if (parent->last != NULL) {
        parent->last->next = child;
    } else {
        parent->first = child;
    }
    parent->last = child;
}

void tdi_tree_replace(struct tdi_config_node *old, struct tdi_config_node *with)
{
    struct tdi_config_node *parent = old->parent;
    struct tdi_config_node **link = &parent->first;
    while (*link != old) {
        link = &(*link)->next;
    }
    *link = with;
    if (parent->last == old) {
        parent->last = with;
    }
    with->parent = parent;
    with->next = old->next;
    with->index = old->index;
    with->key = old->key;
    with->key_pos = old->key_pos;
}

static struct tdi_config_node *child_of(const struct tdi_config_node *node, struct td_str key)
{
    if (node == NULL || node->kind != TDI_NODE_MAP) {
        return NULL;
    }
    struct tdi_config_node *child = node->first;
    while (child != NULL && !tdi_str_eq(child->key, key)) {
        child = child->next;
    }
    return child;
}

struct tdi_config_node *tdi_tree_child(const struct tdi_config_node *node, const char *key)
{
    return child_of(node, tdi_str(key));
}

struct tdi_config_node *tdi_tree_find(const struct tdi_config_node *node, const char *path)
{
    struct tdi_config_node *found = NULL;
    while (*path != '\0') {
        size_t len = strcspn(path, ".");
        found = child_of(node, (struct td_str){.data = path, .len = len});
        if (found == NULL) {
            return NULL;
        }
        node = found;
        path += len + (path[len] == '.' ? 1 : 0);
    }
    return found;
}

struct tdi_config_node *tdi_tree_next(const struct tdi_config_node *node,
                                      const struct tdi_config_node *root, bool skip)
{
    if (node->first != NULL && !skip) {
        return node->first;
    }
    while (node != root && node->next == NULL) {
        node = node->parent;
    }
    return node == root ? NULL : node->next;
}

struct td_str tdi_tree_path(const struct tdi_config_node *node, char buf[TDI_TREE_PATH_MAX])
{
    const struct tdi_config_node *chain[TDI_TREE_DEPTH_MAX + 1];
    size_t depth = 0;
    for (; node != NULL && node->parent != NULL && depth < TDI_TREE_DEPTH_MAX + 1;
         node = node->parent) {
        chain[depth++] = node;
    }
    size_t len = 0;
    buf[0] = '\0';
    while (depth > 0 && len + 1 < TDI_TREE_PATH_MAX) {
        const struct tdi_config_node *at = chain[--depth];
        int n = 0;
        if (at->key.data == NULL) {
            n = snprintf(buf + len, TDI_TREE_PATH_MAX - len, "[%zu]", at->index);
        } else {
            n = snprintf(buf + len, TDI_TREE_PATH_MAX - len, "%s%.*s", len > 0 ? "." : "",
                         (int)(at->key.len < 80 ? at->key.len : 80), at->key.data);
        }
        len += (size_t)n;
    }
    return (struct td_str){.data = buf,
                           .len = len < TDI_TREE_PATH_MAX ? len : TDI_TREE_PATH_MAX - 1};
}

/* ---- places in a text ------------------------------------------------------------------- */

uint32_t tdi_source_chars(struct td_str text)
{
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        n += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    }
    return n;
}

/* Bytes of the line break at `at`: LF, CR, CR LF, and YAML 1.1's NEL, LS and PS. 0: none. */
static size_t break_len(struct td_str s, size_t at)
{
    const unsigned char *p = (const unsigned char *)s.data + at;
    size_t rest = s.len - at;
    if (p[0] == '\n') {
        return 1;
    }
    if (p[0] == '\r') {
        return rest > 1 && p[1] == '\n' ? 2 : 1;
    }
    if (rest > 1 && p[0] == 0xc2 && p[1] == 0x85) {
        return 2;
    }
    if (rest > 2 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9)) {
        return 3;
    }
    return 0;
}

static struct td_str line_from(struct td_str source, size_t start, size_t *ret_next)
{
    size_t end = start;
    size_t len = 0;
    while (end < source.len && (len = break_len(source, end)) == 0) {
        end++;
    }
    *ret_next = end + len;
    return (struct td_str){.data = source.data + start, .len = end - start};
}

struct td_str tdi_source_line(struct td_str source, uint32_t line)
{
    size_t at = 0;
    for (uint32_t n = 1; at < source.len; n++) {
        struct td_str text = line_from(source, at, &at);
        if (n == line) {
            return text;
        }
    }
    return TD_STR_NONE;
}

struct tdi_source_pos tdi_source_at(struct td_str source, size_t offset)
{
    struct tdi_source_pos pos = {.line = 1, .column = 1, .length = 1};
    size_t start = 0;
    for (size_t next = 0; start < source.len; start = next, pos.line++) {
        (void)line_from(source, start, &next);
        if (offset < next) {
            break;
        }
    }
    if (offset > start && offset <= source.len) {
        struct td_str before = {.data = source.data + start, .len = offset - start};
        pos.column = tdi_source_chars(before) + 1;
    }
    return pos;
}
