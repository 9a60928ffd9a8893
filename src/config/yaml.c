/*
 * From libyaml's events to the tree. YAML is taken without its traps: one document, no anchors or
 * aliases, no tags, no merge keys, keys are plain text and each once.
 *
 * Must not know: parameters and what they mean.
 */
#include <string.h>
#include <yaml.h>

#include "base/arena.h"
#include "base/str.h"
#include "config/tree.h"

struct builder {
    struct tdi_arena *arena;
    struct tdi_diagnostics *diagnostics;
    struct td_str variable;
    struct tdi_config_node *root;
    struct tdi_config_node *open[TDI_TREE_DEPTH_MAX];
    size_t depth;
    size_t nodes;
    struct td_str key; /* waits for its value; absent: a key comes next */
    struct tdi_source_pos key_pos;
    bool duplicate; /* the key is there already; its value is built beside the tree */
    bool documents;
    bool done;
    enum td_err code; /* not OK: stop */
};

static struct tdi_source_pos pos_of(const struct builder *b, const yaml_mark_t *from,
                                    const yaml_mark_t *to)
{
    struct tdi_source_pos pos = {.variable = b->variable,
                                 .line = (uint32_t)from->line + 1,
                                 .column = (uint32_t)from->column + 1,
                                 .length = 1};
    if (to->line == from->line && to->column > from->column) {
        pos.length = (uint32_t)(to->column - from->column);
    }
    return pos;
}

static void mistake(struct builder *b, struct tdi_source_pos pos, const char *text)
{
    tdi_diagnostics_add(b->diagnostics, TDI_SEVERITY_MISTAKE, pos, "%s", text);
    b->code = TD_ERR_CONFIG;
}

/* ---- one event -------------------------------------------------------------------------- */

static void take_key(struct builder *b, struct td_str text, struct tdi_source_pos pos)
{
    const struct tdi_config_node *map = b->open[b->depth - 1];
    if (!tdi_arena_str(b->arena, text, &b->key)) {
        b->code = TD_ERR_LIMIT;
        return;
    }
    b->key_pos = pos;
    b->duplicate = false;
    for (const struct tdi_config_node *c = map->first; c != NULL; c = c->next) {
        if (tdi_str_eq(c->key, text)) {
            tdi_diagnostics_add(b->diagnostics, TDI_SEVERITY_MISTAKE, pos,
                                "key '%.*s' is there already, in line %u",
                                (int)(text.len < 80 ? text.len : 80), text.data, c->key_pos.line);
            b->duplicate = true;
            return;
        }
    }
}

/* Put the node where it belongs; false: stop. */
static bool place(struct builder *b, struct tdi_config_node *node)
{
    if (node == NULL) {
        b->code = TD_ERR_LIMIT;
        return false;
    }
    node->key_pos = node->pos;
    if (++b->nodes > TDI_TREE_NODES_MAX) {
        mistake(b, node->pos, "the file holds more than 20000 values");
        return false;
    }
    if (b->depth == 0) {
        b->root = node;
        return true;
    }
    struct tdi_config_node *parent = b->open[b->depth - 1];
    if (parent->children == TDI_TREE_CHILDREN_MAX) {
        mistake(b, node->pos, "more than 1024 entries in one map or list");
        return false;
    }
    if (parent->kind == TDI_NODE_MAP) {
        node->key = b->key;
        node->key_pos = b->key_pos;
        b->key = TD_STR_NONE;
        if (b->duplicate) {
            b->duplicate = false;
            node->parent = parent; /* for the way back; not one of its children */
            return true;
        }
    }
    tdi_tree_append(parent, node);
    return true;
}

static void take_scalar(struct builder *b, const yaml_event_t *e, struct tdi_source_pos pos)
{
    struct td_str text = {.data = (const char *)e->data.scalar.value, .len = e->data.scalar.length};
    if (text.len > 0 && memchr(text.data, '\0', text.len) != NULL) {
        mistake(b, pos, "a NUL character; no value can hold one");
        return;
    }
    if (b->depth > 0 && b->open[b->depth - 1]->kind == TDI_NODE_MAP && b->key.data == NULL) {
        take_key(b, text, pos);
        return;
    }
    struct tdi_config_node *node = tdi_tree_new(b->arena, TDI_NODE_SCALAR);
    if (node != NULL) {
        node->pos = pos;
        node->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        if (!tdi_arena_str(b->arena, text, &node->text)) {
            node = NULL;
        }
    }
    (void)place(b, node);
}

static void take_begin(struct builder *b, enum tdi_node_kind kind, struct tdi_source_pos pos)
{
    pos.length = 1;
    if (b->depth > 0 && b->open[b->depth - 1]->kind == TDI_NODE_MAP && b->key.data == NULL) {
        mistake(b, pos, "a key must be plain text, not a map or list");
        return;
    }
    if (b->depth == TDI_TREE_DEPTH_MAX) {
        mistake(b, pos, "nested deeper than 16 levels");
        return;
    }
    struct tdi_config_node *node = tdi_tree_new(b->arena, kind);
    if (node != NULL) {
        node->pos = pos;
    }
    if (place(b, node)) {
        b->open[b->depth++] = node;
    }
}

static void take_document(struct builder *b, struct tdi_source_pos pos)
{
    if (b->documents) {
        mistake(b, pos, "a second YAML document; one file is one document");
    }
    b->documents = true;
}

/* Anchors and tags; true: there was one. */
static bool has_property(struct builder *b, const yaml_char_t *anchor, const yaml_char_t *tag,
                         struct tdi_source_pos pos)
{
    if (anchor != NULL) {
        mistake(b, pos, "an anchor (&); write the value out where it is needed");
    } else if (tag != NULL) {
        mistake(b, pos, "a tag (!); values need none");
    }
    return anchor != NULL || tag != NULL;
}

static void take_event(struct builder *b, const yaml_event_t *e)
{
    struct tdi_source_pos pos = pos_of(b, &e->start_mark, &e->end_mark);
    switch (e->type) {
    case YAML_STREAM_END_EVENT:
        b->done = true;
        break;
    case YAML_DOCUMENT_START_EVENT:
        take_document(b, pos);
        break;
    case YAML_ALIAS_EVENT:
        mistake(b, pos, "an alias (*); write the value out, or quote the text");
        break;
    case YAML_SCALAR_EVENT:
        if (!has_property(b, e->data.scalar.anchor, e->data.scalar.tag, pos)) {
            take_scalar(b, e, pos);
        }
        break;
    case YAML_SEQUENCE_START_EVENT:
        if (!has_property(b, e->data.sequence_start.anchor, e->data.sequence_start.tag, pos)) {
            take_begin(b, TDI_NODE_LIST, pos);
        }
        break;
    case YAML_MAPPING_START_EVENT:
        if (!has_property(b, e->data.mapping_start.anchor, e->data.mapping_start.tag, pos)) {
            take_begin(b, TDI_NODE_MAP, pos);
        }
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        break;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
}

/* ---- mistakes that libyaml found -------------------------------------------------------- */

/* A better sentence than libyaml's for what happens often. */
static const char *known_problem(struct td_str line, uint32_t column, const char *problem)
{
    size_t at = column > 0 ? column - 1 : 0;
    if (at < line.len && line.data[at] == '\t') {
        return "a tab; YAML is indented with spaces";
    }
    if (at > 0 && at < line.len && line.data[at - 1] == '$' && line.data[at] == '{') {
        return "${VAR} between braces or brackets must be quoted: \"${VAR}\"";
    }
    return problem;
}

static void syntax_mistake(struct builder *b, const yaml_parser_t *p, struct td_str text)
{
    const char *problem = p->problem != NULL ? p->problem : "this is not YAML";
    if (p->error == YAML_MEMORY_ERROR) {
        b->code = TD_ERR_NOMEM;
        return;
    }
    struct tdi_source_pos pos;
    if (p->error == YAML_READER_ERROR) {
        pos = tdi_source_at(text, p->problem_offset);
        pos.variable = b->variable;
    } else {
        pos = pos_of(b, &p->problem_mark, &p->problem_mark);
    }
    b->code = TD_ERR_CONFIG;
    const char *known = known_problem(tdi_source_line(text, pos.line), pos.column, problem);
    if (known == problem && p->context != NULL && p->context_mark.line != p->problem_mark.line) {
        tdi_diagnostics_add(b->diagnostics, TDI_SEVERITY_MISTAKE, pos,
                            "%s (%s that begins in line %zu)", problem, p->context,
                            p->context_mark.line + 1);
        return;
    }
    tdi_diagnostics_add(b->diagnostics, TDI_SEVERITY_MISTAKE, pos, "%s", known);
}

enum td_err tdi_tree_parse(struct td_str text, struct td_str variable, struct tdi_arena *a,
                           struct tdi_diagnostics *d, struct tdi_config_node **ret_root,
                           struct td_error *err)
{
    struct builder b = {.arena = a, .diagnostics = d, .variable = variable};
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory to read YAML");
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.data, text.len);
    while (!b.done && b.code == TD_OK) {
        yaml_event_t event;
        if (yaml_parser_parse(&parser, &event) == 0) {
            syntax_mistake(&b, &parser, text);
            break;
        }
        take_event(&b, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    *ret_root = b.root;
    if (b.code == TD_ERR_LIMIT || b.code == TD_ERR_NOMEM) {
        return td_error_set(err, b.code, "no memory for the configuration");
    }
    if (b.code == TD_ERR_CONFIG) {
        return td_error_set(err, TD_ERR_CONFIG, "the configuration is not valid YAML");
    }
    return TD_OK;
}
