/*
 * What the files of this folder share: the state of one load, and its steps in order.
 */
#ifndef TDI_CONFIG_INTERNAL_H
#define TDI_CONFIG_INTERNAL_H

#include "config/config.h"
#include "config/params.h"
#include "config/tree.h"

#define TDI_NAME_BYTES_MAX 63
#define TDI_DID_YOU_MEAN_MAX 96

struct tdi_loader {
    struct tdi_arena *arena;
    struct tdi_diagnostics *diagnostics;
    const char *const *env;
    struct tdi_config_node *root;
    struct tdi_config *config;
    bool exhausted; /* the arena is full; the load fails with LIMIT */
};

/* ---- file.c: which file, and its bytes -------------------------------------------------- */

/* Fills diagnostics->file and ->source. CONFIG: a mistake is added. */
TD_NODISCARD enum td_err tdi_config_read(struct tdi_loader *l, const char *path,
                                         struct td_error *err);
/* NULL: not set. */
const char *tdi_env_get(const char *const *env, struct td_str name);

/* ---- env.c ------------------------------------------------------------------------------ */

/* ${VAR} in every scalar of the file. */
void tdi_config_substitute(struct tdi_loader *l);
/* TIDINGS_A__B=value onto the tree. */
TD_NODISCARD enum td_err tdi_config_override(struct tdi_loader *l, struct td_error *err);
/* Are the names one to the environment: without regard to case, - like _? */
bool tdi_config_same_name(struct td_str a, struct td_str b);

/* ---- bind.c, convert.c: from the tree to the structs ------------------------------------ */

void tdi_config_bind(struct tdi_loader *l);
/* Sets the field; a mistake leaves it as it is. */
void tdi_config_convert(struct tdi_loader *l, const struct tdi_param_def *def,
                        const struct tdi_config_node *node, void *field);
/* Is `name` fit for a named thing? */
bool tdi_config_name_valid(struct td_str name);

/* ---- check.c, check_consumer.c: what contradicts what ----------------------------------- */

void tdi_config_check(struct tdi_loader *l);
void tdi_config_check_consumer(struct tdi_loader *l, const struct tdi_config_consumer *c,
                               const struct tdi_config_node *node);

/* ---- mistakes --------------------------------------------------------------------------- */

/* At the value of the node. */
void tdi_config_mistake(struct tdi_loader *l, const struct tdi_config_node *node, const char *fmt,
                        ...) TD_PRINTF(3, 4);
/* At its key. */
void tdi_config_mistake_key(struct tdi_loader *l, const struct tdi_config_node *node,
                            const char *fmt, ...) TD_PRINTF(3, 4);
/* The nearest of the words so far: offer each, then ask for "; did you mean 'x'?" or "". */
struct tdi_guess {
    struct td_str wrong;
    struct td_str best;
    unsigned distance;
};
void tdi_guess_init(struct tdi_guess *g, struct td_str wrong);
void tdi_guess_offer(struct tdi_guess *g, struct td_str word);
const char *tdi_guess_text(const struct tdi_guess *g, char buf[TDI_DID_YOU_MEAN_MAX]);
/* A value as it may be shown: at most 60 bytes, on one line. */
const char *tdi_shown(struct td_str value, char buf[64]);

#endif
