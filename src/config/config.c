/*
 * Loading, step by step, and looking things up in what was loaded.
 */
#include "config/config.h"

#include <string.h>

#include "base/arena.h"
#include "base/str.h"
#include "config/internal.h"

#define PATH_SEGMENT_MAX 128

/* Folder of a path, without the last /, but "/" itself; empty: none. Not copied. */
static struct td_str folder_of(struct td_str path)
{
    size_t len = path.len;
    while (len > 0 && path.data[len - 1] != '/') {
        len--;
    }
    while (len > 1 && path.data[len - 1] == '/') {
        len--;
    }
    return (struct td_str){.data = path.data, .len = len};
}

static enum td_err give_up(const struct tdi_loader *l, struct td_error *err)
{
    const struct tdi_diagnostics *d = l->diagnostics;
    return td_error_set(err, TD_ERR_CONFIG, "%s: %zu mistake%s",
                        d->file.data != NULL ? d->file.data : "no configuration", d->mistakes,
                        d->mistakes == 1 ? "" : "s");
}

/* The root is a map with something in it; then the environment may be laid over it. */
static bool root_is_map(struct tdi_loader *l)
{
    struct tdi_config_node *root = l->root;
    if (root == NULL || (root->kind == TDI_NODE_SCALAR && root->plain && root->text.len == 0)) {
        tdi_diagnostics_add(l->diagnostics, TDI_SEVERITY_MISTAKE, (struct tdi_source_pos){0},
                            "the file is empty; 'tidings help config' shows what belongs there");
        return false;
    }
    if (root->kind != TDI_NODE_MAP) {
        tdi_config_mistake(l, root, "a map of keys and values is needed, such as service: shop");
        return false;
    }
    return true;
}

static enum td_err load(struct tdi_loader *l, const char *path, struct td_error *err)
{
    struct tdi_diagnostics *d = l->diagnostics;
    enum td_err code = tdi_config_read(l, path, err);
    if (code == TD_OK) {
        code = tdi_tree_parse(d->source, TD_STR_NONE, l->arena, d, &l->root, err);
    }
    if (code != TD_OK) {
        return code == TD_ERR_CONFIG ? give_up(l, err) : code;
    }
    if (!root_is_map(l)) {
        return give_up(l, err);
    }
    if (!tdi_arena_str(l->arena, folder_of(d->file), &l->config->folder)) {
        return td_error_set(err, TD_ERR_LIMIT, "no memory for the configuration");
    }
    l->config->path = d->file;
    l->config->root = l->root;
    code = tdi_config_override(l, err);
    if (code != TD_OK) {
        return code;
    }
    tdi_config_substitute(l);
    tdi_config_bind(l);
    if (!l->exhausted) {
        tdi_config_check(l);
    }
    if (l->exhausted) {
        return td_error_set(err, TD_ERR_LIMIT, "no memory for the configuration");
    }
    return d->mistakes > 0 ? give_up(l, err) : TD_OK;
}

enum td_err tdi_config_load(const char *path, const char *const *env, struct tdi_arena *arena,
                            const struct tdi_config **ret_config,
                            struct tdi_diagnostics *diagnostics, struct td_error *err)
{
    struct tdi_loader l = {.arena = arena, .diagnostics = diagnostics, .env = env};
    l.config = tdi_arena_alloc(arena, sizeof(*l.config));
    if (l.config == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for the configuration");
    }
    enum td_err code = load(&l, path, err);
    if (code == TD_OK) {
        *ret_config = l.config;
    }
    return code;
}

/* ---- looking up ------------------------------------------------------------------------- */

struct tdi_source_pos tdi_config_at(const struct tdi_config *c, const char *path)
{
    const struct tdi_config_node *node = c->root;
    struct tdi_source_pos pos = node->key_pos;
    char segment[PATH_SEGMENT_MAX];
    while (*path != '\0') {
        size_t len = strcspn(path, ".");
        if (len >= sizeof(segment)) {
            break;
        }
        memcpy(segment, path, len);
        segment[len] = '\0';
        node = tdi_tree_child(node, segment);
        if (node == NULL) {
            break;
        }
        pos = node->key_pos;
        path += len + (path[len] == '.' ? 1 : 0);
    }
    return pos;
}

#define FIND(array, n)                                                                             \
    for (size_t i = 0; i < c->array##_count; i++) {                                                \
        if (tdi_str_eq(c->array[i].name, (n))) {                                                   \
            return &c->array[i];                                                                   \
        }                                                                                          \
    }                                                                                              \
    return NULL

const struct tdi_config_store *tdi_config_store_find(const struct tdi_config *c, struct td_str n)
{
    FIND(stores, n);
}

const struct tdi_config_broker *tdi_config_broker_find(const struct tdi_config *c, struct td_str n)
{
    FIND(brokers, n);
}

const struct tdi_config_topic *tdi_config_topic_find(const struct tdi_config *c, struct td_str n)
{
    FIND(topics, n);
}

const struct tdi_config_outbox *tdi_config_outbox_find(const struct tdi_config *c, struct td_str n)
{
    FIND(outboxes, n);
}

const struct tdi_config_consumer *tdi_config_consumer_find(const struct tdi_config *c,
                                                           struct td_str n)
{
    for (size_t i = 0; i < c->consumers_count; i++) {
        if (tdi_str_eq(c->consumers[i].name, n) || tdi_str_eq(c->consumers[i].full_name, n)) {
            return &c->consumers[i];
        }
    }
    return NULL;
}
