/*
 * The program: finds the command, reads its options, runs it, and makes sure that what it wrote has
 * arrived.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/cli.h"

#define OPTIONS_MAX 40
#define CLI_MEMORY_MAX (512U * 1024 * 1024)

/* The command whose words begin argv, the longest of them. *ret_words: how many. */
static const struct cli_command *find_command(int argc, char **argv, int *ret_words)
{
    const struct cli_command *found = NULL;
    for (size_t i = 0; i < cli_commands_count; i++) {
        const char *name = cli_commands[i]->name;
        const char *space = strchr(name, ' ');
        bool fits;
        int words = space == NULL ? 1 : 2;
        if (space == NULL) {
            fits = argc > 1 && strcmp(argv[1], name) == 0;
        } else {
            size_t len = (size_t)(space - name);
            fits = argc > 2 && strlen(argv[1]) == len && memcmp(argv[1], name, len) == 0 &&
                   strcmp(argv[2], space + 1) == 0;
        }
        if (fits && (found == NULL || words > *ret_words)) {
            found = cli_commands[i];
            *ret_words = words;
        }
    }
    return found;
}

static int unknown_command(int argc, char **argv)
{
    const char *best = NULL;
    unsigned least = 4;
    bool family = false;
    if (argc < 2) {
        cli_help_overview(stderr);
        return CLI_USAGE;
    }
    for (size_t i = 0; i < cli_commands_count; i++) {
        const char *name = cli_commands[i]->name;
        unsigned d = tdi_str_distance(tdi_str(argv[1]), tdi_str(name));
        size_t len = strlen(argv[1]);
        family = family || (strncmp(name, argv[1], len) == 0 && name[len] == ' ');
        if (d < least) {
            least = d;
            best = name;
        }
    }
    if (family) {
        cli_error("'%s' needs one of:", argv[1]);
        for (size_t i = 0; i < cli_commands_count; i++) {
            const char *name = cli_commands[i]->name;
            size_t len = strlen(argv[1]);
            if (strncmp(name, argv[1], len) == 0 && name[len] == ' ') {
                fprintf(stderr, "  tidings %-16s %s\n", name, cli_commands[i]->summary);
            }
        }
        return CLI_USAGE;
    }
    if (best != NULL) {
        cli_error("there is no command '%s'; did you mean '%s'?", argv[1], best);
    } else {
        cli_error("there is no command '%s'; 'tidings help' lists them", argv[1]);
    }
    return CLI_USAGE;
}

struct parser {
    struct option longs[OPTIONS_MAX + 1];
    const struct cli_option *options[OPTIONS_MAX];
    char shorts[2 * OPTIONS_MAX + 2]; /* begins with ':', see getopt(3) */
    size_t count;
};

static void add_option(struct parser *p, const struct cli_option *o)
{
    size_t at = strlen(p->shorts);
    p->options[p->count] = o;
    p->longs[p->count] = (struct option){
        .name = o->name,
        .has_arg = o->value != NULL ? required_argument : no_argument,
        .val = 256 + (int)p->count,
    };
    p->count++;
    if (o->letter != 0) {
        p->shorts[at++] = o->letter;
        if (o->value != NULL) {
            p->shorts[at] = ':';
        }
    }
}

static const struct cli_option *option_of(const struct parser *p, int c)
{
    for (size_t i = 0; i < p->count; i++) {
        if (c == 256 + (int)i || c == p->options[i]->letter) {
            return p->options[i];
        }
    }
    return NULL;
}

static void note_option(struct cli *cli, const struct cli_option *o, const char *value)
{
    if (o->letter == 'c') {
        cli->config_path = value;
    } else if (o->letter == 'v') {
        cli->verbose++;
    } else if (o->letter == 'q') {
        cli->verbose = -1;
    }
    cli->given[cli->given_count++] = (struct cli_given){o, value};
}

/* "--jsno" as it was written; "=..." does not count. */
static int unknown_option(const struct cli *cli, const struct parser *p, const char *written)
{
    const char *best = NULL;
    unsigned least = 4;
    struct td_str name = {written + 2, strcspn(written + 2, "=")};
    for (size_t i = 0; i < p->count; i++) {
        unsigned d = tdi_str_distance(name, tdi_str(p->options[i]->name));
        if (d < least) {
            least = d;
            best = p->options[i]->name;
        }
    }
    if (best == NULL) {
        return cli_usage(cli, "there is no option '--%.*s'", (int)name.len, name.data);
    }
    cli_error("there is no option '--%.*s'; did you mean '--%s'?", (int)name.len, name.data, best);
    return CLI_USAGE;
}

/* c: what getopt gave for the word before argv[optind]; it says nothing itself. */
static int wrong_option(const struct cli *cli, const struct parser *p, int c, char **argv)
{
    const struct cli_option *o = optopt != 0 ? option_of(p, optopt) : NULL;
    if (o != NULL && c == ':') {
        return cli_usage(cli, "--%s wants a value, %s", o->name, o->value);
    }
    if (o != NULL) {
        return cli_usage(cli, "--%s takes no value", o->name);
    }
    if (optopt != 0) {
        return cli_usage(cli, "there is no option '-%c'", optopt);
    }
    return unknown_option(cli, p, argv[optind - 1]);
}

/* CLI_DONE, or CLI_USAGE with the mistake said. */
static int parse_options(struct cli *cli, int argc, char **argv)
{
    struct parser p = {.shorts = ":"};
    int c;
    opterr = 0;
    for (size_t i = 0; i < cli->command->options_count; i++) {
        add_option(&p, &cli->command->options[i]);
    }
    for (size_t i = 0; i < CLI_COMMON_COUNT; i++) {
        add_option(&p, &cli_common_options[i]);
    }
    while ((c = getopt_long(argc, argv, p.shorts, p.longs, NULL)) != -1) {
        const struct cli_option *o = option_of(&p, c);
        if (c == '?' || c == ':') {
            return wrong_option(cli, &p, c, argv);
        }
        if (cli->given_count == CLI_VALUES_MAX) {
            return cli_usage(cli, "more than %d options", CLI_VALUES_MAX);
        }
        if (!o->many && cli_flag(cli, o->name)) {
            return cli_usage(cli, "--%s is given twice", o->name);
        }
        note_option(cli, o, optarg);
    }
    cli->operands = (const char *const *)(argv + optind);
    cli->operands_count = (size_t)(argc - optind);
    return CLI_DONE;
}

static int run_command(struct cli *cli, int argc, char **argv)
{
    int rc = parse_options(cli, argc, argv);
    if (rc != CLI_DONE) {
        return rc;
    }
    if (cli_flag(cli, "help")) {
        cli_help_command(stdout, cli->command);
        return CLI_DONE;
    }
    if (cli->operands_count < cli->command->operands_min) {
        return cli_usage(cli, "%s is missing", cli->command->operands);
    }
    if (cli->operands_count > cli->command->operands_max) {
        return cli_usage(cli, "'%s' is one word too many",
                         cli->operands[cli->command->operands_max]);
    }
    return cli->command->run(cli);
}

/* Output that did not arrive is a failure, but one without noise. */
static int finish_stdout(int rc)
{
    bool failed = fflush(stdout) != 0 || ferror(stdout) != 0;
    failed = (close(STDOUT_FILENO) != 0 && errno != EBADF) || failed;
    return failed && (rc == CLI_DONE || rc == CLI_FOUND) ? CLI_IO : rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {.clock = tdi_clock_system()};
    int words = 0;
    bool no_color = getenv("NO_COLOR") != NULL && getenv("NO_COLOR")[0] != '\0';
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        cli_help_overview(stdout);
        return finish_stdout(CLI_DONE);
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        static char version[] = "version";
        argv[1] = version;
    }
    cli.command = find_command(argc, argv, &words);
    if (cli.command == NULL) {
        return unknown_command(argc, argv);
    }
    if (!tdi_random_seed_system(&cli.random)) {
        cli_error("the system gives no random numbers");
        return CLI_INTERNAL;
    }
    cli.out_color = !no_color && isatty(STDOUT_FILENO) != 0;
    cli.err_color = !no_color && isatty(STDERR_FILENO) != 0;
    tdi_arena_init(&cli.arena, CLI_MEMORY_MAX);
    static char name[] = "tidings";
    argv[words] = name; /* getopt takes it as the program's name in its own messages */
    int rc = finish_stdout(run_command(&cli, argc - words, argv + words));
    tdi_arena_release(&cli.arena);
    return rc;
}
