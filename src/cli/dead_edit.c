/* `tidings dead edit`: mend body or headers of one dead letter; the original stays in its history. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/dead.h"
#include "cli/input.h"
#include "core/envelope.h"

struct edit {
    size_t count;
    struct td_parked_change change;
    enum td_err rc;
    struct td_error err;
    bool changed;
    bool bad_header;
    const char *wrong; /* the option that is no name=value */
};

/* The headers of the letter with those that were given put over them; they outlive the row. false: a
 * wrong option, or no memory. */
static bool merge_headers(struct cli *cli, const struct td_message *m, struct edit *e)
{
    const char *given;
    size_t count = m->headers_count;
    struct td_header *headers =
        tdi_arena_array(&cli->arena, m->headers_count + CLI_VALUES_MAX, sizeof(*headers));
    if (headers == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!tdi_arena_str(&cli->arena, m->headers[i].name, &headers[i].name) ||
            !tdi_arena_str(&cli->arena, m->headers[i].value, &headers[i].value)) {
            return false;
        }
    }
    for (size_t i = 0; (given = cli_value_at(cli, "header", i)) != NULL; i++) {
        struct td_header h;
        size_t at = 0;
        if (!cli_header(given, &h)) {
            e->wrong = given;
            return false;
        }
        while (at < count && !tdi_str_eq(headers[at].name, h.name)) {
            at++;
        }
        headers[at] = h;
        count += at == count ? 1 : 0;
    }
    e->change.set_headers = true;
    e->change.headers = headers;
    e->change.headers_count = count;
    return true;
}

static bool edit_row(struct cli_dead *d, struct td_store *store, const struct td_parked_row *row,
                     void *ctx)
{
    struct edit *e = ctx;
    if (++e->count > 1) {
        return false; /* ambiguous: seen before anything is changed, see edit_run() */
    }
    (void)store;
    if (cli_flag(d->cli, "header") && !merge_headers(d->cli, &row->message, e)) {
        e->bad_header = true;
        return false;
    }
    e->change.revision = row->revision;
    return tdi_arena_str(&d->cli->arena, row->consumer, &e->change.consumer) &&
           tdi_arena_str(&d->cli->arena, row->message.source, &e->change.ref.source) &&
           tdi_arena_str(&d->cli->arena, row->message.id, &e->change.ref.id);
}

static bool apply_row(struct cli_dead *d, struct td_store *store, const struct td_parked_row *row,
                      void *ctx)
{
    struct edit *e = ctx;
    (void)d;
    (void)row;
    e->rc = store->driver->parked_change(store, &e->change, &e->err);
    e->changed = e->rc == TD_OK && e->change.changed;
    return false;
}

static int find_letter(struct cli *cli, struct cli_dead *d, struct edit *e)
{
    int rc = cli_dead_walk(d, false, edit_row, e);
    if (rc != CLI_DONE) {
        return rc;
    }
    if (e->count == 0) {
        cli_error("there is no dead letter %s", cli->operands[0]);
        return CLI_FOUND;
    }
    if (e->count > 1) {
        return cli_usage(cli,
                         "several dead letters fit %s; name one with --consumer or the whole id",
                         cli->operands[0]);
    }
    if (e->bad_header) {
        return cli_usage(cli, "--header wants NAME=VALUE with a lower-case name, not '%s'",
                         e->wrong != NULL ? e->wrong : "");
    }
    return CLI_DONE;
}

static int edit_run(struct cli *cli)
{
    struct cli_dead d;
    struct edit e = {.change = {.kind = TD_PARKED_EDIT}};
    const char *file = cli_value(cli, "body");
    int rc = cli_dead_begin(cli, &d);
    if (rc == CLI_DONE && file == NULL && !cli_flag(cli, "header")) {
        rc = cli_usage(cli, "say what to change: --body FILE or --header NAME=VALUE");
    }
    if (rc == CLI_DONE && file != NULL) {
        e.change.set_body = true;
        rc = cli_read_file(cli, file, TD_BODY_BYTES_MAX, &e.change.body);
    }
    if (rc != CLI_DONE) {
        return rc;
    }
    d.filter.id = tdi_str(cli->operands[0]);
    rc = find_letter(cli, &d, &e);
    if (rc != CLI_DONE) {
        return rc;
    }
    d.filter.consumer = e.change.consumer;
    d.filter.id = e.change.ref.id;
    e.change.actor = cli_actor(cli);
    rc = cli_dead_walk(&d, true, apply_row, &e);
    if (rc != CLI_DONE) {
        return rc;
    }
    if (e.rc != TD_OK) {
        return cli_fail(cli, &e.err);
    }
    if (!e.changed) {
        cli_error("the letter has changed meanwhile; look again with 'tidings dead show'");
        return CLI_TRY_AGAIN;
    }
    cli_say(cli, "edited; the original is kept. Next: tidings dead replay --id %s",
            cli->operands[0]);
    return CLI_DONE;
}

static const struct cli_option edit_options[] = {
    {"consumer", 0, "NAME", false, "the letter of this consumer"},
    {"body", 0, "FILE", false, "the new body; - is stdin"},
    {"header", 0, "NAME=VALUE", true, "set a header"},
};

const struct cli_command cli_command_dead_edit = {
    .name = "dead edit",
    .operands = "ID",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "Mend the body or headers of a dead letter before a replay",
    .text = "The first original is kept with the letter, and the change goes to tidings_audit.",
    .examples = "tidings dead edit 0192f1c7 --body mended.json\n"
                "tidings dead edit 0192f1c7 --header region=eu",
    CLI_OPTIONS(edit_options),
    .run = edit_run,
};
