/*
 * The owner's end of <dir>/broker.sock: one thread, a poll loop, a publishing session per client.
 * Answers go back when the messages are durable.
 *
 * Ordered pipeline over the wire: after an answer REFUSED of epoch e everything of epoch e is
 * refused; the client begins a new epoch when it has seen the refusal and collected all.
 *
 * Must not know: SQL. Clients are not trusted: every length is checked, and who is slow, silent or
 * talks nonsense is dropped.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/embedded/frame.h"
#include "broker/embedded/internal.h"
#include "broker/embedded/socket.h"
#include "core/envelope.h"

#define CLIENTS_MAX 64
#define BATCH_MAX 64 /* frames handed over at once */
#define READ_BYTES 65536
#define IN_BYTES_KEPT 262144
#define OUT_BYTES_MAX 1048576
#define OUT_BYTES_FULL 262144        /* no more answers are taken, nothing more is read */
#define IN_BYTES_TOTAL_MAX 268435456 /* of all clients */
#define HELLO_US (5 * TD_SECOND_US)
#define STUCK_US (30 * TD_SECOND_US) /* half a frame, or answers that nobody reads */
#define TICK_US (TD_SECOND_US)
#define STALLED_US (20 * TD_MILLISECOND_US)
#define CLOSING_US (2 * TD_SECOND_US)
#define ARENA_BYTES_MAX 16777216

struct client {
    int fd;
    struct tdd_emb_pub *pub; /* NULL before its hello */
    struct tdi_buf in, out;
    uint32_t epoch;
    uint32_t broken_epoch;
    bool broken;
    bool stalled;     /* frames wait in `in` for room */
    bool partial;     /* `in` ends with half a frame */
    bool leaving;     /* gets what is in `out`, then the end */
    td_time_us moved; /* bytes came or went last (clock.mono) */
};

struct tdd_emb_server {
    struct td_broker_instance *instance;
    int listen_fd;
    int wake_fd; /* eventfd: something was settled, or stop */
    bool stop;   /* atomic */
    pthread_t thread;
    bool started;
    struct client *clients[CLIENTS_MAX];
    size_t count;
    struct tdi_arena arena; /* envelopes of one batch */
    char buffer[READ_BYTES];
};

/* ---- one client ---- */

static void client_free(struct client *c)
{
    if (c != NULL) {
        tdd_emb_pub_close(c->pub);
        tdi_buf_release(&c->in);
        tdi_buf_release(&c->out);
        (void)close(c->fd);
        free(c);
    }
}

static void refuse(struct client *c, enum td_err code, const char *text)
{
    tdd_emb_frame_refuse(&c->out, code, tdi_str(text));
    c->leaving = true;
}

static void welcome(struct tdd_emb_server *s, struct client *c, const struct tdd_emb_frame *f)
{
    if (f->kind != TDD_EMB_FRAME_HELLO || f->protocol != TDD_EMB_PROTOCOL) {
        refuse(c, TD_ERR_CONFLICT, "the running broker is of another version of Tidings");
        return;
    }
    if (tdd_emb_pub_new(s->instance, &c->pub, NULL) != TD_OK) {
        refuse(c, TD_ERR_NOMEM, "the broker's memory is exhausted");
        return;
    }
    c->pub->notify_fd = s->wake_fd;
    tdd_emb_frame_hello(&c->out, TDD_EMB_FRAME_WELCOME, TDD_EMB_PROTOCOL);
}

struct batch {
    struct td_publish items[BATCH_MAX];
    struct td_message messages[BATCH_MAX];
    size_t ends[BATCH_MAX]; /* of the frames in `in` */
    size_t count;
};

/* A message that cannot be read becomes an empty one, which is refused as invalid in its place. */
static bool add_to_batch(struct tdd_emb_server *s, struct batch *b, const struct tdd_emb_frame *f,
                         size_t end)
{
    struct td_message *m = &b->messages[b->count];
    enum td_err rc = tdi_envelope_read(f->envelope, false, &s->arena, m, NULL);
    if (rc == TD_ERR_NOMEM) {
        return false;
    }
    if (rc != TD_OK) {
        *m = (struct td_message){0};
    }
    m->topic = f->topic;
    m->published_at = f->published_at;
    m->body = f->body;
    b->items[b->count] = (struct td_publish){
        .topic = f->topic, .message = m, .replay = f->replay, .token = f->token};
    b->ends[b->count++] = end;
    return true;
}

static void answer_interrupted(struct client *c, uint64_t token)
{
    struct td_published a = {.token = token,
                             .result = TD_PUBLISH_REFUSED,
                             .code = TD_ERR_INTERRUPTED,
                             .class_ = TD_CLASS_RETRY};
    tdd_emb_frame_answer(&c->out, &a);
}

/* Frames from *at on, as many as fit. false: the client is to be dropped. */
static bool collect_batch(struct tdd_emb_server *s, struct client *c, struct batch *b, size_t *at)
{
    while (b->count < BATCH_MAX && c->out.len < OUT_BYTES_FULL && !c->leaving) {
        struct tdd_emb_frame f;
        size_t used = 0;
        size_t max = c->pub == NULL ? TDD_EMB_FRAME_SMALL_MAX : TDD_EMB_FRAME_MAX;
        enum tdd_emb_frame_status status =
            tdd_emb_frame_parse(c->in.data + *at, c->in.len - *at, max, &f, &used);
        c->partial = status == TDD_EMB_FRAME_MORE && *at < c->in.len;
        if (status != TDD_EMB_FRAME_GOOD) {
            return status == TDD_EMB_FRAME_MORE;
        }
        if (c->pub == NULL) {
            welcome(s, c, &f);
        } else if (f.kind != TDD_EMB_FRAME_PUBLISH) {
            return false;
        } else if (c->broken && f.epoch == c->broken_epoch) {
            answer_interrupted(c, f.token);
        } else {
            /* The order of answers does not matter, that of messages does. */
            c->epoch = f.epoch;
            if (!add_to_batch(s, b, &f, *at + used)) {
                return false;
            }
        }
        *at += used;
    }
    return true;
}

/* Hand over what is complete in `in`. false: the client is to be dropped. */
static bool handle_input(struct tdd_emb_server *s, struct client *c)
{
    size_t done = 0;
    c->stalled = false;
    bool good = true;
    while (good && !c->stalled && c->in.len > done) {
        struct batch b = {.count = 0};
        size_t at = done;
        size_t taken = 0;
        tdi_arena_reset(&s->arena);
        good = collect_batch(s, c, &b, &at);
        if (b.count > 0 && tdd_emb_submit(c->pub, b.items, b.count, &taken, NULL) != TD_OK) {
            good = false;
        }
        if (taken < b.count) {
            at = taken > 0 ? b.ends[taken - 1] : done;
            c->stalled = true;
        }
        if (at == done) {
            break;
        }
        done = at;
    }
    if (c->out.len >= OUT_BYTES_FULL) {
        c->stalled = true;
    }
    tdi_buf_consume(&c->in, done);
    if (c->in.len == 0 && c->in.cap > IN_BYTES_KEPT) {
        size_t max = c->in.bytes_max;
        tdi_buf_release(&c->in);
        tdi_buf_init(&c->in, max);
    }
    return good;
}

static size_t input_total(const struct tdd_emb_server *s)
{
    size_t total = 0;
    for (size_t i = 0; i < s->count; i++) {
        total += s->clients[i]->in.len;
    }
    return total;
}

static bool read_client(struct tdd_emb_server *s, struct client *c)
{
    for (int i = 0; i < 4; i++) {
        ssize_t n = recv(c->fd, s->buffer, sizeof(s->buffer), 0);
        if (n == 0) {
            return false;
        }
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        c->moved = tdi_mono(&s->instance->clock);
        tdi_buf_add(&c->in, s->buffer, (size_t)n);
        if (c->in.failed || input_total(s) > IN_BYTES_TOTAL_MAX || !handle_input(s, c)) {
            return false;
        }
        if (c->stalled || c->leaving) {
            break;
        }
    }
    return true;
}

/* Answers of the session into `out`. */
static bool pump_answers(struct client *c)
{
    struct td_published answers[BATCH_MAX];
    size_t n = BATCH_MAX;
    while (c->pub != NULL && n == BATCH_MAX && c->out.len < OUT_BYTES_FULL) {
        if (tdd_emb_collect(c->pub, 0, answers, BATCH_MAX, &n, NULL) != TD_OK) {
            c->leaving = true;
            return true;
        }
        for (size_t i = 0; i < n; i++) {
            if (answers[i].result == TD_PUBLISH_REFUSED) {
                c->broken = true;
                c->broken_epoch = c->epoch;
            }
            tdd_emb_frame_answer(&c->out, &answers[i]);
        }
    }
    return !c->out.failed;
}

static bool write_client(struct tdd_emb_server *s, struct client *c)
{
    while (c->out.len > 0) {
        ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        c->moved = tdi_mono(&s->instance->clock);
        tdi_buf_consume(&c->out, (size_t)n);
    }
    return !c->leaving;
}

static bool in_time(const struct tdd_emb_server *s, const struct client *c)
{
    td_time_us quiet = tdi_mono(&s->instance->clock) - c->moved;
    if (c->pub == NULL) {
        return quiet < HELLO_US;
    }
    return quiet < STUCK_US || (c->out.len == 0 && !c->partial);
}

static bool serve_client(struct tdd_emb_server *s, struct client *c, short events, bool closing)
{
    bool good = true;
    if (c->stalled && !closing) {
        good = handle_input(s, c);
    }
    if (good && (events & (POLLIN | POLLHUP | POLLERR)) != 0 && !c->stalled && !closing) {
        good = read_client(s, c);
    }
    return good && pump_answers(c) && write_client(s, c) && in_time(s, c);
}

/* ---- all clients ---- */

static void accept_clients(struct tdd_emb_server *s)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        struct client *c = s->count < CLIENTS_MAX ? calloc(1, sizeof(*c)) : NULL;
        if (c == NULL) {
            struct tdi_buf b;
            tdi_buf_init(&b, TDD_EMB_FRAME_SMALL_MAX);
            tdd_emb_frame_refuse(&b, TD_ERR_BUSY, TD_STR_LIT("the broker has too many clients"));
            ssize_t n = send(fd, b.data, b.len, MSG_NOSIGNAL);
            (void)n; /* it learns the same from the end of the connection */
            tdi_buf_release(&b);
            (void)close(fd);
            continue;
        }
        c->fd = fd;
        c->moved = tdi_mono(&s->instance->clock);
        tdi_buf_init(&c->in, TDD_EMB_FRAME_MAX + READ_BYTES);
        tdi_buf_init(&c->out, OUT_BYTES_MAX);
        s->clients[s->count++] = c;
    }
}

static size_t fill_polls(struct tdd_emb_server *s, struct pollfd *polls, bool closing,
                         int *ret_timeout)
{
    bool stalled = false;
    polls[0] = (struct pollfd){.fd = s->wake_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = closing ? -1 : s->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < s->count; i++) {
        const struct client *c = s->clients[i];
        bool reads = !c->stalled && !closing && !c->leaving;
        polls[2 + i] = (struct pollfd){
            .fd = c->fd, .events = (short)((reads ? POLLIN : 0) | (c->out.len > 0 ? POLLOUT : 0))};
        stalled = stalled || c->stalled;
    }
    *ret_timeout = (int)((stalled || closing ? STALLED_US : TICK_US) / TD_MILLISECOND_US);
    return 2 + s->count;
}

static void serve_once(struct tdd_emb_server *s, bool closing)
{
    struct pollfd polls[2 + CLIENTS_MAX];
    int timeout = 0;
    size_t clients = s->count;
    size_t n = fill_polls(s, polls, closing, &timeout);
    if (poll(polls, (nfds_t)n, timeout) < 0) {
        return;
    }
    if ((polls[0].revents & POLLIN) != 0) {
        uint64_t pokes = 0;
        ssize_t got = read(s->wake_fd, &pokes, sizeof(pokes));
        (void)got; /* only empties it */
    }
    /* Backwards, as the last one takes the place of a dropped one. */
    for (size_t i = clients; i-- > 0;) {
        if (!serve_client(s, s->clients[i], polls[2 + i].revents, closing)) {
            client_free(s->clients[i]);
            s->clients[i] = s->clients[--s->count];
        }
    }
    if (!closing && (polls[1].revents & POLLIN) != 0) {
        accept_clients(s);
    }
}

static bool all_answered(const struct tdd_emb_server *s)
{
    bool done = true;
    (void)pthread_mutex_lock(&s->instance->lock);
    for (size_t i = 0; i < s->count && done; i++) {
        const struct client *c = s->clients[i];
        done = c->out.len == 0 && (c->pub == NULL || c->pub->outstanding == 0);
    }
    (void)pthread_mutex_unlock(&s->instance->lock);
    return done;
}

static void *server_main(void *arg)
{
    struct tdd_emb_server *s = arg;
    while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
        serve_once(s, false);
    }
    /* What was taken is answered; nothing more is read. */
    td_time_us until = tdi_mono(&s->instance->clock) + CLOSING_US;
    while (!all_answered(s) && tdi_mono(&s->instance->clock) < until) {
        serve_once(s, true);
    }
    return NULL;
}

enum td_err tdd_emb_server_start(struct td_broker_instance *in, struct td_error *err)
{
    struct tdd_emb_server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return tdd_emb_nomem(err);
    }
    s->instance = in;
    s->listen_fd = -1;
    tdi_arena_init(&s->arena, ARENA_BYTES_MAX);
    in->server = s;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum td_err rc = tdd_emb_socket_listen(in->dir, &s->listen_fd, err);
    if (rc == TD_OK && s->wake_fd < 0) {
        rc = tdd_emb_nomem(err);
    }
    if (rc == TD_OK && pthread_create(&s->thread, NULL, server_main, s) != 0) {
        rc = td_error_set(err, TD_ERR_NOMEM, "a thread cannot be started");
    }
    s->started = rc == TD_OK;
    if (rc != TD_OK) {
        tdd_emb_server_stop(in);
    }
    return rc;
}

void tdd_emb_server_stop(struct td_broker_instance *in)
{
    struct tdd_emb_server *s = in->server;
    if (s == NULL) {
        return;
    }
    __atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
    if (s->started) {
        uint64_t one = 1;
        ssize_t n = write(s->wake_fd, &one, sizeof(one));
        (void)n; /* a full one wakes too */
        (void)pthread_join(s->thread, NULL);
    }
    for (size_t i = 0; i < s->count; i++) {
        client_free(s->clients[i]);
    }
    if (s->listen_fd >= 0) {
        (void)close(s->listen_fd);
        tdd_emb_socket_unlink(in->dir);
    }
    if (s->wake_fd >= 0) {
        (void)close(s->wake_fd);
    }
    tdi_arena_release(&s->arena);
    free(s);
    in->server = NULL;
}
