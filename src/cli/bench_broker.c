/*
 * The embedded broker alone, through its driver interface, in a process of its own; and the bare disk:
 * the same bytes in the same batches, appended and synced by one thread.
 *
 * Publisher: at most BENCH_BROKER_WINDOW messages without confirm, each with an id of its own, so that the
 * dedupe window does all its work. Consumer: takes and acknowledges. Counted are acknowledged messages.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "base/uuid.h"
#include "broker/registry.h"
#include "cli/bench.h"

#define RAW_FILE_BYTES_MAX ((size_t)256 * 1024 * 1024)
#define WAIT_US (100 * TD_MILLISECOND_US)
#define END_US (30 * TD_SECOND_US)
#define POLL_US (5 * TD_MILLISECOND_US)
#define CONSUMER "bench.points"
#define TOPIC "events"

/* ---- the bare disk ---- */

static enum td_err append(int fd, const char *data, size_t bytes, struct td_error *err)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, data + done, bytes - done);
        if (n < 0 && errno != EINTR) {
            return td_error_set(err, TD_ERR_IO, "raw file: %s", strerror(errno));
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return fdatasync(fd) == 0 ? TD_OK
                              : td_error_set(err, TD_ERR_IO, "raw file: %s", strerror(errno));
}

static enum td_err raw_loop(struct bench *b, int fd, int rows, td_time_us us, struct bench_raw *ret,
                            struct td_error *err)
{
    size_t bytes = (size_t)rows * BENCH_BODY_BYTES, file = 0, count = 0;
    size_t max = (size_t)(us / TD_MILLISECOND_US) * 40 + 1;
    char *data = malloc(bytes);
    td_time_us *took = malloc(max * sizeof(*took));
    enum td_err rc = data != NULL && took != NULL
                         ? TD_OK
                         : td_error_set(err, TD_ERR_NOMEM, "no memory for the raw file");
    for (int i = 0; rc == TD_OK && i < rows; i++) {
        bench_body(data + (size_t)i * BENCH_BODY_BYTES, i, i);
    }
    td_time_us first = bench_now(b), now = first;
    while (rc == TD_OK && now - first < us && count < max) {
        if (file > RAW_FILE_BYTES_MAX && ftruncate(fd, 0) == 0) {
            file = 0;
        }
        rc = append(fd, data, bytes, err);
        td_time_us after = bench_now(b);
        took[count++] = after - now;
        now = after;
        file += bytes;
    }
    if (rc == TD_OK) {
        ret->per_second = (double)count * rows * 1e6 / (double)(now - first);
        ret->p50_ms = bench_percentile(took, count, 0.5);
        ret->p99_ms = bench_percentile(took, count, 0.99);
    }
    free(data);
    free(took);
    return rc;
}

enum td_err bench_raw(struct bench *b, int rows, td_time_us us, struct bench_raw *ret,
                      struct td_error *err)
{
    char path[BENCH_PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s/raw", b->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return td_error_set(err, TD_ERR_CANNOT_CREATE, "%s: %s", path, strerror(errno));
    }
    enum td_err rc = raw_loop(b, fd, rows, us, ret, err);
    close(fd);
    unlink(path);
    return rc;
}

/* ---- the broker's process ---- */

struct side {
    struct bench *b;
    struct td_broker_options o;
    const struct td_broker_driver *driver;
    struct td_broker_instance *instance;
    struct tdi_random random, consumer_random;
    struct td_error consumer_error;
    enum td_err consumer_rc;
};

struct slot {
    char id[TDI_UUID_TEXT_LEN + 1];
    char key[24];
    char body[BENCH_BODY_BYTES];
    struct td_message message;
};

struct publisher {
    struct td_broker *broker;
    struct slot slots[BENCH_BROKER_WINDOW];
    uint64_t spare[BENCH_BROKER_WINDOW]; /* slots without a message in flight */
    size_t spare_count;
    struct td_publish items[BENCH_BROKER_WINDOW];
    struct td_published results[BENCH_BROKER_WINDOW];
    int64_t number;
};

static enum td_err topology(struct side *s, struct td_error *err)
{
    const struct td_topic topic = {.name = TD_STR_LIT(TOPIC)};
    const struct td_queue queue = {
        .consumer = TD_STR_LIT(CONSUMER), .topic = TD_STR_LIT(TOPIC), .ordered = true};
    const struct td_topology wanted = {&topic, 1, &queue, 1};
    struct td_topology_difference *made;
    struct td_broker *admin;
    struct tdi_arena a;
    size_t count;
    struct td_broker_options o = s->o;
    o.role = TD_BROKER_ADMIN;
    enum td_err rc = tdi_broker_open(s->driver, &o, &admin, err);
    if (rc == TD_OK) {
        tdi_arena_init(&a, 0);
        rc = s->driver->topology_apply(admin, &wanted, &a, &made, &count, err);
        tdi_arena_release(&a);
        tdi_broker_close(admin);
    }
    return rc;
}

static enum td_err consume(struct side *s, struct td_error *err)
{
    struct td_broker_options o = s->o;
    const struct td_subscription sub = {.consumer = TD_STR_LIT(CONSUMER),
                                        .topic = TD_STR_LIT(TOPIC),
                                        .prefetch = BENCH_BROKER_WINDOW};
    struct td_broker *broker;
    struct tdi_arena a;
    uint64_t handles[BENCH_BROKER_WINDOW];
    o.role = TD_BROKER_CONSUME;
    o.random = &s->consumer_random;
    enum td_err rc = tdi_broker_open(s->driver, &o, &broker, err);
    if (rc != TD_OK) {
        return rc;
    }
    tdi_arena_init(&a, 0);
    rc = s->driver->subscribe(broker, &sub, err);
    while (rc == TD_OK && atomic_load(&s->b->shared->stop) == 0) {
        struct td_fetch got = {.count = 0};
        tdi_arena_reset(&a);
        rc =
            s->driver->fetch(broker, BENCH_BROKER_WINDOW, bench_now(s->b) + WAIT_US, &a, &got, err);
        for (size_t i = 0; rc == TD_OK && i < got.count; i++) {
            handles[i] = got.deliveries[i].handle;
        }
        if (rc == TD_OK && got.count > 0) {
            rc = s->driver->ack(broker, handles, got.count, err);
            atomic_fetch_add(&s->b->shared->broker_acked, (long long)got.count);
        }
    }
    tdi_arena_release(&a);
    tdi_broker_close(broker);
    return rc;
}

static void *consumer_thread(void *arg)
{
    struct side *s = arg;
    s->consumer_rc = consume(s, &s->consumer_error);
    if (s->consumer_rc != TD_OK) {
        atomic_store(&s->b->shared->stop, 1);
    }
    return NULL;
}

/* A new message in a free slot. */
static void fill_slot(struct side *s, struct publisher *p, size_t at, struct td_publish *ret)
{
    struct slot *slot = &p->slots[at];
    td_time_us now = tdi_wall(&s->b->clock);
    int64_t number = p->number++;
    tdi_uuid7(&s->random, now, slot->id);
    int len = snprintf(slot->key, sizeof(slot->key), "order-%d",
                       (int)tdi_random_below(&s->random, BENCH_KEYS));
    slot->message = (struct td_message){
        .id = {slot->id, TDI_UUID_TEXT_LEN},
        .source = TD_STR_LIT("bench"),
        .type = TD_STR_LIT("order.paid"),
        .topic = TD_STR_LIT(TOPIC),
        .key = {slot->key, (size_t)len},
        .time = now,
        .sequence = number,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = now,
        .body = {slot->body, sizeof(slot->body)},
    };
    *ret =
        (struct td_publish){.topic = slot->message.topic, .message = &slot->message, .token = at};
}

static enum td_err collect(struct side *s, struct publisher *p, struct td_error *err)
{
    size_t count = 0;
    enum td_err rc = s->driver->collect(p->broker, bench_now(s->b) + WAIT_US, p->results,
                                        BENCH_BROKER_WINDOW, &count, err);
    for (size_t i = 0; rc == TD_OK && i < count; i++) {
        if (p->results[i].result != TD_PUBLISH_ACCEPTED || p->results[i].duplicate) {
            rc = td_error_set(err, TD_ERR_INTERNAL, "the broker did not accept a message");
        }
        p->spare[p->spare_count++] = p->results[i].token;
    }
    atomic_fetch_add(&s->b->shared->broker_confirmed, (long long)count);
    return rc;
}

static enum td_err publish_some(struct side *s, struct publisher *p, struct td_error *err)
{
    struct bench_shared *shared = s->b->shared;
    size_t count = p->spare_count, taken = 0;
    long long behind = atomic_load(&shared->broker_confirmed) - atomic_load(&shared->broker_acked);
    if (behind > BENCH_BACKLOG_MAX) {
        usleep(TD_MILLISECOND_US);
        return TD_OK;
    }
    for (size_t i = 0; i < count; i++) {
        fill_slot(s, p, (size_t)p->spare[i], &p->items[i]);
    }
    enum td_err rc = s->driver->submit(p->broker, p->items, count, &taken, err);
    if (rc == TD_OK) {
        p->spare_count = count - taken;
        memmove(p->spare, p->spare + taken, p->spare_count * sizeof(*p->spare));
        rc = collect(s, p, err);
    }
    return rc;
}

static enum td_err publish(struct side *s, struct td_error *err)
{
    struct publisher *p = calloc(1, sizeof(*p));
    struct td_broker_options o = s->o;
    if (p == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for a publisher");
    }
    o.role = TD_BROKER_PUBLISH;
    for (size_t i = 0; i < BENCH_BROKER_WINDOW; i++) {
        bench_body(p->slots[i].body, (int64_t)i, (int64_t)i);
        p->spare[p->spare_count++] = i;
    }
    enum td_err rc = tdi_broker_open(s->driver, &o, &p->broker, err);
    while (rc == TD_OK && atomic_load(&s->b->shared->stop) == 0) {
        rc = publish_some(s, p, err);
    }
    tdi_broker_close(p->broker);
    free(p);
    return rc;
}

static enum td_err publish_and_consume(struct side *s, struct td_error *err)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, consumer_thread, s) != 0) {
        return td_error_set(err, TD_ERR_NOMEM, "cannot start a thread");
    }
    enum td_err rc = publish(s, err);
    atomic_store(&s->b->shared->stop, 1);
    pthread_join(thread, NULL);
    if (rc == TD_OK && s->consumer_rc != TD_OK) {
        rc = s->consumer_rc;
        *err = s->consumer_error;
    }
    return rc;
}

static enum td_err broker_process(struct bench *b, const char *folder, struct td_error *err)
{
    struct side s = {.b = b, .driver = tdi_broker_driver(TD_STR_LIT("embedded"))};
    s.o = (struct td_broker_options){.location = tdi_str(folder),
                                     .service = TD_STR_LIT("bench"),
                                     .clock = b->clock,
                                     .random = &s.random,
                                     .create = true,
                                     .threads = true};
    if (s.driver == NULL || !tdi_random_seed_system(&s.random) ||
        !tdi_random_seed_system(&s.consumer_random)) {
        return td_error_set(err, TD_ERR_INTERNAL, "there is no embedded broker, or no randomness");
    }
    enum td_err rc = s.driver->instance_open(&s.o, &s.instance, err);
    if (rc == TD_OK) {
        s.o.instance = s.instance;
        rc = topology(&s, err);
        rc = rc == TD_OK ? publish_and_consume(&s, err) : rc;
        s.driver->instance_close(s.instance);
    }
    return rc;
}

static pid_t fork_broker(struct bench *b, const char *folder)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid > 0 ? pid : 0;
    }
    struct td_error err = {.code = TD_OK};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enum td_err rc = broker_process(b, folder, &err);
    if (rc != TD_OK) {
        atomic_store(&b->shared->failed, 1);
        cli_fail(b->cli, &err);
    }
    _exit(td_err_exit_code(rc));
}

/* ---- the part ---- */

struct broker_mark {
    td_time_us at;
    long long acked;
    double cpu_s, busy_s, total_s;
};

static struct broker_mark take_mark(const struct bench *b, pid_t pid)
{
    struct broker_mark m = {.acked = atomic_load(&b->shared->broker_acked)};
    m.cpu_s = bench_cpu_of(pid);
    bench_cpu_machine(&m.busy_s, &m.total_s);
    m.at = bench_now(b);
    return m;
}

static enum td_err wait_for(struct bench *b, td_time_us us, struct td_error *err)
{
    td_time_us until = bench_now(b) + us;
    while (bench_now(b) < until) {
        if (!bench_sleep(b, POLL_US)) {
            return td_error_set(err, TD_ERR_INTERRUPTED, "interrupted");
        }
        if (atomic_load(&b->shared->failed) != 0) {
            return td_error_set(err, TD_ERR_INTERNAL, "the broker's process failed");
        }
    }
    return TD_OK;
}

static enum td_err measure(struct bench *b, pid_t pid, struct td_error *err)
{
    td_time_us whole = b->seconds * TD_SECOND_US;
    enum td_err rc = wait_for(b, whole / 5, err);
    struct broker_mark from = take_mark(b, pid);
    rc = rc == TD_OK ? wait_for(b, whole, err) : rc;
    struct broker_mark to = take_mark(b, pid);
    double acked = (double)(to.acked - from.acked), cpu_s = to.cpu_s - from.cpu_s;
    double others_s = to.busy_s - from.busy_s - cpu_s, total_s = to.total_s - from.total_s;
    b->broker.per_second = acked * 1e6 / (double)(to.at - from.at);
    b->broker.cpu_us_per_message = acked > 0 ? cpu_s * 1e6 / acked : 0;
    b->broker.cpu_others_percent = total_s > 0 && others_s > 0 ? 100 * others_s / total_s : 0;
    return rc;
}

enum td_err bench_broker_alone(struct bench *b, struct td_error *err)
{
    char folder[BENCH_PATH_MAX + 16];
    struct bench_raw before = {0}, after = {0};
    td_time_us raw_us = b->seconds * TD_SECOND_US / 2;
    snprintf(folder, sizeof(folder), "%s/broker.d", b->folder);
    atomic_store(&b->shared->stop, 0);
    atomic_store(&b->shared->failed, 0);
    atomic_store(&b->shared->broker_acked, 0);
    atomic_store(&b->shared->broker_confirmed, 0);
    enum td_err rc = bench_raw(b, BENCH_BROKER_WINDOW, raw_us, &before, err);
    if (rc != TD_OK) {
        return rc;
    }
    pid_t pid = fork_broker(b, folder);
    rc = pid > 0 ? measure(b, pid, err) : td_error_set(err, TD_ERR_NOMEM, "cannot start a process");
    atomic_store(&b->shared->stop, 1);
    if (pid > 0 && bench_wait(b, pid, END_US) != 0 && rc == TD_OK) {
        rc = td_error_set(err, TD_ERR_INTERNAL, "the broker's process failed");
    }
    bench_folder_remove(folder);
    rc = rc == TD_OK ? bench_raw(b, BENCH_BROKER_WINDOW, raw_us, &after, err) : rc;
    b->broker.raw.per_second = (before.per_second + after.per_second) / 2;
    b->broker.raw.p50_ms = (before.p50_ms + after.p50_ms) / 2;
    b->broker.raw.p99_ms = before.p99_ms > after.p99_ms ? before.p99_ms : after.p99_ms;
    b->broker.measured = rc == TD_OK;
    return rc;
}
