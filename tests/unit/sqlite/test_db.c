/* Opening connections, errors in our terms, syncs and checkpoints of src/sqlite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "fault_vfs.h"
#include "sqlite/db.h"

struct files {
    char folder[64];
    char path[128];
    struct tdi_db db;
    struct tdi_db_options o;
    struct td_error err;
};

static int setup(void **state)
{
    struct files *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/tidings-sqlite-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof(f->path), "%s/a.db", f->folder);
    f->o = (struct tdi_db_options){
        .path = tdi_str(f->path),
        .create = true,
        .cache_kib = 256,
        .busy_timeout_us = 50 * TD_MILLISECOND_US,
        .clock = tdi_clock_system(),
    };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct files *f = *state;
    tdi_db_close(&f->db);
    DIR *folder = opendir(f->folder);
    assert_non_null(folder);
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        char path[400];
        (void)snprintf(path, sizeof(path), "%s/%s", f->folder, e->d_name);
        (void)(unlink(path) != 0 && rmdir(path));
    }
    (void)closedir(folder);
    (void)rmdir(f->folder);
    free(f);
    return 0;
}

static enum td_err open_it(struct files *f)
{
    f->err = (struct td_error){.code = TD_OK};
    return tdi_db_open(&f->db, &f->o, "test", &f->err);
}

static void open_ok(struct files *f)
{
    if (open_it(f) != TD_OK) {
        print_error("%s\n", f->err.text);
        fail();
    }
}

/* Opening fails with this code, and the sentence names the file and holds `word`. */
static void open_fails(struct files *f, enum td_err code, const char *word)
{
    enum td_err rc = open_it(f);
    if (rc != code || strstr(f->err.text, word) == NULL) {
        print_error("%s: %s\n", td_err_name(rc), f->err.text);
    }
    assert_int_equal(rc, code);
    assert_non_null(strstr(f->err.text, word));
    assert_non_null(strstr(f->err.text, "a.db"));
    assert_string_equal(f->err.driver, "test");
    tdi_db_close(&f->db);
}

static void exec_ok(struct files *f, const char *sql)
{
    if (tdi_db_exec(&f->db, sql, "test", &f->err) != TD_OK) {
        print_error("%s\n", f->err.text);
        fail();
    }
}

static int64_t number(struct files *f, const char *sql)
{
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_prepare_v2(f->db.handle, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    return n;
}

static void foreign_sql(struct files *f, const char *sql)
{
    sqlite3 *h = NULL;
    assert_int_equal(sqlite3_open(f->path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_exec(h, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(h), SQLITE_OK);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_create_and_reopen(void **state)
{
    struct files *f = *state;
    open_ok(f);
    exec_ok(f, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    assert_int_equal(number(f, "PRAGMA synchronous"), 1);
    assert_int_equal(number(f, "PRAGMA wal_autocheckpoint"), 0);
    assert_int_equal(number(f, "PRAGMA trusted_schema"), 0);
    assert_int_equal(number(f, "PRAGMA temp_store"), 2);
    assert_int_equal(number(f, "PRAGMA cache_size"), -256);
    tdi_db_close(&f->db);
    f->o.create = false;
    open_ok(f);
    assert_int_equal(number(f, "SELECT a FROM t"), 1);
}

static void test_own_file(void **state)
{
    struct files *f = *state;
    f->o.own_file = true;
    f->o.application_id = 77;
    open_ok(f);
    assert_int_equal(number(f, "PRAGMA auto_vacuum"), 2);
    assert_int_equal(number(f, "PRAGMA application_id"), 77);
    assert_int_equal(number(f, "PRAGMA page_size"), 4096);
    assert_int_equal(number(f, "PRAGMA secure_delete"), 0);
    tdi_db_close(&f->db);
    f->o.create = false;
    f->o.application_id = 78;
    open_fails(f, TD_ERR_FOREIGN, "another program");
    f->o.application_id = 77;
    open_ok(f);
}

static void test_own_file_of_no_bytes(void **state)
{
    struct files *f = *state;
    write_file(f->path, "");
    f->o.own_file = true;
    f->o.create = false;
    open_fails(f, TD_ERR_SCHEMA, "empty");
    f->o.create = true;
    open_ok(f);
}

static void test_missing(void **state)
{
    struct files *f = *state;
    f->o.create = false;
    open_fails(f, TD_ERR_NOT_FOUND, "tidings init");
    assert_int_equal(access(f->path, F_OK), -1);
    (void)snprintf(f->path, sizeof(f->path), "%s/no/a.db", f->folder);
    f->o.path = tdi_str(f->path);
    f->o.create = true;
    open_fails(f, TD_ERR_CANNOT_CREATE, "directory");
    f->o.path = TD_STR_LIT("");
    assert_int_equal(open_it(f), TD_ERR_CONFIG);
    tdi_db_close(&f->db);
    f->o.path = (struct td_str){"a\0b", 3};
    assert_int_equal(open_it(f), TD_ERR_CONFIG);
}

static void test_directory(void **state)
{
    struct files *f = *state;
    assert_int_equal(mkdir(f->path, 0700), 0);
    open_fails(f, TD_ERR_FOREIGN, "is a directory");
}

static void test_not_a_database(void **state)
{
    struct files *f = *state;
    f->o.create = false;
    write_file(f->path, "This is a text file that has some length, more than a header of SQLite "
                        "would have, so that nobody takes it for an empty one.");
    open_fails(f, TD_ERR_FOREIGN, "not a database");
}

static void test_corrupt(void **state)
{
    struct files *f = *state;
    foreign_sql(f, "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    int fd = open(f->path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    char junk[2000];
    memset(junk, 0xA5, sizeof(junk));
    assert_int_equal(pwrite(fd, junk, sizeof(junk), 100), (ssize_t)sizeof(junk));
    assert_int_equal(close(fd), 0);
    open_fails(f, TD_ERR_CORRUPT, "malformed");
    assert_int_equal(f->err.class_, TD_CLASS_FATAL);
}

static void test_not_in_wal_mode(void **state)
{
    struct files *f = *state;
    foreign_sql(f, "CREATE TABLE t(a)");
    open_fails(f, TD_ERR_CONFIG, "PRAGMA journal_mode=WAL");
    assert_int_equal(td_err_exit_code(f->err.code), 78);
    foreign_sql(f, "PRAGMA journal_mode=WAL");
    open_ok(f);
}

static void test_read_only(void **state)
{
    struct files *f = *state;
    foreign_sql(f, "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES (3)");
    f->o.read_only = true;
    open_ok(f);
    assert_int_equal(number(f, "SELECT a FROM t"), 3);
    assert_int_equal(tdi_db_exec(&f->db, "INSERT INTO t VALUES (4)", "test", &f->err),
                     TD_ERR_READ_ONLY);
    assert_string_equal(f->err.sqlstate, "25006");
}

static void test_file_that_this_user_cannot_write(void **state)
{
    struct files *f = *state;
    foreign_sql(f, "PRAGMA journal_mode=WAL; CREATE TABLE t(a)");
    assert_int_equal(chmod(f->folder, 0755), 0);
    assert_int_equal(chmod(f->path, 0444), 0);
    bool root = geteuid() == 0;
    if (root) {
        assert_int_equal(seteuid(65534), 0);
    }
    f->o.create = false;
    enum td_err rc = open_it(f);
    tdi_db_close(&f->db);
    assert_int_equal(chmod(f->path, 0000), root ? -1 : 0);
    if (root) {
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(chmod(f->path, 0000), 0);
        assert_int_equal(seteuid(65534), 0);
    }
    enum td_err second = open_it(f);
    if (root) {
        assert_int_equal(seteuid(0), 0);
    }
    assert_int_equal(rc, TD_ERR_READ_ONLY);
    assert_int_equal(second, TD_ERR_DENIED);
}

static void test_unknown_vfs(void **state)
{
    struct files *f = *state;
    f->o.vfs = TD_STR_LIT("no such thing");
    assert_int_not_equal(open_it(f), TD_OK);
    assert_non_null(strstr(f->err.text, "vfs"));
}

/* ---- working ----------------------------------------------------------------------------------- */

static void test_transactions(void **state)
{
    struct files *f = *state;
    open_ok(f);
    exec_ok(f, "CREATE TABLE t(a)");
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_OK);
    assert_true(f->db.in_transaction);
    exec_ok(f, "INSERT INTO t VALUES (1)");
    tdi_db_rollback(&f->db);
    assert_false(f->db.in_transaction);
    assert_int_equal(number(f, "SELECT count(*) FROM t"), 0);
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_OK);
    exec_ok(f, "INSERT INTO t VALUES (1)");
    assert_int_equal(tdi_db_commit(&f->db, &f->err), TD_OK);
    assert_true(tdi_db_wal_pages(&f->db) > 0);
    assert_int_equal(tdi_db_checkpoint(&f->db, true, &f->err), TD_OK);
    assert_int_equal(tdi_db_wal_pages(&f->db), 0);
    assert_int_equal(number(f, "SELECT count(*) FROM t"), 1);
}

static void test_failed_commit_is_rolled_back(void **state)
{
    struct files *f = *state;
    open_ok(f);
    exec_ok(f, "PRAGMA foreign_keys=ON; CREATE TABLE p(id INTEGER PRIMARY KEY);"
               "CREATE TABLE c(p INTEGER REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)");
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_OK);
    exec_ok(f, "INSERT INTO c VALUES (1)");
    assert_int_equal(tdi_db_commit(&f->db, &f->err), TD_ERR_STATEMENT);
    assert_string_equal(f->err.sqlstate, "23503");
    assert_int_equal(number(f, "SELECT count(*) FROM c"), 0);
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_OK);
    assert_int_equal(tdi_db_commit(&f->db, &f->err), TD_OK);
}

static void test_busy_is_bounded(void **state)
{
    struct files *f = *state;
    struct tdi_db other;
    open_ok(f);
    assert_int_equal(tdi_db_open(&other, &f->o, "test", &f->err), TD_OK);
    assert_int_equal(tdi_db_begin(&other, true, &f->err), TD_OK);
    td_time_us before = tdi_mono(&f->o.clock);
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_ERR_BUSY);
    assert_true(tdi_mono(&f->o.clock) - before >= f->o.busy_timeout_us);
    assert_int_equal(f->err.class_, TD_CLASS_RETRY);
    assert_string_equal(f->err.peer, "SQLITE_BUSY");
    assert_string_equal(f->err.sqlstate, "55P03");
    tdi_db_close(&other);
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_OK);
}

static td_time_us clock_that_stands(void *ctx)
{
    (void)ctx;
    return 1;
}

static void test_busy_ends_though_the_clock_stands(void **state)
{
    struct files *f = *state;
    struct tdi_db other;
    assert_int_equal(tdi_db_open(&other, &f->o, "test", &f->err), TD_OK);
    f->o.clock = (struct td_clock){.wall = clock_that_stands, .mono = clock_that_stands};
    open_ok(f);
    assert_int_equal(tdi_db_begin(&other, true, &f->err), TD_OK);
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_ERR_BUSY);
    tdi_db_close(&other);
}

static void *interrupt_it(void *arg)
{
    tdi_db_interrupt(arg);
    return NULL;
}

static void test_interrupt_ends_a_wait(void **state)
{
    struct files *f = *state;
    struct tdi_db other;
    pthread_t thread;
    f->o.busy_timeout_us = 600 * TD_SECOND_US;
    open_ok(f);
    assert_int_equal(tdi_db_open(&other, &f->o, "test", &f->err), TD_OK);
    assert_int_equal(tdi_db_begin(&other, true, &f->err), TD_OK);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_it, &f->db), 0);
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_ERR_INTERRUPTED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tdi_db_close(&other);
    assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_OK);
}

static void test_sqlstates(void **state)
{
    (void)state;
    assert_string_equal(tdi_db_sqlstate(SQLITE_CONSTRAINT_UNIQUE), "23505");
    assert_string_equal(tdi_db_sqlstate(SQLITE_CONSTRAINT_NOTNULL), "23502");
    assert_string_equal(tdi_db_sqlstate(SQLITE_CONSTRAINT_CHECK), "23514");
    assert_string_equal(tdi_db_sqlstate(SQLITE_CONSTRAINT_FOREIGNKEY), "23503");
    assert_string_equal(tdi_db_sqlstate(SQLITE_CONSTRAINT_TRIGGER), "23000");
    assert_string_equal(tdi_db_sqlstate(SQLITE_BUSY_SNAPSHOT), "55P03");
    assert_string_equal(tdi_db_sqlstate(SQLITE_LOCKED_SHAREDCACHE), "55P03");
    assert_string_equal(tdi_db_sqlstate(SQLITE_FULL), "53100");
    assert_string_equal(tdi_db_sqlstate(SQLITE_IOERR_LOCK), "58030");
    assert_string_equal(tdi_db_sqlstate(SQLITE_CORRUPT_VTAB), "XX001");
    assert_string_equal(tdi_db_sqlstate(SQLITE_READONLY_DBMOVED), "25006");
    assert_string_equal(tdi_db_sqlstate(SQLITE_INTERRUPT), "57014");
    assert_string_equal(tdi_db_sqlstate(SQLITE_TOOBIG), "22000");
    assert_string_equal(tdi_db_sqlstate(SQLITE_MISMATCH), "22000");
}

static void test_columns_and_bindings(void **state)
{
    struct files *f = *state;
    sqlite3_stmt *s = NULL;
    open_ok(f);
    const char *sql = "SELECT ?1, ?2, ?3, ?4, ?5, ?6";
    assert_int_equal(tdi_db_statement(&f->db, 0, sql, &s, &f->err), TD_OK);
    tdi_bind_str(s, 1, TD_STR_NONE);
    tdi_bind_str(s, 2, TD_STR_LIT(""));
    tdi_bind_bytes(s, 3, TD_BYTES_NONE);
    tdi_bind_bytes(s, 4, (struct td_bytes){"", 0});
    tdi_bind_i64(s, 5, TD_TIME_NONE);
    tdi_bind_i64(s, 6, -5);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_null(tdi_column_str(s, 0).data);
    assert_non_null(tdi_column_str(s, 1).data);
    assert_int_equal(tdi_column_str(s, 1).len, 0);
    assert_null(tdi_column_bytes(s, 2).data);
    assert_non_null(tdi_column_bytes(s, 3).data);
    assert_int_equal(tdi_column_bytes(s, 3).len, 0);
    assert_int_equal(tdi_column_i64(s, 4), TD_TIME_NONE);
    assert_int_equal(tdi_column_i64(s, 5), -5);
    sqlite3_stmt *again = NULL;
    assert_int_equal(tdi_db_statement(&f->db, 0, sql, &again, &f->err), TD_OK);
    assert_ptr_equal(again, s);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_null(tdi_column_str(s, 1).data); /* bindings were cleared */
    assert_int_equal(tdi_db_statement(&f->db, TDI_DB_STATEMENTS_MAX, sql, &s, &f->err),
                     TD_ERR_INTERNAL);
}

/* ---- durability -------------------------------------------------------------------------------- */

static void test_sync_goes_through_the_vfs(void **state)
{
    struct files *f = *state;
    struct fault_vfs *v = fault_vfs_use();
    f->o.vfs = TD_STR_LIT("fault");
    open_ok(f);
    exec_ok(f, "CREATE TABLE t(a)");
    assert_int_equal(tdi_db_sync(&f->db, &f->err), TD_OK);
    int wal = v->wal_syncs;
    int db = v->main_syncs;
    exec_ok(f, "INSERT INTO t VALUES (1)");
    assert_int_equal(v->wal_syncs, wal); /* a commit alone syncs nothing */
    assert_int_equal(tdi_db_sync(&f->db, &f->err), TD_OK);
    assert_int_equal(v->wal_syncs, wal + 1);
    assert_int_equal(v->main_syncs, db);
}

/* With synchronous=OFF an application moves pages to the file and syncs neither. */
static void test_sync_after_somebody_reset_the_wal(void **state)
{
    struct files *f = *state;
    struct fault_vfs *v = fault_vfs_use();
    f->o.vfs = TD_STR_LIT("fault");
    open_ok(f);
    exec_ok(f, "CREATE TABLE t(a)");
    assert_int_equal(tdi_db_sync(&f->db, &f->err), TD_OK);
    foreign_sql(f, "PRAGMA synchronous=OFF; INSERT INTO t VALUES (1);"
                   "PRAGMA wal_checkpoint(RESTART); INSERT INTO t VALUES (2)");
    int db = v->main_syncs;
    assert_int_equal(tdi_db_sync(&f->db, &f->err), TD_OK);
    assert_int_equal(v->main_syncs, db + 1);
    assert_int_equal(tdi_db_sync(&f->db, &f->err), TD_OK);
    assert_int_equal(v->main_syncs, db + 1);
}

static void test_failed_sync_is_final(void **state)
{
    struct files *f = *state;
    struct fault_vfs *v = fault_vfs_use();
    f->o.vfs = TD_STR_LIT("fault");
    open_ok(f);
    exec_ok(f, "CREATE TABLE t(a)");
    v->fail_syncs = 1;
    assert_int_equal(tdi_db_sync(&f->db, &f->err), TD_ERR_IO);
    assert_int_equal(f->err.class_, TD_CLASS_FATAL);
    v->fail_syncs = 0;
    assert_int_equal(tdi_db_sync(&f->db, &f->err), TD_ERR_IO);
    assert_true(f->db.sync_failed);
}

static void test_disk_full(void **state)
{
    struct files *f = *state;
    struct fault_vfs *v = fault_vfs_use();
    f->o.vfs = TD_STR_LIT("fault");
    open_ok(f);
    exec_ok(f, "CREATE TABLE t(a)");
    for (int n = 0; n < 4; n++) {
        assert_int_equal(tdi_db_begin(&f->db, true, &f->err), TD_OK);
        exec_ok(f, "INSERT INTO t VALUES (zeroblob(9000))");
        v->writes_until_full = n;
        assert_int_equal(tdi_db_commit(&f->db, &f->err), TD_ERR_DISK_FULL);
        assert_int_equal(f->err.class_, TD_CLASS_RETRY);
        assert_string_equal(f->err.sqlstate, "53100");
        v->writes_until_full = -1;
        assert_int_equal(number(f, "SELECT count(*) FROM t"), 0);
    }
    exec_ok(f, "INSERT INTO t VALUES (1)");
    assert_int_equal(number(f, "SELECT count(*) FROM t"), 1);
}

static void *sync_it(void *arg)
{
    struct td_error err;
    for (int i = 0; i < 20; i++) {
        if (tdi_db_sync(arg, &err) != TD_OK) {
            return arg;
        }
    }
    return NULL;
}

static void test_sync_from_another_thread(void **state)
{
    struct files *f = *state;
    pthread_t thread;
    void *failed = NULL;
    f->o.own_file = true;
    open_ok(f);
    exec_ok(f, "CREATE TABLE t(a)");
    assert_int_equal(pthread_create(&thread, NULL, sync_it, &f->db), 0);
    for (int i = 0; i < 50; i++) {
        exec_ok(f, "INSERT INTO t VALUES (1)");
    }
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

static void test_close_takes_anything(void **state)
{
    (void)state;
    struct tdi_db db = {.handle = NULL};
    tdi_db_close(&db);
    tdi_db_rollback(&db);
    tdi_db_interrupt(&db);
    tdi_db_close(&db);
    assert_null(db.handle);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_create_and_reopen),
        TEST(test_own_file),
        TEST(test_own_file_of_no_bytes),
        TEST(test_missing),
        TEST(test_directory),
        TEST(test_not_a_database),
        TEST(test_corrupt),
        TEST(test_not_in_wal_mode),
        TEST(test_read_only),
        TEST(test_file_that_this_user_cannot_write),
        TEST(test_unknown_vfs),
        TEST(test_transactions),
        TEST(test_failed_commit_is_rolled_back),
        TEST(test_busy_is_bounded),
        TEST(test_busy_ends_though_the_clock_stands),
        TEST(test_interrupt_ends_a_wait),
        TEST(test_sqlstates),
        TEST(test_columns_and_bindings),
        TEST(test_sync_goes_through_the_vfs),
        TEST(test_sync_after_somebody_reset_the_wal),
        TEST(test_failed_sync_is_final),
        TEST(test_disk_full),
        TEST(test_sync_from_another_thread),
        cmocka_unit_test(test_close_takes_anything),
    };
    return cmocka_run_group_tests_name("sqlite", tests, NULL, NULL);
}
