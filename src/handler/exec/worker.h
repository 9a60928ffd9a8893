/*
 * One worker process: its pipes, its buffers and how it is started and ended. Knows bytes and lines,
 * not deliveries.
 *
 * Invariants: pid > 0 exactly while the process has not been reaped; the descriptors are ours alone,
 * non-blocking, close-on-exec. The process leads a group of its own, which is killed with it, and the
 * kernel kills the process when the thread that started it ends (not its children, which then see the
 * end of their pipes). No call raises SIGPIPE.
 */
#ifndef TDD_EXEC_WORKER_H
#define TDD_EXEC_WORKER_H

#include <sys/types.h>

#include "base/buf.h"
#include "tidings/error.h"
#include "tidings/types.h"

struct tdd_exec_command {
    char *const *argv;     /* NULL behind the last */
    const char *directory; /* NULL: ours */
    const char *consumer;  /* into the environment as TIDINGS_CONSUMER */
};

struct tdd_exec_process {
    pid_t pid;           /* 0: none */
    int in, out, err;    /* its stdin, stdout, stderr; -1: closed */
    struct tdi_buf to;   /* for its stdin */
    size_t written;      /* of `to` */
    struct tdi_buf from; /* stdout that is not a whole line yet */
    struct tdi_buf said; /* stderr likewise */
};

enum tdd_exec_read {
    TDD_EXEC_READ_MORE, /* something was read, there may be more */
    TDD_EXEC_READ_DRY,  /* nothing is there now */
    TDD_EXEC_READ_END,
};

void tdd_exec_process_init(struct tdd_exec_process *p);
void tdd_exec_process_release(struct tdd_exec_process *p); /* must be reaped */

/* UNAVAILABLE: why it cannot be started, in one sentence. */
enum td_err tdd_exec_process_start(struct tdd_exec_process *p, const struct tdd_exec_command *c,
                                   struct td_error *err);
/* Does `to` hold something that is not written? */
bool tdd_exec_process_unwritten(const struct tdd_exec_process *p);
/* Write what `to` holds as far as the pipe takes it. false: the pipe is broken. */
bool tdd_exec_process_flush(struct tdd_exec_process *p);
/* No more input for it. */
void tdd_exec_process_close_in(struct tdd_exec_process *p);
/* Read once; what was read is added to `from` or `said`. At END the descriptor is closed. */
enum tdd_exec_read tdd_exec_process_read(struct tdd_exec_process *p);
enum tdd_exec_read tdd_exec_process_read_err(struct tdd_exec_process *p);
/* The next whole line of a buffer without its line feed; valid until tdi_buf_consume of line + 1. */
bool tdd_exec_line_of(const struct tdi_buf *b, struct td_str *ret);
/* To the process group. */
void tdd_exec_process_signal(const struct tdd_exec_process *p, int signal);
/* Has it ended? It stays to be killed or reaped. */
bool tdd_exec_process_ended(const struct tdd_exec_process *p);
/* SIGKILL to the group and wait for the end, which is at once. *ret_status as of waitpid(2): its own
 * if it had ended before. */
void tdd_exec_process_kill(struct tdd_exec_process *p, int *ret_status);
/* "exited with 1", "was killed by signal 9". */
const char *tdd_exec_status_text(int status, char buf[48]);

#endif
