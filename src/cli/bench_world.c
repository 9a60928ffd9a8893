/*
 * One part's databases, configuration and `tidings run`, and what /proc says of processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/db.h"
#include "cli/bench.h"

#define INIT_US (30 * TD_SECOND_US)
#define STOP_US (40 * TD_SECOND_US)
#define STEP_US (5 * TD_MILLISECOND_US)
#define FOLDERS_OPEN_MAX 16

static const char configuration[] =
    "service: bench\n"
    "stores:\n"
    "  app: { driver: sqlite, path: app.db }\n"
    "%s"
    "brokers:\n"
    "  main: { driver: embedded, path: broker.d }\n"
    "topics:\n"
    "  events: { broker: main, types: [\"order.*\"], key: required }\n"
    "outboxes:\n"
    "  app: { store: app }\n"
    "consumers:\n"
    "  points:\n"
    "    from: events\n"
    "    store: %s\n"
    "    order: block\n"
    "    handler:\n"
    "      sql:\n"
    "        - run: INSERT INTO effect(user_id, order_key, amount) VALUES (:user, :key, :amount)\n"
    "    params: { user: /user_id, key: $key, amount: /total/points }\n"
    "log: { level: warn }\n";

/* ---- time and signals ---- */

td_time_us bench_now(const struct bench *b)
{
    return tdi_mono(&b->clock);
}

bool bench_sleep(struct bench *b, td_time_us us)
{
    const struct timespec pause = {.tv_sec = (time_t)(us / TD_SECOND_US),
                                   .tv_nsec = (long)(us % TD_SECOND_US) * 1000};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (!b->interrupted && sigtimedwait(&set, NULL, &pause) > 0) {
        b->interrupted = true;
    }
    return !b->interrupted;
}

/* ---- processes ---- */

int bench_wait(struct bench *b, pid_t pid, td_time_us wait_us)
{
    td_time_us until = bench_now(b) + wait_us;
    int status = 0;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (bench_now(b) >= until) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        bench_sleep(b, STEP_US);
    }
    return got == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* This program again, with its talk in run.log of the world. 0: the fork failed. */
static pid_t start(const struct bench_world *w, const char *command)
{
    char log[BENCH_PATH_MAX + 16];
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        return pid > 0 ? pid : 0;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(log, sizeof(log), "%s/run.log", w->folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0 ||
        getppid() != parent) {
        _exit(CLI_IO);
    }
    execl("/proc/self/exe", "tidings", command, "-c", w->config, (char *)NULL);
    _exit(CLI_INTERNAL);
}

/* The last line that the child wrote, for the error. */
static enum td_err child_failed(const struct bench_world *w, const char *what, int code,
                                struct td_error *err)
{
    char line[200] = "", path[BENCH_PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/run.log", w->folder);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
    }
    if (f != NULL) {
        fclose(f);
    }
    line[strcspn(line, "\n")] = '\0';
    return td_error_set(err, TD_ERR_INTERNAL, "tidings %s ended with %d: %s", what, code, line);
}

/* ---- the world ---- */

static enum td_err write_config(const struct bench_world *w, bool same_file, struct td_error *err)
{
    FILE *f = fopen(w->config, "we");
    if (f == NULL) {
        return td_error_set(err, TD_ERR_CANNOT_CREATE, "%s: %s", w->config, strerror(errno));
    }
    fprintf(f, configuration, same_file ? "" : "  effects: { driver: sqlite, path: effects.db }\n",
            same_file ? "app" : "effects");
    return fclose(f) == 0 ? TD_OK : td_error_set(err, TD_ERR_IO, "%s: cannot write", w->config);
}

static enum td_err make_tables(const struct bench_world *w, struct td_error *err)
{
    struct bench_db *db;
    enum td_err rc = bench_db_open(w->effect_db, &db, err);
    if (rc == TD_OK) {
        rc = bench_db_make_effect(db, err);
        bench_db_close(db);
    }
    if (rc == TD_OK) {
        rc = bench_db_open(w->app_db, &db, err);
    }
    if (rc == TD_OK) {
        rc = bench_db_make_orders(db, err);
        bench_db_close(db);
    }
    return rc;
}

/* "folder/name" in ret, which holds BENCH_PATH_MAX bytes. */
static bool join(char *ret, const char *folder, const char *name)
{
    int len = snprintf(ret, BENCH_PATH_MAX, "%s/%s", folder, name);
    return len > 0 && len < BENCH_PATH_MAX;
}

enum td_err bench_world_make(struct bench *b, const char *name, bool same_file,
                             struct bench_world *w, struct td_error *err)
{
    memset(w, 0, sizeof(*w));
    if (!join(w->folder, b->folder, name) || !join(w->config, w->folder, "tidings.yaml") ||
        !join(w->app_db, w->folder, "app.db") ||
        !join(w->effect_db, w->folder, same_file ? "app.db" : "effects.db")) {
        return td_error_set(err, TD_ERR_USAGE, "the name of the folder is too long");
    }
    if (mkdir(w->folder, 0700) != 0) {
        return td_error_set(err, TD_ERR_CANNOT_CREATE, "%s: %s", w->folder, strerror(errno));
    }
    enum td_err rc = write_config(w, same_file, err);
    if (rc == TD_OK) {
        pid_t pid = start(w, "init");
        int code = pid > 0 ? bench_wait(b, pid, INIT_US) : -1;
        rc = code == 0 ? TD_OK : child_failed(w, "init", code, err);
    }
    atomic_store(&b->shared->committed, 0);
    atomic_store(&b->shared->effects, 0);
    atomic_store(&b->shared->stop, 0);
    atomic_store(&b->shared->failed, 0);
    atomic_store(&b->shared->noted, 0);
    return rc == TD_OK ? make_tables(w, err) : rc;
}

enum td_err bench_world_run(struct bench *b, struct bench_world *w, struct td_error *err)
{
    (void)b;
    w->run = start(w, "run");
    return w->run > 0 ? TD_OK : td_error_set(err, TD_ERR_NOMEM, "cannot start a process");
}

enum td_err bench_world_stop(struct bench *b, struct bench_world *w, struct td_error *err)
{
    kill(w->run, SIGTERM);
    int code = bench_wait(b, w->run, STOP_US);
    w->run = 0;
    return code == 0 ? TD_OK : child_failed(w, "run", code, err);
}

void bench_world_remove(struct bench *b, struct bench_world *w)
{
    if (w->run > 0) {
        bench_wait(b, w->run, 0);
        w->run = 0;
    }
    bench_folder_remove(w->folder);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void bench_folder_remove(const char *path)
{
    nftw(path, remove_one, FOLDERS_OPEN_MAX, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- /proc ---- */

double bench_cpu_of(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user = 0, kernel = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    size_t len = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[len] = '\0';
    const char *rest = strrchr(text, ')'); /* the name may hold anything */
    if (rest == NULL || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                               &kernel) != 2) {
        return 0;
    }
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

void bench_cpu_machine(double *ret_busy_s, double *ret_total_s)
{
    unsigned long user = 0, nice = 0, kernel = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    double tick = (double)sysconf(_SC_CLK_TCK);
    FILE *f = fopen("/proc/stat", "re");
    *ret_busy_s = 0;
    *ret_total_s = 0;
    if (f == NULL) {
        return;
    }
    if (fscanf(f, "cpu %lu %lu %lu %lu %lu %lu %lu %lu", &user, &nice, &kernel, &idle, &wait, &irq,
               &soft, &steal) == 8) {
        *ret_busy_s = (double)(user + nice + kernel + irq + soft + steal) / tick;
        *ret_total_s = *ret_busy_s + (double)(idle + wait) / tick;
    }
    fclose(f);
}

int64_t bench_proc_number(pid_t pid, const char *field)
{
    char path[64], line[256];
    size_t len = strlen(field);
    int64_t value = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, field, len) == 0 && line[len] == ':') {
            value = strtoll(line + len + 1, NULL, 10);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return value;
}

double bench_proc_mib(pid_t pid, const char *field)
{
    return (double)bench_proc_number(pid, field) / 1024.0;
}

/* ---- numbers ---- */

static int compare(const void *a, const void *b)
{
    td_time_us x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

double bench_percentile(td_time_us *values, size_t count, double share)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof(*values), compare);
    size_t at = (size_t)((double)count * share);
    return (double)values[at < count ? at : count - 1] / (double)TD_MILLISECOND_US;
}
