/* The table of commands. */
#include "cli/commands.h"

const struct cli_command *const cli_commands[] = {
    &cli_command_init,        &cli_command_check,        &cli_command_run,
    &cli_command_publish,     &cli_command_status,       &cli_command_trace,
    &cli_command_dead_list,   &cli_command_dead_show,    &cli_command_dead_edit,
    &cli_command_dead_replay, &cli_command_dead_discard, &cli_command_outbox_rebase,
    &cli_command_bench,       &cli_command_version,      &cli_command_help,
};

const size_t cli_commands_count = sizeof(cli_commands) / sizeof(cli_commands[0]);
