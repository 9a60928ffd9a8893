/* What a consumer really gives, and why, from its configuration alone. Pure. */
#ifndef TDI_OPS_GUARANTEE_H
#define TDI_OPS_GUARANTEE_H

#include "config/config.h"

struct tdi_guarantee {
    const char *delivery; /* "effectively once", "at least once" */
    const char *why;      /* one sentence */
    const char *order;    /* one sentence */
};

struct tdi_guarantee tdi_guarantee_of(const struct tdi_config_consumer *c);

#endif
