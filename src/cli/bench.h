/*
 * `tidings bench`: what its files share.
 *
 *   bench.c         the command: options, folder, which parts
 *   bench_db.c      the application: SQLite as a team would use it
 *   bench_world.c   one part's databases, configuration and `tidings run`; processes and /proc
 *   bench_writer.c  the processes that commit rows
 *   bench_flow.c    committed row -> effect: rates, latency, the application's own commits
 *   bench_broker.c  the embedded broker alone, and the raw limit of the disk
 *   bench_start.c   memory at rest, time until the first publication
 *   bench_print.c   text and JSON
 *
 * Invariants: everything is measured from outside, on real files; the process itself has no thread
 * and no open database when it forks; what a part started has ended when it returns.
 */
#ifndef TDI_CLI_BENCH_H
#define TDI_CLI_BENCH_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cli/cli.h"

#define BENCH_PATH_MAX 512
#define BENCH_BODY_BYTES 600
#define BENCH_KEYS 10000
#define BENCH_WRITERS_MAX 4
#define BENCH_BACKLOG_MAX 20000 /* rows without effect; writers wait at it */
#define BENCH_BROKER_WINDOW 256
#define BENCH_LATENCY_RATE 1000 /* rows a second */
#define BENCH_ORDER_RATE 100    /* orders a second of the application */
#define BENCH_SECONDS_MAX 3600
#define BENCH_SLACK_SECONDS 120 /* warm-up and drain, for what is noted each row */

/* What the processes of a part tell each other; mapped before they are forked. */
struct bench_shared {
    atomic_llong committed;    /* rows, by all writers */
    atomic_llong effects;      /* as the parent saw last */
    atomic_int stop;           /* writers end */
    atomic_int failed;         /* a child said why on stderr */
    atomic_llong broker_acked; /* broker part */
    atomic_llong broker_confirmed;
    size_t noted_max;
    atomic_size_t noted;   /* entries of `noted_us` that are valid */
    td_time_us noted_us[]; /* latency: when row i was committed (mono);
                                         app commit: how long commit i took */
};

/* The bare disk: one thread appends `rows` bodies in one write and syncs, again and again. */
struct bench_raw {
    double per_second; /* bodies */
    double p50_ms;     /* of write + fdatasync */
    double p99_ms;
};

struct bench_flow {
    bool measured;
    double per_second;         /* effects */
    double cpu_us_per_message; /* run and writers */
    double cpu_run_us_per_message;
    double cpu_others_percent; /* of the machine, used by others meanwhile */
    int64_t backlog_first, backlog_last;
    int64_t committed, effects; /* in all, warm-up and drain included */
    double rss_after_mib;       /* of run, after the drain */
    double p50_ms, p99_ms;      /* latency_at_1000, app_commit */
    int64_t samples;
    struct bench_raw raw;
};

struct bench_broker {
    bool measured;
    double per_second;
    double cpu_us_per_message;
    double cpu_others_percent;
    struct bench_raw raw;
};

struct bench_idle {
    bool measured;
    double rss_mib, anonymous_mib, file_mib;
    int64_t threads;
};

struct bench_start {
    bool measured;
    double median_ms, worst_ms;
    int rounds;
};

struct bench {
    struct cli *cli;
    struct td_clock clock;
    char folder[BENCH_PATH_MAX]; /* fresh, removed at the end */
    int seconds;                 /* of each part */
    struct bench_shared *shared;
    size_t shared_bytes;
    bool interrupted; /* a signal asked for the end */
    double load_first, load_last;
    long processors;

    struct bench_flow path, single_key, one_row, latency, app_commit;
    struct bench_broker broker;
    struct bench_idle idle;
    struct bench_start start;
};

/* ---- bench_world.c ---- */
struct bench_world {
    char folder[BENCH_PATH_MAX];
    char config[BENCH_PATH_MAX];
    char app_db[BENCH_PATH_MAX];
    char effect_db[BENCH_PATH_MAX]; /* may be app_db */
    pid_t run;                      /* 0: does not run */
};

/* Time of the processes of a part and of the whole machine. */
struct bench_cpu {
    double run_s, writers_s;
    double busy_s, total_s; /* all processors */
};

enum td_err bench_world_make(struct bench *b, const char *name, bool same_file,
                             struct bench_world *w, struct td_error *err);
enum td_err bench_world_run(struct bench *b, struct bench_world *w, struct td_error *err);
/* SIGTERM, then wait; a run that ends otherwise than with 0 is an error. */
enum td_err bench_world_stop(struct bench *b, struct bench_world *w, struct td_error *err);
/* Kill what still runs, remove the files. */
void bench_world_remove(struct bench *b, struct bench_world *w);

/* false: a signal asked for the end. */
bool bench_sleep(struct bench *b, td_time_us us);
td_time_us bench_now(const struct bench *b);
void bench_folder_remove(const char *path);
double bench_cpu_of(pid_t pid); /* seconds so far */
void bench_cpu_machine(double *ret_busy_s, double *ret_total_s);
double bench_proc_mib(pid_t pid, const char *field); /* of /proc/PID/status */
int64_t bench_proc_number(pid_t pid, const char *field);
/* values are sorted in place. share: 0.5, 0.99 */
double bench_percentile(td_time_us *values, size_t count, double share);
/* Waits at most until then for a child; kills it after. Its exit code, or -1. */
int bench_wait(struct bench *b, pid_t pid, td_time_us wait_us);

/* ---- bench_writer.c ---- */
enum bench_keys {
    BENCH_KEYS_ZIPF,
    BENCH_KEYS_ONE,
};

struct bench_writer {
    const char *db;
    int number;  /* of this writer, from 0 */
    int rows;    /* of one commit */
    int rate;    /* rows a second; 0: as fast as the backlog allows */
    bool note;   /* when each row was committed */
    bool polite; /* leaves the write lock free as long as it had it */
    enum bench_keys keys;
};

/* Fork a process that commits rows until shared->stop. 0: the fork failed. */
pid_t bench_writer_fork(struct bench *b, const struct bench_writer *w);
/* Fork the application that commits BENCH_ORDER_RATE orders a second and notes how long each took. */
pid_t bench_orders_fork(struct bench *b, const char *db);
void bench_body(char body[BENCH_BODY_BYTES], int64_t user, int64_t number);

/* ---- the parts ---- */
enum td_err bench_path(struct bench *b, struct td_error *err);
enum td_err bench_single_key(struct bench *b, struct td_error *err);
enum td_err bench_one_row(struct bench *b, struct td_error *err);
enum td_err bench_latency(struct bench *b, struct td_error *err);
enum td_err bench_app_commit(struct bench *b, struct td_error *err);
enum td_err bench_broker_alone(struct bench *b, struct td_error *err);
enum td_err bench_idle_memory(struct bench *b, struct td_error *err);
enum td_err bench_start_time(struct bench *b, struct td_error *err);
enum td_err bench_raw(struct bench *b, int rows, td_time_us us, struct bench_raw *ret,
                      struct td_error *err);

/* ---- bench_print.c ---- */
void bench_print_text(const struct bench *b);
void bench_print_json(const struct bench *b);

#endif
