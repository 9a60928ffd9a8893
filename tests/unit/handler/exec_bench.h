/* What the tests of the exec handler share: a handler with worker.py, a clock that can be pushed on,
 * and a log that can be read. Every failure is a cmocka assertion. */
#ifndef TEST_EXEC_BENCH_H
#define TEST_EXEC_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "tidings/handler.h"

struct bench {
    td_time_us ahead; /* of the machine's clock */
    int jump_after;   /* calls of clock.mono; then `jumps` of them go on by jump_us each */
    int jumps;
    td_time_us jump_us;
    struct td_clock clock;
    struct tdi_arena arena; /* messages and results live until the end */
    struct tdi_log *log;
    int log_fd;
    char folder[64];
    char path[128]; /* of a file in it, by bench_path() */
    struct td_handler_options o;
    struct td_str command[4];
    struct td_handler *h;
    struct td_classify classify[4];
    uint64_t tokens; /* given */
};

/* NULL argument: none. The handler is not open yet, so options may still be changed. */
void bench_init(struct bench *b, const char *mode, const char *argument);
void bench_open(struct bench *b);
/* Closes with ten seconds, checks that no child is left, removes the folder. */
void bench_end(struct bench *b);
const char *bench_path(struct bench *b, const char *name); /* copied into the arena */

td_time_us bench_now(const struct bench *b);
void bench_push(struct bench *b, td_time_us by);

struct td_message *bench_message(struct bench *b, struct td_bytes body);
struct td_message *bench_json(struct bench *b, const char *body);
/* A run with the deadline in 30 s and the next token. */
struct td_run bench_run(struct bench *b, const struct td_message *m);
/* Start it; must be taken. Its token. */
uint64_t bench_start(struct bench *b, const char *body);
/* The next result; there must be one within 20 s. */
struct td_run_result bench_result(struct bench *b);
/* Start and wait; the result must be its. */
struct td_verdict bench_do(struct bench *b, const char *body);
/* Poll without waiting; there must be no result. */
void bench_quiet(struct bench *b);
/* Poll until the log holds the text. */
void bench_await_log(struct bench *b, const char *text);

/* How often the text is in the log. */
size_t bench_logged(struct bench *b, const char *text);
/* A whole file; terminated, from the arena. */
struct td_str bench_read(struct bench *b, const char *path);
const char *bench_cstr(struct bench *b, struct td_str s);

#define assert_text(b, s, expected) assert_string_equal(bench_cstr((b), (s)), (expected))

#endif
