/* Selecting dead letters. */
#include "cli/dead.h"

#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/session.h"
#include "core/deadletter.h"
#include "store/registry.h"

#define PAGE_ROWS 64
#define PAGE_BYTES_MAX (256U * 1024 * 1024)

int cli_dead_begin(struct cli *cli, struct cli_dead *d)
{
    struct td_error err;
    const char *code = cli_value(cli, "code");
    memset(d, 0, sizeof(*d));
    d->cli = cli;
    int rc = cli_config(cli, &d->config);
    if (rc != CLI_DONE) {
        return rc;
    }
    if (tdi_plan_make(d->config, &cli->arena, &d->plan, &err) != TD_OK) {
        return cli_fail(cli, &err);
    }
    if (code != NULL && !tdi_dead_code_parse(tdi_str(code), &d->filter.code)) {
        return cli_usage(cli, "there is no code '%s'", code);
    }
    const char *consumer = cli_value(cli, "consumer");
    if (consumer != NULL) {
        d->filter.consumer = tdi_plan_full(&d->plan, tdi_str(consumer));
    }
    d->filter.id = tdi_str(cli_value(cli, "id"));
    d->filter.type = tdi_str(cli_value(cli, "type"));
    if (d->filter.id.data != NULL && d->filter.id.len == 0) {
        return cli_usage(cli, "--id is empty");
    }
    return CLI_DONE;
}

bool cli_dead_selected(const struct cli *cli)
{
    return cli_flag(cli, "consumer") || cli_flag(cli, "id") || cli_flag(cli, "code") ||
           cli_flag(cli, "type") || cli_flag(cli, "all");
}

static enum td_err walk_store(struct cli_dead *d, struct td_store *store, cli_dead_fn *each,
                              void *ctx, bool *ret_stop, struct td_error *err)
{
    struct tdi_arena page;
    int64_t cursor = 0;
    size_t count = PAGE_ROWS;
    enum td_err rc = TD_OK;
    tdi_arena_init(&page, PAGE_BYTES_MAX);
    while (rc == TD_OK && count == PAGE_ROWS && !*ret_stop) {
        struct td_parked_row *rows;
        tdi_arena_reset(&page);
        rc = store->driver->parked_scan(store, &d->filter, &cursor, PAGE_ROWS, &page, &rows, &count,
                                        err);
        for (size_t i = 0; rc == TD_OK && i < count && !*ret_stop; i++) {
            *ret_stop = !each(d, store, &rows[i], ctx);
        }
    }
    tdi_arena_release(&page);
    return rc;
}

int cli_dead_walk(struct cli_dead *d, bool write, cli_dead_fn *each, void *ctx)
{
    bool stop = false;
    for (size_t i = 0; i < d->config->stores_count && !stop; i++) {
        struct td_store *store;
        struct td_error err;
        enum td_err rc = cli_store_open(d->cli, d->config, &d->config->stores[i],
                                        write ? CLI_WRITE : CLI_READ, &store, &err);
        if (rc == TD_OK) {
            rc = walk_store(d, store, each, ctx, &stop, &err);
            tdi_store_close(store);
        }
        if (rc != TD_OK) {
            return cli_fail(d->cli, &err);
        }
    }
    return CLI_DONE;
}

struct td_str cli_actor(struct cli *cli)
{
    const struct passwd *user = getpwuid(geteuid());
    return user != NULL ? tdi_arena_printf(&cli->arena, "%s", user->pw_name)
                        : tdi_arena_printf(&cli->arena, "uid %ld", (long)geteuid());
}
