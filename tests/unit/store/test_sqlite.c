/* What only the SQLite store has: files in all their states, faults of the disk, checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "fault_vfs.h"
#include "store/registry.h"
#include "store/sqlite/driver.h"
#include "store/sqlite/internal.h"

struct place {
    char folder[64];
    char path[128];
    struct td_store_options o;
    struct tdi_random random;
    struct tdi_arena arena;
    struct td_store *s;
    struct td_error err;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    (void)snprintf(p->folder, sizeof(p->folder), "/tmp/tidings-store-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    (void)snprintf(p->path, sizeof(p->path), "%s/shop.db", p->folder);
    tdi_random_seed(&p->random, 3);
    tdi_arena_init(&p->arena, 0);
    p->o = (struct td_store_options){
        .location = tdi_str(p->path),
        .service = TD_STR_LIT("shop"),
        .clock = tdi_clock_system(),
        .random = &p->random,
        .operation_timeout_us = 100 * TD_MILLISECOND_US,
    };
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    tdi_store_close(p->s);
    tdi_arena_release(&p->arena);
    DIR *folder = opendir(p->folder);
    assert_non_null(folder);
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        char path[400];
        (void)snprintf(path, sizeof(path), "%s/%s", p->folder, e->d_name);
        (void)(unlink(path) != 0 && rmdir(path));
    }
    (void)closedir(folder);
    (void)rmdir(p->folder);
    free(p);
    return 0;
}

static void sql(struct place *p, const char *text)
{
    sqlite3 *h = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(p->path, &h), SQLITE_OK);
    if (sqlite3_exec(h, text, NULL, NULL, &why) != SQLITE_OK) {
        print_error("%s: %s\n", text, why);
        fail();
    }
    assert_int_equal(sqlite3_close(h), SQLITE_OK);
}

static int64_t number(struct place *p, const char *text)
{
    sqlite3 *h = NULL;
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_open(p->path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(h, text, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(stmt, 0);
    (void)sqlite3_finalize(stmt);
    assert_int_equal(sqlite3_close(h), SQLITE_OK);
    return n;
}

static void ok(struct place *p, enum td_err rc)
{
    if (rc != TD_OK) {
        print_error("%s: %s\n", td_err_name(rc), p->err.text);
    }
    assert_int_equal(rc, TD_OK);
}

static void open_ok(struct place *p)
{
    ok(p, tdi_store_open(&tdd_sqlite_store, &p->o, &p->s, &p->err));
}

/* tidings init */
static void init_ok(struct place *p)
{
    p->o.create = true;
    p->o.schema_any = true;
    open_ok(p);
    ok(p, p->s->driver->migrate(p->s, &p->err));
    tdi_store_close(p->s);
    p->s = NULL;
    p->o.create = false;
    p->o.schema_any = false;
}

static void open_fails(struct place *p, enum td_err code, const char *word)
{
    enum td_err rc = tdi_store_open(&tdd_sqlite_store, &p->o, &p->s, &p->err);
    if (rc != code || strstr(p->err.text, word) == NULL) {
        print_error("%s: %s\n", td_err_name(rc), p->err.text);
    }
    assert_int_equal(rc, code);
    assert_non_null(strstr(p->err.text, word));
    assert_non_null(strstr(p->err.text, "shop.db"));
    assert_string_equal(p->err.driver, "sqlite");
    assert_null(p->s);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* ---- files ------------------------------------------------------------------------------------- */

static void test_missing(void **state)
{
    struct place *p = *state;
    open_fails(p, TD_ERR_NOT_FOUND, "run tidings init");
    assert_int_equal(access(p->path, F_OK), -1);
}

static void test_no_bytes(void **state)
{
    struct place *p = *state;
    write_file(p->path, "");
    open_fails(p, TD_ERR_SCHEMA, "run tidings init");
    init_ok(p);
    open_ok(p);
}

static void test_directory(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdir(p->path, 0700), 0);
    open_fails(p, TD_ERR_FOREIGN, "is a directory");
}

static void test_text_file(void **state)
{
    struct place *p = *state;
    write_file(p->path, "stores: { shop: { driver: sqlite, path: shop.db } } # the wrong file was "
                        "named, which is longer than a header");
    open_fails(p, TD_ERR_FOREIGN, "not a database");
}

static void test_business_database(void **state)
{
    struct place *p = *state;
    sql(p, "CREATE TABLE orders(id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1)");
    p->o.create = true;
    p->o.schema_any = true;
    open_fails(p, TD_ERR_CONFIG, "PRAGMA journal_mode=WAL");
    sql(p, "PRAGMA journal_mode=WAL");
    p->o.create = false;
    p->o.schema_any = false;
    open_fails(p, TD_ERR_SCHEMA, "run tidings init");
    assert_int_equal(p->err.class_, TD_CLASS_FATAL);
    assert_int_equal(td_err_exit_code(p->err.code), 78);
    init_ok(p);
    open_ok(p);
    assert_int_equal(number(p, "SELECT count(*) FROM orders"), 1);
    /* And the application's own INSERT works without any of our code. */
    sql(p, "BEGIN; INSERT INTO orders VALUES (2);"
           "INSERT INTO tidings_outbox(type, partition_key, body) "
           "VALUES ('order.paid', 'order-2', json_object('id', 2)); COMMIT");
}

static void test_schema_of_tomorrow(void **state)
{
    struct place *p = *state;
    init_ok(p);
    sql(p, "INSERT INTO tidings_schema VALUES ('migration 2', 'abc', 0)");
    open_fails(p, TD_ERR_SCHEMA, "upgrade tidings");
    p->o.schema_any = true;
    open_fails(p, TD_ERR_SCHEMA, "upgrade tidings");
}

static void test_schema_of_another_build(void **state)
{
    struct place *p = *state;
    init_ok(p);
    sql(p, "UPDATE tidings_schema SET value = 'abc' WHERE name = 'migration 1'");
    open_fails(p, TD_ERR_SCHEMA, "another build");
}

static void test_tables_of_somebody_else(void **state)
{
    struct place *p = *state;
    sql(p, "PRAGMA journal_mode=WAL; CREATE TABLE tidings_schema(a)");
    open_fails(p, TD_ERR_FOREIGN, "not one of Tidings");
    sql(p, "DROP TABLE tidings_schema; CREATE TABLE tidings_inbox(a)");
    p->o.schema_any = true;
    open_ok(p);
    assert_int_equal(p->s->driver->migrate(p->s, &p->err), TD_ERR_FOREIGN);
    assert_non_null(strstr(p->err.text, "tidings_inbox"));
    /* Nothing of it is left. */
    assert_int_equal(number(p, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'tidings%'"), 1);
}

static void test_table_lost(void **state)
{
    struct place *p = *state;
    struct td_position at = {.order = 0};
    init_ok(p);
    open_ok(p);
    sql(p, "DROP TABLE tidings_position");
    assert_int_equal(p->s->driver->relay_position(p->s, TD_STR_LIT("r"), &p->arena, &at, &p->err),
                     TD_ERR_SCHEMA);
    assert_non_null(strstr(p->err.text, "tidings_position"));
}

static void test_printed_schema(void **state)
{
    struct place *p = *state;
    struct td_str text;
    struct td_store_info info;
    p->o.service = TD_STR_LIT("it's");
    ok(p, tdd_sqlite_store.schema_sql(&p->o, &p->arena, &text, &p->err));
    sql(p, text.data);
    open_ok(p);
    ok(p, p->s->driver->info(p->s, &p->arena, &info, &p->err));
    assert_true(tdi_str_is(info.service, "it's"));
    assert_int_equal(info.identity.len, 32);
    assert_int_equal(info.schema, info.schema_wanted);
    ok(p, p->s->driver->migrate(p->s, &p->err));
    p->o.service = TD_STR_LIT("");
    assert_int_equal(tdd_sqlite_store.schema_sql(&p->o, &p->arena, &text, &p->err), TD_ERR_USAGE);
}

/* ---- faults of the disk ------------------------------------------------------------------------ */

static void claim(struct place *p, const char *id)
{
    struct td_claim c = {.ref = {TD_STR_LIT("shop"), tdi_str(id)}, .published_at = TD_TIME_NONE};
    ok(p, p->s->driver->inbox_claim(p->s, TD_STR_LIT("c"), TD_STR_LIT(""), 0, &c, 1, &p->err));
}

static void test_disk_full(void **state)
{
    struct place *p = *state;
    struct fault_vfs *v = fault_vfs_use();
    init_ok(p);
    p->o.vfs = TD_STR_LIT("fault");
    open_ok(p);
    for (int n = 0; n < 3; n++) {
        ok(p, p->s->driver->begin(p->s, &p->err));
        claim(p, "m");
        v->writes_until_full = n;
        assert_int_equal(p->s->driver->finish(p->s, true, &p->err), TD_ERR_DISK_FULL);
        assert_int_equal(p->err.class_, TD_CLASS_RETRY);
        assert_int_equal(p->s->driver->relay_declare(p->s, TD_STR_LIT("r"), &p->err),
                         TD_ERR_DISK_FULL);
        v->writes_until_full = -1;
        assert_int_equal(number(p, "SELECT count(*) FROM tidings_inbox"), 0);
    }
    ok(p, p->s->driver->begin(p->s, &p->err));
    claim(p, "m");
    ok(p, p->s->driver->finish(p->s, true, &p->err));
    assert_int_equal(number(p, "SELECT count(*) FROM tidings_inbox"), 1);
}

/* The commit happened, but it may not survive: only close may follow. */
static void test_sync_fails(void **state)
{
    struct place *p = *state;
    struct fault_vfs *v = fault_vfs_use();
    init_ok(p);
    p->o.vfs = TD_STR_LIT("fault");
    open_ok(p);
    /* The first frame of a WAL is synced by SQLite itself. */
    ok(p, p->s->driver->relay_declare(p->s, TD_STR_LIT("r"), &p->err));
    ok(p, p->s->driver->begin(p->s, &p->err));
    claim(p, "m");
    v->fail_syncs = 1;
    assert_int_equal(p->s->driver->finish(p->s, true, &p->err), TD_ERR_IO);
    assert_int_equal(p->err.class_, TD_CLASS_FATAL);
    v->fail_syncs = 0;
    assert_int_equal(p->s->driver->outbox_durable(p->s, &p->err), TD_ERR_IO);
}

static void test_commit_is_synced(void **state)
{
    struct place *p = *state;
    struct fault_vfs *v = fault_vfs_use();
    init_ok(p);
    p->o.vfs = TD_STR_LIT("fault");
    open_ok(p);
    ok(p, p->s->driver->relay_declare(p->s, TD_STR_LIT("r"), &p->err));
    int before = v->wal_syncs;
    ok(p, p->s->driver->begin(p->s, &p->err));
    claim(p, "m");
    assert_int_equal(v->wal_syncs, before);
    ok(p, p->s->driver->finish(p->s, true, &p->err));
    assert_int_equal(v->wal_syncs, before + 1);
    ok(p, p->s->driver->outbox_durable(p->s, &p->err));
    assert_int_equal(v->wal_syncs, before + 2);
}

/* Nobody can tell whether the frame of the commit reached the file. */
static void test_commit_that_fails_while_it_writes(void **state)
{
    struct place *p = *state;
    struct fault_vfs *v = fault_vfs_use();
    init_ok(p);
    p->o.vfs = TD_STR_LIT("fault");
    open_ok(p);
    ok(p, p->s->driver->begin(p->s, &p->err));
    claim(p, "m");
    v->fail_syncs = 1;
    assert_int_equal(p->s->driver->finish(p->s, true, &p->err), TD_ERR_OUTCOME_UNKNOWN);
    assert_int_equal(p->err.class_, TD_CLASS_UNKNOWN);
    v->fail_syncs = 0;
    tdi_store_close(p->s);
    p->s = NULL;
    open_ok(p);
    ok(p, p->s->driver->begin(p->s, &p->err));
    claim(p, "n");
    ok(p, p->s->driver->finish(p->s, true, &p->err));
}

/* On a VFS of tests there are no file locks: the clock alone decides. */
static void test_lease_by_the_clock_alone(void **state)
{
    struct place *p = *state;
    struct td_lease lease;
    (void)fault_vfs_use();
    init_ok(p);
    p->o.vfs = TD_STR_LIT("fault");
    open_ok(p);
    ok(p, p->s->driver->lease_take(p->s, TD_STR_LIT("r"), 60 * TD_SECOND_US, &lease, &p->err));
    tdi_store_close(p->s);
    p->s = NULL;
    open_ok(p);
    assert_int_equal(p->s->driver->lease_take(p->s, TD_STR_LIT("r"), TD_SECOND_US, &lease, &p->err),
                     TD_ERR_OWNED);
    char path[160];
    (void)snprintf(path, sizeof(path), "%s-tidings-owner", p->path);
    assert_int_equal(access(path, F_OK), -1);
    sql(p, "UPDATE tidings_lease SET until = 1");
    ok(p, p->s->driver->lease_take(p->s, TD_STR_LIT("r"), TD_SECOND_US, &lease, &p->err));
    assert_int_equal(lease.fence, 2);
    assert_true(lease.unclean);
}

/* ---- checkpoints ------------------------------------------------------------------------------- */

static void fill(struct place *p, int transactions)
{
    struct td_message m[50];
    static char body[8000];
    static int next;
    char ids[50][24];
    memset(body, 'x', sizeof(body));
    for (int t = 0; t < transactions; t++) {
        for (int i = 0; i < 50; i++) {
            (void)snprintf(ids[i], sizeof(ids[i]), "id-%d", next++);
            m[i] = (struct td_message){.id = tdi_str(ids[i]),
                                       .type = TD_STR_LIT("t"),
                                       .time = TD_TIME_NONE,
                                       .aggregate_version = TD_NUMBER_NONE,
                                       .deliver_at = TD_TIME_NONE,
                                       .expires_at = TD_TIME_NONE,
                                       .body = {body, sizeof(body)}};
        }
        ok(p, p->s->driver->outbox_add(p->s, m, 50, &p->err));
    }
}

static int64_t wal_bytes(struct place *p)
{
    char path[160];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s-wal", p->path);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void test_wal_stays_bounded(void **state)
{
    struct place *p = *state;
    init_ok(p);
    open_ok(p);
    fill(p, 150); /* 60 MB */
    assert_true(wal_bytes(p) < 40 * 1024 * 1024);
    assert_true(wal_bytes(p) > 4 * 1024 * 1024);
    assert_int_equal(number(p, "SELECT count(*) FROM tidings_outbox"), 7500);
}

/* A long reader holds the WAL: it grows, but no commit fails, and it is not tried every time. */
static void test_checkpoint_beside_a_long_reader(void **state)
{
    struct place *p = *state;
    sqlite3 *reader = NULL;
    init_ok(p);
    open_ok(p);
    assert_int_equal(sqlite3_open(p->path, &reader), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM tidings_outbox", NULL, NULL, NULL),
        SQLITE_OK);
    fill(p, 60);
    struct tdd_sqlite *s = tdd_session(p->s);
    assert_true(s->checkpoint_at > tdi_db_wal_pages(&s->db));
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    fill(p, 60);
    assert_true(wal_bytes(p) < 80 * 1024 * 1024);
    assert_int_equal(number(p, "SELECT count(*) FROM tidings_outbox"), 6000);
}

/* ---- history ----------------------------------------------------------------------------------- */

static void test_history(void **state)
{
    (void)state;
    struct tdi_buf b;
    struct td_str code = TD_STR_LIT("rejected");
    tdi_buf_init(&b, TDD_HISTORY_BYTES_MAX);
    tdd_history_add(&b, TD_STR_LIT("[]"), 1780000000000000, 1, "retry", code,
                    TD_STR_LIT("no \"x\""));
    assert_string_equal(b.data, "[{\"at\":\"2026-05-28T20:26:40.000000Z\",\"attempt\":1,"
                                "\"result\":\"retry\",\"code\":\"rejected\","
                                "\"reason\":\"no \\\"x\\\"\"}]");
    /* What is there already is kept as it is; what is no array is replaced. */
    tdi_buf_clear(&b);
    tdd_history_add(&b, TD_STR_LIT(" [ {\"a\": [1, {}]} , 2 ] "), 0, 2, "dead", TD_STR_NONE,
                    TD_STR_NONE);
    assert_string_equal(b.data, "[{\"a\": [1, {}]},2,{\"at\":\"1970-01-01T00:00:00.000000Z\","
                                "\"attempt\":2,\"result\":\"dead\"}]");
    tdi_buf_clear(&b);
    tdd_history_add(&b, TD_STR_LIT("[1, "), 0, 2, "dead", TD_STR_NONE, TD_STR_NONE);
    assert_int_equal(strncmp(b.data, "[{\"at\"", 6), 0);
    /* The last twenty, and the oldest goes. */
    tdi_buf_clear(&b);
    tdd_history_add(&b, TD_STR_LIT("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21]"), 0, 2,
                    "dead", TD_STR_NONE, TD_STR_NONE);
    assert_int_equal(strncmp(b.data, "[3,4,5", 6), 0);
    tdi_buf_release(&b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_missing),
        TEST(test_no_bytes),
        TEST(test_directory),
        TEST(test_text_file),
        TEST(test_business_database),
        TEST(test_schema_of_tomorrow),
        TEST(test_schema_of_another_build),
        TEST(test_tables_of_somebody_else),
        TEST(test_table_lost),
        TEST(test_printed_schema),
        TEST(test_disk_full),
        TEST(test_sync_fails),
        TEST(test_commit_is_synced),
        TEST(test_commit_that_fails_while_it_writes),
        TEST(test_lease_by_the_clock_alone),
        TEST(test_wal_stays_bounded),
        TEST(test_checkpoint_beside_a_long_reader),
        cmocka_unit_test(test_history),
    };
    return cmocka_run_group_tests_name("store sqlite", tests, NULL, NULL);
}
