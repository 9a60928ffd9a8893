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
#include <time.h>
#include <unistd.h>

#include "handler/exec/protocol.h"

#define READ_AT_ONCE ((size_t)65536)
#define TO_MAX                                                                                     \
    ((size_t)128 * 1024 * 1024)       /* lines not yet taken by the worker; a body may be 64 MiB */
#define TO_KEPT ((size_t)1024 * 1024) /* memory that stays when all is written */
#define SAID_MAX (2 * READ_AT_ONCE)
#define INHERITED_MAX 65536 /* descriptors to look at where the kernel has no close_range(2) */

void tdd_exec_process_init(struct tdd_exec_process *p)
{
    memset(p, 0, sizeof(*p));
    p->in = p->out = p->err = -1;
    tdi_buf_init(&p->to, TO_MAX);
    tdi_buf_init(&p->from, TDD_EXEC_LINE_MAX + READ_AT_ONCE);
    tdi_buf_init(&p->said, SAID_MAX);
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

/* ---- starting ---- */

struct pipes {
    int in[2], out[2], err[2], report[2]; /* report: a struct failure, if exec was not reached */
};

enum step {
    STEP_PREPARE,
    STEP_FOLDER,
    STEP_EXEC,
};

struct failure {
    enum step step;
    int why; /* errno; 0: none */
};

/* Above the standard descriptors, which may be closed in us: dup2() to itself would keep
 * close-on-exec. */
static bool lift(int *fd)
{
    if (*fd > 2) {
        return true;
    }
    int higher = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    if (higher < 0) {
        return false;
    }
    close(*fd);
    *fd = higher;
    return true;
}

static bool open_pipes(struct pipes *s)
{
    int *all[] = {s->in, s->out, s->err, s->report};
    for (size_t i = 0; i < 4; i++) {
        all[i][0] = all[i][1] = -1;
    }
    for (size_t i = 0; i < 4; i++) {
        if (pipe2(all[i], O_CLOEXEC) != 0 || !lift(&all[i][0]) || !lift(&all[i][1])) {
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

static _Noreturn void child_fails(int report, enum step step)
{
    struct failure f = {.step = step, .why = errno};
    ssize_t ignored = write(report, &f, sizeof(f));
    (void)ignored; /* the parent then sees an end without a report, and says so */
    _exit(127);
}

/* Our handlers must not run in the child, nor may it inherit what we block or ignore of SIGPIPE. */
static void reset_signals(void)
{
    struct sigaction now;
    sigset_t none;
    for (int i = 1; i < NSIG; i++) {
        if (sigaction(i, NULL, &now) == 0 &&
            ((now.sa_flags & SA_SIGINFO) != 0 ||
             (now.sa_handler != SIG_DFL && (now.sa_handler != SIG_IGN || i == SIGPIPE)))) {
            signal(i, SIG_DFL);
        }
    }
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void close_others_at_exec(void)
{
    if (syscall(SYS_close_range, 3U, ~0U, (unsigned)CLOSE_RANGE_CLOEXEC) == 0) {
        return;
    }
    for (int fd = 3; fd < INHERITED_MAX; fd++) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

/* In the child. Only async-signal-safe calls from here on; env was made before the fork. A group of its
 * own: Ctrl-C is for us, who end our workers ourselves. */
static _Noreturn void child(const struct tdd_exec_command *c, const struct pipes *s, pid_t parent,
                            char *const *env)
{
    reset_signals();
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        child_fails(s->report[1], STEP_PREPARE);
    }
    if (getppid() != parent) {
        _exit(127); /* the parent died before prctl */
    }
    if (dup2(s->in[0], 0) < 0 || dup2(s->out[1], 1) < 0 || dup2(s->err[1], 2) < 0) {
        child_fails(s->report[1], STEP_PREPARE);
    }
    close_others_at_exec();
    if (c->directory != NULL && chdir(c->directory) != 0) {
        child_fails(s->report[1], STEP_FOLDER);
    }
    execvpe(c->argv[0], c->argv, env);
    child_fails(s->report[1], STEP_EXEC);
}

/* Our environment and TIDINGS_CONSUMER; one allocation, the texts are borrowed. */
static char **make_env(const char *assignment)
{
    extern char **environ; /* NOLINT(cppcoreguidelines-avoid-non-const-global-variables): POSIX */
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

static enum td_err cannot_start(const struct tdd_exec_command *c, struct failure f,
                                struct td_error *err)
{
    char reason[128];
    const char *what = f.step == STEP_FOLDER ? "cannot enter the folder"
                       : f.step == STEP_EXEC ? "cannot run"
                                             : "cannot start a process for";
    enum td_err rc = td_error_set(err, TD_ERR_UNAVAILABLE, "%s %s: %s", what,
                                  f.step == STEP_FOLDER ? c->directory : c->argv[0],
                                  strerror_r(f.why, reason, sizeof(reason)));
    if (err != NULL) {
        snprintf(err->driver, sizeof(err->driver), "exec");
        snprintf(err->op, sizeof(err->op), "start");
        snprintf(err->peer, sizeof(err->peer), "errno %d", f.why);
    }
    return rc;
}

/* In the parent: wait until exec has happened or failed. */
static struct failure wait_for_exec(int report)
{
    struct failure f;
    ssize_t n;
    do {
        n = read(report, &f, sizeof(f));
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(f) ? f : (struct failure){.step = STEP_EXEC};
}

static bool set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* fork with every signal blocked, until the child has given up our handlers. */
static pid_t fork_quietly(const struct tdd_exec_command *c, const struct pipes *s, char *const *env)
{
    sigset_t all, before;
    pid_t self = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        child(c, s, self, env);
    }
    int why = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return pid;
}

static struct failure start_with(struct tdd_exec_process *p, const struct tdd_exec_command *c,
                                 struct pipes *s, char *const *env)
{
    pid_t pid = fork_quietly(c, s, env);
    if (pid < 0) {
        return (struct failure){.why = errno};
    }
    close_fd(&s->report[1]);
    struct failure f = wait_for_exec(s->report[0]);
    if (f.why == 0 &&
        !(set_nonblocking(s->in[1]) && set_nonblocking(s->out[0]) && set_nonblocking(s->err[0]))) {
        f = (struct failure){.why = errno};
        kill(pid, SIGKILL);
    }
    if (f.why != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        return f;
    }
    p->pid = pid;
    p->in = s->in[1];
    p->out = s->out[0];
    p->err = s->err[0];
    s->in[1] = s->out[0] = s->err[0] = -1;
    return f;
}

enum td_err tdd_exec_process_start(struct tdd_exec_process *p, const struct tdd_exec_command *c,
                                   struct td_error *err)
{
    struct pipes s;
    char assignment[320];
    struct failure f = {.step = STEP_PREPARE};
    snprintf(assignment, sizeof(assignment), "TIDINGS_CONSUMER=%s", c->consumer);
    char **env = make_env(assignment);
    if (!open_pipes(&s)) {
        f.why = errno;
    } else if (env == NULL) {
        f.why = ENOMEM;
    } else {
        f = start_with(p, c, &s, env);
    }
    close_pair(s.in);
    close_pair(s.out);
    close_pair(s.err);
    close_pair(s.report);
    free(env);
    p->written = 0;
    tdi_buf_clear(&p->to);
    tdi_buf_clear(&p->from);
    tdi_buf_clear(&p->said);
    return f.why == 0 ? TD_OK : cannot_start(c, f, err);
}

/* ---- writing and reading ---- */

bool tdd_exec_process_unwritten(const struct tdd_exec_process *p)
{
    return p->in >= 0 && p->to.len > p->written;
}

static bool write_rest(struct tdd_exec_process *p)
{
    while (p->written < p->to.len) {
        ssize_t n = write(p->in, p->to.data + p->written, p->to.len - p->written);
        if (n > 0) {
            p->written += (size_t)n;
        } else if (errno != EINTR) {
            bool full = errno == EAGAIN;
            if (p->written > p->to.len / 2) {
                tdi_buf_consume(&p->to, p->written);
                p->written = 0;
            }
            return full;
        }
    }
    p->written = 0;
    if (p->to.cap > TO_KEPT) {
        tdi_buf_release(&p->to);
    }
    tdi_buf_clear(&p->to);
    return true;
}

/* The program may have left SIGPIPE as it is, which would end it when a worker has died. It goes to the
 * thread that writes, so blocking it here and taking it back is enough. */
bool tdd_exec_process_flush(struct tdd_exec_process *p)
{
    sigset_t broken, before, pending;
    const struct timespec at_once = {0};
    if (p->in < 0) {
        return false;
    }
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    sigpending(&pending);
    bool whole = write_rest(p);
    if (!whole && sigismember(&pending, SIGPIPE) == 0) {
        while (sigtimedwait(&broken, NULL, &at_once) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return whole;
}

void tdd_exec_process_close_in(struct tdd_exec_process *p)
{
    close_fd(&p->in);
    p->written = 0;
    tdi_buf_clear(&p->to);
}

static enum tdd_exec_read read_into(int *fd, struct tdi_buf *b)
{
    char chunk[READ_AT_ONCE];
    ssize_t n;
    if (*fd < 0) {
        return TDD_EXEC_READ_END;
    }
    do {
        n = read(*fd, chunk, sizeof(chunk));
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        tdi_buf_add(b, chunk, (size_t)n);
        return TDD_EXEC_READ_MORE;
    }
    if (n < 0 && errno == EAGAIN) {
        return TDD_EXEC_READ_DRY;
    }
    close_fd(fd);
    return TDD_EXEC_READ_END;
}

enum tdd_exec_read tdd_exec_process_read(struct tdd_exec_process *p)
{
    return read_into(&p->out, &p->from);
}

enum tdd_exec_read tdd_exec_process_read_err(struct tdd_exec_process *p)
{
    return read_into(&p->err, &p->said);
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

/* ---- ending ---- */

void tdd_exec_process_signal(const struct tdd_exec_process *p, int signal)
{
    if (p->pid > 0) {
        kill(-p->pid, signal);
    }
}

/* WNOWAIT: as long as it is not reaped, the number of its group has no new owner. ECHILD: somebody
 * ignores SIGCHLD, and the kernel has reaped it. */
bool tdd_exec_process_ended(const struct tdd_exec_process *p)
{
    siginfo_t info = {.si_pid = 0};
    if (p->pid == 0) {
        return false;
    }
    int rc = waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    return rc == 0 ? info.si_pid == p->pid : errno == ECHILD;
}

void tdd_exec_process_kill(struct tdd_exec_process *p, int *ret_status)
{
    *ret_status = 0;
    if (p->pid == 0) {
        return;
    }
    kill(-p->pid, SIGKILL); /* children of the worker may live on in its group */
    while (waitpid(p->pid, ret_status, 0) < 0 && errno == EINTR) {
    }
    p->pid = 0;
    close_pipes(p);
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
