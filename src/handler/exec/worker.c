/*
 * Starting, feeding and ending a worker process.
 *
 * fork and exec rather than posix_spawn: the child asks the kernel to kill it when we die, so that after
 * a kill -9 of ours no worker of the old owner goes on beside those of the next. Between fork and exec only
 * async-signal-safe calls are made.
 */
#include "handler/exec/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "handler/exec/protocol.h"

#define READ_AT_ONCE 65536
#define TO_MAX (128U * 1024 * 1024) /* lines not yet taken by the worker; a body may be 64 MiB */
#define SAID_MAX 8192               /* a longer line of stderr is logged in pieces */

void tdd_exec_process_init(struct tdd_exec_process *p)
{
    memset(p, 0, sizeof(*p));
    p->in = p->out = p->err = -1;
    tdi_buf_init(&p->to, TO_MAX);
    tdi_buf_init(&p->from, TDD_EXEC_LINE_MAX + READ_AT_ONCE);
    tdi_buf_init(&p->said, SAID_MAX + READ_AT_ONCE);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void close_pipes(struct tdd_exec_process *p)
{
    close_fd(&p->in);
    close_fd(&p->out);
    close_fd(&p->err);
}

void tdd_exec_process_release(struct tdd_exec_process *p)
{
    close_pipes(p);
    tdi_buf_release(&p->to);
    tdi_buf_release(&p->from);
    tdi_buf_release(&p->said);
}

struct pipes {
    int in[2], out[2], err[2], report[2]; /* report: errno of a failed exec */
};

static bool open_pipes(struct pipes *s)
{
    int *all[] = {s->in, s->out, s->err, s->report};
    for (size_t i = 0; i < 4; i++) {
        all[i][0] = all[i][1] = -1;
    }
    for (size_t i = 0; i < 4; i++) {
        if (pipe2(all[i], O_CLOEXEC) != 0) {
            return false;
        }
    }
    return true;
}

static void close_pair(int pair[2])
{
    close_fd(&pair[0]);
    close_fd(&pair[1]);
}

static _Noreturn void child_fails(int report)
{
    int why = errno;
    ssize_t ignored = write(report, &why, sizeof(why));
    (void)ignored; /* the parent then sees an end without a report, and says so */
    _exit(127);
}

/* In the child. Only async-signal-safe calls from here on; env was made before the fork. */
static _Noreturn void child(const struct tdd_exec_command *c, const struct pipes *s, pid_t parent,
                            char *const *env)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_IGN); /* Ctrl-C drains: we end our workers ourselves */
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        child_fails(s->report[1]);
    }
    if (getppid() != parent) {
        _exit(127); /* the parent died before prctl */
    }
    if (dup2(s->in[0], 0) < 0 || dup2(s->out[1], 1) < 0 || dup2(s->err[1], 2) < 0) {
        child_fails(s->report[1]);
    }
    syscall(SYS_close_range, 3U, ~0U, (unsigned)CLOSE_RANGE_CLOEXEC);
    if (c->directory != NULL && chdir(c->directory) != 0) {
        child_fails(s->report[1]);
    }
    execvpe(c->argv[0], c->argv, env);
    child_fails(s->report[1]);
}

/* Our environment and TIDINGS_CONSUMER; one allocation, the texts are borrowed. */
static char **make_env(const char *assignment)
{
    extern char **environ;
    size_t n = 0, at = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **env = calloc(n + 2, sizeof(*env));
    for (size_t i = 0; env != NULL && i < n; i++) {
        if (strncmp(environ[i], "TIDINGS_CONSUMER=", 17) != 0) {
            env[at++] = environ[i];
        }
    }
    if (env != NULL) {
        union {
            const char *borrowed;
            char *element; /* exec's type has no const; nothing writes through it */
        } u = {.borrowed = assignment};
        env[at] = u.element;
    }
    return env;
}

static enum td_err cannot_start(const struct tdd_exec_command *c, int why, struct td_error *err)
{
    enum td_err rc = td_error_set(err, TD_ERR_UNAVAILABLE, "cannot start %s%s%s: %s", c->argv[0],
                                  c->directory != NULL ? " in " : "",
                                  c->directory != NULL ? c->directory : "", strerror(why));
    if (err != NULL) {
        snprintf(err->peer, sizeof(err->peer), "errno %d", why);
    }
    return rc;
}

/* In the parent: wait until exec has happened or failed. 0, or the child's errno. */
static int wait_for_exec(int report)
{
    int why = 0;
    ssize_t n;
    do {
        n = read(report, &why, sizeof(why));
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(why) ? why : 0;
}

static bool set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static int start_with(struct tdd_exec_process *p, const struct tdd_exec_command *c,
                      struct pipes *s, char *const *env)
{
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        return errno;
    }
    if (pid == 0) {
        child(c, s, self, env);
    }
    close_fd(&s->report[1]);
    int why = wait_for_exec(s->report[0]);
    if (why == 0 && !(set_nonblocking(s->in[1]) && set_nonblocking(s->out[0]) &&
                      set_nonblocking(s->err[0]))) {
        why = errno;
        kill(pid, SIGKILL);
    }
    if (why != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        return why;
    }
    p->pid = pid;
    p->in = s->in[1];
    p->out = s->out[0];
    p->err = s->err[0];
    s->in[1] = s->out[0] = s->err[0] = -1;
    return 0;
}

enum td_err tdd_exec_process_start(struct tdd_exec_process *p, const struct tdd_exec_command *c,
                                   struct td_error *err)
{
    struct pipes s;
    char assignment[320];
    int why = 0;
    snprintf(assignment, sizeof(assignment), "TIDINGS_CONSUMER=%s", c->consumer);
    char **env = make_env(assignment);
    if (!open_pipes(&s)) {
        why = errno;
    } else if (env == NULL) {
        why = ENOMEM;
    } else {
        why = start_with(p, c, &s, env);
    }
    close_pair(s.in);
    close_pair(s.out);
    close_pair(s.err);
    close_pair(s.report);
    free(env);
    tdi_buf_clear(&p->to);
    tdi_buf_clear(&p->from);
    tdi_buf_clear(&p->said);
    return why == 0 ? TD_OK : cannot_start(c, why, err);
}

bool tdd_exec_process_flush(struct tdd_exec_process *p)
{
    size_t done = 0;
    bool whole = !p->to.failed && p->in >= 0;
    while (whole && done < p->to.len) {
        ssize_t n = write(p->in, p->to.data + done, p->to.len - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            whole = false;
        }
    }
    tdi_buf_consume(&p->to, done);
    return whole;
}

static bool read_into(int fd, struct tdi_buf *b)
{
    char chunk[READ_AT_ONCE];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n > 0) {
            tdi_buf_add(b, chunk, (size_t)n);
            return !b->failed;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return false;
        }
        if (errno == EAGAIN) {
            return true;
        }
    }
}

bool tdd_exec_process_read(struct tdd_exec_process *p)
{
    return p->out >= 0 && read_into(p->out, &p->from);
}

void tdd_exec_process_read_err(struct tdd_exec_process *p)
{
    if (p->err >= 0 && !read_into(p->err, &p->said)) {
        close_fd(&p->err);
    }
}

bool tdd_exec_line_of(const struct tdi_buf *b, struct td_str *ret)
{
    const char *end = b->len > 0 ? memchr(b->data, '\n', b->len) : NULL;
    if (end == NULL) {
        return false;
    }
    *ret = (struct td_str){b->data, (size_t)(end - b->data)};
    return true;
}

void tdd_exec_process_signal(const struct tdd_exec_process *p, int signal)
{
    if (p->pid > 0) {
        kill(-p->pid, signal);
    }
}

/* The process has ended but is not reaped yet, so its group's number cannot have a new owner. */
static void bury(struct tdd_exec_process *p, int *ret_status)
{
    kill(-p->pid, SIGKILL); /* children of the worker may live on in its group */
    while (waitpid(p->pid, ret_status, 0) < 0 && errno == EINTR) {
    }
    p->pid = 0;
    close_pipes(p);
}

bool tdd_exec_process_reap(struct tdd_exec_process *p, int *ret_status)
{
    siginfo_t info = {.si_pid = 0};
    if (p->pid == 0 || waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != p->pid) {
        return false;
    }
    bury(p, ret_status);
    return true;
}

void tdd_exec_process_kill(struct tdd_exec_process *p, int *ret_status)
{
    if (p->pid != 0) {
        bury(p, ret_status);
    }
}

const char *tdd_exec_status_text(int status, char buf[48])
{
    if (WIFSIGNALED(status)) {
        snprintf(buf, 48, "was killed by signal %d", WTERMSIG(status));
    } else {
        snprintf(buf, 48, "exited with %d", WEXITSTATUS(status));
    }
    return buf;
}
