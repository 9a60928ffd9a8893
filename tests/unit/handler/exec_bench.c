#include "exec_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "handler/registry.h"

#define WAIT_US (20 * TD_SECOND_US)

static td_time_us mono(void *ctx)
{
    struct bench *b = ctx;
    struct td_clock machine = tdi_clock_system();
    if (b->jump_after > 0) {
        b->jump_after--;
    } else if (b->jumps > 0) {
        b->jumps--;
        b->ahead += b->jump_us;
    }
    return tdi_mono(&machine) + b->ahead;
}

static td_time_us wall(void *ctx)
{
    struct bench *b = ctx;
    struct td_clock machine = tdi_clock_system();
    return tdi_wall(&machine) + b->ahead;
}

void bench_init(struct bench *b, const char *mode, const char *argument)
{
    const char *tmp = getenv("TMPDIR");
    memset(b, 0, sizeof(*b));
    b->clock = (struct td_clock){.wall = wall, .mono = mono, .ctx = b};
    tdi_arena_init(&b->arena, 0);
    b->log_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(b->log_fd >= 0);
    b->log = tdi_log_new(b->log_fd, TDI_LOG_DEBUG, TDI_LOG_TEXT, false, b->clock);
    assert_non_null(b->log);
    snprintf(b->folder, sizeof(b->folder), "%s/tdXXXXXX",
             tmp != NULL && strlen(tmp) < 48 ? tmp : "/tmp");
    assert_non_null(mkdtemp(b->folder));
    const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
    b->command[0] = tdi_str(python);
    b->command[1] = TD_STR_LIT(TEST_WORKER);
    b->command[2] = tdi_str(mode);
    b->command[3] = tdi_str(argument);
    b->o = (struct td_handler_options){
        .consumer = TD_STR_LIT("shop.mail"),
        .command = b->command,
        .command_count = argument != NULL ? 4 : 3,
        .workers = 1,
        .timeout_us = 30 * TD_SECOND_US,
        .classify = b->classify,
        .clock = b->clock,
        .log = b->log,
    };
}

void bench_open(struct bench *b)
{
    struct td_error err = {.text = ""};
    enum td_err rc = tdi_handler_open(tdi_handler_driver(TD_STR_LIT("exec")), &b->o, &b->h, &err);
    if (rc != TD_OK) {
        fail_msg("%s", err.text);
    }
}

void bench_end(struct bench *b)
{
    char command[96];
    tdi_handler_close(b->h, bench_now(b) + 10 * TD_SECOND_US);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* neither a zombie nor one that runs */
    assert_int_equal(errno, ECHILD);
    tdi_log_free(b->log);
    close(b->log_fd);
    tdi_arena_release(&b->arena);
    snprintf(command, sizeof(command), "rm -rf %s", b->folder);
    assert_int_equal(system(command), 0);
}

const char *bench_path(struct bench *b, const char *name)
{
    struct td_str s = tdi_arena_printf(&b->arena, "%s/%s", b->folder, name);
    assert_non_null(s.data);
    return s.data;
}

td_time_us bench_now(const struct bench *b)
{
    return tdi_mono(&b->clock);
}

void bench_push(struct bench *b, td_time_us by)
{
    b->ahead += by;
}

struct td_message *bench_message(struct bench *b, struct td_bytes body)
{
    struct td_message *m = tdi_arena_alloc(&b->arena, sizeof(*m));
    assert_non_null(m);
    *m = (struct td_message){
        .id = tdi_arena_printf(&b->arena, "m%llu", (unsigned long long)b->tokens),
        .source = TD_STR_LIT("service:shop"),
        .type = TD_STR_LIT("order.paid"),
        .key = TD_STR_LIT("k1"),
        .time = 0,
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
        .body = body,
    };
    return m;
}

struct td_message *bench_json(struct bench *b, const char *body)
{
    return bench_message(b, (struct td_bytes){body, strlen(body)});
}

struct td_run bench_run(struct bench *b, const struct td_message *m)
{
    return (struct td_run){
        .token = ++b->tokens,
        .message = m,
        .consumer = b->o.consumer,
        .attempt = 1,
        .deadline_us = bench_now(b) + 30 * TD_SECOND_US,
    };
}

uint64_t bench_start(struct bench *b, const char *body)
{
    struct td_error err = {.text = ""};
    struct td_run run = bench_run(b, bench_json(b, body));
    enum td_err rc = b->h->driver->start(b->h, &run, &err);
    if (rc != TD_OK) {
        fail_msg("not started: %s", err.text);
    }
    return run.token;
}

/* 0 or 1 results. */
static size_t poll_until(struct bench *b, td_time_us deadline, struct td_run_result *ret)
{
    struct td_error err = {.text = ""};
    size_t n = 0;
    enum td_err rc = b->h->driver->poll(b->h, deadline, &b->arena, ret, 1, &n, &err);
    if (rc != TD_OK) {
        fail_msg("not polled: %s", err.text);
    }
    return n;
}

struct td_run_result bench_result(struct bench *b)
{
    struct td_run_result r;
    if (poll_until(b, bench_now(b) + WAIT_US, &r) == 0) {
        fail_msg("no result in time; log: %s", bench_read(b, NULL).data);
    }
    return r;
}

struct td_verdict bench_do(struct bench *b, const char *body)
{
    uint64_t token = bench_start(b, body);
    struct td_run_result r = bench_result(b);
    assert_int_equal(r.token, token);
    return r.verdict;
}

void bench_quiet(struct bench *b)
{
    struct td_run_result r;
    assert_int_equal(poll_until(b, bench_now(b), &r), 0);
}

void bench_await_log(struct bench *b, const char *text)
{
    struct td_run_result r;
    td_time_us limit = bench_now(b) + WAIT_US;
    while (bench_logged(b, text) == 0) {
        assert_int_equal(poll_until(b, bench_now(b) + 10 * TD_MILLISECOND_US, &r), 0);
        assert_true(bench_now(b) < limit);
    }
}

/* path NULL: the log. */
struct td_str bench_read(struct bench *b, const char *path)
{
    int fd = path == NULL ? b->log_fd : open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    size_t len = (size_t)st.st_size;
    char *data = tdi_arena_alloc(&b->arena, len + 1);
    assert_non_null(data);
    assert_int_equal(pread(fd, data, len, 0), (ssize_t)len);
    if (path != NULL) {
        close(fd);
    }
    return (struct td_str){data, len};
}

size_t bench_logged(struct bench *b, const char *text)
{
    size_t n = 0;
    const char *at = bench_read(b, NULL).data;
    while ((at = strstr(at, text)) != NULL) {
        n++;
        at += strlen(text);
    }
    return n;
}

const char *bench_cstr(struct bench *b, struct td_str s)
{
    struct td_str copy;
    if (s.data == NULL) {
        return "(absent)";
    }
    assert_true(tdi_arena_str(&b->arena, s, &copy));
    return copy.data;
}
