/*
 * The driver table: which of the three ways a session works. With an instance of this process it
 * uses it; PUBLISH without one talks to the owner's socket; ADMIN without one reads the file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/embedded/embedded.h"
#include "broker/embedded/internal.h"

#define TIMEOUT_US (5 * TD_SECOND_US)

/* td_broker is the first member of every session of this driver. */
static struct tdd_emb_session *session_of(struct td_broker *b)
{
    return (struct tdd_emb_session *)b;
}

static enum td_err tag(enum td_err rc, const char *op, struct td_error *err)
{
    if (rc != TD_OK && err != NULL) {
        (void)snprintf(err->driver, sizeof(err->driver), "%s", TDD_EMB_NAME);
        (void)snprintf(err->op, sizeof(err->op), "%s", op);
    }
    return rc;
}

static enum td_err wrong_role(const char *op, const char *needs, struct td_error *err)
{
    return tag(td_error_set(err, TD_ERR_USAGE, "%s needs %s", op, needs), op, err);
}

/* ---- sessions ---- */

static enum td_err open_inside(struct tdd_emb_session *s, struct td_error *err)
{
    struct td_broker_instance *in = s->instance;
    enum td_err rc = TD_OK;
    switch (s->role) {
    case TD_BROKER_PUBLISH:
        rc = tdd_emb_pub_new(in, &s->pub, err);
        break;
    case TD_BROKER_CONSUME:
        rc = tdd_emb_con_new(in, &s->con, err);
        break;
    case TD_BROKER_ADMIN:
        break;
    }
    return rc;
}

static enum td_err open_outside(struct tdd_emb_session *s, const struct td_broker_options *o,
                                struct td_error *err)
{
    td_time_us timeout = o->operation_timeout_us > 0 ? o->operation_timeout_us : TIMEOUT_US;
    enum td_err rc = tdd_emb_dir_check(s->dir, false, err);
    if (rc != TD_OK) {
        return rc;
    }
    switch (s->role) {
    case TD_BROKER_PUBLISH:
        return tdd_emb_client_open(s->dir, &s->clock, timeout, &s->client, err);
    case TD_BROKER_CONSUME:
        return td_error_set(err, TD_ERR_USAGE, "only the process that owns %s can consume from it",
                            s->dir);
    case TD_BROKER_ADMIN:
        break;
    }
    rc = tdd_emb_file_open(&s->file, s->dir, o->vfs, &s->clock, true, false, err);
    if (rc == TD_OK) {
        s->file_open = true;
        rc = tdd_emb_schema_check(&s->file, err);
    }
    return rc;
}

static enum td_err session_open(struct td_broker *b, const struct td_broker_options *o,
                                struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    if (o->location.len == 0 || memchr(o->location.data, '\0', o->location.len) != NULL) {
        return tag(
            td_error_set(err, TD_ERR_CONFIG, "the embedded broker needs the path of a directory"),
            "open", err);
    }
    s->role = o->role;
    s->clock = o->clock;
    s->dir = tdd_emb_strdup(o->location);
    if (s->dir == NULL) {
        return tag(tdd_emb_nomem(err), "open", err);
    }
    if (o->instance == NULL) {
        return tag(open_outside(s, o, err), "open", err);
    }
    (void)pthread_mutex_lock(&o->instance->lock);
    enum td_err rc = o->instance->failed ? tdd_emb_failure(o->instance, err) : TD_OK;
    if (rc == TD_OK) {
        s->instance = o->instance;
        s->instance->sessions++;
    }
    (void)pthread_mutex_unlock(&o->instance->lock);
    return tag(rc == TD_OK ? open_inside(s, err) : rc, "open", err);
}

static void session_close(struct td_broker *b)
{
    struct tdd_emb_session *s = session_of(b);
    tdd_emb_pub_close(s->pub);
    tdd_emb_con_close(s->con);
    tdd_emb_client_close(s->client);
    if (s->file_open) {
        tdi_db_close(&s->file);
    }
    if (s->instance != NULL) {
        (void)pthread_mutex_lock(&s->instance->lock);
        s->instance->sessions--;
        (void)pthread_mutex_unlock(&s->instance->lock);
    }
    free(s->dir);
    s->pub = NULL;
    s->con = NULL;
    s->client = NULL;
    s->instance = NULL;
    s->file_open = false;
    s->dir = NULL;
}

static void session_interrupt(struct td_broker *b)
{
    struct tdd_emb_session *s = session_of(b);
    if (s->client != NULL) {
        tdd_emb_client_interrupt(s->client);
    }
    if (s->file_open) {
        tdi_db_interrupt(&s->file);
    }
    if (s->instance == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&s->instance->lock);
    if (s->pub != NULL) {
        s->pub->interrupted = true;
        (void)pthread_cond_broadcast(&s->pub->cond);
    }
    if (s->con != NULL) {
        s->con->interrupted = true;
        (void)pthread_cond_broadcast(&s->con->cond);
    }
    (void)pthread_cond_broadcast(&s->instance->work);
    (void)pthread_mutex_unlock(&s->instance->lock);
}

/* ---- admin ---- */

static enum td_err session_info(struct td_broker *b, struct tdi_arena *a,
                                struct td_broker_info *ret_info, struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    struct td_broker_info info = {
        .identity = TD_STR_LIT(""),
        .warnings = TD_STR_LIT(""),
        .body_bytes_max = TDD_EMB_BODY_BYTES_MAX,
        .header_bytes_max = TD_HEADERS_BYTES_MAX,
    };
    info.owner_pid = tdd_emb_owner_pid(s->dir, &info.owner_since);
    enum td_err rc = TD_OK;
    info.version =
        tdi_arena_printf(a, "embedded format %d, SQLite %s", TDD_EMB_FORMAT, sqlite3_libversion());
    if (s->instance != NULL) {
        struct td_broker_instance *in = s->instance;
        (void)pthread_mutex_lock(&in->reader_lock);
        rc = tdd_emb_identity(&in->reader, a, &info.identity, err);
        (void)pthread_mutex_unlock(&in->reader_lock);
        (void)pthread_mutex_lock(&in->lock);
        if (in->wal_large) {
            info.warnings = TD_STR_LIT("the WAL of the broker is larger than 256 MiB: some program "
                                       "keeps a read transaction open on broker.db");
        }
        (void)pthread_mutex_unlock(&in->lock);
    } else if (s->file_open) {
        rc = tdd_emb_identity(&s->file, a, &info.identity, err);
    }
    if (rc == TD_OK && info.version.data == NULL) {
        rc = tdd_emb_nomem(err);
    }
    if (rc == TD_OK) {
        *ret_info = info;
    }
    return tag(rc, "info", err);
}

static enum td_err session_topology_diff(struct td_broker *b, const struct td_topology *wanted,
                                         struct tdi_arena *a, struct td_topology_difference **ret,
                                         size_t *ret_count, struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    enum td_err rc = TD_OK;
    if (s->instance != NULL) {
        (void)pthread_mutex_lock(&s->instance->reader_lock);
        rc = tdd_emb_topology_diff(&s->instance->reader, wanted, a, ret, ret_count, err);
        (void)pthread_mutex_unlock(&s->instance->reader_lock);
    } else if (s->file_open) {
        rc = tdd_emb_topology_diff(&s->file, wanted, a, ret, ret_count, err);
    } else {
        return wrong_role("topology_diff", "a session of the role ADMIN", err);
    }
    return tag(rc, "topology_diff", err);
}

static enum td_err session_topology_apply(struct td_broker *b, const struct td_topology *wanted,
                                          struct tdi_arena *a, struct td_topology_difference **ret,
                                          size_t *ret_count, struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    if (s->instance == NULL) {
        return wrong_role("topology_apply", "the owner of the broker's directory", err);
    }
    return tag(tdd_emb_topology_apply(s->instance, wanted, a, ret, ret_count, err),
               "topology_apply", err);
}

static enum td_err session_lag(struct td_broker *b, struct td_str consumer, struct tdi_arena *a,
                               struct td_lag **ret, size_t *ret_count, struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    enum td_err rc = TD_OK;
    if (s->instance != NULL) {
        rc = tdd_emb_lag(s->instance, consumer, a, ret, ret_count, err);
    } else if (s->file_open) {
        rc = tdd_emb_lag_file(&s->file, consumer, a, ret, ret_count, err);
    } else {
        return wrong_role("lag", "a session of the role ADMIN", err);
    }
    return tag(rc, "lag", err);
}

/* ---- publishing ---- */

static enum td_err session_submit(struct td_broker *b, const struct td_publish *items, size_t count,
                                  size_t *ret_taken, struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    if (s->pub != NULL) {
        return tag(tdd_emb_submit(s->pub, items, count, ret_taken, err), "submit", err);
    }
    if (s->client != NULL) {
        return tag(tdd_emb_client_submit(s->client, items, count, ret_taken, err), "submit", err);
    }
    return wrong_role("submit", "a session of the role PUBLISH", err);
}

static enum td_err session_collect(struct td_broker *b, td_time_us deadline_us,
                                   struct td_published *ret, size_t max, size_t *ret_count,
                                   struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    if (s->pub != NULL) {
        return tag(tdd_emb_collect(s->pub, deadline_us, ret, max, ret_count, err), "collect", err);
    }
    if (s->client != NULL) {
        return tag(tdd_emb_client_collect(s->client, deadline_us, ret, max, ret_count, err),
                   "collect", err);
    }
    return wrong_role("collect", "a session of the role PUBLISH", err);
}

/* ---- consuming ---- */

static enum td_err session_subscribe(struct td_broker *b, const struct td_subscription *sub,
                                     struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    return s->con != NULL ? tag(tdd_emb_subscribe(s->con, sub, err), "subscribe", err)
                          : wrong_role("subscribe", "a session of the role CONSUME", err);
}

static enum td_err session_fetch(struct td_broker *b, size_t max, td_time_us deadline_us,
                                 struct tdi_arena *a, struct td_fetch *ret_fetch,
                                 struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    return s->con != NULL
               ? tag(tdd_emb_fetch(s->con, max, deadline_us, a, ret_fetch, err), "fetch", err)
               : wrong_role("fetch", "a session of the role CONSUME", err);
}

static enum td_err session_ack(struct td_broker *b, const uint64_t *handles, size_t count,
                               struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    return s->con != NULL ? tag(tdd_emb_ack(s->con, handles, count, err), "ack", err)
                          : wrong_role("ack", "a session of the role CONSUME", err);
}

static enum td_err session_nack(struct td_broker *b, const uint64_t *handles, size_t count,
                                struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    return s->con != NULL ? tag(tdd_emb_nack(s->con, handles, count, err), "nack", err)
                          : wrong_role("nack", "a session of the role CONSUME", err);
}

static enum td_err session_pause(struct td_broker *b, int32_t shard, bool paused,
                                 struct td_error *err)
{
    struct tdd_emb_session *s = session_of(b);
    if (shard != -1 && shard != 0) {
        return tag(td_error_set(err, TD_ERR_USAGE, "shard 0 is the only one"), "pause", err);
    }
    return s->con != NULL ? tag(tdd_emb_pause(s->con, paused, err), "pause", err)
                          : wrong_role("pause", "a session of the role CONSUME", err);
}

const struct td_broker_driver tdd_embedded_broker = {
    .abi = TD_BROKER_ABI,
    .struct_size = sizeof(struct td_broker_driver),
    .name = TDD_EMB_NAME,
    .caps = TD_BROKER_ORDERED_PIPELINE | TD_BROKER_REQUEUE | TD_BROKER_REDELIVERED_MARK |
            TD_BROKER_REDELIVERS_IN_ORDER | TD_BROKER_DEDUPES,
    .session_size = sizeof(struct tdd_emb_session),
    .instance_open = tdd_emb_instance_open,
    .instance_close = tdd_emb_instance_close,
    .instance_health = tdd_emb_instance_health,
    .open = session_open,
    .close = session_close,
    .interrupt = session_interrupt,
    .info = session_info,
    .topology_diff = session_topology_diff,
    .topology_apply = session_topology_apply,
    .submit = session_submit,
    .collect = session_collect,
    .subscribe = session_subscribe,
    .fetch = session_fetch,
    .ack = session_ack,
    .nack = session_nack,
    .pause = session_pause,
    .lag = session_lag,
};
