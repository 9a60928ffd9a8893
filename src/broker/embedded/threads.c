/*
 * The writer thread and the sync thread of an owner that runs for long. With few operations waiting
 * the writer syncs by itself; with many it hands the sync over and commits the next slice meanwhile,
 * unless that would be a small one.
 */
#include "broker/embedded/internal.h"

/* When the writer has something to do: now (0), at a time, or TD_TIME_NONE: when it is woken. */
static td_time_us due_at(const struct td_broker_instance *in)
{
    size_t waiting = in->pending.count;
    if (waiting > 0 && (!in->syncing || waiting >= TDD_EMB_HOLD_BACK_MAX)) {
        return 0;
    }
    if (in->unsynced.count > 0 && !in->syncing && !in->handed) {
        return 0;
    }
    td_time_us at = TD_TIME_NONE;
    if (in->dirty != NULL) {
        bool now = in->mark_wanted || in->acks_waiting >= TDD_EMB_SLICE_MAX;
        at = now ? 0 : in->ack_since + TDD_EMB_ACK_FLUSH_US;
        at = at < in->retry_at ? in->retry_at : at;
    } else if (waiting == 0 && in->unsynced.count == 0) {
        at = in->idle_at;
    }
    return at;
}

static void write_once(struct td_broker_instance *in)
{
    bool idle = in->pending.count == 0 && in->dirty == NULL && in->unsynced.count == 0;
    in->writing = true;
    if (idle) {
        tdd_emb_maintain_idle(in);
    } else {
        tdd_emb_commit(in, false);
    }
    if (!in->failed && in->unsynced.count > 0) {
        if (!in->syncing && in->pending.count < TDD_EMB_SYNC_INLINE_MAX) {
            tdd_emb_sync(in);
        } else {
            in->handed = true;
            (void)pthread_cond_signal(&in->sync_work);
        }
    }
    if (!in->failed && !idle) {
        tdd_emb_maintain(in);
    }
    tdd_emb_writing_give(in);
}

static void *writer_main(void *arg)
{
    struct td_broker_instance *in = arg;
    (void)pthread_mutex_lock(&in->lock);
    while (!in->failed && !in->stop_threads) {
        td_time_us at = due_at(in);
        if (in->writing || at == TD_TIME_NONE) {
            (void)pthread_cond_wait(&in->work, &in->lock);
        } else if (at == 0 || tdd_emb_passed(in, at)) {
            write_once(in);
        } else {
            tdd_emb_wait(in, &in->work, at);
        }
    }
    (void)pthread_mutex_unlock(&in->lock);
    return NULL;
}

static void *sync_main(void *arg)
{
    struct td_broker_instance *in = arg;
    (void)pthread_mutex_lock(&in->lock);
    while (!in->failed && !in->stop_threads) {
        if (!in->handed || in->syncing) {
            (void)pthread_cond_wait(&in->sync_work, &in->lock);
            continue;
        }
        in->handed = false;
        tdd_emb_sync(in);
    }
    (void)pthread_mutex_unlock(&in->lock);
    return NULL;
}

enum td_err tdd_emb_threads_start(struct td_broker_instance *in, struct td_error *err)
{
    in->writer_started = pthread_create(&in->writer_thread, NULL, writer_main, in) == 0;
    in->sync_started =
        in->writer_started && pthread_create(&in->sync_thread, NULL, sync_main, in) == 0;
    return in->sync_started ? TD_OK : td_error_set(err, TD_ERR_NOMEM, "a thread cannot be started");
}

void tdd_emb_threads_stop(struct td_broker_instance *in)
{
    (void)pthread_mutex_lock(&in->lock);
    in->stop_threads = true;
    (void)pthread_cond_broadcast(&in->work);
    (void)pthread_cond_broadcast(&in->sync_work);
    (void)pthread_mutex_unlock(&in->lock);
    if (in->writer_started) {
        (void)pthread_join(in->writer_thread, NULL);
        in->writer_started = false;
    }
    if (in->sync_started) {
        (void)pthread_join(in->sync_thread, NULL);
        in->sync_started = false;
    }
}
