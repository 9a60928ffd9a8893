/* The application of the measurement: plain SQLite. */
#include "bench/db.h"

#include <sqlite3.h>
#include <stdlib.h>

#define BUSY_MS 5000
#define BUSY_TRIES                                                                                 \
    12 /* SQLite's lock has no queue: two writers without a pause starve each other */

enum statement {
    BEGIN_TX,
    COMMIT_TX,
    ADD_EVENT,
    ADD_ORDER,
    EFFECTS_AFTER,
    NUMBERS, /* one for each enum bench_number */
    STATEMENTS = NUMBERS + BENCH_NUMBERS,
};

static const char *const statements[STATEMENTS] = {
    [BEGIN_TX] = "BEGIN IMMEDIATE",
    [COMMIT_TX] = "COMMIT",
    [ADD_EVENT] =
        "INSERT INTO tidings_outbox(type, partition_key, body) VALUES('order.paid', ?1, ?2)",
    [ADD_ORDER] = "INSERT INTO orders(user_id, total) VALUES(?1, ?2)",
    [EFFECTS_AFTER] = "SELECT rowid, amount FROM effect WHERE rowid > ?1 ORDER BY rowid LIMIT ?2",
    [NUMBERS + BENCH_EFFECTS] = "SELECT coalesce(max(rowid), 0) FROM effect",
    [NUMBERS + BENCH_DIFFERENT] = "SELECT count(DISTINCT amount) FROM effect",
    [NUMBERS + BENCH_PUBLISHED] = "SELECT coalesce(sum(published), 0) FROM tidings_position",
};

struct bench_db {
    sqlite3 *handle;
    sqlite3_stmt *made[STATEMENTS];
};

static enum td_err failed(struct bench_db *db, const char *what, struct td_error *err)
{
    return td_error_set(err, TD_ERR_IO, "the application of the measurement: %s: %s", what,
                        db->handle != NULL ? sqlite3_errmsg(db->handle) : "out of memory");
}

static enum td_err exec(struct bench_db *db, const char *sql, struct td_error *err)
{
    return sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK ? TD_OK
                                                                        : failed(db, sql, err);
}

enum td_err bench_db_open(const char *path, struct bench_db **ret, struct td_error *err)
{
    struct bench_db *db = calloc(1, sizeof(*db));
    if (db == NULL) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for a connection");
    }
    enum td_err rc = TD_OK;
    if (sqlite3_open_v2(path, &db->handle, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        rc = failed(db, path, err);
    }
    if (rc == TD_OK) {
        sqlite3_busy_timeout(db->handle, BUSY_MS);
        rc = exec(db, "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0", err);
    }
    if (rc != TD_OK) {
        bench_db_close(db);
        return rc;
    }
    *ret = db;
    return TD_OK;
}

void bench_db_close(struct bench_db *db)
{
    if (db == NULL) {
        return;
    }
    for (size_t i = 0; i < STATEMENTS; i++) {
        sqlite3_finalize(db->made[i]);
    }
    sqlite3_close(db->handle);
    free(db);
}

enum td_err bench_db_make_effect(struct bench_db *db, struct td_error *err)
{
    return exec(db,
                "CREATE TABLE effect(user_id INTEGER NOT NULL, order_key TEXT NOT NULL,"
                " amount INTEGER NOT NULL)",
                err);
}

enum td_err bench_db_make_orders(struct bench_db *db, struct td_error *err)
{
    return exec(db,
                "CREATE TABLE orders(id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL,"
                " total INTEGER NOT NULL)",
                err);
}

static enum td_err statement(struct bench_db *db, int which, sqlite3_stmt **ret,
                             struct td_error *err)
{
    if (db->made[which] == NULL &&
        sqlite3_prepare_v3(db->handle, statements[which], -1, SQLITE_PREPARE_PERSISTENT,
                           &db->made[which], NULL) != SQLITE_OK) {
        return failed(db, statements[which], err);
    }
    *ret = db->made[which];
    return TD_OK;
}

static enum td_err finish(struct bench_db *db, int which, sqlite3_stmt *s, struct td_error *err)
{
    return sqlite3_reset(s) == SQLITE_OK ? TD_OK : failed(db, statements[which], err);
}

static enum td_err run(struct bench_db *db, int which, struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    enum td_err rc = statement(db, which, &s, err);
    if (rc == TD_OK) {
        sqlite3_step(s);
        rc = finish(db, which, s, err);
    }
    return rc;
}

enum td_err bench_db_begin(struct bench_db *db, struct td_error *err)
{
    enum td_err rc = run(db, BEGIN_TX, err);
    for (int i = 1; rc != TD_OK && i < BUSY_TRIES && sqlite3_errcode(db->handle) == SQLITE_BUSY;
         i++) {
        rc = run(db, BEGIN_TX, err);
    }
    return rc;
}

enum td_err bench_db_commit(struct bench_db *db, struct td_error *err)
{
    return run(db, COMMIT_TX, err);
}

enum td_err bench_db_add_event(struct bench_db *db, struct td_str key, struct td_str body,
                               struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    enum td_err rc = statement(db, ADD_EVENT, &s, err);
    if (rc == TD_OK) {
        sqlite3_bind_text(s, 1, key.data, (int)key.len, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, body.data, (int)body.len, SQLITE_STATIC);
        rc = run(db, ADD_EVENT, err);
    }
    return rc;
}

enum td_err bench_db_add_order(struct bench_db *db, int64_t user, int64_t total,
                               struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    enum td_err rc = statement(db, ADD_ORDER, &s, err);
    if (rc == TD_OK) {
        sqlite3_bind_int64(s, 1, user);
        sqlite3_bind_int64(s, 2, total);
        rc = run(db, ADD_ORDER, err);
    }
    return rc;
}

enum td_err bench_db_number(struct bench_db *db, enum bench_number which, int64_t *ret,
                            struct td_error *err)
{
    int at = NUMBERS + (int)which;
    sqlite3_stmt *s = NULL;
    enum td_err rc = statement(db, at, &s, err);
    if (rc == TD_OK) {
        int64_t value = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
        rc = finish(db, at, s, err);
        *ret = rc == TD_OK ? value : *ret;
    }
    return rc;
}

enum td_err bench_db_effects_after(struct bench_db *db, int64_t *after, int64_t *ret, size_t max,
                                   size_t *ret_count, struct td_error *err)
{
    sqlite3_stmt *s = NULL;
    size_t count = 0;
    int64_t last = *after;
    enum td_err rc = statement(db, EFFECTS_AFTER, &s, err);
    if (rc != TD_OK) {
        return rc;
    }
    sqlite3_bind_int64(s, 1, last);
    sqlite3_bind_int64(s, 2, (int64_t)max);
    while (count < max && sqlite3_step(s) == SQLITE_ROW) {
        last = sqlite3_column_int64(s, 0);
        ret[count++] = sqlite3_column_int64(s, 1);
    }
    rc = finish(db, EFFECTS_AFTER, s, err);
    if (rc == TD_OK) {
        *after = last;
        *ret_count = count;
    }
    return rc;
}

const char *bench_db_version(void)
{
    return sqlite3_libversion();
}
