/*
 * Short sessions of stores and brokers for commands that do one thing and end, and the log.
 */
#ifndef TDI_CLI_SESSION_H
#define TDI_CLI_SESSION_H

#include "cli/cli.h"
#include "tidings/broker.h"
#include "tidings/store.h"

struct tdi_log;

enum cli_access {
    CLI_READ, /* never write, not even a schema */
    CLI_WRITE,
    CLI_CREATE, /* init: make what is missing */
};

/* A database or broker that is not there is for init to make, as its tables are: SCHEMA. */
enum td_err cli_missing(enum td_err rc, struct td_error *err);

enum td_err cli_store_open(struct cli *cli, const struct tdi_config *config,
                           const struct tdi_config_store *store, enum cli_access access,
                           struct td_store **ret, struct td_error *err);

/* instance: NULL, or of this process. */
enum td_err cli_broker_open(struct cli *cli, const struct tdi_config *config,
                            const struct tdi_config_broker *broker, enum td_broker_role role,
                            struct td_broker_instance *instance, struct td_broker **ret,
                            struct td_error *err);
/* The driver's instance_open, but a command that owns the broker for a moment is waited for. OWNED: somebody
 * goes on owning it. */
enum td_err cli_instance_take(const struct td_broker_driver *driver,
                              const struct td_broker_options *o, struct td_broker_instance **ret,
                              struct td_error *err);
/* Own the broker for a moment. create waits as above, for init. *ret is NULL where the driver has no owner. threads: see broker.h. */
enum td_err cli_instance_open(struct cli *cli, const struct tdi_config *config,
                              const struct tdi_config_broker *broker, bool create,
                              struct td_broker_instance **ret, struct td_error *err);
void cli_instance_close(const struct tdi_config_broker *broker,
                        struct td_broker_instance *instance);

/* The log of the configuration on stderr; -v and -q move its level. NULL: out of memory. */
struct tdi_log *cli_log(const struct cli *cli, const struct tdi_config *config);

#endif
