/* Opening stores and brokers the way the configuration says. */
#include "cli/session.h"

#include <unistd.h>

#include "base/log.h"
#include "broker/registry.h"
#include "store/registry.h"

#define TAKE_WAIT_US TD_SECOND_US
#define TAKE_STEP_US 20000

enum td_err cli_missing(enum td_err rc, struct td_error *err)
{
    if (rc == TD_ERR_NOT_FOUND) {
        err->code = TD_ERR_SCHEMA;
        return err->code;
    }
    return rc;
}

enum td_err cli_store_open(struct cli *cli, const struct tdi_config *config,
                           const struct tdi_config_store *store, enum cli_access access,
                           struct td_store **ret, struct td_error *err)
{
    const struct td_store_driver *driver = tdi_store_driver(store->driver);
    if (driver == NULL) {
        return td_error_set(err, TD_ERR_CONFIG, "there is no store driver '%s'",
                            store->driver.data);
    }
    struct td_store_options o = {
        .location = store->location,
        .service = config->service,
        .clock = cli->clock,
        .random = &cli->random,
        .create = access == CLI_CREATE,
        .read_only = access == CLI_READ,
        .schema_any = access == CLI_CREATE,
    };
    return cli_missing(tdi_store_open(driver, &o, ret, err), err);
}

static struct td_broker_options broker_options(struct cli *cli, const struct tdi_config *config,
                                               const struct tdi_config_broker *broker)
{
    return (struct td_broker_options){
        .location = broker->location,
        .service = config->service,
        .role = TD_BROKER_ADMIN,
        .clock = cli->clock,
        .random = &cli->random,
    };
}

static enum td_err find_driver(const struct tdi_config_broker *broker,
                               const struct td_broker_driver **ret, struct td_error *err)
{
    *ret = tdi_broker_driver(broker->driver);
    if (*ret == NULL) {
        return td_error_set(err, TD_ERR_CONFIG, "there is no broker driver '%s'",
                            broker->driver.data);
    }
    return TD_OK;
}

enum td_err cli_broker_open(struct cli *cli, const struct tdi_config *config,
                            const struct tdi_config_broker *broker, enum td_broker_role role,
                            struct td_broker_instance *instance, struct td_broker **ret,
                            struct td_error *err)
{
    const struct td_broker_driver *driver;
    struct td_broker_options o = broker_options(cli, config, broker);
    enum td_err rc = find_driver(broker, &driver, err);
    o.role = role;
    o.instance = instance;
    return rc == TD_OK ? cli_missing(tdi_broker_open(driver, &o, ret, err), err) : rc;
}

enum td_err cli_instance_take(const struct td_broker_driver *driver,
                              const struct td_broker_options *o, struct td_broker_instance **ret,
                              struct td_error *err)
{
    td_time_us until = tdi_mono(&o->clock) + TAKE_WAIT_US;
    for (;;) {
        enum td_err rc = cli_missing(driver->instance_open(o, ret, err), err);
        if (rc != TD_ERR_OWNED || tdi_mono(&o->clock) >= until) {
            return rc;
        }
        usleep(TAKE_STEP_US);
    }
}

enum td_err cli_instance_open(struct cli *cli, const struct tdi_config *config,
                              const struct tdi_config_broker *broker, bool create,
                              struct td_broker_instance **ret, struct td_error *err)
{
    const struct td_broker_driver *driver;
    struct td_broker_options o = broker_options(cli, config, broker);
    enum td_err rc = find_driver(broker, &driver, err);
    if (rc != TD_OK) {
        return rc;
    }
    if (driver->instance_open == NULL) {
        *ret = NULL;
        return TD_OK;
    }
    o.create = create;
    o.threads = false;
    return create ? cli_instance_take(driver, &o, ret, err)
                  : cli_missing(driver->instance_open(&o, ret, err), err);
}

void cli_instance_close(const struct tdi_config_broker *broker, struct td_broker_instance *instance)
{
    const struct td_broker_driver *driver = tdi_broker_driver(broker->driver);
    if (instance != NULL && driver != NULL) {
        driver->instance_close(instance);
    }
}

struct tdi_log *cli_log(const struct cli *cli, const struct tdi_config *config)
{
    static const enum tdi_log_level levels[] = {
        [TDI_CONFIG_LOG_ERROR] = TDI_LOG_ERROR,
        [TDI_CONFIG_LOG_WARN] = TDI_LOG_WARN,
        [TDI_CONFIG_LOG_INFO] = TDI_LOG_INFO,
        [TDI_CONFIG_LOG_DEBUG] = TDI_LOG_DEBUG,
    };
    enum tdi_log_level level = levels[config->log_level];
    bool text = config->log_format == TDI_CONFIG_LOG_TEXT ||
                (config->log_format == TDI_CONFIG_LOG_AUTO && isatty(STDERR_FILENO) != 0);
    if (cli->verbose < 0) {
        level = TDI_LOG_ERROR;
    } else if (cli->verbose > 0) {
        level = TDI_LOG_DEBUG;
    }
    return tdi_log_new(STDERR_FILENO, level, text ? TDI_LOG_TEXT : TDI_LOG_JSON,
                       cli->err_color && text, cli->clock);
}
