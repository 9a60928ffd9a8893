/*
 * From a committed row to a committed effect: how many a second, how late, and how long an
 * application waits for its own commits meanwhile.
 *
 * The writers stop at a backlog of BENCH_BACKLOG_MAX rows, so what is measured is what the whole path
 * keeps up with. After each part everything that was committed must have had its effect, once.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "bench/db.h"
#include "cli/bench.h"

#define POLL_US (5 * TD_MILLISECOND_US)
#define POLL_LATENCY_US (TD_MILLISECOND_US / 2)
#define WARM_UP_MAX_US (5 * TD_SECOND_US)
#define DRAIN_US (100 * TD_SECOND_US)
#define REST_US (2 * TD_SECOND_US)
#define RAW_US_MAX (5 * TD_SECOND_US)
#define SEEN_MAX 4096

struct flow {
    struct bench *b;
    const char *name;
    bool same_file;
    bool orders; /* the application commits orders meanwhile */
    struct bench_writer writer;
    int writers;
    struct bench_flow *result;
    /* while it runs */
    struct bench_world world;
    struct bench_db *seen; /* the observer's connection */
    pid_t pids[BENCH_WRITERS_MAX + 1];
    int pids_count;
    int64_t effects;
    td_time_us *latencies; /* writer.note: of the effects seen in the measured time */
    size_t latencies_max;
    size_t latencies_count;
    bool measuring;
};

struct mark {
    td_time_us at;
    int64_t effects, committed;
    struct bench_cpu cpu;
};

static struct mark take_mark(struct flow *f)
{
    struct mark m = {.effects = f->effects};
    m.committed = atomic_load(&f->b->shared->committed);
    m.cpu.run_s = bench_cpu_of(f->world.run);
    for (int i = 0; i < f->pids_count; i++) {
        m.cpu.writers_s += bench_cpu_of(f->pids[i]);
    }
    bench_cpu_machine(&m.cpu.busy_s, &m.cpu.total_s);
    m.at = bench_now(f->b);
    return m;
}

/* ---- observing ---- */

static enum td_err look_at_each(struct flow *f, struct td_error *err)
{
    int64_t numbers[SEEN_MAX];
    size_t count = 0;
    const struct bench_shared *shared = f->b->shared;
    enum td_err rc = bench_db_effects_after(f->seen, &f->effects, numbers, SEEN_MAX, &count, err);
    td_time_us now = bench_now(f->b);
    size_t noted = atomic_load(&shared->noted);
    for (size_t i = 0; rc == TD_OK && f->measuring && i < count; i++) {
        size_t number = (size_t)numbers[i];
        if (f->latencies_count < f->latencies_max) {
            /* not noted yet: its COMMIT has not even returned to the writer */
            f->latencies[f->latencies_count++] =
                number < noted ? now - shared->noted_us[number] : 0;
        }
    }
    return rc;
}

static enum td_err look(struct flow *f, struct td_error *err)
{
    enum td_err rc = f->writer.note ? look_at_each(f, err)
                                    : bench_db_number(f->seen, BENCH_EFFECTS, &f->effects, err);
    atomic_store(&f->b->shared->effects, f->effects);
    if (rc == TD_OK && atomic_load(&f->b->shared->failed) != 0) {
        rc = td_error_set(err, TD_ERR_INTERNAL, "a writer failed");
    }
    siginfo_t info = {.si_pid = 0};
    if (rc == TD_OK && waitid(P_PID, (id_t)f->world.run, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0) {
        rc = bench_world_stop(f->b, &f->world, err);
        rc = rc == TD_OK ? td_error_set(err, TD_ERR_INTERNAL, "tidings run has ended by itself")
                         : rc;
    }
    return rc;
}

static enum td_err watch(struct flow *f, td_time_us us, struct td_error *err)
{
    td_time_us until = bench_now(f->b) + us;
    enum td_err rc = TD_OK;
    while (rc == TD_OK && bench_now(f->b) < until) {
        rc = look(f, err);
        if (!bench_sleep(f->b, f->writer.note ? POLL_LATENCY_US : POLL_US)) {
            return td_error_set(err, TD_ERR_INTERRUPTED, "interrupted");
        }
    }
    return rc;
}

static enum td_err drain(struct flow *f, struct td_error *err)
{
    td_time_us until = bench_now(f->b) + DRAIN_US;
    enum td_err rc = TD_OK;
    int64_t different = 0, committed = atomic_load(&f->b->shared->committed);
    while (rc == TD_OK && f->effects < committed) {
        if (bench_now(f->b) > until) {
            return td_error_set(err, TD_ERR_INTERNAL,
                                "%s: %lld rows were committed and only %lld had an effect", f->name,
                                (long long)committed, (long long)f->effects);
        }
        rc = watch(f, POLL_US, err);
    }
    rc = rc == TD_OK ? watch(f, REST_US, err) : rc;
    rc = rc == TD_OK ? bench_db_number(f->seen, BENCH_DIFFERENT, &different, err) : rc;
    if (rc == TD_OK && (f->effects != committed || different != committed)) {
        rc = td_error_set(
            err, TD_ERR_INTERNAL, "%s: %lld rows were committed; %lld effects, %lld different ones",
            f->name, (long long)committed, (long long)f->effects, (long long)different);
    }
    f->result->committed = committed;
    f->result->effects = f->effects;
    return rc;
}

/* ---- a part ---- */

static void fill(struct flow *f, const struct mark *from, const struct mark *to)
{
    struct bench_flow *r = f->result;
    double seconds = (double)(to->at - from->at) / (double)TD_SECOND_US;
    double effects = (double)(to->effects - from->effects);
    double run_s = to->cpu.run_s - from->cpu.run_s;
    double writers_s = to->cpu.writers_s - from->cpu.writers_s;
    double total_s = to->cpu.total_s - from->cpu.total_s;
    double others_s = to->cpu.busy_s - from->cpu.busy_s - run_s - writers_s;
    r->per_second = seconds > 0 ? effects / seconds : 0;
    r->cpu_run_us_per_message = effects > 0 ? run_s * 1e6 / effects : 0;
    r->cpu_us_per_message = effects > 0 ? (run_s + writers_s) * 1e6 / effects : 0;
    r->cpu_others_percent = total_s > 0 && others_s > 0 ? 100 * others_s / total_s : 0;
    r->backlog_first = from->committed - from->effects;
    r->backlog_last = to->committed - to->effects;
    r->measured = true;
}

static enum td_err start(struct flow *f, struct td_error *err)
{
    enum td_err rc = bench_world_run(f->b, &f->world, err);
    for (int i = 0; rc == TD_OK && i < f->writers; i++) {
        f->writer.db = f->world.app_db;
        f->writer.number = i;
        f->pids[f->pids_count++] = bench_writer_fork(f->b, &f->writer);
    }
    if (rc == TD_OK && f->orders) {
        f->pids[f->pids_count++] = bench_orders_fork(f->b, f->world.app_db);
    }
    /* After the forks: a child must not inherit an open database. */
    return rc == TD_OK ? bench_db_open(f->world.effect_db, &f->seen, err) : rc;
}

static enum td_err end_writers(struct flow *f, struct td_error *err)
{
    enum td_err rc = TD_OK;
    atomic_store(&f->b->shared->stop, 1);
    for (int i = 0; i < f->pids_count; i++) {
        if (f->pids[i] > 0 && bench_wait(f->b, f->pids[i], DRAIN_US) != 0 && rc == TD_OK) {
            rc = td_error_set(err, TD_ERR_INTERNAL, "%s: a writer failed", f->name);
        }
    }
    f->pids_count = 0;
    return rc;
}

static enum td_err measure(struct flow *f, struct td_error *err)
{
    td_time_us whole = f->b->seconds * TD_SECOND_US;
    td_time_us warm_up = whole / 5 < WARM_UP_MAX_US ? whole / 5 : WARM_UP_MAX_US;
    enum td_err rc = start(f, err);
    rc = rc == TD_OK ? watch(f, warm_up, err) : rc;
    if (rc != TD_OK) {
        return rc;
    }
    struct mark from = take_mark(f);
    size_t noted = atomic_load(&f->b->shared->noted);
    f->measuring = true;
    rc = watch(f, whole, err);
    f->measuring = false;
    if (rc == TD_OK) {
        struct mark to = take_mark(f);
        fill(f, &from, &to);
        if (f->orders) {
            f->latencies = f->b->shared->noted_us + noted;
            f->latencies_count = atomic_load(&f->b->shared->noted) - noted;
        }
    }
    return rc;
}

static enum td_err run(struct flow *f, struct td_error *err)
{
    td_time_us raw_us = f->b->seconds * TD_SECOND_US / 5;
    enum td_err rc = bench_raw(f->b, f->writer.rate > 0 || f->orders ? 1 : f->writer.rows,
                               raw_us < RAW_US_MAX ? raw_us : RAW_US_MAX, &f->result->raw, err);
    if (rc == TD_OK) {
        rc = bench_world_make(f->b, f->name, f->same_file, &f->world, err);
    }
    if (rc == TD_OK) {
        rc = measure(f, err);
        struct td_error ignored;
        enum td_err ended = end_writers(f, rc == TD_OK ? err : &ignored);
        rc = rc == TD_OK ? ended : rc;
    }
    rc = rc == TD_OK ? drain(f, err) : rc;
    if (rc == TD_OK) {
        f->result->rss_after_mib = bench_proc_mib(f->world.run, "VmRSS");
        f->result->samples = (int64_t)f->latencies_count;
        f->result->p50_ms = bench_percentile(f->latencies, f->latencies_count, 0.5);
        f->result->p99_ms = bench_percentile(f->latencies, f->latencies_count, 0.99);
        rc = bench_world_stop(f->b, &f->world, err);
    }
    bench_db_close(f->seen);
    bench_world_remove(f->b, &f->world);
    f->result->measured = f->result->measured && rc == TD_OK;
    return rc;
}

enum td_err bench_path(struct bench *b, struct td_error *err)
{
    struct flow f = {.b = b, .name = "path", .result = &b->path, .writers = 2};
    f.writer = (struct bench_writer){.rows = 100, .keys = BENCH_KEYS_ZIPF};
    return run(&f, err);
}

enum td_err bench_single_key(struct bench *b, struct td_error *err)
{
    struct flow f = {.b = b, .name = "single_key", .result = &b->single_key, .writers = 2};
    f.writer = (struct bench_writer){.rows = 100, .keys = BENCH_KEYS_ONE};
    return run(&f, err);
}

enum td_err bench_one_row(struct bench *b, struct td_error *err)
{
    struct flow f = {.b = b, .name = "one_row", .result = &b->one_row, .writers = 2};
    f.writer = (struct bench_writer){.rows = 1, .keys = BENCH_KEYS_ZIPF};
    return run(&f, err);
}

enum td_err bench_latency(struct bench *b, struct td_error *err)
{
    struct flow f = {.b = b, .name = "latency", .result = &b->latency, .writers = 1};
    f.writer = (struct bench_writer){
        .rows = 1, .rate = BENCH_LATENCY_RATE, .note = true, .keys = BENCH_KEYS_ZIPF};
    f.latencies_max = (size_t)BENCH_LATENCY_RATE * (size_t)(b->seconds + BENCH_SLACK_SECONDS);
    td_time_us *latencies = malloc(f.latencies_max * sizeof(*latencies));
    if (latencies == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for the latencies");
    }
    f.latencies = latencies;
    enum td_err rc = run(&f, err);
    free(latencies);
    return rc;
}

enum td_err bench_app_commit(struct bench *b, struct td_error *err)
{
    struct flow f = {.b = b, .name = "app_commit", .result = &b->app_commit, .writers = 1};
    f.same_file = true;
    f.orders = true;
    /* The wait that is measured shall be for us, not for another process of the application. */
    f.writer = (struct bench_writer){.rows = 100, .polite = true, .keys = BENCH_KEYS_ZIPF};
    return run(&f, err);
}
