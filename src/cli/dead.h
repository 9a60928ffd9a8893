/*
 * What the dead-letter commands share: the selection that was given, and a walk over the parked rows of every
 * store that fit it.
 */
#ifndef TDI_CLI_DEAD_H
#define TDI_CLI_DEAD_H

#include "cli/cli.h"
#include "ops/plan.h"
#include "tidings/store.h"

struct cli_dead {
    struct cli *cli;
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct td_parked_filter filter;
};

/* false ends the walk. row lives until the call returns. store is open for writing if asked. */
typedef bool cli_dead_fn(struct cli_dead *d, struct td_store *store,
                         const struct td_parked_row *row, void *ctx);

#define CLI_DEAD_SELECT_OPTIONS                                                                    \
    {"consumer", 0, "NAME", false, "of this consumer (relay:NAME: of a relay)"},                   \
        {"id", 0, "ID", false, "this message; its first 8 characters or more will do"},            \
        {"code", 0, "CODE", false, "with this code, such as exhausted or schema"},                 \
    {                                                                                              \
        "type", 0, "TYPE", false, "of this event type"                                             \
    }

/* Load the configuration and read the selection options. */
int cli_dead_begin(struct cli *cli, struct cli_dead *d);
/* Was any selector given? */
bool cli_dead_selected(const struct cli *cli);
/* Every fitting row, store by store, in order of arrival. The rows found at the start are walked; what
 * dies meanwhile is not. */
int cli_dead_walk(struct cli_dead *d, bool write, cli_dead_fn *each, void *ctx);
/* Who does this, for tidings_audit: the name of the user. */
struct td_str cli_actor(struct cli *cli);

#endif
