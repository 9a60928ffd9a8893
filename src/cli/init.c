/*
 * `tidings init`: makes databases, tables, topics and queues. Can be repeated; adds what is new and
 * removes nothing.
 */
#include "base/str.h"
#include "broker/registry.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "ops/plan.h"
#include "store/registry.h"

static int print_sql(struct cli *cli, const struct tdi_config *config)
{
    for (size_t i = 0; i < config->stores_count; i++) {
        const struct tdi_config_store *store = &config->stores[i];
        const struct td_store_driver *driver = tdi_store_driver(store->driver);
        struct td_store_options o = {.location = store->location, .service = config->service};
        struct td_error err;
        struct td_str sql;
        if (driver->schema_sql(&o, &cli->arena, &sql, &err) != TD_OK) {
            return cli_fail(cli, &err);
        }
        printf("-- store %s (%s)\n", store->name.data, store->driver.data);
        fwrite(sql.data, 1, sql.len, stdout);
    }
    return CLI_DONE;
}

static enum td_err declare_relays(struct td_store *store, const struct tdi_plan *plan,
                                  const struct tdi_config_store *where, struct td_error *err)
{
    for (size_t i = 0; i < plan->relays_count; i++) {
        if (plan->relays[i].outbox->store == where) {
            enum td_err rc = store->driver->relay_declare(store, plan->relays[i].name, err);
            if (rc != TD_OK) {
                return rc;
            }
        }
    }
    return TD_OK;
}

static enum td_err init_store(struct cli *cli, const struct tdi_plan *plan,
                              const struct tdi_config_store *where, struct td_error *err)
{
    struct td_store *store;
    struct td_store_info before = {.schema = 0}, after = {.schema = 0};
    enum td_err rc = cli_store_open(cli, plan->config, where, CLI_CREATE, &store, err);
    if (rc != TD_OK) {
        return rc;
    }
    rc = store->driver->info(store, &cli->arena, &before, err);
    if (rc == TD_OK) {
        rc = store->driver->migrate(store, err);
    }
    if (rc == TD_OK) {
        rc = store->driver->info(store, &cli->arena, &after, err);
    }
    if (rc == TD_OK) {
        rc = declare_relays(store, plan, where, err);
    }
    tdi_store_close(store);
    if (rc != TD_OK) {
        return rc;
    }
    if (before.schema == after.schema) {
        cli_say(cli, "store %s: tables are as they should be", where->name.data);
    } else if (before.schema == 0) {
        cli_say(cli, "store %s: tables made in %s", where->name.data, where->location.data);
    } else {
        cli_say(cli, "store %s: tables brought from version %d to %d", where->name.data,
                before.schema, after.schema);
    }
    return TD_OK;
}

static void say_difference(const struct cli *cli, const struct tdi_config_broker *broker,
                           const struct td_topology_difference *d)
{
    cli_say(cli, "broker %s: %.*s", broker->name.data, (int)d->text.len, d->text.data);
}

static enum td_err init_broker(struct cli *cli, const struct tdi_plan *plan,
                               const struct tdi_config_broker *where, struct td_error *err)
{
    struct td_broker_instance *instance = NULL;
    struct td_topology_difference *differences = NULL, *left = NULL;
    struct td_topology wanted;
    struct td_broker *broker;
    size_t count = 0, left_count = 0;
    enum td_err rc = tdi_plan_topology(plan, where, &cli->arena, &wanted, err);
    if (rc == TD_OK) {
        rc = cli_instance_open(cli, plan->config, where, true, &instance, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    rc = cli_broker_open(cli, plan->config, where, TD_BROKER_ADMIN, instance, &broker, err);
    if (rc == TD_OK) {
        rc =
            broker->driver->topology_apply(broker, &wanted, &cli->arena, &differences, &count, err);
        if (rc == TD_OK) {
            rc = broker->driver->topology_diff(broker, &wanted, &cli->arena, &left, &left_count,
                                               err);
        }
        tdi_broker_close(broker);
    }
    cli_instance_close(where, instance);
    for (size_t i = 0; rc == TD_OK && i < count; i++) {
        say_difference(cli, where, &differences[i]);
    }
    for (size_t i = 0; rc == TD_OK && i < left_count; i++) {
        say_difference(cli, where, &left[i]);
    }
    if (rc == TD_OK && count + left_count == 0) {
        cli_say(cli, "broker %s: topics and queues are as they should be", where->name.data);
    }
    return rc;
}

static int init_run(struct cli *cli)
{
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct td_error err;
    int code = cli_config(cli, &config);
    if (code != CLI_DONE) {
        return code;
    }
    if (cli_flag(cli, "print-sql")) {
        return print_sql(cli, config);
    }
    enum td_err rc = tdi_plan_make(config, &cli->arena, &plan, &err);
    for (size_t i = 0; rc == TD_OK && i < config->stores_count; i++) {
        rc = init_store(cli, &plan, &config->stores[i], &err);
    }
    for (size_t i = 0; rc == TD_OK && i < config->brokers_count; i++) {
        rc = init_broker(cli, &plan, &config->brokers[i], &err);
    }
    return rc == TD_OK ? CLI_DONE : cli_fail(cli, &err);
}

static const struct cli_option init_options[] = {
    {"print-sql", 0, NULL, false, "print the SQL of the tables and change nothing"},
};

const struct cli_command cli_command_init = {
    .name = "init",
    .operands = "",
    .summary = "Make databases, tables, topics and queues",
    .text = "Can be repeated: it adds what is new in the configuration and removes nothing.\n"
            "A queue whose consumer has left the file is named with what waits in it.",
    .examples = "tidings init\ntidings init --print-sql",
    CLI_OPTIONS(init_options),
    .run = init_run,
};
