/*
 * A running program: the broker instances, relays and consumers of a configuration, each loop of steps in
 * a thread of its own.
 *
 * Order of life: open -> add -> start -> (wait, stop) -> close. Everything here is called by one thread,
 * the main one; only the loops run elsewhere.
 */
#ifndef TDI_CLI_APP_H
#define TDI_CLI_APP_H

#include <pthread.h>

#include "base/arena.h"
#include "base/clock.h"
#include "consumer/consumer.h"
#include "ops/plan.h"
#include "relay/relay.h"

struct tdi_log;
struct cli_app;

struct cli_app_broker {
    const struct td_broker_driver *driver;
    struct td_broker_instance *instance; /* NULL: the driver has none */
};

/* One loop. */
struct cli_app_part {
    struct cli_app *app;
    struct td_str name;
    struct tdi_relay *relay; /* one of the two */
    struct tdi_consumer *consumer;
    struct tdi_random random; /* the loop's own */
    pthread_t thread;
    bool started;
    bool ended; /* under app->lock */
};

struct cli_app {
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct tdi_arena arena;
    struct td_clock clock;
    struct tdi_log *log;
    struct cli_app_broker *brokers; /* by the number of the configuration */
    struct td_store **checks;       /* that looked at the stores, by the number of the
                                       configuration; NULL: none */
    struct tdi_random random;       /* of the main thread */
    struct cli_app_part *parts;
    size_t parts_count;
    size_t parts_max;
    int stops; /* how often stop was asked for */
    bool lock_made;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a loop has ended, or was asked to stop */
};

/* See that every store can be opened and is ours, take ownership of the brokers' files and see that every
 * queue exists. OWNED, SCHEMA (init is missing), ... */
enum td_err cli_app_open(struct cli_app *app, const struct tdi_config *config, struct tdi_log *log,
                         struct td_error *err);
/* Add the loops; names, short or full, restrict them; NULL: all of the kind. */
enum td_err cli_app_add_relay(struct cli_app *app, const struct tdi_plan_relay *relay,
                              struct td_error *err);
enum td_err cli_app_add_consumer(struct cli_app *app, const struct tdi_config_consumer *consumer,
                                 struct td_error *err);
/* Close the sessions that looked at the stores when the program was opened. They stay open until the
 * loops have theirs, for the last one to close a database makes its WAL go, and the loops would have to
 * make it again. */
void cli_app_end_checks(struct cli_app *app);
enum td_err cli_app_start(struct cli_app *app, struct td_error *err);
/* First call: drain. Second: leave at once. */
void cli_app_stop(struct cli_app *app);
/* Wait at most until deadline_us (clock.mono) for all loops to end; true: they have. */
bool cli_app_wait(struct cli_app *app, td_time_us deadline_us);
/* Has a broker instance stopped by itself? TD_OK: no. */
enum td_err cli_app_health(struct cli_app *app, struct td_error *err);
/* Ends the loops if they have not, gives everything back. Takes a half-open one. */
void cli_app_close(struct cli_app *app);

#endif
