/*
 * The processes that commit: writers of outbox rows, and the application that only wants its orders
 * stored. Each is a fork that ends with _exit(); it shares nothing but bench_shared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench/db.h"
#include "cli/bench.h"

#define THROTTLE_US (2 * TD_MILLISECOND_US)
#define KEY_BYTES 24
#define COMMIT_ROWS_MAX 1000

struct writer {
    struct bench *b;
    const struct bench_writer *o;
    struct bench_db *db;
    struct tdi_random random;
    double *sums; /* Zipf: sums[i] = 1/1 + ... + 1/(i+1) */
    int64_t written;
};

void bench_body(char body[BENCH_BODY_BYTES], int64_t user, int64_t number)
{
    char start[BENCH_BODY_BYTES];
    int len = snprintf(
        start, sizeof(start),
        "{\"user_id\":%lld,\"currency\":\"EUR\",\"total\":{\"net\":\"84.03\",\"points\":%lld},"
        "\"items\":[{\"sku\":\"A-1001\",\"count\":2},{\"sku\":\"B-77\",\"count\":1}],"
        "\"note\":\"",
        (long long)user, (long long)number);
    memcpy(body, start, (size_t)len);
    memset(body + len, 'x', BENCH_BODY_BYTES - (size_t)len);
    memcpy(body + BENCH_BODY_BYTES - 2, "\"}", 2);
}

/* Zipf with exponent 1: key i has the share 1/(i+1). */
static bool make_sums(struct writer *w)
{
    w->sums = malloc(BENCH_KEYS * sizeof(*w->sums));
    double sum = 0;
    for (size_t i = 0; w->sums != NULL && i < BENCH_KEYS; i++) {
        sum += 1.0 / (double)(i + 1);
        w->sums[i] = sum;
    }
    return w->sums != NULL;
}

static size_t next_key(struct writer *w)
{
    if (w->o->keys == BENCH_KEYS_ONE) {
        return 0;
    }
    double at =
        (double)(tdi_random_u64(&w->random) >> 11) / 9007199254740992.0 * w->sums[BENCH_KEYS - 1];
    size_t low = 0, high = BENCH_KEYS - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (w->sums[middle] < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static enum td_err commit_rows(struct writer *w, int rows, struct td_error *err)
{
    char body[BENCH_BODY_BYTES], key[KEY_BYTES];
    struct bench_shared *shared = w->b->shared;
    enum td_err rc = bench_db_begin(w->db, err);
    for (int i = 0; rc == TD_OK && i < rows; i++) {
        int64_t number = w->written + i + INT64_C(1000000000000) * w->o->number;
        size_t at = next_key(w);
        int len = snprintf(key, sizeof(key), "order-%zu", at);
        bench_body(body, (int64_t)at, number);
        rc = bench_db_add_event(w->db, (struct td_str){key, (size_t)len},
                                (struct td_str){body, sizeof(body)}, err);
    }
    if (rc == TD_OK) {
        rc = bench_db_commit(w->db, err);
    }
    if (rc == TD_OK && w->o->note) {
        td_time_us now = bench_now(w->b);
        for (int i = 0; i < rows && (size_t)(w->written + i) < shared->noted_max; i++) {
            shared->noted_us[w->written + i] = now;
            atomic_store(&shared->noted, (size_t)(w->written + i + 1));
        }
    }
    if (rc == TD_OK) {
        w->written += rows;
        atomic_fetch_add(&shared->committed, rows);
    }
    return rc;
}

/* How many rows to commit now; 0: none. */
static int rows_wanted(struct writer *w, td_time_us since)
{
    struct bench_shared *shared = w->b->shared;
    if (w->o->rate > 0) {
        int64_t due = (bench_now(w->b) - since) * w->o->rate / TD_SECOND_US - w->written;
        return (int)(due < COMMIT_ROWS_MAX ? due : COMMIT_ROWS_MAX);
    }
    long long backlog = atomic_load(&shared->committed) - atomic_load(&shared->effects);
    return backlog < BENCH_BACKLOG_MAX ? w->o->rows : 0;
}

static void pause_us(td_time_us us)
{
    usleep((useconds_t)us);
}

static enum td_err write_rows(struct writer *w, struct td_error *err)
{
    td_time_us since = bench_now(w->b);
    enum td_err rc = bench_db_open(w->o->db, &w->db, err);
    while (rc == TD_OK && atomic_load(&w->b->shared->stop) == 0) {
        int rows = rows_wanted(w, since);
        td_time_us before = bench_now(w->b);
        if (rows > 0) {
            rc = commit_rows(w, rows, err);
            if (w->o->polite) {
                pause_us(bench_now(w->b) - before);
            }
        } else {
            pause_us(w->o->rate > 0 ? TD_SECOND_US / w->o->rate / 2 : THROTTLE_US);
        }
    }
    bench_db_close(w->db);
    return rc;
}

/* In the child: end as the parent's, and never outlive it. */
static void begin_child(pid_t parent)
{
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CLI_INTERNAL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void end_child(struct bench *b, enum td_err rc, const struct td_error *err)
{
    if (rc != TD_OK) {
        atomic_store(&b->shared->failed, 1);
        cli_fail(b->cli, err);
    }
    _exit(td_err_exit_code(rc));
}

pid_t bench_writer_fork(struct bench *b, const struct bench_writer *o)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        return pid > 0 ? pid : 0;
    }
    struct td_error err = {.code = TD_OK};
    struct writer w = {.b = b, .o = o};
    begin_child(parent);
    tdi_random_seed(&w.random, 1 + (uint64_t)o->number);
    enum td_err rc = make_sums(&w) ? write_rows(&w, &err)
                                   : td_error_set(&err, TD_ERR_NOMEM, "no memory for a writer");
    end_child(b, rc, &err);
}

/* ---- the application ---- */

static enum td_err commit_orders(struct bench *b, const char *path, struct td_error *err)
{
    struct bench_shared *shared = b->shared;
    struct bench_db *db = NULL;
    enum td_err rc = bench_db_open(path, &db, err);
    td_time_us next = bench_now(b);
    for (int64_t i = 0; rc == TD_OK && atomic_load(&shared->stop) == 0; i++) {
        td_time_us now = bench_now(b);
        if (now < next) {
            pause_us(next - now);
        }
        td_time_us before = bench_now(b);
        rc = bench_db_begin(db, err);
        rc = rc == TD_OK ? bench_db_add_order(db, i % BENCH_KEYS, i, err) : rc;
        rc = rc == TD_OK ? bench_db_commit(db, err) : rc;
        size_t at = atomic_load(&shared->noted);
        if (rc == TD_OK && at < shared->noted_max) {
            shared->noted_us[at] = bench_now(b) - before;
            atomic_store(&shared->noted, at + 1);
        }
        next = before + TD_SECOND_US / BENCH_ORDER_RATE;
    }
    bench_db_close(db);
    return rc;
}

pid_t bench_orders_fork(struct bench *b, const char *db)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        return pid > 0 ? pid : 0;
    }
    struct td_error err = {.code = TD_OK};
    begin_child(parent);
    end_child(b, commit_orders(b, db, &err), &err);
}
