/*
 * Between convert.c (scalars) and collect.c (lists and maps of scalars).
 */
#ifndef TDI_CONFIG_CONVERT_H
#define TDI_CONFIG_CONVERT_H

#include "config/internal.h"

/* What is being converted; passed down instead of five arguments. */
struct tdi_leaf {
    struct tdi_loader *l;
    const struct tdi_param_def *def;
    const struct tdi_config_node *node;
    char key_buf[64];
    char shown[64];
};

/* The key as it is named in sentences. */
const char *tdi_leaf_key(struct tdi_leaf *f);
/* "'order' is blok: WHY" */
void tdi_leaf_wrong(struct tdi_leaf *f, const char *why);

/* Each false after a mistake was told. */
bool tdi_leaf_number(struct tdi_leaf *f, int64_t *ret);
bool tdi_leaf_choice(struct tdi_leaf *f, unsigned *ret, struct td_str *ret_word);
bool tdi_leaf_pattern_valid(struct tdi_leaf *f);

void tdi_leaf_texts(struct tdi_leaf *f, void *field);
void tdi_leaf_delays(struct tdi_leaf *f, struct tdi_retry_policy *policy);
void tdi_leaf_sources(struct tdi_leaf *f, void *field);
void tdi_leaf_classify(struct tdi_leaf *f, void *field);

#endif
