/*
 * The owner: opening and closing the directory, the final failure, waiting.
 *
 * Must not know: what is written in a commit.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/embedded/internal.h"

#define CACHE_KIB_WRITER 8192
#define CACHE_KIB_READER 1024
#define BUSY_TIMEOUT_US (5 * TD_SECOND_US)
#define WAIT_SLICE_US TD_SECOND_US /* the given clock may not be the one that the kernel waits by */

char *tdd_emb_strdup(struct td_str s)
{
    char *copy = malloc(s.len + 1);
    if (copy != NULL) {
        if (s.len > 0) {
            memcpy(copy, s.data, s.len);
        }
        copy[s.len] = '\0';
    }
    return copy;
}

void tdd_emb_str_free(struct td_str s)
{
    union {
        const char *borrowed;
        char *own;
    } p = {.borrowed = s.data};
    free(p.own);
}

enum td_err tdd_emb_nomem(struct td_error *err)
{
    return td_error_set(err, TD_ERR_NOMEM, "memory is exhausted");
}

/* ---- waiting ---- */

enum td_err tdd_emb_cond_init(pthread_cond_t *cond, struct td_error *err)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc == 0) {
        rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        rc = rc == 0 ? pthread_cond_init(cond, &attr) : rc;
        (void)pthread_condattr_destroy(&attr);
    }
    return rc == 0 ? TD_OK : tdd_emb_nomem(err);
}

bool tdd_emb_passed(const struct td_broker_instance *in, td_time_us deadline_us)
{
    return deadline_us != TD_TIME_NONE && tdi_mono(&in->clock) >= deadline_us;
}

void tdd_emb_wait(struct td_broker_instance *in, pthread_cond_t *cond, td_time_us deadline_us)
{
    if (deadline_us == TD_TIME_NONE) {
        (void)pthread_cond_wait(cond, &in->lock);
        return;
    }
    td_time_us left = deadline_us - tdi_mono(&in->clock);
    if (left <= 0) {
        return;
    }
    struct td_clock system = tdi_clock_system();
    td_time_us until = tdi_mono(&system) + (left < WAIT_SLICE_US ? left : WAIT_SLICE_US);
    struct timespec at = {.tv_sec = (time_t)(until / TD_SECOND_US),
                          .tv_nsec = (long)(until % TD_SECOND_US) * 1000};
    (void)pthread_cond_timedwait(cond, &in->lock, &at);
}

/* ---- the end of all work ---- */

enum td_err tdd_emb_failure(const struct td_broker_instance *in, struct td_error *err)
{
    if (err != NULL) {
        *err = in->failure;
    }
    return in->failure.code;
}

void tdd_emb_fail(struct td_broker_instance *in, const struct td_error *why)
{
    if (!in->failed) {
        in->failed = true;
        in->failure = *why;
        in->failure.class_ = TD_CLASS_FATAL;
        (void)snprintf(in->failure.driver, sizeof(in->failure.driver), "%s", TDD_EMB_NAME);
    }
    struct tdd_emb_entry *e = NULL;
    while ((e = tdd_emb_list_take(&in->unsynced)) != NULL) {
        tdd_emb_settle(in, e, TD_PUBLISH_UNKNOWN, in->failure.code, 0);
    }
    while ((e = tdd_emb_list_take(&in->pending)) != NULL) {
        tdd_emb_settle(in, e, TD_PUBLISH_REFUSED, in->failure.code, 0);
    }
    for (size_t i = 0; i < in->queues_count; i++) {
        for (struct tdd_emb_con *c = in->queue_list[i]->consumers; c != NULL; c = c->next) {
            (void)pthread_cond_broadcast(&c->cond);
        }
    }
    (void)pthread_cond_broadcast(&in->work);
    (void)pthread_cond_broadcast(&in->sync_work);
}

enum td_err tdd_emb_instance_health(struct td_broker_instance *in, struct td_error *err)
{
    (void)pthread_mutex_lock(&in->lock);
    enum td_err rc = in->failed ? tdd_emb_failure(in, err) : TD_OK;
    (void)pthread_mutex_unlock(&in->lock);
    return rc;
}

/* ---- opening ---- */

enum td_err tdd_emb_dir_check(const char *dir, bool create, struct td_error *err)
{
    struct stat st;
    if (stat(dir, &st) == 0) {
        return S_ISDIR(st.st_mode)
                   ? TD_OK
                   : td_error_set(err, TD_ERR_FOREIGN, "%s is not a directory", dir);
    }
    if (errno != ENOENT) {
        return td_error_set(err, errno == EACCES ? TD_ERR_DENIED : TD_ERR_IO,
                            "%s cannot be used: %s", dir, strerrordesc_np(errno));
    }
    if (!create) {
        return td_error_set(err, TD_ERR_NOT_FOUND,
                            "the broker's directory %s does not exist; run tidings init", dir);
    }
    if (mkdir(dir, 0750) != 0 && errno != EEXIST) {
        return td_error_set(err, errno == ENOSPC ? TD_ERR_DISK_FULL : TD_ERR_CANNOT_CREATE,
                            "%s cannot be created: %s", dir, strerrordesc_np(errno));
    }
    return TD_OK;
}

enum td_err tdd_emb_file_open(struct tdi_db *db, const char *dir, struct td_str vfs,
                              const struct td_clock *clock, bool read_only, bool create,
                              struct td_error *err)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/broker.db", dir);
    if (n < 0 || n >= (int)sizeof(path)) {
        return td_error_set(err, TD_ERR_CONFIG, "the path of the broker's directory is too long");
    }
    struct tdi_db_options o = {
        .path = {.data = path, .len = (size_t)n},
        .vfs = vfs,
        .create = create,
        .read_only = read_only,
        .own_file = true,
        .application_id = TDD_EMB_APPLICATION_ID,
        .cache_kib = read_only ? CACHE_KIB_READER : CACHE_KIB_WRITER,
        .busy_timeout_us = BUSY_TIMEOUT_US,
        .clock = *clock,
    };
    enum td_err rc = tdi_db_open(db, &o, TDD_EMB_NAME, err);
    if (rc != TD_OK) {
        tdi_db_close(db);
    }
    return rc;
}

static enum td_err open_files(struct td_broker_instance *in, const struct td_broker_options *o,
                              struct td_error *err)
{
    enum td_err rc = tdd_emb_dir_check(in->dir, o->create, err);
    if (rc == TD_OK) {
        rc = tdd_emb_owner_take(in->dir, &in->clock, &in->owner_fd, err);
    }
    /* Opening syncs: what a killed owner had committed is on disk before anybody sees it. */
    if (rc == TD_OK) {
        rc = tdd_emb_file_open(&in->writer, in->dir, in->vfs, &in->clock, false, o->create, err);
    }
    if (rc == TD_OK) {
        rc = tdd_emb_schema_open(&in->writer, o->create, o->random, in->hash_key, err);
    }
    if (rc == TD_OK) {
        rc = tdd_emb_file_open(&in->reader, in->dir, in->vfs, &in->clock, true, false, err);
    }
    return rc;
}

static void free_all(struct td_broker_instance *in)
{
    for (size_t i = 0; i < in->queues_count; i++) {
        struct tdd_emb_queue *q = in->queue_list[i];
        (void)sqlite3_finalize(q->select_range);
        (void)sqlite3_finalize(q->insert_one);
        (void)sqlite3_finalize(q->insert_four);
        (void)sqlite3_finalize(q->delete_range);
        q->select_range = q->insert_one = q->insert_four = q->delete_range = NULL;
    }
    /* The writer last: whoever closes last moves the WAL into the file. */
    tdi_db_close(&in->reader);
    tdi_db_close(&in->writer);
    tdd_emb_owner_release(in->owner_fd);
    tdd_emb_catalogue_free(in);
    tdd_emb_dedupe_release(&in->dedupe);
    (void)pthread_cond_destroy(&in->work);
    (void)pthread_cond_destroy(&in->sync_work);
    (void)pthread_mutex_destroy(&in->lock);
    (void)pthread_mutex_destroy(&in->reader_lock);
    tdd_emb_str_free(in->vfs);
    free(in->dir);
    free(in);
}

static enum td_err init_plain(struct td_broker_instance *in, const struct td_broker_options *o,
                              struct td_error *err)
{
    in->clock = o->clock;
    in->threads = o->threads;
    in->checkpoint_at = TDI_DB_WAL_CHECKPOINT_PAGES;
    in->idle_at = tdi_mono(&in->clock) + TDD_EMB_IDLE_US;
    if (pthread_mutex_init(&in->lock, NULL) != 0 ||
        pthread_mutex_init(&in->reader_lock, NULL) != 0 ||
        tdd_emb_cond_init(&in->work, NULL) != TD_OK ||
        tdd_emb_cond_init(&in->sync_work, NULL) != TD_OK) {
        return tdd_emb_nomem(err);
    }
    in->dir = tdd_emb_strdup(o->location);
    in->vfs = (struct td_str){.data = tdd_emb_strdup(o->vfs), .len = o->vfs.len};
    return in->dir != NULL && in->vfs.data != NULL ? TD_OK : tdd_emb_nomem(err);
}

enum td_err tdd_emb_instance_open(const struct td_broker_options *o,
                                  struct td_broker_instance **ret, struct td_error *err)
{
    if (o->location.len == 0 || memchr(o->location.data, '\0', o->location.len) != NULL) {
        return td_error_set(err, TD_ERR_CONFIG,
                            "the embedded broker needs the path of a directory");
    }
    struct td_broker_instance *in = calloc(1, sizeof(*in));
    if (in == NULL) {
        return tdd_emb_nomem(err);
    }
    in->owner_fd = -1;
    enum td_err rc = init_plain(in, o, err);
    if (rc == TD_OK) {
        rc = open_files(in, o, err);
    }
    if (rc == TD_OK) {
        tdi_map_init(&in->topics, in->hash_key, TDD_EMB_TOPICS_MAX);
        tdi_map_init(&in->queues, in->hash_key, TDD_EMB_QUEUES_MAX);
        tdd_emb_dedupe_init(&in->dedupe, tdi_mono(&in->clock));
        rc = tdd_emb_load(in, err);
    }
    if (rc == TD_OK && in->threads) {
        rc = tdd_emb_threads_start(in, err);
    }
    if (rc == TD_OK && in->threads) {
        rc = tdd_emb_server_start(in, err);
    }
    if (rc != TD_OK) {
        tdd_emb_threads_stop(in);
        free_all(in);
        if (err != NULL && err->driver[0] == '\0') {
            (void)snprintf(err->driver, sizeof(err->driver), "%s", TDD_EMB_NAME);
            (void)snprintf(err->op, sizeof(err->op), "instance_open");
        }
        return rc;
    }
    *ret = in;
    return TD_OK;
}

void tdd_emb_instance_close(struct td_broker_instance *in)
{
    if (in == NULL) {
        return;
    }
    tdd_emb_server_stop(in);
    (void)pthread_mutex_lock(&in->lock);
    TDI_ASSERT(in->sessions == 0);
    in->stopping = true;
    (void)pthread_mutex_unlock(&in->lock);
    tdd_emb_threads_stop(in);
    (void)pthread_mutex_lock(&in->lock);
    tdd_emb_drain(in);
    (void)pthread_mutex_unlock(&in->lock);
    free_all(in);
}
