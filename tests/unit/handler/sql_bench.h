/* What the tests of the sql handler share: a SQLite store in a folder of its own, with a driver around
 * it that counts what the handler asks for and can fail. Every failure is a cmocka assertion. */
#ifndef TEST_SQL_BENCH_H
#define TEST_SQL_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <sqlite3.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "tidings/handler.h"

#define BENCH_MAX 16
#define BENCH_CALLS_MAX 300

struct sql_bench {
    struct tdi_arena arena;
    struct tdi_random random;
    char folder[64];
    char location[96];
    struct td_store *store;
    sqlite3 *app; /* the application's connection */

    struct td_sql_step steps[BENCH_MAX];
    struct td_param params[BENCH_MAX];
    struct td_classify classify[BENCH_MAX];
    struct td_handler_options o; /* the arrays above, counts as they are filled */
    struct td_handler *h;

    struct td_verdict verdicts[BENCH_CALLS_MAX];
    size_t done;

    /* The driver around the store's: statement_run() calls and the rows of each. */
    struct td_store_driver spy;
    size_t calls;
    size_t rows[BENCH_CALLS_MAX];
    enum td_err fail_with; /* of the next statement_run(), instead of running */
};

/* sql: what the application has made, such as its tables. */
void sql_bench_init(struct sql_bench *b, const char *sql);
void sql_bench_step(struct sql_bench *b, const char *run, const char *on);
void sql_bench_rows_0(struct sql_bench *b, enum td_verdict_kind kind); /* of the last step */
void sql_bench_param(struct sql_bench *b, const char *name, const char *from);
void sql_bench_classify(struct sql_bench *b, const char *match, enum td_verdict_kind kind);
enum td_err sql_bench_try_open(struct sql_bench *b, struct td_error *err);
void sql_bench_open(struct sql_bench *b); /* and prepares */
void sql_bench_end(struct sql_bench *b);

struct td_message sql_bench_message(const char *type, const char *body);
/* Runs all in one transaction; commits if every verdict is OK and all are done, else rolls back. */
enum td_err sql_bench_try(struct sql_bench *b, const struct td_message *messages, size_t count,
                          struct td_error *err);
struct td_verdict sql_bench_run(struct sql_bench *b, const struct td_message *m);
/* First column of the first row, "NULL" and "(none)" included. */
const char *sql_bench_ask(struct sql_bench *b, const char *sql);
const char *sql_bench_cstr(struct sql_bench *b, struct td_str s);

#endif
