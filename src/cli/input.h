/* What commands read from files and options. */
#ifndef TDI_CLI_INPUT_H
#define TDI_CLI_INPUT_H

#include "cli/cli.h"
#include "tidings/message.h"

/* The whole file, "-" for stdin, into the command's arena. CLI_DONE, or an exit code with the mistake
 * said. */
int cli_read_file(struct cli *cli, const char *path, size_t bytes_max, struct td_bytes *ret);
/* "name=value"; the name is lower-case printable ASCII. */
bool cli_header(const char *text, struct td_header *ret);

#endif
