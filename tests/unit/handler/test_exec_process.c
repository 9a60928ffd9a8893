/* What a worker process finds around it, and that nothing of it stays behind. */
#include "exec_bench.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "handler/registry.h"

static void begin(struct bench *b, const char *mode, const char *argument)
{
    bench_init(b, mode, argument);
    bench_open(b);
}

static void surroundings(void **state)
{
    (void)state;
    struct bench b;
    sigset_t some, before;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGTERM);
    assert_int_equal(dup2(2, 57), 57); /* without close-on-exec */
    assert_int_equal(setenv("TIDINGS_CONSUMER", "of our own parent", 1), 0);
    bench_init(&b, "answers", NULL);
    b.o.directory = TD_STR_LIT("/usr");
    bench_open(&b);
    sigprocmask(SIG_BLOCK, &some, &before);
    struct td_verdict v = bench_do(&b, "{\"do\":\"surroundings\"}");
    sigprocmask(SIG_SETMASK, &before, NULL);
    /* Descriptor 3 is the listing itself. */
    assert_text(&b, v.reason,
                "{\"consumer\":\"shop.mail\",\"folder\":\"/usr\","
                "\"descriptors\":[\"0\",\"1\",\"2\",\"3\"],\"group\":true,"
                "\"blocked\":\"0000000000000000\"}");
    close(57);
    unsetenv("TIDINGS_CONSUMER");
    bench_end(&b);
}

/* A worker in another language, which also tells which signals it ignores: SIGPIPE is not one. */
static void shell_worker(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "", NULL);
    b.command[0] = TD_STR_LIT("sh");
    b.command[1] = TD_STR_LIT("-c");
    b.command[2] = TD_STR_LIT(
        "read -r hello; echo '{\"hello\":{\"protocol\":1}}'; read -r delivery\n"
        "ignored=$(grep SigIgn /proc/self/status | tr -d -c 0-9a-f)\n"
        "echo \"{\\\"delivery\\\":0,\\\"result\\\":\\\"ok\\\",\\\"reason\\\":\\\"$ignored\\\"}\"\n"
        "read -r shutdown");
    signal(SIGPIPE, SIG_IGN);
    bench_open(&b);
    const char *reason = bench_cstr(&b, bench_do(&b, "{}").reason);
    signal(SIGPIPE, SIG_DFL);
    unsigned long long ignored = strtoull(reason + strlen(reason) - 16, NULL, 16);
    assert_int_equal(ignored >> (SIGPIPE - 1) & 1, 0);
    bench_end(&b);
}

/* The pipes still get the right numbers. */
static void without_standard_descriptors(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "answers", NULL);
    int in = fcntl(0, F_DUPFD_CLOEXEC, 100);
    close(0);
    bench_open(&b);
    struct td_verdict v = bench_do(&b, "{\"do\":\"surroundings\"}");
    assert_int_equal(v.kind, TD_VERDICT_OK);
    if (in >= 0) {
        dup2(in, 0);
        close(in);
    }
    bench_end(&b);
}

static void wrong_options(void **state)
{
    (void)state;
    static const struct {
        size_t words;
        int32_t workers;
        td_time_us timeout;
        const char *text;
    } cases[] = {
        {0, 1, 1, "command needs 1 to 64 words"}, {65, 1, 1, "command needs 1 to 64 words"},
        {1, 0, 1, "workers must be 1 to 64"},     {1, 65, 1, "workers must be 1 to 64"},
        {1, 1, 0, "timeout must be more than 0"},
    };
    struct bench b;
    bench_init(&b, "answers", NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct td_error err;
        b.o.command_count = cases[i].words;
        b.o.workers = cases[i].workers;
        b.o.timeout_us = cases[i].timeout;
        assert_int_equal(tdi_handler_open(tdi_handler_driver(TD_STR_LIT("exec")), &b.o, &b.h, &err),
                         TD_ERR_CONFIG);
        assert_string_equal(err.text, cases[i].text);
        assert_null(b.h);
    }
    bench_end(&b);
}

static void registry(void **state)
{
    (void)state;
    const struct td_handler_driver *sql = tdi_handler_driver(TD_STR_LIT("sql"));
    const struct td_handler_driver *exec = tdi_handler_driver(TD_STR_LIT("exec"));
    assert_non_null(sql);
    assert_non_null(exec);
    assert_int_equal(sql->place, TD_HANDLER_INSIDE);
    assert_int_equal(exec->place, TD_HANDLER_OUTSIDE);
    assert_null(tdi_handler_driver(TD_STR_LIT("http")));
    assert_ptr_equal(tdi_handler_driver_at(0), sql);
    assert_ptr_equal(tdi_handler_driver_at(1), exec);
    assert_null(tdi_handler_driver_at(2));
    struct td_handler_driver hollow = *exec;
    struct td_handler_options o = {.workers = 1};
    struct td_handler *h = NULL;
    struct td_error err;
    hollow.cancel = NULL;
    assert_int_equal(tdi_handler_open(&hollow, &o, &h, &err), TD_ERR_INTERNAL);
    assert_string_equal(err.text, "handler exec has an incomplete table of slots");
    assert_null(h);
}

/* ---- leaving ---- */

static void close_now(struct bench *b)
{
    tdi_handler_close(b->h, bench_now(b) + 20 * TD_SECOND_US);
    b->h = NULL;
}

static void leaves_quietly(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "answers", NULL);
    b.o.workers = 2;
    bench_open(&b);
    bench_start(&b, "{\"result\":\"ok\"}");
    bench_start(&b, "{\"result\":\"ok\"}");
    bench_result(&b);
    bench_result(&b);
    close_now(&b);
    assert_int_equal(bench_logged(&b, "WARN"), 0);
    assert_int_equal(bench_logged(&b, "the worker exited with 0"), 2);
    bench_end(&b);
}

static void never_started(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    close_now(&b);
    bench_end(&b);
}

/* It closes its stdout, still has something to do, and sees the end of its stdin. */
static void cleans_up(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "cleans up", "");
    b.command[3] = tdi_str(bench_path(&b, "file"));
    bench_open(&b);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    close_now(&b);
    assert_text(&b, bench_read(&b, bench_path(&b, "file")), "clean");
    assert_int_equal(bench_logged(&b, "WARN"), 0);
    assert_int_equal(bench_logged(&b, "the worker exited with 9"), 1);
    bench_end(&b);
}

static void term_at_half_time(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "stays", "");
    b.command[3] = tdi_str(bench_path(&b, "file"));
    bench_open(&b);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    b.jump_after = 10;
    b.jumps = 1;
    b.jump_us = 10 * TD_SECOND_US;
    close_now(&b);
    assert_text(&b, bench_read(&b, bench_path(&b, "file")), "term");
    assert_int_equal(bench_logged(&b, "WARN"), 0);
    bench_end(&b);
}

static void kill_at_the_deadline(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "never leaves", NULL);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    b.jump_after = 10;
    b.jumps = 100;
    b.jump_us = TD_SECOND_US;
    close_now(&b);
    assert_int_equal(bench_logged(&b, "worker killed, it did not leave in time"), 1);
    bench_end(&b);
}

/* With a delivery in hand: no result is asked for any more, and none is late. */
static void in_the_middle(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    bench_start(&b, "{\"result\":\"ok\"}");
    close_now(&b);
    assert_int_equal(bench_logged(&b, "WARN"), 0);
    bench_end(&b);
}

static void results_not_taken(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "window", "3");
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    bench_start(&b, "{\"do\":\"nothing\"}");
    bench_start(&b, "{\"do\":\"exit\",\"code\":1}");
    bench_result(&b);
    close_now(&b); /* the second one's result is given back to nobody */
    bench_end(&b);
}

/* A child of the worker, which became ours: how did it end? */
static void expect_killed(const char *pid_text)
{
    int status = 0;
    pid_t pid = (pid_t)strtol(pid_text, NULL, 10);
    assert_true(pid > 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void children_go_too(void **state)
{
    (void)state;
    struct bench b;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    begin(&b, "answers", NULL);
    const char *pid = bench_cstr(&b, bench_do(&b, "{\"do\":\"child\"}").reason);
    close_now(&b); /* the worker leaves and forgets its child */
    expect_killed(pid);
    bench_end(&b);
}

/* We die without a chance to clean up: so does the worker. */
static void our_death(void **state)
{
    (void)state;
    int pipes[2];
    char text[32] = "";
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe(pipes), 0);
    pid_t program = fork();
    assert_true(program >= 0);
    if (program == 0) {
        struct bench b;
        begin(&b, "answers", NULL);
        const char *pid = bench_cstr(&b, bench_do(&b, "{\"do\":\"pid\"}").reason);
        ssize_t n = write(pipes[1], pid, strlen(pid));
        rmdir(b.folder);
        raise(SIGKILL);
        _exit(n > 0 ? 0 : 1);
    }
    close(pipes[1]);
    assert_true(read(pipes[0], text, sizeof(text) - 1) > 0);
    close(pipes[0]);
    assert_int_equal(waitpid(program, NULL, 0), program);
    expect_killed(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(surroundings),
        cmocka_unit_test(shell_worker),
        cmocka_unit_test(without_standard_descriptors),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(registry),
        cmocka_unit_test(leaves_quietly),
        cmocka_unit_test(never_started),
        cmocka_unit_test(cleans_up),
        cmocka_unit_test(term_at_half_time),
        cmocka_unit_test(kill_at_the_deadline),
        cmocka_unit_test(in_the_middle),
        cmocka_unit_test(results_not_taken),
        cmocka_unit_test(children_go_too),
        cmocka_unit_test(our_death),
    };
    return cmocka_run_group_tests_name("exec_process", tests, NULL, NULL);
}
