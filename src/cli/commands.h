/* The commands, one file each; commands.c lists them in the order of the help. */
#ifndef TDI_CLI_COMMANDS_H
#define TDI_CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct cli_command cli_command_init;
extern const struct cli_command cli_command_check;
extern const struct cli_command cli_command_run;
extern const struct cli_command cli_command_publish;
extern const struct cli_command cli_command_status;
extern const struct cli_command cli_command_trace;
extern const struct cli_command cli_command_dead_list;
extern const struct cli_command cli_command_dead_show;
extern const struct cli_command cli_command_dead_edit;
extern const struct cli_command cli_command_dead_replay;
extern const struct cli_command cli_command_dead_discard;
extern const struct cli_command cli_command_outbox_rebase;
extern const struct cli_command cli_command_bench;
extern const struct cli_command cli_command_version;
extern const struct cli_command cli_command_help;

#endif
