/* Reading files and header options. */
#include "cli/input.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

static int read_stream(struct cli *cli, FILE *from, const char *name, size_t bytes_max,
                       struct tdi_buf *b)
{
    char chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof(chunk), from)) > 0) {
        if (b->len + n > bytes_max) {
            cli_error("%s is larger than %zu bytes", name, bytes_max);
            return CLI_DATA;
        }
        tdi_buf_add(b, chunk, n);
    }
    if (ferror(from) != 0) {
        cli_error("cannot read %s: %s", name, strerror(errno));
        return CLI_IO;
    }
    (void)cli;
    return b->failed ? CLI_INTERNAL : CLI_DONE;
}

int cli_read_file(struct cli *cli, const char *path, size_t bytes_max, struct td_bytes *ret)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *from = is_stdin ? stdin : fopen(path, "rbe");
    struct tdi_buf b;
    if (from == NULL) {
        cli_error("cannot read %s: %s", path, strerror(errno));
        return CLI_IO;
    }
    tdi_buf_init(&b, bytes_max + 1);
    int rc = read_stream(cli, from, is_stdin ? "standard input" : path, bytes_max, &b);
    if (rc == CLI_DONE &&
        !tdi_arena_bytes(&cli->arena, (struct td_bytes){b.len > 0 ? b.data : "", b.len}, ret)) {
        cli_error("no memory for %s", path);
        rc = CLI_INTERNAL;
    }
    tdi_buf_release(&b);
    if (!is_stdin) {
        fclose(from);
    }
    return rc;
}

bool cli_header(const char *text, struct td_header *ret)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text) {
        return false;
    }
    for (const char *c = text; c < equals; c++) {
        if (*c <= ' ' || *c > '~' || (*c >= 'A' && *c <= 'Z')) {
            return false;
        }
    }
    ret->name = (struct td_str){text, (size_t)(equals - text)};
    ret->value = tdi_str(equals + 1);
    return true;
}
