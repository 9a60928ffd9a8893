/* How commands read their options and talk to people. */
#include "cli/cli.h"

#include <stdarg.h>
#include <string.h>

#include "base/str.h"

#define SENTENCE_BYTES_MAX 4096

bool cli_flag(const struct cli *cli, const char *name)
{
    return cli_value_at(cli, name, 0) != NULL;
}

const char *cli_value(const struct cli *cli, const char *name)
{
    const char *last = NULL;
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, name) == 0) {
            last = cli->given[i].value;
        }
    }
    return last;
}

const char *cli_value_at(const struct cli *cli, const char *name, size_t i)
{
    for (size_t k = 0; k < cli->given_count; k++) {
        const struct cli_given *g = &cli->given[k];
        if (strcmp(g->option->name, name) == 0 && i-- == 0) {
            return g->value != NULL ? g->value : "";
        }
    }
    return NULL;
}

/* A sentence whose %s may be a path, an argument or a name. */
static void put_formatted(const char *fmt, va_list args) TD_PRINTF(1, 0);

static void put_formatted(const char *fmt, va_list args)
{
    char text[SENTENCE_BYTES_MAX];
    int n = vsnprintf(text, sizeof(text), fmt, args);
    if (n >= (int)sizeof(text)) {
        memcpy(text + sizeof(text) - sizeof("..."), "...", sizeof("..."));
    }
    cli_put(stderr, tdi_str(text));
}

int cli_fail(const struct cli *cli, const struct td_error *err)
{
    (void)cli;
    fputs("tidings: ", stderr);
    cli_put(stderr, tdi_str(err->text));
    fputc('\n', stderr);
    return td_err_exit_code(err->code);
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tidings %s: ", cli->command->name);
    put_formatted(fmt, args);
    fprintf(stderr, "; 'tidings %s --help' shows how it is called\n", cli->command->name);
    va_end(args);
    return CLI_USAGE;
}

void cli_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("tidings: ", stderr);
    put_formatted(fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

void cli_say(const struct cli *cli, const char *fmt, ...)
{
    va_list args;
    if (cli->verbose < 0) {
        return;
    }
    va_start(args, fmt);
    put_formatted(fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

int cli_config(struct cli *cli, const struct tdi_config **ret)
{
    struct tdi_diagnostics diagnostics;
    return cli_config_diagnosed(cli, ret, &diagnostics);
}

int cli_config_diagnosed(struct cli *cli, const struct tdi_config **ret,
                         struct tdi_diagnostics *ret_diagnostics)
{
    extern char **environ;
    struct td_error err;
    tdi_diagnostics_init(ret_diagnostics, &cli->arena);
    enum td_err rc = tdi_config_load(cli->config_path, (const char *const *)environ, &cli->arena,
                                     ret, ret_diagnostics, &err);
    if (rc == TD_OK) {
        return CLI_DONE;
    }
    if (ret_diagnostics->mistakes == 0) {
        return cli_fail(cli, &err);
    }
    struct tdi_buf text;
    tdi_buf_init(&text, 4U * TDI_CONFIG_FILE_BYTES_MAX);
    tdi_diagnostics_print(ret_diagnostics, cli->err_color, &text);
    cli_put_buf(stderr, &text);
    tdi_buf_release(&text);
    return td_err_exit_code(rc);
}

/* Length of the character at i, which is no control character; 0: there is none. */
static size_t harmless(struct td_str text, size_t i)
{
    unsigned char c = (unsigned char)text.data[i];
    size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c < 0x20 || c == 0x7f || len > text.len - i) {
        return 0;
    }
    if (c == 0xc2 && (unsigned char)text.data[i + 1] < 0xa0) {
        return 0; /* C1 */
    }
    return tdi_utf8_valid((struct td_str){text.data + i, len}) ? len : 0;
}

void cli_put(FILE *to, struct td_str text)
{
    for (size_t i = 0; i < text.len;) {
        size_t len = harmless(text, i);
        if (len == 0) {
            fprintf(to, "\\x%02x", (unsigned char)text.data[i++]);
        } else {
            fwrite(text.data + i, 1, len, to);
            i += len;
        }
    }
}

void cli_put_buf(FILE *to, const struct tdi_buf *b)
{
    if (b->len > 0) {
        fwrite(b->data, 1, b->len, to);
    }
}
