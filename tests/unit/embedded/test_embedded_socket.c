/*
 * The owner's socket: clients that talk nonsense, that are too many, that lose the owner; an owner
 * that talks nonsense. The ordinary work is in the broker suite.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "broker/embedded/frame.h"
#include "broker/embedded/socket.h"
#include "emb_rig.h"

#define WAIT_MS 20000

static int raw_connect(const struct emb_rig *e)
{
    int fd = -1;
    struct td_error err = {0};
    if (tdd_emb_socket_connect(e->dir, TD_SECOND_US, &fd, &err) != TD_OK) {
        fail_msg("connect: %s", err.text);
    }
    return fd;
}

static void raw_send(int fd, const void *data, size_t len)
{
    (void)!send(fd, data, len, MSG_NOSIGNAL);
}

/* The first frame of the other end; false: it closed without one. */
static bool raw_frame(int fd, struct tdi_buf *b, struct tdd_emb_frame *ret)
{
    for (;;) {
        size_t used = 0;
        char some[512];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        enum tdd_emb_frame_status s = tdd_emb_frame_parse(b->data, b->len, 1024, ret, &used);
        if (s == TDD_EMB_FRAME_GOOD) {
            return true;
        }
        assert_int_equal(s, TDD_EMB_FRAME_MORE);
        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        ssize_t n = recv(fd, some, sizeof(some), 0);
        if (n <= 0) {
            return false;
        }
        tdi_buf_add(b, some, (size_t)n);
    }
}

static void expect_end(int fd)
{
    struct tdi_buf b;
    struct tdd_emb_frame f;
    tdi_buf_init(&b, 4096);
    assert_false(raw_frame(fd, &b, &f));
    tdi_buf_release(&b);
    (void)close(fd);
}

static void expect_refusal(int fd, enum td_err code)
{
    struct tdi_buf b;
    struct tdd_emb_frame f;
    tdi_buf_init(&b, 4096);
    assert_true(raw_frame(fd, &b, &f));
    assert_int_equal(f.kind, TDD_EMB_FRAME_REFUSE);
    assert_int_equal(f.code, code);
    assert_true(f.text.len > 0);
    tdi_buf_release(&b);
    (void)close(fd);
}

static void start(struct emb_rig *e)
{
    emb_rig_init(e, NULL, true);
    emb_rig_start(e, true);
    e->remote = true;
    broker_declare_simple(&e->base);
}

static void nonsense_is_dropped_and_harms_nobody(void **state)
{
    static const struct {
        const char *data;
        size_t len;
    } bad[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
        {"\xff\xff\xff\xff\3", 5},
        {"\0\0\0\x1c\3ttttttttoooo\0pppppppp\0\0\0\0\0\0", 32}, /* a publish without a hello */
        {"\0\0\0\7\1TdBx\0\1", 11},
        {"\0\0\0\7\2TdBr\0\1", 11}, /* a welcome */
    };
    struct emb_rig e;
    (void)state;
    start(&e);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int fd = raw_connect(&e);
        raw_send(fd, bad[i].data, bad[i].len);
        if (i == 4 || i == 2) {
            expect_refusal(fd, TD_ERR_CONFLICT);
        } else {
            expect_end(fd);
        }
    }
    /* After a good hello too. */
    struct tdi_buf b;
    struct tdi_buf in;
    struct tdd_emb_frame f;
    tdi_buf_init(&b, 4096);
    tdi_buf_init(&in, 4096);
    tdd_emb_frame_hello(&b, TDD_EMB_FRAME_HELLO, TDD_EMB_PROTOCOL);
    int fd = raw_connect(&e);
    raw_send(fd, b.data, b.len);
    assert_true(raw_frame(fd, &in, &f));
    assert_int_equal(f.kind, TDD_EMB_FRAME_WELCOME);
    raw_send(fd, b.data, b.len); /* a second hello */
    expect_end(fd);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 10);
    tdi_broker_close(p);
    tdi_buf_release(&b);
    tdi_buf_release(&in);
    emb_rig_end(&e);
}

static void another_version_is_told_so(void **state)
{
    struct emb_rig e;
    struct tdi_buf b;
    (void)state;
    start(&e);
    tdi_buf_init(&b, 4096);
    tdd_emb_frame_hello(&b, TDD_EMB_FRAME_HELLO, TDD_EMB_PROTOCOL + 1);
    int fd = raw_connect(&e);
    raw_send(fd, b.data, b.len);
    expect_refusal(fd, TD_ERR_CONFLICT);
    tdi_buf_release(&b);
    emb_rig_end(&e);
}

/* A message whose envelope cannot be read is refused in its place, and breaks the pipeline. */
static void a_broken_envelope_is_an_invalid_message(void **state)
{
    struct emb_rig e;
    struct tdi_buf b;
    struct tdi_buf in;
    struct tdd_emb_frame f = {.token = 1,
                              .published_at = TD_TIME_NONE,
                              .topic = TD_STR_LIT("orders"),
                              .envelope = TD_STR_LIT("{\"id\":"),
                              .body = {"x", 1}};
    struct tdd_emb_frame g;
    size_t used = 0;
    (void)state;
    start(&e);
    tdi_buf_init(&b, 4096);
    tdi_buf_init(&in, 4096);
    tdd_emb_frame_hello(&b, TDD_EMB_FRAME_HELLO, TDD_EMB_PROTOCOL);
    tdd_emb_frame_publish(&b, &f);
    f.token = 2;
    f.envelope = TD_STR_LIT("{\"specversion\":\"1.0\",\"id\":\"ok\",\"source\":\"shop\","
                            "\"type\":\"order.paid\"}");
    tdd_emb_frame_publish(&b, &f);
    int fd = raw_connect(&e);
    raw_send(fd, b.data, b.len);
    assert_true(raw_frame(fd, &in, &g));
    tdi_buf_consume(&in, 11);
    for (uint64_t token = 1; token <= 2; token++) {
        assert_true(raw_frame(fd, &in, &g));
        assert_int_equal(g.kind, TDD_EMB_FRAME_ANSWER);
        assert_int_equal(g.answer.result, TD_PUBLISH_REFUSED);
        assert_true(g.answer.token == token);
        assert_int_equal(g.answer.code, token == 1 ? TD_ERR_INVALID : TD_ERR_INTERRUPTED);
        assert_int_equal(tdd_emb_frame_parse(in.data, in.len, 1024, &g, &used), TDD_EMB_FRAME_GOOD);
        tdi_buf_consume(&in, used);
    }
    /* Still the old epoch: refused, though the owner's session is whole again. */
    tdi_buf_clear(&b);
    f.token = 3;
    tdd_emb_frame_publish(&b, &f);
    raw_send(fd, b.data, b.len);
    assert_true(raw_frame(fd, &in, &g));
    assert_int_equal(g.answer.code, TD_ERR_INTERRUPTED);
    assert_int_equal(tdd_emb_frame_parse(in.data, in.len, 1024, &g, &used), TDD_EMB_FRAME_GOOD);
    tdi_buf_consume(&in, used);
    tdi_buf_clear(&b);
    f.epoch = 1;
    tdd_emb_frame_publish(&b, &f);
    raw_send(fd, b.data, b.len);
    assert_true(raw_frame(fd, &in, &g));
    assert_int_equal(g.answer.result, TD_PUBLISH_ACCEPTED);
    (void)close(fd);
    tdi_buf_release(&b);
    tdi_buf_release(&in);
    emb_rig_end(&e);
}

static void too_many_clients_are_told_so(void **state)
{
    enum {
        MAX = 64
    };
    struct emb_rig e;
    struct td_broker *all[MAX];
    struct td_broker *more = NULL;
    struct td_error err = {0};
    struct td_broker_options o = {.role = TD_BROKER_PUBLISH, .clock = tdi_clock_system()};
    (void)state;
    start(&e);
    o.location = tdi_str(e.dir);
    for (size_t i = 0; i < MAX; i++) {
        all[i] = broker_open(&e.base, TD_BROKER_PUBLISH);
    }
    assert_int_equal(tdi_broker_open(tdi_broker_driver(TD_STR_LIT("embedded")), &o, &more, &err),
                     TD_ERR_BUSY);
    assert_int_equal(err.class_, TD_CLASS_RETRY);
    tdi_broker_close(all[0]);
    /* The place becomes free when the owner has seen it. */
    struct td_clock clock = tdi_clock_system();
    td_time_us until = tdi_mono(&clock) + BROKER_WAIT_US;
    enum td_err rc = TD_ERR_BUSY;
    while (rc == TD_ERR_BUSY && tdi_mono(&clock) < until) {
        rc = tdi_broker_open(tdi_broker_driver(TD_STR_LIT("embedded")), &o, &more, &err);
    }
    assert_int_equal(rc, TD_OK);
    tdi_broker_close(more);
    for (size_t i = 1; i < MAX; i++) {
        tdi_broker_close(all[i]);
    }
    emb_rig_end(&e);
}

static void the_socket_is_private_and_its_path_may_be_long(void **state)
{
    struct emb_rig e;
    char path[600];
    char parent[BROKER_TEMP_BYTES];
    struct stat st;
    (void)state;
    emb_rig_init(&e, NULL, true);
    (void)snprintf(parent, sizeof(parent), "%s", e.dir);
    size_t len = strlen(e.dir);
    memset(e.dir + len, 'd', 150);
    e.dir[len] = '/';
    e.dir[len + 150] = '\0';
    emb_rig_start(&e, true);
    e.remote = true;
    broker_declare_simple(&e.base);
    (void)snprintf(path, sizeof(path), "%s/broker.sock", e.dir);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 3);
    tdi_broker_close(p);
    emb_rig_end(&e);
    broker_temp_remove(parent);
}

/* ---- owners that go, or talk nonsense ---- */

/* A child that plays the owner: welcome, read something, send `then`, end. */
static pid_t fake_owner(const struct emb_rig *e, const void *then, size_t then_len)
{
    int listen_fd = -1;
    assert_int_equal(tdd_emb_socket_listen(e->dir, &listen_fd, NULL), TD_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct pollfd p = {.fd = listen_fd, .events = POLLIN};
        char some[4096];
        struct tdi_buf b;
        tdi_buf_init(&b, 4096);
        (void)poll(&p, 1, WAIT_MS);
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        (void)!recv(fd, some, 11, MSG_WAITALL);
        tdd_emb_frame_hello(&b, TDD_EMB_FRAME_WELCOME, TDD_EMB_PROTOCOL);
        (void)!send(fd, b.data, b.len, MSG_NOSIGNAL);
        (void)!recv(fd, some, sizeof(some), 0);
        if (then_len > 0) {
            (void)!send(fd, then, then_len, MSG_NOSIGNAL);
        }
        _exit(0);
    }
    (void)close(listen_fd);
    return child;
}

static void expect_unknown_then_closed(struct emb_rig *e, const void *then, size_t then_len)
{
    pid_t child = fake_owner(e, then, then_len);
    e->remote = true;
    struct td_broker *p = broker_open(&e->base, TD_BROKER_PUBLISH);
    struct td_message m = broker_message("u", "order.paid", "{}");
    struct td_publish items[3];
    struct td_published got[3];
    struct td_error err = {0};
    size_t taken = 0;
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        items[i] = (struct td_publish){.topic = TD_STR_LIT("orders"), .message = &m, .token = i};
    }
    assert_int_equal(p->driver->submit(p, items, 3, &taken, &err), TD_OK);
    assert_int_equal(taken, 3);
    broker_collect(p, got, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(got[i].result, TD_PUBLISH_UNKNOWN);
        assert_int_equal(got[i].class_, TD_CLASS_UNKNOWN);
    }
    assert_int_equal(p->driver->collect(p, TD_TIME_NONE, got, 3, &n, &err), TD_ERR_CLOSED);
    assert_int_equal(err.class_, TD_CLASS_FATAL);
    assert_int_equal(p->driver->submit(p, items, 1, &taken, &err), TD_ERR_CLOSED);
    tdi_broker_close(p);
    (void)waitpid(child, NULL, 0);
}

static void a_lost_owner_leaves_all_unknown(void **state)
{
    struct emb_rig e;
    struct tdi_buf b;
    struct td_published wrong = {.token = 77};
    struct tdi_random r;
    char noise[64];
    (void)state;
    emb_rig_init(&e, NULL, true);
    expect_unknown_then_closed(&e, NULL, 0);
    tdi_buf_init(&b, 4096);
    tdd_emb_frame_answer(&b, &wrong); /* nobody asked for 77 */
    expect_unknown_then_closed(&e, b.data, b.len);
    tdi_buf_clear(&b);
    wrong.token = UINT64_MAX;
    tdd_emb_frame_answer(&b, &wrong);
    expect_unknown_then_closed(&e, b.data, b.len);
    tdi_random_seed(&r, 3);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (char)(unsigned char)tdi_random_below(&r, 256);
        }
        expect_unknown_then_closed(&e, noise, sizeof(noise));
    }
    tdi_buf_release(&b);
    emb_rig_end(&e);
}

static void an_owner_that_closes_answers_first(void **state)
{
    enum {
        COUNT = 500
    };
    struct emb_rig e;
    struct td_publish items[COUNT];
    static char ids[COUNT][16];
    static struct td_message m[COUNT];
    static struct td_published got[COUNT];
    size_t taken = 0;
    (void)state;
    start(&e);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(ids[i], sizeof(ids[i]), "c%zu", i);
        m[i] = broker_message(ids[i], "order.paid", "{}");
        items[i] = (struct td_publish){.topic = TD_STR_LIT("orders"), .message = &m[i], .token = i};
    }
    assert_int_equal(p->driver->submit(p, items, COUNT, &taken, NULL), TD_OK);
    assert_int_equal(taken, COUNT);
    emb_rig_stop(&e);
    broker_collect(p, got, COUNT);
    tdi_broker_close(p);
    e.remote = false;
    emb_rig_start(&e, false);
    /* Whatever it said is true; what it did not say is unknown. */
    p = broker_open(&e.base, TD_BROKER_PUBLISH);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_not_equal(got[i].result, TD_PUBLISH_REFUSED);
        bool duplicate = broker_publish(p, "orders", &m[i]).duplicate;
        assert_true(duplicate || got[i].result == TD_PUBLISH_UNKNOWN);
    }
    tdi_broker_close(p);
    emb_rig_end(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_dropped_and_harms_nobody),
        cmocka_unit_test(another_version_is_told_so),
        cmocka_unit_test(a_broken_envelope_is_an_invalid_message),
        cmocka_unit_test(too_many_clients_are_told_so),
        cmocka_unit_test(the_socket_is_private_and_its_path_may_be_long),
        cmocka_unit_test(a_lost_owner_leaves_all_unknown),
        cmocka_unit_test(an_owner_that_closes_answers_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
