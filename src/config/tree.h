/*
 * The file as a tree of maps, lists and scalars, each with the place where it was written. It is
 * made by yaml.c, changed by env.c, read by bind.c and by whoever asks where something stands.
 *
 * Must not know: parameters and what they mean.
 *
 * Invariants: keys of a map differ; nesting, nodes and children are limited, so walks end; nodes
 * live in the arena.
 */
#ifndef TDI_CONFIG_TREE_H
#define TDI_CONFIG_TREE_H

#include "config/config.h"

#define TDI_TREE_NODES_MAX 20000
#define TDI_TREE_DEPTH_MAX 16
#define TDI_TREE_CHILDREN_MAX 1024
#define TDI_TREE_PATH_MAX 512

enum tdi_node_kind {
    TDI_NODE_SCALAR,
    TDI_NODE_LIST,
    TDI_NODE_MAP,
};

struct tdi_param_def;

struct tdi_config_node {
    enum tdi_node_kind kind;
    struct td_str key;             /* in a map; absent in a list and for the root */
    struct tdi_source_pos key_pos; /* of the key, or of the item itself */
    struct tdi_source_pos pos;     /* of the value */
    struct td_str text;            /* scalar */
    bool plain;                    /* scalar without quotes: an empty one is "nothing" */
    bool failed;                   /* a mistake of it is told already; given, but no value */
    size_t index;                  /* within its parent */
    size_t children;
    struct tdi_config_node *parent;
    struct tdi_config_node *first;
    struct tdi_config_node *last;
    struct tdi_config_node *next;
    /* Set by bind.c. */
    const struct tdi_param_def *def; /* NULL: below a leaf, or refused */
    void *target;                    /* struct that the leaves below go to */
};

/*
 * Parse one YAML document. Marks of nodes carry `variable` (absent for the file). Mistakes are
 * added; CONFIG when one of them ended the reading, OK when the tree is whole all the same
 * (duplicate keys). *ret_root is NULL for an empty text.
 */
TD_NODISCARD enum td_err tdi_tree_parse(struct td_str text, struct td_str variable,
                                        struct tdi_arena *a, struct tdi_diagnostics *d,
                                        struct tdi_config_node **ret_root, struct td_error *err);

/* NULL when the arena is exhausted. */
struct tdi_config_node *tdi_tree_new(struct tdi_arena *a, enum tdi_node_kind kind);
void tdi_tree_append(struct tdi_config_node *parent, struct tdi_config_node *child);
/* Put `with` where `old` is. */
void tdi_tree_replace(struct tdi_config_node *old, struct tdi_config_node *with);
/* Child of a map by key, or NULL; node NULL gives NULL. */
struct tdi_config_node *tdi_tree_child(const struct tdi_config_node *node, const char *key);
/* The same, down a path such as "retry.delays". */
struct tdi_config_node *tdi_tree_find(const struct tdi_config_node *node, const char *path);
/* Parents before children, in the order of the file; `skip` leaves out what is below. NULL: end. */
struct tdi_config_node *tdi_tree_next(const struct tdi_config_node *node,
                                      const struct tdi_config_node *root, bool skip);
/* "consumers.points.retry.delays[1]"; the root is "". Cut at TDI_TREE_PATH_MAX. */
struct td_str tdi_tree_path(const struct tdi_config_node *node, char buf[TDI_TREE_PATH_MAX]);

/* Length of the UTF-8 text in characters. */
uint32_t tdi_source_chars(struct td_str text);
/* The line of that number, from 1, without its line break; absent behind the end. Lines break
 * where YAML breaks them. */
struct td_str tdi_source_line(struct td_str source, uint32_t line);
/* Place of a byte. */
struct tdi_source_pos tdi_source_at(struct td_str source, size_t offset);

#endif
