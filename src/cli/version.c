/* `tidings version` and `tidings help`. */
#include <string.h>

#include "base/str.h"
#include "broker/registry.h"
#include "cli/commands.h"
#include "handler/registry.h"
#include "store/registry.h"
#include "tdi_version.h"

static int version_run(struct cli *cli)
{
    (void)cli;
    printf("tidings %s\n", TDI_VERSION);
    fputs("stores:", stdout);
    for (size_t i = 0; tdi_store_driver_at(i) != NULL; i++) {
        printf(" %s", tdi_store_driver_at(i)->name);
    }
    fputs("\nbrokers:", stdout);
    for (size_t i = 0; tdi_broker_driver_at(i) != NULL; i++) {
        printf(" %s", tdi_broker_driver_at(i)->name);
    }
    fputs("\nhandlers:", stdout);
    for (size_t i = 0; tdi_handler_driver_at(i) != NULL; i++) {
        printf(" %s", tdi_handler_driver_at(i)->name);
    }
    fputc('\n', stdout);
    return CLI_DONE;
}

const struct cli_command cli_command_version = {
    .name = "version",
    .operands = "",
    .summary = "Print the version and what is built in",
    .text = "",
    .examples = "tidings version",
    .run = version_run,
};

static int help_config(struct cli *cli)
{
    struct tdi_buf out;
    bool found = true;
    tdi_buf_init(&out, 4U * 1024 * 1024);
    if (cli_flag(cli, "markdown")) {
        tdi_config_markdown(&out);
    } else {
        struct td_str key = cli->operands_count > 1 ? tdi_str(cli->operands[1]) : TD_STR_LIT("");
        found = tdi_config_help(&out, key);
    }
    cli_put_buf(found ? stdout : stderr, &out);
    tdi_buf_release(&out);
    return found ? CLI_DONE : CLI_USAGE;
}

static int help_run(struct cli *cli)
{
    char name[64] = "";
    if (cli->operands_count > 0 && strcmp(cli->operands[0], "config") == 0) {
        return help_config(cli);
    }
    if (cli_flag(cli, "markdown")) {
        cli_help_markdown(stdout);
        return CLI_DONE;
    }
    if (cli->operands_count == 0) {
        cli_help_overview(stdout);
        return CLI_DONE;
    }
    snprintf(name, sizeof(name), "%s%s%s", cli->operands[0], cli->operands_count > 1 ? " " : "",
             cli->operands_count > 1 ? cli->operands[1] : "");
    for (size_t i = 0; i < cli_commands_count; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            cli_help_command(stdout, cli_commands[i]);
            return CLI_DONE;
        }
    }
    return cli_usage(cli, "there is no command '%s'", name);
}

static const struct cli_option help_options[] = {
    {"markdown", 0, NULL, false, "the reference page instead"},
};

const struct cli_command cli_command_help = {
    .name = "help",
    .operands = "[COMMAND | config [KEY]]",
    .operands_max = 2,
    .summary = "Explain a command, or the configuration",
    .text = "",
    .examples = "tidings help dead replay\ntidings help config retry",
    CLI_OPTIONS(help_options),
    .run = help_run,
};
