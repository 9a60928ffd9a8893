/*
 * To which topic a message goes. See catalogue.h.
 *
 * Routing is a linear search: catalogues have tens of topics.
 */
#include "core/catalogue.h"

#include "base/arena.h"
#include "base/str.h"
#include "core/route.h"

#define TOPIC_NAME_SHOWN 255

static int shown(struct td_str s)
{
    return (int)(s.len < TOPIC_NAME_SHOWN ? s.len : TOPIC_NAME_SHOWN);
}

/* Arguments of "%.*s". */
#define SHOW(s) shown(s), ((s).data == NULL ? "" : (s).data)

static enum td_err check_patterns(const struct tdi_topic *t, struct td_error *err)
{
    for (size_t i = 0; i < t->types_count; i++) {
        const char *why = NULL;
        if (!tdi_pattern_valid(t->types[i], &why)) {
            return td_error_set(err, TD_ERR_CONFIG, "topic %.*s: types: \"%.*s\": %s",
                                SHOW(t->name), SHOW(t->types[i]), why);
        }
    }
    return TD_OK;
}

static enum td_err check_pair(const struct tdi_topic *a, const struct tdi_topic *b,
                              struct td_error *err)
{
    if (tdi_str_eq(a->name, b->name)) {
        return td_error_set(err, TD_ERR_CONFIG, "two topics are named %.*s", SHOW(a->name));
    }
    for (size_t i = 0; i < a->types_count; i++) {
        for (size_t j = 0; j < b->types_count; j++) {
            if (tdi_patterns_overlap(a->types[i], b->types[j])) {
                return td_error_set(err, TD_ERR_CONFIG,
                                    "topics %.*s and %.*s could both take one type: \"%.*s\" and "
                                    "\"%.*s\" overlap",
                                    SHOW(a->name), SHOW(b->name), SHOW(a->types[i]),
                                    SHOW(b->types[j]));
            }
        }
    }
    return TD_OK;
}

enum td_err tdi_catalogue_check(const struct tdi_catalogue *c, struct td_error *err)
{
    for (size_t i = 0; i < c->topics_count; i++) {
        enum td_err e = check_patterns(&c->topics[i], err);
        for (size_t j = 0; e == TD_OK && j < i; j++) {
            e = check_pair(&c->topics[j], &c->topics[i], err);
        }
        if (e != TD_OK) {
            return e;
        }
    }
    return TD_OK;
}

const struct tdi_topic *tdi_catalogue_find(const struct tdi_catalogue *c, struct td_str name)
{
    for (size_t i = 0; i < c->topics_count; i++) {
        if (tdi_str_eq(c->topics[i].name, name)) {
            return &c->topics[i];
        }
    }
    return NULL;
}

/* Without patterns a topic takes no type: tdi_patterns_match() would say everything. */
static bool takes(const struct tdi_topic *t, struct td_str type)
{
    return t->types_count > 0 && tdi_patterns_match(t->types, t->types_count, type);
}

static void find_topic(const struct tdi_catalogue *c, const struct td_message *m,
                       struct tdi_route *route)
{
    if (!tdi_str_empty(m->topic)) {
        route->topic = tdi_catalogue_find(c, m->topic);
        return;
    }
    for (size_t i = 0; i < c->topics_count && route->other == NULL; i++) {
        if (!takes(&c->topics[i], m->type)) {
            continue;
        }
        if (route->topic == NULL) {
            route->topic = &c->topics[i];
        } else {
            route->other = &c->topics[i];
        }
    }
}

static bool key_missing(const struct tdi_topic *t, const struct td_message *m)
{
    return t->key_required && tdi_str_empty(m->key);
}

static bool too_large(const struct tdi_topic *t, const struct td_message *m)
{
    return t->max_bytes != 0 && m->body.len > t->max_bytes;
}

struct tdi_route tdi_catalogue_route(const struct tdi_catalogue *c, const struct td_message *m)
{
    struct tdi_route route = {.topic = NULL, .other = NULL, .dead = TD_DEAD_NONE};

    find_topic(c, m, &route);
    if (route.topic == NULL) {
        route.dead = TD_DEAD_UNROUTABLE;
    } else if (route.other != NULL || key_missing(route.topic, m)) {
        route.dead = TD_DEAD_INVALID;
    } else if (too_large(route.topic, m)) {
        route.dead = TD_DEAD_TOO_LARGE;
    }
    return route;
}

struct td_str tdi_route_broker(const struct tdi_route *route, struct td_str first_broker)
{
    return route->topic != NULL ? route->topic->broker : first_broker;
}

struct td_str tdi_route_reason(const struct tdi_route *route, const struct td_message *m,
                               struct tdi_arena *a)
{
    const struct tdi_topic *t = route->topic;

    if (route->dead == TD_DEAD_NONE) {
        return TD_STR_NONE;
    }
    if (t == NULL && !tdi_str_empty(m->topic)) {
        return tdi_arena_printf(a, "there is no topic \"%.*s\" in the catalogue", SHOW(m->topic));
    }
    if (t == NULL) {
        return tdi_arena_printf(a, "no topic of the catalogue takes the type \"%.*s\"",
                                SHOW(m->type));
    }
    if (route->other != NULL) {
        return tdi_arena_printf(a, "the topics %.*s and %.*s both take the type \"%.*s\"",
                                SHOW(t->name), SHOW(route->other->name), SHOW(m->type));
    }
    if (route->dead == TD_DEAD_TOO_LARGE) {
        return tdi_arena_printf(a, "the body has %zu bytes, the topic %.*s takes at most %zu",
                                m->body.len, SHOW(t->name), t->max_bytes);
    }
    return tdi_arena_printf(a, "the topic %.*s requires a key and the message has none",
                            SHOW(t->name));
}
