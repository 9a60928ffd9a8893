/*
 * `tidings run` at rest: memory; and how long from exec until the first waiting row is published.
 */
#include <stdlib.h>
#include <sys/wait.h>

#include "base/str.h"
#include "bench/db.h"
#include "cli/bench.h"

#define LIMIT_US (30 * TD_SECOND_US)
#define IDLE_US_MAX (10 * TD_SECOND_US)
#define STEP_US (TD_MILLISECOND_US / 4)
#define ROUNDS 11

static enum td_err add_row(const char *path, int64_t number, struct td_error *err)
{
    char body[BENCH_BODY_BYTES];
    struct bench_db *db;
    enum td_err rc = bench_db_open(path, &db, err);
    if (rc != TD_OK) {
        return rc;
    }
    bench_body(body, number, number);
    rc = bench_db_begin(db, err);
    rc = rc == TD_OK ? bench_db_add_event(db, TD_STR_LIT("order-1"),
                                          (struct td_str){body, sizeof(body)}, err)
                     : rc;
    rc = rc == TD_OK ? bench_db_commit(db, err) : rc;
    bench_db_close(db);
    return rc;
}

/* Wait until a number of the database reaches `wanted`. */
static enum td_err reach(struct bench *b, const char *path, enum bench_number which, int64_t wanted,
                         struct td_error *err)
{
    td_time_us until = bench_now(b) + LIMIT_US;
    struct bench_db *db;
    int64_t is = -1;
    enum td_err rc = bench_db_open(path, &db, err);
    if (rc != TD_OK) {
        return rc;
    }
    while (rc == TD_OK && is < wanted) {
        rc = bench_db_number(db, which, &is, err);
        if (rc == TD_OK && is < wanted && !bench_sleep(b, STEP_US)) {
            rc = td_error_set(err, TD_ERR_INTERRUPTED, "interrupted");
        } else if (rc == TD_OK && bench_now(b) > until) {
            rc = td_error_set(err, TD_ERR_INTERNAL, "tidings run does not get going");
        }
    }
    bench_db_close(db);
    return rc;
}

enum td_err bench_idle_memory(struct bench *b, struct td_error *err)
{
    struct bench_world w;
    td_time_us rest = b->seconds * TD_SECOND_US;
    enum td_err rc = bench_world_make(b, "idle", false, &w, err);
    rc = rc == TD_OK ? add_row(w.app_db, 1, err) : rc;
    rc = rc == TD_OK ? bench_world_run(b, &w, err) : rc;
    rc = rc == TD_OK ? reach(b, w.effect_db, BENCH_EFFECTS, 1, err) : rc;
    if (rc == TD_OK && !bench_sleep(b, rest < IDLE_US_MAX ? rest : IDLE_US_MAX)) {
        rc = td_error_set(err, TD_ERR_INTERRUPTED, "interrupted");
    }
    if (rc == TD_OK) {
        b->idle.rss_mib = bench_proc_mib(w.run, "VmRSS");
        b->idle.anonymous_mib = bench_proc_mib(w.run, "RssAnon");
        b->idle.file_mib = bench_proc_mib(w.run, "RssFile");
        b->idle.threads = bench_proc_number(w.run, "Threads");
        rc = bench_world_stop(b, &w, err);
    }
    bench_world_remove(b, &w);
    b->idle.measured = rc == TD_OK;
    return rc;
}

enum td_err bench_start_time(struct bench *b, struct td_error *err)
{
    struct bench_world w;
    td_time_us took[ROUNDS];
    enum td_err rc = bench_world_make(b, "start", false, &w, err);
    for (int i = 0; rc == TD_OK && i < ROUNDS; i++) {
        rc = add_row(w.app_db, i, err);
        td_time_us from = bench_now(b);
        rc = rc == TD_OK ? bench_world_run(b, &w, err) : rc;
        rc = rc == TD_OK ? reach(b, w.app_db, BENCH_PUBLISHED, i + 1, err) : rc;
        took[i] = bench_now(b) - from;
        rc = rc == TD_OK ? bench_world_stop(b, &w, err) : rc;
    }
    if (rc == TD_OK) {
        b->start.rounds = ROUNDS;
        b->start.median_ms = bench_percentile(took, ROUNDS, 0.5);
        b->start.worst_ms = bench_percentile(took, ROUNDS, 1.0);
    }
    bench_world_remove(b, &w);
    b->start.measured = rc == TD_OK;
    return rc;
}
