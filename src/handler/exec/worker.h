/*
 * One worker process: its pipes, its buffers and how it is started and ended. Knows bytes and lines,
 * not deliveries.
 *
 * Invariants: pid > 0 exactly while the process has not been reaped; the descriptors are ours alone,
 * non-blocking, close-on-exec. The process leads a group of its own, and the kernel kills it when the
 * thread that started it ends.
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
    pid_t pid;          /* 0: none */
    int in, out, err;   /* its stdin, stdout, stderr; -1: closed */
    struct tdi_buf to;  /* not written yet */
    struct tdi_buf from; /* stdout that is not a whole line yet */
    struct tdi_buf said; /* stderr likewise */
};

void tdd_exec_process_init(struct tdd_exec_process *p);
void tdd_exec_process_release(struct tdd_exec_process *p); /* must be reaped */

/* UNAVAILABLE: why it cannot be started, in one sentence. */
enum td_err tdd_exec_process_start(struct tdd_exec_process *p, const struct tdd_exec_command *c,
                                   struct td_error *err);
/* Write what `to` holds as far as the pipe takes it. false: the pipe is broken. */
bool tdd_exec_process_flush(struct tdd_exec_process *p);
/* Read what is there. false: end of file or error on stdout; what was read stays in `from`. */
bool tdd_exec_process_read(struct tdd_exec_process *p);
void tdd_exec_process_read_err(struct tdd_exec_process *p);
/* The next whole line of a buffer without its line feed; valid until tdi_buf_consume of line + 1. */
bool tdd_exec_line_of(const struct tdi_buf *b, struct td_str *ret);
/* To the process group. */
void tdd_exec_process_signal(const struct tdd_exec_process *p, int signal);
/* Reap if it has ended: true, and pid is 0 and *ret_status as of waitpid(2). */
bool tdd_exec_process_reap(struct tdd_exec_process *p, int *ret_status);
/* SIGKILL and wait for the end, which is at once. */
void tdd_exec_process_kill(struct tdd_exec_process *p, int *ret_status);
/* "exited with 1", "was killed by signal 9". */
const char *tdd_exec_status_text(int status, char buf[48]);

#endif
