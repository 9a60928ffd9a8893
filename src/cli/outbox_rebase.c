/*
 * `tidings outbox rebase`: after somebody rebuilt an outbox table or restored a backup, say what going on would
 * mean, and with --yes go on.
 */
#include <inttypes.h>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/dead.h"
#include "cli/session.h"
#include "ops/plan.h"
#include "ops/status.h"
#include "store/registry.h"

struct rebase {
    struct cli *cli;
    const struct tdi_plan_relay *relay;
    struct td_store *store;
};

static void explain(const struct rebase *r, const struct td_relay_stats *stats,
                    const struct td_outbox_row *first)
{
    printf("relay %s has published up to sequence %" PRId64 ".\n", r->relay->short_name.data,
           stats->position);
    if (first == NULL) {
        puts(
            "The outbox is empty: the position goes to the beginning, nothing is published again.");
        return;
    }
    printf(
        "The position goes to the beginning. Every row that is in the table now is published, from "
        "sequence %" PRId64 " (id ",
        first->message.sequence);
    cli_put(stdout, first->message.id);
    puts(") on.");
    puts(
        "Rows that were published before go out again under the same id; consumers that still know "
        "the id ignore them.");
}

static enum td_err do_rebase(struct rebase *r, bool apply, struct td_error *err)
{
    const struct td_store_driver *d = r->store->driver;
    struct td_position beginning = {.order = 0};
    struct td_relay_stats stats;
    struct td_outbox_row *rows;
    size_t count = 0;
    enum td_err rc = d->relay_stats(r->store, r->relay->name, &stats, err);
    if (rc == TD_OK) {
        rc = d->outbox_read(r->store, &beginning, 1, 1, &r->cli->arena, &rows, &count, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    explain(r, &stats, count > 0 ? &rows[0] : NULL);
    if (!apply) {
        puts("Nothing was changed. --yes does it.");
        return TD_OK;
    }
    int64_t halted = tdi_status_halted(r->store, r->relay->name, &r->cli->arena);
    rc = d->relay_rebase(r->store, r->relay->name, halted, &beginning, cli_actor(r->cli), err);
    if (rc == TD_OK) {
        puts("Done. It is written down in tidings_audit.");
    }
    return rc;
}

static int rebase_run(struct cli *cli)
{
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct td_error err;
    struct rebase r = {.cli = cli};
    int rc = cli_config(cli, &config);
    if (rc != CLI_DONE) {
        return rc;
    }
    if (tdi_plan_make(config, &cli->arena, &plan, &err) != TD_OK) {
        return cli_fail(cli, &err);
    }
    r.relay = tdi_plan_relay_find(&plan, tdi_str(cli->operands[0]));
    if (r.relay == NULL) {
        return cli_usage(cli, "there is no outbox '%s' in %s", cli->operands[0], config->path.data);
    }
    bool apply = cli_flag(cli, "yes") && !cli_flag(cli, "dry-run");
    if (cli_store_open(cli, config, r.relay->outbox->store, apply ? CLI_WRITE : CLI_READ, &r.store,
                       &err) != TD_OK) {
        return cli_fail(cli, &err);
    }
    rc = do_rebase(&r, apply, &err) == TD_OK ? CLI_DONE : cli_fail(cli, &err);
    tdi_store_close(r.store);
    return rc;
}

static const struct cli_option rebase_options[] = {
    {"yes", 'y', NULL, false, "do it"},
    {"dry-run", 0, NULL, false, "only say what it would do (the default)"},
};

const struct cli_command cli_command_outbox_rebase = {
    .name = "outbox rebase",
    .operands = "OUTBOX[.BROKER]",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "Let a halted relay go on after its outbox was rebuilt or restored",
    .text = "A relay halts when the outbox is not the one that its position belongs to. This says\n"
            "what going on from the beginning of the table would publish, and with --yes does it.",
    .examples = "tidings outbox rebase shop\ntidings outbox rebase shop --yes",
    CLI_OPTIONS(rebase_options),
    .run = rebase_run,
};
