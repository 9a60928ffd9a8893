/*
 * What every command shares: its entry in the table, the options that were given, and how it talks.
 *
 * Data goes to stdout, everything else to stderr. A command returns an exit code of sysexits(3);
 * main() flushes stdout and turns a failure to write into 74.
 */
#ifndef TDI_CLI_CLI_H
#define TDI_CLI_CLI_H

#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "config/config.h"
#include "tidings/error.h"

#define CLI_VALUES_MAX 256

enum cli_exit {
    CLI_DONE = 0,
    CLI_FOUND = 1, /* a check found something, or what was named does not exist */
    CLI_USAGE = 64,
    CLI_DATA = 65,
    CLI_UNAVAILABLE = 69,
    CLI_INTERNAL = 70,
    CLI_CANNOT_CREATE = 73,
    CLI_IO = 74,
    CLI_TRY_AGAIN = 75,
    CLI_DENIED = 77,
    CLI_CONFIG = 78,
};

struct cli_option {
    const char *name;  /* long name without dashes */
    char letter;       /* 0: none */
    const char *value; /* what it takes, as in the help ("NAME"); NULL: a flag */
    bool many;         /* may be given again */
    const char *help;  /* one line */
};

struct cli;

struct cli_command {
    const char *name;     /* "run", "dead list" */
    const char *operands; /* "ID", "[FILE|-]", "" */
    size_t operands_min, operands_max;
    const char *summary;  /* one line */
    const char *text;     /* paragraphs, each line under 80 columns */
    const char *examples; /* lines "tidings ..." */
    const struct cli_option *options;
    size_t options_count;
    bool bare; /* takes none of the common options (help, version) */
    int (*run)(struct cli *cli);
};

struct cli_given {
    const struct cli_option *option;
    const char *value;
};

struct cli {
    const struct cli_command *command;
    struct cli_given given[CLI_VALUES_MAX];
    size_t given_count;
    const char *const *operands;
    size_t operands_count;
    const char *config_path; /* -c, or NULL */
    int verbose;             /* -v: 1, -vv: 2; -q: -1 */
    bool out_color;          /* stdout is a terminal and NO_COLOR is not set */
    bool err_color;
    struct tdi_arena arena; /* for the whole command */
    struct td_clock clock;
    struct tdi_random random;
};

#define CLI_OPTIONS(array) .options = (array), .options_count = sizeof(array) / sizeof((array)[0])

/* What every command but the bare ones takes. */
#define CLI_COMMON_COUNT 4
extern const struct cli_option cli_common_options[CLI_COMMON_COUNT];

/* The table of commands, in the order of the help. */
extern const struct cli_command *const cli_commands[];
extern const size_t cli_commands_count;

bool cli_flag(const struct cli *cli, const char *name);
/* The last value, or NULL. */
const char *cli_value(const struct cli *cli, const char *name);
/* The i-th value of an option with `many`, or NULL. */
const char *cli_value_at(const struct cli *cli, const char *name, size_t i);

/* "tidings: sentence" on stderr; returns the exit code of the error. */
int cli_fail(const struct cli *cli, const struct td_error *err);
int cli_usage(const struct cli *cli, const char *fmt, ...) TD_PRINTF(2, 3);
/* "tidings: sentence" on stderr. What comes from outside is made harmless, here and in the two
 * others. */
void cli_error(const char *fmt, ...) TD_PRINTF(1, 2);
/* A line on stderr unless -q. */
void cli_say(const struct cli *cli, const char *fmt, ...) TD_PRINTF(2, 3);

/* Load the configuration; mistakes are printed. CLI_DONE, or the exit code. */
int cli_config(struct cli *cli, const struct tdi_config **ret);
/* The same, and what else is to be said about the file: findings and notes. */
int cli_config_diagnosed(struct cli *cli, const struct tdi_config **ret,
                         struct tdi_diagnostics *ret_diagnostics);

/* Text of a message on its way to a terminal or a pipe: control characters and bytes that are not
 * UTF-8 become \xNN. */
void cli_put(FILE *to, struct td_str text);
void cli_put_buf(FILE *to, const struct tdi_buf *b);

/* Help of one command, or the overview for NULL. */
void cli_help_command(FILE *to, const struct cli_command *command);
void cli_help_overview(FILE *to);
/* docs/reference/commands.md */
void cli_help_markdown(FILE *to);

#endif
