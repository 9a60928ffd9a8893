/*
 * `tidings run`: relays and consumers until a signal asks for the end.
 *
 * The main thread only waits for signals and looks after the health of the broker instances; every
 * signal is blocked in all threads and taken here.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "cli/app.h"
#include "cli/commands.h"
#include "cli/session.h"

#define HEALTH_INTERVAL_NS 250000000L

/* Nothing named: everything. Otherwise what is named; a name that fits nothing is a mistake. */
static int add_relays(struct cli *cli, struct cli_app *app, bool all, struct td_error *err)
{
    const struct tdi_plan *plan = &app->plan;
    const char *name;
    for (size_t i = 0; (name = cli_value_at(cli, "outbox", i)) != NULL; i++) {
        if (tdi_plan_relay_find(plan, tdi_str(name)) == NULL &&
            tdi_config_outbox_find(app->config, tdi_str(name)) == NULL) {
            return cli_usage(cli, "there is no outbox '%s' in %s", name, app->config->path.data);
        }
    }
    for (size_t r = 0; r < plan->relays_count; r++) {
        const struct tdi_plan_relay *relay = &plan->relays[r];
        bool wanted = all;
        for (size_t i = 0; (name = cli_value_at(cli, "outbox", i)) != NULL; i++) {
            wanted =
                wanted || tdi_str_is(relay->name, name) || tdi_str_is(relay->outbox->name, name);
        }
        if (wanted && cli_app_add_relay(app, relay, err) != TD_OK) {
            return cli_fail(cli, err);
        }
    }
    return CLI_DONE;
}

static int add_consumers(struct cli *cli, struct cli_app *app, bool all, struct td_error *err)
{
    const struct tdi_config *config = app->config;
    const char *name;
    for (size_t i = 0; (name = cli_value_at(cli, "consumer", i)) != NULL; i++) {
        if (tdi_config_consumer_find(config, tdi_str(name)) == NULL) {
            return cli_usage(cli, "there is no consumer '%s' in %s", name, config->path.data);
        }
    }
    for (size_t c = 0; c < config->consumers_count; c++) {
        const struct tdi_config_consumer *consumer = &config->consumers[c];
        bool wanted = all;
        for (size_t i = 0; (name = cli_value_at(cli, "consumer", i)) != NULL; i++) {
            wanted = wanted || tdi_config_consumer_find(config, tdi_str(name)) == consumer;
        }
        if (wanted && cli_app_add_consumer(app, consumer, err) != TD_OK) {
            return cli_fail(cli, err);
        }
    }
    return CLI_DONE;
}

static void block_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, set, NULL);
}

/* Wait for the end: asked for by signals, or forced by a broker that cannot go on. */
static int serve(struct cli *cli, struct cli_app *app, struct tdi_log *log, const sigset_t *set)
{
    const struct timespec pause = {.tv_nsec = HEALTH_INTERVAL_NS};
    struct td_error err;
    int rc = CLI_DONE, asked = 0;
    while (!cli_app_wait(app, 0)) {
        int signal = sigtimedwait(set, NULL, &pause);
        cli_app_end_checks(app);
        if (signal == SIGHUP) {
            tdi_log_write(log, TDI_LOG_WARN, "SIGHUP: reloading is not in this version", NULL, 0);
        } else if (signal > 0) {
            asked++;
            tdi_log_write(log, TDI_LOG_INFO,
                          asked == 1 ? "draining; a second signal leaves at once" : "leaving", NULL,
                          0);
            cli_app_stop(app);
        }
        if (rc == CLI_DONE && cli_app_health(app, &err) != TD_OK) {
            tdi_log_error(log, TDI_LOG_ERROR, "the broker has stopped", &err, NULL, 0);
            rc = cli_fail(cli, &err);
            cli_app_stop(app);
            cli_app_stop(app);
        }
    }
    return rc;
}

static int run_app(struct cli *cli, const struct tdi_config *config, struct tdi_log *log,
                   const sigset_t *set)
{
    struct cli_app app;
    struct td_error err;
    bool all = !cli_flag(cli, "outbox") && !cli_flag(cli, "consumer");
    int rc = cli_app_open(&app, config, log, &err) == TD_OK ? CLI_DONE : cli_fail(cli, &err);
    if (rc == CLI_DONE) {
        rc = add_relays(cli, &app, all, &err);
    }
    if (rc == CLI_DONE) {
        rc = add_consumers(cli, &app, all, &err);
    }
    if (rc == CLI_DONE && app.parts_count == 0) {
        rc = cli_usage(cli, "%s has neither an outbox nor a consumer", config->path.data);
    }
    if (rc == CLI_DONE && cli_app_start(&app, &err) != TD_OK) {
        rc = cli_fail(cli, &err);
    }
    if (rc == CLI_DONE) {
        TDI_LOG(log, TDI_LOG_INFO, "running", TDI_LOG_STR("config", config->path),
                TDI_LOG_INT("pid", getpid()), TDI_LOG_INT("parts", (int64_t)app.parts_count));
        rc = serve(cli, &app, log, set);
    }
    cli_app_close(&app);
    if (rc == CLI_DONE) {
        tdi_log_write(log, TDI_LOG_INFO, "ended", NULL, 0);
    }
    return rc;
}

static int run_run(struct cli *cli)
{
    const struct tdi_config *config;
    sigset_t set;
    block_signals(&set); /* first: one that comes while we start must drain too */
    int rc = cli_config(cli, &config);
    if (rc != CLI_DONE) {
        return rc;
    }
    struct tdi_log *log = cli_log(cli, config);
    if (log == NULL) {
        cli_error("no memory for the log");
        return CLI_INTERNAL;
    }
    rc = run_app(cli, config, log, &set);
    tdi_log_free(log);
    return rc;
}

static const struct cli_option run_options[] = {
    {"outbox", 0, "NAME", true, "only the relay of this outbox (or OUTBOX.BROKER)"},
    {"consumer", 0, "NAME", true, "only this consumer"},
};

const struct cli_command cli_command_run = {
    .name = "run",
    .operands = "",
    .summary = "Run the relays and consumers of the configuration",
    .text = "Runs until SIGTERM or SIGINT, which drain: nothing new is taken, what is in hand is\n"
            "finished, committed and acknowledged. A second signal leaves at once and loses\n"
            "nothing. Without --outbox and --consumer everything in the file runs.",
    .examples = "tidings run\ntidings run --consumer points --consumer mail",
    CLI_OPTIONS(run_options),
    .run = run_run,
};
