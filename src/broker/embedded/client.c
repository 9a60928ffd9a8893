/*
 * Publishing from another process, over the owner's socket. Tokens on the wire are slot numbers; the
 * caller's tokens stay here, so that a lost connection can settle all that is in flight as UNKNOWN.
 *
 * Must not know: the database. What the owner answers is checked like anything from outside.
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

#define OUT_BYTES_FULL 8388608 /* no more is taken until some of it has left */
#define READ_BYTES 16384
#define POLL_MS_MAX 1000 /* the given clock may not be the one that the kernel waits by */

struct slot {
    uint64_t token;
    bool used;
};

struct tdd_emb_client {
    int fd;
    int wake_fd; /* eventfd: interrupted */
    struct td_clock clock;
    struct tdi_buf in, out, scratch;
    struct slot slots[TDD_EMB_WINDOW_MAX];
    uint32_t unused[TDD_EMB_WINDOW_MAX]; /* stack of free slots */
    size_t unused_count;
    struct td_published ring[TDD_EMB_WINDOW_MAX];
    size_t ring_head, ring_count;
    size_t outstanding; /* submitted and not collected */
    uint32_t epoch;
    bool broken; /* a refusal was seen: refuse here until all is collected */
    bool lost;
    struct td_error why; /* lost */
};

/* ---- the connection ---- */

static void settle(struct tdd_emb_client *c, const struct td_published *a)
{
    TDI_ASSERT(c->ring_count < TDD_EMB_WINDOW_MAX);
    c->ring[(c->ring_head + c->ring_count++) % TDD_EMB_WINDOW_MAX] = *a;
    c->broken = c->broken || a->result == TD_PUBLISH_REFUSED;
}

static void settle_refused(struct tdd_emb_client *c, uint64_t token, enum td_err code)
{
    struct td_published a = {.token = token,
                             .result = TD_PUBLISH_REFUSED,
                             .code = code,
                             .class_ = code == TD_ERR_INTERRUPTED || code == TD_ERR_NOMEM
                                           ? TD_CLASS_RETRY
                                           : TD_CLASS_PERMANENT};
    settle(c, &a);
}

/* Everything in flight is unknown now. */
static void lose(struct tdd_emb_client *c, enum td_err code, const char *text, int len)
{
    if (c->lost) {
        return;
    }
    c->lost = true;
    (void)td_error_set(&c->why, code, "%.*s", len, text);
    c->why.class_ = TD_CLASS_FATAL;
    for (size_t i = 0; i < TDD_EMB_WINDOW_MAX; i++) {
        if (c->slots[i].used) {
            struct td_published a = {.token = c->slots[i].token,
                                     .result = TD_PUBLISH_UNKNOWN,
                                     .code = TD_ERR_OUTCOME_UNKNOWN,
                                     .class_ = TD_CLASS_UNKNOWN};
            c->slots[i].used = false;
            settle(c, &a);
        }
    }
}

static void lose_plain(struct tdd_emb_client *c, const char *text)
{
    lose(c, TD_ERR_CLOSED, text, (int)strlen(text));
}

static void handle_answer(struct tdd_emb_client *c, const struct td_published *got)
{
    if (got->token >= TDD_EMB_WINDOW_MAX || !c->slots[got->token].used) {
        lose_plain(c, "the broker's process answered what was not asked");
        return;
    }
    struct td_published a = *got;
    c->slots[got->token].used = false;
    c->unused[c->unused_count++] = (uint32_t)got->token;
    a.token = c->slots[got->token].token;
    settle(c, &a);
}

/* *ret_welcome: set by a WELCOME; NULL: none is expected any more. */
static void handle_input(struct tdd_emb_client *c, bool *ret_welcome)
{
    size_t at = 0;
    while (!c->lost && at < c->in.len) {
        struct tdd_emb_frame f;
        size_t used = 0;
        enum tdd_emb_frame_status status = tdd_emb_frame_parse(c->in.data + at, c->in.len - at,
                                                               TDD_EMB_FRAME_SMALL_MAX, &f, &used);
        if (status == TDD_EMB_FRAME_MORE) {
            break;
        }
        at += used;
        if (status == TDD_EMB_FRAME_GOOD && f.kind == TDD_EMB_FRAME_ANSWER && ret_welcome == NULL) {
            handle_answer(c, &f.answer);
        } else if (status == TDD_EMB_FRAME_GOOD && f.kind == TDD_EMB_FRAME_WELCOME &&
                   ret_welcome != NULL && f.protocol == TDD_EMB_PROTOCOL) {
            *ret_welcome = true;
            break;
        } else if (status == TDD_EMB_FRAME_GOOD && f.kind == TDD_EMB_FRAME_REFUSE) {
            lose(c, f.code, f.text.data, (int)f.text.len);
        } else {
            lose_plain(c, "the broker's process talks another protocol");
        }
    }
    tdi_buf_consume(&c->in, at);
}

static void receive(struct tdd_emb_client *c, bool *ret_welcome)
{
    char buffer[READ_BYTES];
    while (!c->lost) {
        ssize_t n = recv(c->fd, buffer, sizeof(buffer), 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            lose_plain(c, "the broker's process has gone");
            return;
        }
        tdi_buf_add(&c->in, buffer, (size_t)n);
        handle_input(c, ret_welcome);
    }
}

static void send_some(struct tdd_emb_client *c)
{
    size_t at = 0;
    while (!c->lost && at < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + at, c->out.len - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            break;
        }
        if (n < 0) {
            /* Answers, or the reason, may still be there to be read. */
            receive(c, NULL);
            lose_plain(c, "the broker's process has gone");
            break;
        }
        at += (size_t)n;
    }
    tdi_buf_consume(&c->out, at);
}

/* Until bytes can move, the deadline, or an interrupt: false. */
static bool wait_io(struct tdd_emb_client *c, td_time_us deadline_us)
{
    struct pollfd polls[2] = {
        {.fd = c->fd, .events = (short)(POLLIN | (c->out.len > 0 ? POLLOUT : 0))},
        {.fd = c->wake_fd, .events = POLLIN},
    };
    int timeout = POLL_MS_MAX;
    if (deadline_us != TD_TIME_NONE) {
        td_time_us left = deadline_us - tdi_mono(&c->clock);
        left = left > 0 ? left : 0;
        if (left < (td_time_us)POLL_MS_MAX * TD_MILLISECOND_US) {
            timeout = (int)((left + TD_MILLISECOND_US - 1) / TD_MILLISECOND_US);
        }
    }
    if (poll(polls, 2, timeout) > 0 && (polls[1].revents & POLLIN) != 0) {
        uint64_t pokes = 0;
        return read(c->wake_fd, &pokes, sizeof(pokes)) < 0;
    }
    return true;
}

static enum td_err lost_error(const struct tdd_emb_client *c, struct td_error *err)
{
    if (err != NULL) {
        *err = c->why;
    }
    return c->why.code;
}

static bool passed(const struct tdd_emb_client *c, td_time_us deadline_us)
{
    return deadline_us != TD_TIME_NONE && tdi_mono(&c->clock) >= deadline_us;
}

static enum td_err interrupted(struct td_error *err)
{
    return td_error_set(err, TD_ERR_INTERRUPTED, "the wait for the broker was interrupted");
}

static enum td_err hello(struct tdd_emb_client *c, td_time_us timeout_us, struct td_error *err)
{
    td_time_us deadline = tdi_mono(&c->clock) + timeout_us;
    bool welcome = false;
    tdd_emb_frame_hello(&c->out, TDD_EMB_FRAME_HELLO, TDD_EMB_PROTOCOL);
    for (;;) {
        send_some(c);
        receive(c, &welcome);
        if (c->lost) {
            enum td_err rc = lost_error(c, err);
            if (err != NULL) {
                err->class_ = td_err_class_of(rc);
            }
            return rc;
        }
        if (welcome) {
            return TD_OK;
        }
        if (passed(c, deadline)) {
            return td_error_set(err, TD_ERR_TIMEOUT, "the broker's process does not answer");
        }
        if (!wait_io(c, deadline)) {
            return interrupted(err);
        }
    }
}

enum td_err tdd_emb_client_open(const char *dir, const struct td_clock *clock,
                                td_time_us timeout_us, struct tdd_emb_client **ret,
                                struct td_error *err)
{
    struct tdd_emb_client *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return tdd_emb_nomem(err);
    }
    c->clock = *clock;
    c->fd = -1;
    tdi_buf_init(&c->in, TDD_EMB_FRAME_SMALL_MAX + 2 * READ_BYTES);
    tdi_buf_init(&c->out, OUT_BYTES_FULL + TDD_EMB_FRAME_MAX + 16);
    tdi_buf_init(&c->scratch, TDD_EMB_ENVELOPE_BYTES_MAX);
    for (uint32_t i = 0; i < TDD_EMB_WINDOW_MAX; i++) {
        c->unused[c->unused_count++] = TDD_EMB_WINDOW_MAX - 1 - i;
    }
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum td_err rc =
        c->wake_fd < 0 ? tdd_emb_nomem(err) : tdd_emb_socket_connect(dir, timeout_us, &c->fd, err);
    if (rc == TD_OK) {
        rc = hello(c, timeout_us, err);
    }
    if (rc != TD_OK) {
        tdd_emb_client_close(c);
        return rc;
    }
    *ret = c;
    return TD_OK;
}

void tdd_emb_client_close(struct tdd_emb_client *c)
{
    if (c == NULL) {
        return;
    }
    if (c->fd >= 0) {
        (void)close(c->fd);
    }
    if (c->wake_fd >= 0) {
        (void)close(c->wake_fd);
    }
    tdi_buf_release(&c->in);
    tdi_buf_release(&c->out);
    tdi_buf_release(&c->scratch);
    free(c);
}

void tdd_emb_client_interrupt(struct tdd_emb_client *c)
{
    uint64_t one = 1;
    ssize_t n = write(c->wake_fd, &one, sizeof(one));
    (void)n; /* a full one wakes too */
}

/* ---- publishing ---- */

static enum td_err encode(struct tdd_emb_client *c, const struct td_publish *item, uint32_t slot)
{
    const struct td_message *m = item->message;
    if (m->body.len > TDD_EMB_BODY_BYTES_MAX) {
        return TD_ERR_TOO_LARGE;
    }
    if (item->topic.len == 0 || item->topic.len > TD_TYPE_BYTES_MAX) {
        return TD_ERR_UNROUTABLE;
    }
    if (tdi_message_check(m, NULL) != TD_OK) {
        return TD_ERR_INVALID;
    }
    tdi_buf_clear(&c->scratch);
    tdi_envelope_write(&c->scratch, m);
    if (c->scratch.failed) {
        return TD_ERR_INVALID;
    }
    struct tdd_emb_frame f = {
        .token = slot,
        .epoch = c->epoch,
        .replay = item->replay,
        .published_at = m->published_at,
        .topic = item->topic,
        .envelope = tdi_buf_str(&c->scratch),
        .body = m->body,
    };
    size_t before = c->out.len;
    tdd_emb_frame_publish(&c->out, &f);
    if (c->out.failed) {
        /* Half a frame must not be sent. */
        c->out.failed = false;
        c->out.len = before;
        return TD_ERR_NOMEM;
    }
    return TD_OK;
}

enum td_err tdd_emb_client_submit(struct tdd_emb_client *c, const struct td_publish *items,
                                  size_t count, size_t *ret_taken, struct td_error *err)
{
    size_t taken = 0;
    if (c->lost) {
        return lost_error(c, err);
    }
    while (taken < count && c->outstanding < TDD_EMB_WINDOW_MAX && c->out.len < OUT_BYTES_FULL) {
        const struct td_publish *item = &items[taken++];
        uint32_t slot = c->unused[c->unused_count - 1];
        enum td_err code = c->broken ? TD_ERR_INTERRUPTED : encode(c, item, slot);
        c->outstanding++;
        if (code != TD_OK) {
            settle_refused(c, item->token, code);
            continue;
        }
        c->unused_count--;
        c->slots[slot] = (struct slot){.token = item->token, .used = true};
    }
    send_some(c);
    *ret_taken = taken;
    return TD_OK;
}

static size_t take_answers(struct tdd_emb_client *c, struct td_published *ret, size_t max)
{
    size_t n = 0;
    while (n < max && c->ring_count > 0) {
        ret[n++] = c->ring[c->ring_head];
        c->ring_head = (c->ring_head + 1) % TDD_EMB_WINDOW_MAX;
        c->ring_count--;
    }
    c->outstanding -= n;
    if (c->outstanding == 0 && c->broken) {
        c->broken = false;
        c->epoch++;
    }
    return n;
}

enum td_err tdd_emb_client_collect(struct tdd_emb_client *c, td_time_us deadline_us,
                                   struct td_published *ret, size_t max, size_t *ret_count,
                                   struct td_error *err)
{
    size_t n = 0;
    while (max > 0) {
        send_some(c);
        receive(c, NULL);
        n = take_answers(c, ret, max);
        if (n > 0) {
            break;
        }
        if (c->lost) {
            return lost_error(c, err);
        }
        if (passed(c, deadline_us)) {
            break;
        }
        if (!wait_io(c, deadline_us)) {
            return interrupted(err);
        }
    }
    *ret_count = n;
    return TD_OK;
}
