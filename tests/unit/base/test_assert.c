/* TDI_ASSERT: silent when true, a message and SIGABRT when false. */
#include "base/assert.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static void true_condition_goes_on(void **state)
{
    (void)state;
    int evaluated = 0;
    TDI_ASSERT(++evaluated == 1);
    assert_int_equal(evaluated, 1);
}

static void false_condition_aborts_and_says_where(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka and sanitizers have their own */
        dup2(ends[1], STDERR_FILENO);
        TDI_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    close(ends[1]);
    char text[512] = {0};
    size_t len = 0;
    ssize_t n;
    while ((n = read(ends[0], text + len, sizeof(text) - 1 - len)) > 0) {
        len += (size_t)n;
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "1 + 1 == 3"));
    assert_non_null(strstr(text, "test_assert.c"));
    assert_non_null(strstr(text, "false_condition_aborts_and_says_where"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(true_condition_goes_on),
        cmocka_unit_test(false_condition_aborts_and_says_where),
    };
    return cmocka_run_group_tests_name("base/assert", tests, NULL, NULL);
}
