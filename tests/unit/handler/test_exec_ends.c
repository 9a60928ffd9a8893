/* How workers end, by themselves or by us, and who is charged for it. */
#include "exec_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "handler/registry.h"

static void begin(struct bench *b, const char *mode, const char *argument)
{
    bench_init(b, mode, argument);
    bench_open(b);
}

static enum td_err try_start(struct bench *b, struct td_error *err)
{
    struct td_run run = bench_run(b, bench_json(b, "{\"result\":\"ok\"}"));
    *err = (struct td_error){.text = ""};
    return b->h->driver->start(b->h, &run, err);
}

static void expect_innocent(struct bench *b, struct td_verdict v)
{
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_true(v.uncharged);
    assert_false(v.broken);
    assert_false(v.verdictless);
    assert_text(b, v.reason, "its worker ended while it ran another message");
}

static void expect_charged(struct td_verdict v)
{
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_false(v.uncharged);
    assert_true(v.broken);
    assert_true(v.verdictless);
}

/* ---- by itself ---- */

static void exit_is_charged(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    struct td_verdict v = bench_do(&b, "{\"do\":\"exit\",\"code\":3}");
    expect_charged(v);
    assert_text(&b, v.reason, "the worker exited with 3");
    assert_text(&b, v.error_type, "exit 3");
    assert_int_equal(bench_logged(&b, "WARN"), 1);
    bench_end(&b);
}

static void signal_is_charged(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    struct td_verdict v = bench_do(&b, "{\"do\":\"kill\"}");
    expect_charged(v);
    assert_non_null(strstr(bench_cstr(&b, v.reason), "was killed"));
    assert_text(&b, v.error_type, "signal 9");
    bench_end(&b);
}

static void only_the_oldest_is_charged(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "window", "4");
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    uint64_t first = bench_start(&b, "{\"do\":\"nothing\"}");
    bench_start(&b, "{\"result\":\"ok\"}");
    bench_start(&b, "{\"do\":\"exit\",\"code\":1}");
    bench_start(&b, "{\"result\":\"ok\"}");
    struct td_run_result r = bench_result(&b);
    assert_int_equal(r.token, first + 1);
    assert_int_equal(r.verdict.kind, TD_VERDICT_OK);
    r = bench_result(&b);
    assert_int_equal(r.token, first);
    expect_charged(r.verdict);
    expect_innocent(&b, bench_result(&b).verdict);
    expect_innocent(&b, bench_result(&b).verdict);
    bench_end(&b);
}

static void classified_exits(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "window", "2");
    b.classify[0] = (struct td_classify){TD_STR_LIT("65"), TD_VERDICT_DEAD};
    b.classify[1] = (struct td_classify){TD_STR_LIT("0"), TD_VERDICT_DROP};
    b.classify[2] = (struct td_classify){TD_STR_LIT("75"), TD_VERDICT_RETRY};
    b.o.classify_count = 3;
    bench_open(&b);
    static const struct {
        const char *body;
        enum td_verdict_kind kind;
    } cases[] = {
        {"{\"do\":\"exit\",\"code\":65}", TD_VERDICT_DEAD},
        {"{\"do\":\"exit\",\"code\":0}", TD_VERDICT_DROP},
        {"{\"do\":\"exit\",\"code\":75}", TD_VERDICT_RETRY},
    };
    for (size_t i = 0; i < 3; i++) {
        struct td_verdict v = bench_do(&b, cases[i].body);
        assert_int_equal(v.kind, cases[i].kind);
        assert_false(v.verdictless);
        assert_false(v.uncharged);
        assert_int_equal(v.broken, v.kind == TD_VERDICT_RETRY);
        assert_int_equal(v.code, v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE);
        bench_push(&b, 60 * TD_SECOND_US);
    }
    /* A signal has no exit code, and the others of the worker are never classified. */
    expect_charged(bench_do(&b, "{\"do\":\"kill\"}"));
    bench_push(&b, 60 * TD_SECOND_US);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    bench_start(&b, "{\"do\":\"exit\",\"code\":65}");
    bench_start(&b, "{\"result\":\"ok\"}");
    assert_int_equal(bench_result(&b).verdict.kind, TD_VERDICT_DEAD);
    expect_innocent(&b, bench_result(&b).verdict);
    bench_end(&b);
}

/* The answer counts although the worker was gone when we read it. */
static void answer_then_exit(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_int_equal(bench_do(&b, "{\"do\":\"answer, exit\",\"code\":1}").kind, TD_VERDICT_OK);
    bench_await_log(&b, "the worker exited with 1");
    bench_end(&b);
}

static void dies_before_hello(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "dies", NULL);
    struct td_verdict v = bench_do(&b, "{}");
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_true(v.uncharged);
    assert_true(v.broken);
    assert_text(&b, v.reason, "the worker exited with 1");
    assert_int_equal(bench_logged(&b, "SyntaxError of the test"), 1);
    bench_end(&b);
}

static void stdout_closed(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    struct td_verdict v = bench_do(&b, "{\"do\":\"close stdout\"}");
    expect_charged(v);
    assert_text(&b, v.reason, "the worker closed its stdin or stdout, or was killed");
    bench_end(&b);
}

/* A child of the worker holds its stdout, so no end of file tells of the exit. */
static void child_holds_stdout(void **state)
{
    (void)state;
    struct bench b;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    begin(&b, "answers", NULL);
    struct td_verdict v = bench_do(&b, "{\"do\":\"child, exit\"}");
    expect_charged(v);
    assert_text(&b, v.reason, "the worker exited with 3");
    int status = 0;
    assert_true(waitpid(-1, &status, 0) > 0); /* the child, which became ours */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    bench_end(&b);
}

static pid_t ask_pid(struct bench *b)
{
    const char *text = bench_cstr(b, bench_do(b, "{\"do\":\"pid\"}").reason);
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    assert_true(pid > 1);
    return pid;
}

static void wait_for_zombie(pid_t pid)
{
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

/* A dead worker's pipe, with SIGPIPE as deadly as a program may have it. */
static void broken_pipe(void **state)
{
    (void)state;
    struct bench b;
    sigset_t pending;
    signal(SIGPIPE, SIG_DFL);
    begin(&b, "window", "2");
    pid_t pid = ask_pid(&b);
    uint64_t first = bench_start(&b, "{\"do\":\"exit\",\"code\":1}");
    wait_for_zombie(pid);
    bench_start(&b, "{\"result\":\"ok\"}"); /* writes to nobody */
    struct td_run_result r = bench_result(&b);
    assert_int_equal(r.token, first);
    expect_charged(r.verdict);
    expect_innocent(&b, bench_result(&b).verdict);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    bench_end(&b);
}

static void on_signal(int number)
{
    (void)number;
    abort();
}

/* What was pending before is not taken away, and what was not blocked is not blocked after. */
static void signals_as_they_were(void **state)
{
    (void)state;
    struct bench b;
    sigset_t broken, pending, now;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    signal(SIGPIPE, on_signal);
    begin(&b, "window", "2");
    pid_t pid = ask_pid(&b);
    sigprocmask(SIG_SETMASK, NULL, &now);
    assert_int_equal(sigismember(&now, SIGPIPE), 0);
    bench_start(&b, "{\"do\":\"exit\",\"code\":1}");
    wait_for_zombie(pid);
    sigprocmask(SIG_BLOCK, &broken, NULL);
    raise(SIGPIPE);
    bench_start(&b, "{\"result\":\"ok\"}");
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 1);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, &broken, NULL);
    signal(SIGPIPE, SIG_DFL);
    bench_result(&b);
    bench_result(&b);
    bench_end(&b);
}

/* The worker does not read any more: found out when there is something to write. */
static void stdin_closed(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_int_equal(bench_do(&b, "{\"do\":\"close stdin\"}").kind, TD_VERDICT_OK);
    struct td_verdict v = bench_do(&b, "{\"result\":\"ok\"}");
    expect_charged(v);
    bench_end(&b);
}

/* ---- restarts ---- */

static void command_not_found(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    bench_init(&b, "answers", NULL);
    b.command[0] = TD_STR_LIT("no-such-program-of-tidings");
    bench_open(&b);
    assert_int_equal(try_start(&b, &err), TD_ERR_UNAVAILABLE);
    assert_int_equal(err.class_, TD_CLASS_RETRY);
    assert_string_equal(err.text,
                        "cannot run no-such-program-of-tidings: No such file or directory");
    assert_string_equal(err.peer, "errno 2");
    bench_end(&b);
}

static void folder_not_found(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    bench_init(&b, "answers", NULL);
    b.o.directory = TD_STR_LIT("/no/such/folder");
    bench_open(&b);
    assert_int_equal(try_start(&b, &err), TD_ERR_UNAVAILABLE);
    assert_string_equal(err.text,
                        "cannot enter the folder /no/such/folder: No such file or directory");
    bench_end(&b);
}

/* No worker is started before half of the pause is over, one is after all of it. */
static void expect_pause(struct bench *b, td_time_us pause)
{
    struct td_error err;
    if (pause > 10 * TD_SECOND_US) { /* a shorter one may pass by itself on a slow machine */
        bench_push(b, pause / 2);
        assert_int_equal(b->h->driver->free_slots(b->h), 0);
        assert_int_equal(try_start(b, &err), TD_ERR_UNAVAILABLE);
        assert_string_equal(
            err.text, "no worker runs: the last one ended, the next is started after a pause");
        pause -= pause / 2;
    }
    bench_push(b, pause);
    assert_int_equal(b->h->driver->free_slots(b->h), 1);
}

static void restarts_slow_down(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "dies", NULL);
    td_time_us pause = 100 * TD_MILLISECOND_US;
    for (int i = 0; i < 12; i++) {
        assert_true(bench_do(&b, "{}").uncharged);
        expect_pause(&b, pause);
        pause = pause * 2 < 30 * TD_SECOND_US ? pause * 2 : 30 * TD_SECOND_US;
    }
    bench_end(&b);
}

/* A command that cannot be run slows down likewise. */
static void failed_starts_slow_down(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    bench_init(&b, "answers", NULL);
    b.o.directory = TD_STR_LIT("/no/such/folder");
    bench_open(&b);
    td_time_us pause = 100 * TD_MILLISECOND_US;
    for (int i = 0; i < 12; i++) {
        assert_int_equal(try_start(&b, &err), TD_ERR_UNAVAILABLE);
        assert_non_null(strstr(err.text, "cannot enter"));
        expect_pause(&b, pause);
        pause = pause * 2 < 30 * TD_SECOND_US ? pause * 2 : 30 * TD_SECOND_US;
    }
    bench_end(&b);
}

static void an_answer_ends_the_slowness(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "once", NULL);
    for (size_t i = 1; i <= 6; i++) {
        assert_int_equal(bench_do(&b, "{}").kind, TD_VERDICT_OK);
        while (bench_logged(&b, "worker ended") < i) {
            bench_quiet(&b);
        }
        expect_pause(&b, 100 * TD_MILLISECOND_US);
    }
    bench_end(&b);
}

/* ---- time ---- */

static void time_out_kills(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, "answers", NULL);
    b.o.timeout_us = 10 * TD_SECOND_US;
    bench_open(&b);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    bench_start(&b, "{\"do\":\"hang\"}");
    bench_push(&b, 9 * TD_SECOND_US);
    bench_quiet(&b);
    bench_push(&b, 1100 * TD_MILLISECOND_US);
    struct td_verdict v = bench_result(&b).verdict;
    expect_charged(v);
    assert_text(&b, v.reason, "no answer within 10s");
    assert_text(&b, v.error_type, "timeout");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* the worker is gone at once */
    bench_end(&b);
}

static void earlier_deadline_of_the_caller(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    begin(&b, "answers", NULL);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    struct td_run run = bench_run(&b, bench_json(&b, "{\"do\":\"hang\"}"));
    run.deadline_us = bench_now(&b) + 5 * TD_SECOND_US;
    assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_OK);
    bench_push(&b, 6 * TD_SECOND_US);
    assert_text(&b, bench_result(&b).verdict.reason, "no answer before its deadline");
    bench_end(&b);
}

static void only_the_late_one_is_charged(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    begin(&b, "window", "3");
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    uint64_t first = bench_start(&b, "{\"do\":\"nothing\"}");
    struct td_run late = bench_run(&b, bench_json(&b, "{\"do\":\"nothing\"}"));
    late.deadline_us = bench_now(&b) + 5 * TD_SECOND_US;
    assert_int_equal(b.h->driver->start(b.h, &late, &err), TD_OK);
    uint64_t third = bench_start(&b, "{\"do\":\"nothing\"}");
    bench_push(&b, 6 * TD_SECOND_US);
    struct td_run_result r = bench_result(&b);
    assert_int_equal(r.token, late.token);
    expect_charged(r.verdict);
    r = bench_result(&b);
    assert_int_equal(r.token, first);
    expect_innocent(&b, r.verdict);
    r = bench_result(&b);
    assert_int_equal(r.token, third);
    expect_innocent(&b, r.verdict);
    bench_end(&b);
}

/* A worker that starts more slowly than a message may take is not started over and over. */
static void slow_start(void **state)
{
    (void)state;
    struct bench b;
    struct td_error err;
    bench_init(&b, "slow hello", "");
    const char *gate = bench_path(&b, "gate");
    assert_int_equal(mkfifo(gate, 0600), 0);
    b.command[3] = tdi_str(gate);
    bench_open(&b);
    struct td_run run = bench_run(&b, bench_json(&b, "{}"));
    run.deadline_us = bench_now(&b) + TD_MILLISECOND_US;
    assert_int_equal(b.h->driver->start(b.h, &run, &err), TD_OK);
    struct td_verdict v = bench_result(&b).verdict;
    assert_int_equal(v.kind, TD_VERDICT_RETRY);
    assert_true(v.uncharged);
    assert_true(v.broken);
    assert_text(&b, v.reason, "the worker did not say hello before the message's deadline");
    assert_int_equal(b.h->driver->free_slots(b.h), 1);
    uint64_t token = bench_start(&b, "{\"result\":\"ok\"}");
    int fd = open(gate, O_WRONLY | O_CLOEXEC); /* waits for the worker to open it, too */
    assert_true(fd >= 0);
    close(fd);
    struct td_run_result r = bench_result(&b);
    assert_int_equal(r.token, token);
    assert_int_equal(r.verdict.kind, TD_VERDICT_OK);
    assert_int_equal(bench_logged(&b, "worker ended"), 0);
    bench_end(&b);
}

static void ping_and_pong(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "answers", NULL);
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    bench_push(&b, 5 * TD_SECOND_US);
    bench_quiet(&b);
    for (size_t i = 1; i <= 3; i++) {
        bench_push(&b, 11 * TD_SECOND_US);
        while (bench_logged(&b, "was pinged") < i) { /* it says so after the pong */
            bench_quiet(&b);
        }
        bench_quiet(&b);
        bench_push(&b, 6 * TD_SECOND_US);
        bench_quiet(&b);
    }
    assert_int_equal(bench_logged(&b, "was pinged"), 3);
    assert_int_equal(bench_logged(&b, "worker ended"), 0);
    bench_end(&b);
}

static void deaf_worker(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "deaf", NULL);
    assert_int_equal(bench_do(&b, "{}").kind, TD_VERDICT_OK);
    bench_push(&b, 11 * TD_SECOND_US);
    bench_quiet(&b);
    bench_push(&b, 4 * TD_SECOND_US);
    bench_quiet(&b);
    assert_int_equal(bench_logged(&b, "worker ended"), 0);
    bench_push(&b, 2 * TD_SECOND_US);
    bench_quiet(&b);
    assert_int_equal(bench_logged(&b, "the worker did not answer a ping within 5 s"), 1);
    bench_end(&b);
}

/* ---- cancel ---- */

static void cancel_kills(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "window", "3");
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    uint64_t first = bench_start(&b, "{\"do\":\"nothing\"}");
    uint64_t second = bench_start(&b, "{\"do\":\"hang\"}");
    b.h->driver->cancel(b.h, second);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    struct td_run_result r = bench_result(&b);
    assert_int_equal(r.token, first); /* the oldest, and yet innocent */
    expect_innocent(&b, r.verdict);
    bench_quiet(&b);
    assert_int_equal(b.h->driver->free_slots(b.h), 1); /* no pause */
    assert_int_equal(bench_logged(&b, "WARN"), 0);
    bench_end(&b);
}

static void cancel_what_was_not_sent(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "silent", NULL);
    uint64_t token = bench_start(&b, "{}");
    b.h->driver->cancel(b.h, token);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* it lives on */
    bench_quiet(&b);
    b.h->driver->cancel(b.h, token + 1000); /* unknown: nothing */
    tdi_handler_close(b.h, 0);
    b.h = NULL;
    bench_end(&b);
}

static void cancel_an_ended_one(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, "window", "3");
    assert_int_equal(bench_do(&b, "{\"result\":\"ok\"}").kind, TD_VERDICT_OK);
    uint64_t first = bench_start(&b, "{\"result\":\"ok\"}");
    bench_start(&b, "{\"do\":\"exit\",\"code\":1}");
    uint64_t third = bench_start(&b, "{\"result\":\"ok\"}");
    assert_int_equal(bench_result(&b).token, first);
    assert_int_equal(bench_result(&b).token, first + 1); /* now the third waits in the ring */
    b.h->driver->cancel(b.h, third);
    bench_quiet(&b);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_is_charged),
        cmocka_unit_test(signal_is_charged),
        cmocka_unit_test(only_the_oldest_is_charged),
        cmocka_unit_test(classified_exits),
        cmocka_unit_test(answer_then_exit),
        cmocka_unit_test(dies_before_hello),
        cmocka_unit_test(stdout_closed),
        cmocka_unit_test(child_holds_stdout),
        cmocka_unit_test(broken_pipe),
        cmocka_unit_test(signals_as_they_were),
        cmocka_unit_test(stdin_closed),
        cmocka_unit_test(command_not_found),
        cmocka_unit_test(folder_not_found),
        cmocka_unit_test(restarts_slow_down),
        cmocka_unit_test(failed_starts_slow_down),
        cmocka_unit_test(an_answer_ends_the_slowness),
        cmocka_unit_test(time_out_kills),
        cmocka_unit_test(earlier_deadline_of_the_caller),
        cmocka_unit_test(only_the_late_one_is_charged),
        cmocka_unit_test(slow_start),
        cmocka_unit_test(ping_and_pong),
        cmocka_unit_test(deaf_worker),
        cmocka_unit_test(cancel_kills),
        cmocka_unit_test(cancel_what_was_not_sent),
        cmocka_unit_test(cancel_an_ended_one),
    };
    return cmocka_run_group_tests_name("exec_ends", tests, NULL, NULL);
}
