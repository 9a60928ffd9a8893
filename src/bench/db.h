/*
 * The part of the measurement that plays the application: its own SQLite connection, as a team would
 * open it (synchronous=FULL, busy_timeout 5 s, wal_autocheckpoint=0), its INSERTs, and the numbers that
 * are read to see what Tidings has done. Uses SQLite and nothing of ours, on purpose: it must not
 * share a cache, a busy handler or a mistake with the program that it measures.
 */
#ifndef TDI_BENCH_DB_H
#define TDI_BENCH_DB_H

#include "tidings/error.h"
#include "tidings/types.h"

struct bench_db;

enum bench_number {
    BENCH_EFFECTS,   /* rows of effect; exact, for rows are never removed from it */
    BENCH_DIFFERENT, /* effect rows of different numbers; slow */
    BENCH_PUBLISHED, /* rows published since init */
    BENCH_NUMBERS,
};

/* The database must exist. *ret is set only on success. */
enum td_err bench_db_open(const char *path, struct bench_db **ret, struct td_error *err);
void bench_db_close(struct bench_db *db); /* NULL is fine */

/* The application's own tables: effect (of the sql handler) and orders. */
enum td_err bench_db_make_effect(struct bench_db *db, struct td_error *err);
enum td_err bench_db_make_orders(struct bench_db *db, struct td_error *err);

/* IMMEDIATE; tried again when the busy_timeout has passed, for a minute. */
enum td_err bench_db_begin(struct bench_db *db, struct td_error *err);
enum td_err bench_db_commit(struct bench_db *db, struct td_error *err);
enum td_err bench_db_add_event(struct bench_db *db, struct td_str key, struct td_str body,
                               struct td_error *err);
enum td_err bench_db_add_order(struct bench_db *db, int64_t user, int64_t total,
                               struct td_error *err);

enum td_err bench_db_number(struct bench_db *db, enum bench_number which, int64_t *ret,
                            struct td_error *err);
/* The numbers of at most max effect rows past *after, in order; *after is moved. */
enum td_err bench_db_effects_after(struct bench_db *db, int64_t *after, int64_t *ret, size_t max,
                                   size_t *ret_count, struct td_error *err);
const char *bench_db_version(void);

#endif
