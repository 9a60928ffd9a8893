/*
 * The one table of parameters. Parser, limits, help and reference page come from it.
 *
 * Must not know: YAML, files.
 */
#ifndef TDI_CONFIG_PARAMS_H
#define TDI_CONFIG_PARAMS_H

#include "config/config.h"

enum tdi_param_type {
    /* containers */
    TDI_PARAM_GROUP, /* a map of fixed keys */
    TDI_PARAM_NAMED, /* a map of named things */
    TDI_PARAM_ITEMS, /* a list of groups */
    /* leaves: field in the struct */
    TDI_PARAM_TEXT,     /* struct td_str */
    TDI_PARAM_NAME,     /* struct td_str; the rules of names */
    TDI_PARAM_PATH,     /* struct td_str; made relative to the folder of the file */
    TDI_PARAM_PATTERN,  /* struct td_str */
    TDI_PARAM_CHOICE,   /* an enum: number of the word in `choices` */
    TDI_PARAM_FLAG,     /* bool: false for the first word of `choices` */
    TDI_PARAM_DRIVER,   /* struct td_str: a word of `choices` */
    TDI_PARAM_INT,      /* int32_t */
    TDI_PARAM_LONG,     /* int64_t */
    TDI_PARAM_DECIMAL,  /* double */
    TDI_PARAM_PERCENT,  /* int32_t */
    TDI_PARAM_DURATION, /* td_time_us */
    TDI_PARAM_SIZE,     /* uint64_t */
    TDI_PARAM_STORE,    /* pointer to the store of that name */
    TDI_PARAM_BROKER,   /* likewise */
    TDI_PARAM_TOPIC,    /* likewise */
    TDI_PARAM_DELAYS,   /* the tiers of a struct tdi_retry_policy */
    /* leaves: array pointer in the struct, size_t count right behind it */
    TDI_PARAM_PATTERNS, /* struct td_str */
    TDI_PARAM_COMMAND,  /* struct td_str */
    TDI_PARAM_SOURCES,  /* struct td_param, a map */
    TDI_PARAM_CLASSIFY, /* struct td_classify, a map */
};

/* Which struct a leaf belongs to: the nearest named thing above it. */
enum tdi_param_owner {
    TDI_OWNER_CONFIG,
    TDI_OWNER_STORE,
    TDI_OWNER_BROKER,
    TDI_OWNER_TOPIC,
    TDI_OWNER_OUTBOX,
    TDI_OWNER_CONSUMER,
    TDI_OWNER_STEP,
};

#define TDI_PARAM_REQUIRED 1u
#define TDI_PARAM_LATER 2u  /* of the contract, not in this version: refused */
#define TDI_PARAM_RELOAD 4u /* a reload may change it */

struct tdi_param_def {
    /* "consumers.*.handler.sql.[].run": `*` is a name, `[]` an item of a list. Parents come before
     * their children. */
    const char *path;
    enum tdi_param_type type;
    enum tdi_param_owner owner;
    size_t offset;        /* of the field in the owner's struct */
    const char *fallback; /* default, as it would be written; NULL: none */
    const char *min;      /* lowest and highest value, as it would be written; NULL: any */
    const char *max;
    const char *choices; /* "none|skip|block"; a word behind - is not in this version: "-latest" */
    const char *text;    /* what it is, one sentence */
    const char *example; /* NULL: none */
    unsigned flags;
};

#define TDI_LIST_MAX 64 /* patterns, words of a command, parameters, ... */

const struct tdi_param_def *tdi_params(size_t *ret_count);
/* The definition of `key` below `parent` (NULL: at the top): by its name, or by `*` where parent is
 * NAMED, or `[]` where it is ITEMS (key absent). NULL: there is none. */
const struct tdi_param_def *tdi_param_child(const struct tdi_param_def *parent, struct td_str key);
/* Children of parent one after the other; *cursor starts at 0. NULL: the end. */
const struct tdi_param_def *tdi_param_next(const struct tdi_param_def *parent, size_t *cursor);
/* The last word of its path. */
const char *tdi_param_key(const struct tdi_param_def *def);
bool tdi_param_is_container(const struct tdi_param_def *def);
/* The n-th word of choices, without its -; absent behind the last. */
struct td_str tdi_param_choice(const struct tdi_param_def *def, size_t n, bool *ret_later);
/* "a duration, such as 10s"; for help and mistakes. */
const char *tdi_param_type_name(const struct tdi_param_def *def);

#endif
