/*
 * Who owns the directory: a second owner, a killed one, missing and foreign files, reading without
 * an owner, publishing to another process.
 */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emb_rig.h"

static void path_in(const struct emb_rig *e, const char *name, char path[512])
{
    (void)snprintf(path, 512, "%s/%s", e->dir, name);
}

static enum td_err open_role(struct emb_rig *e, enum td_broker_role role, bool instance,
                             struct td_broker **ret, struct td_error *err)
{
    struct td_broker_options o = {.location = tdi_str(e->dir),
                                  .role = role,
                                  .clock = tdi_clock_system(),
                                  .instance = instance ? e->instance : NULL};
    return tdi_broker_open(tdi_broker_driver(TD_STR_LIT("embedded")), &o, ret, err);
}

static void sql(const struct emb_rig *e, const char *text)
{
    char path[512];
    sqlite3 *db = NULL;
    path_in(e, "broker.db", path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", text, sqlite3_errmsg(db));
    }
    (void)sqlite3_close(db);
}

/* ---- opening ---- */

static void a_second_owner_is_told_who_has_it(void **state)
{
    struct emb_rig e;
    struct td_error err = {0};
    char pid[32];
    (void)state;
    emb_rig_init(&e, NULL, false);
    emb_rig_start(&e, true);
    struct emb_rig second = e;
    assert_int_equal(emb_rig_open(&second, false, &err), TD_ERR_OWNED);
    assert_int_equal(td_err_exit_code(err.code), 75);
    (void)snprintf(pid, sizeof(pid), "process %d (", (int)getpid());
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, ", since "));
    assert_non_null(strstr(err.text, e.dir));
    struct td_broker *b = NULL;
    struct tdi_arena a;
    struct td_broker_info info = {0};
    tdi_arena_init(&a, 0);
    assert_int_equal(open_role(&e, TD_BROKER_ADMIN, false, &b, &err), TD_OK);
    assert_int_equal(b->driver->info(b, &a, &info, &err), TD_OK);
    assert_int_equal(info.owner_pid, getpid());
    emb_rig_stop(&e);
    assert_int_equal(b->driver->info(b, &a, &info, &err), TD_OK);
    assert_int_equal(info.owner_pid, 0);
    tdi_broker_close(b);
    tdi_arena_release(&a);
    emb_rig_start(&e, false);
    emb_rig_end(&e);
}

static void what_is_missing_names_init(void **state)
{
    struct emb_rig e;
    struct td_error err = {0};
    struct td_broker *b = NULL;
    (void)state;
    emb_rig_init(&e, NULL, false);
    /* The directory is there, the file is not. */
    assert_int_not_equal(emb_rig_open(&e, false, &err), TD_OK);
    assert_non_null(strstr(err.text, "tidings init"));
    assert_int_not_equal(open_role(&e, TD_BROKER_ADMIN, false, &b, &err), TD_OK);
    assert_non_null(strstr(err.text, "tidings init"));
    assert_int_equal(open_role(&e, TD_BROKER_PUBLISH, false, &b, &err), TD_ERR_UNAVAILABLE);
    broker_temp_remove(e.dir);
    memset(&err, 0, sizeof(err));
    assert_int_equal(emb_rig_open(&e, false, &err), TD_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "tidings init"));
    assert_int_equal(open_role(&e, TD_BROKER_PUBLISH, false, &b, &err), TD_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "tidings init"));
    /* init makes it. */
    emb_rig_start(&e, true);
    emb_rig_end(&e);
}

static void foreign_and_newer_files_are_refused(void **state)
{
    struct emb_rig e;
    struct td_error err = {0};
    char path[512];
    (void)state;
    emb_rig_init(&e, NULL, false);
    path_in(&e, "broker.db", path);
    sql(&e, "CREATE TABLE other(x)");
    assert_int_equal(emb_rig_open(&e, true, &err), TD_ERR_FOREIGN);
    assert_non_null(strstr(err.text, "broker.db"));
    (void)unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 1000; i++) {
        (void)fputs("this is no database ", f);
    }
    (void)fclose(f);
    assert_int_not_equal(emb_rig_open(&e, true, &err), TD_OK);
    assert_non_null(strstr(err.text, "broker.db"));
    (void)unlink(path);
    emb_rig_start(&e, true);
    emb_rig_stop(&e);
    sql(&e, "UPDATE meta SET v = '2' WHERE k = 'format'");
    assert_int_equal(emb_rig_open(&e, false, &err), TD_ERR_SCHEMA);
    assert_non_null(strstr(err.text, "format 2"));
    assert_int_equal(emb_rig_open(&e, true, &err), TD_ERR_SCHEMA);
    sql(&e, "UPDATE meta SET v = 'x' WHERE k = 'format'");
    assert_int_equal(emb_rig_open(&e, false, &err), TD_ERR_CORRUPT);
    emb_rig_end(&e);
}

static void a_file_in_place_of_the_directory_is_refused(void **state)
{
    struct emb_rig e;
    struct td_error err = {0};
    (void)state;
    emb_rig_init(&e, NULL, false);
    (void)rmdir(e.dir);
    int fd = open(e.dir, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(emb_rig_open(&e, true, &err), TD_ERR_FOREIGN);
    (void)unlink(e.dir);
}

/* ---- crashes ---- */

/* In a child: own the broker, publish 100, deliver 40, acknowledge 10, write a byte, wait. */
static void child_main(struct emb_rig *e, int pipe_fd)
{
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    emb_rig_start(e, true);
    broker_declare_simple(&e->base);
    struct td_broker *p = broker_open(&e->base, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 100);
    struct td_broker *c = broker_subscribe(&e->base, "shop.a", "orders", 40);
    struct td_delivery *d = broker_fetch(c, &a, 40);
    /* No commit follows the deliveries that could carry their mark; acks come later. */
    broker_ack(c, d, 10);
    (void)!write(pipe_fd, "x", 1);
    for (;;) {
        (void)pause();
    }
}

static void kill_owner(struct emb_rig *e)
{
    int fds[2];
    char byte = 0;
    int status = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* A failed test must not leave it behind. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_main(e, fds[1]);
        _exit(1);
    }
    (void)close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    (void)close(fds[0]);
    struct td_error err = {0};
    assert_int_equal(emb_rig_open(e, false, &err), TD_ERR_OWNED);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void a_killed_owner_loses_nothing(bool threads)
{
    struct emb_rig e;
    struct tdi_arena a;
    tdi_arena_init(&a, 0);
    emb_rig_init(&e, NULL, threads);
    kill_owner(&e);
    /* Its lock went with it; its text is still in the file. */
    emb_rig_start(&e, false);
    struct td_broker *c = broker_subscribe(&e.base, "shop.a", "orders", 200);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    struct td_lag *lag = NULL;
    size_t n = 0;
    struct td_broker *b = broker_open(&e.base, TD_BROKER_ADMIN);
    assert_int_equal(b->driver->lag(b, TD_STR_LIT("shop.a"), &a, &lag, &n, NULL), TD_OK);
    /* An ack is carried out later, so it may be lost. */
    assert_true(lag->waiting >= 90 && lag->waiting <= 100);
    size_t count = (size_t)lag->waiting;
    struct td_delivery *d = broker_fetch(c, &a, count);
    for (size_t i = 0; i < count; i++) {
        broker_expect_id(&d[i], "m", 100 - count + i);
        if (100 - count + i < 40) {
            assert_true(d[i].redelivered);
        }
    }
    /* The dedupe window is there too. */
    struct td_message m = broker_message("m7", "order.paid", "{}");
    assert_true(broker_publish(p, "orders", &m).duplicate);
    tdi_broker_close(b);
    tdi_broker_close(p);
    tdi_broker_close(c);
    tdi_arena_release(&a);
    emb_rig_end(&e);
}

static void kill_without_threads(void **state)
{
    (void)state;
    a_killed_owner_loses_nothing(false);
}

static void kill_with_threads(void **state)
{
    (void)state;
    a_killed_owner_loses_nothing(true);
}

/* ---- without the instance ---- */

static void status_works_with_and_without_an_owner(void **state)
{
    struct emb_rig e;
    struct td_error err = {0};
    struct tdi_arena a;
    struct td_topic t = {.name = TD_STR_LIT("orders")};
    struct td_queue q = {.consumer = TD_STR_LIT("shop.a"), .topic = t.name};
    struct td_topology w = {&t, 1, &q, 1};
    (void)state;
    tdi_arena_init(&a, 0);
    emb_rig_init(&e, NULL, false);
    emb_rig_start(&e, true);
    broker_declare_simple(&e.base);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    struct td_message m = broker_message("s", "order.paid", "{}");
    m.published_at = INT64_C(1700000000000000);
    assert_int_equal(broker_publish(p, "orders", &m).result, TD_PUBLISH_ACCEPTED);
    tdi_broker_close(p);
    for (int owner = 1; owner >= 0; owner--) {
        struct td_broker *b = NULL;
        struct td_lag *lag = NULL;
        struct td_topology_difference *d = NULL;
        size_t n = 0;
        if (owner == 0) {
            emb_rig_stop(&e);
        }
        assert_int_equal(open_role(&e, TD_BROKER_ADMIN, false, &b, &err), TD_OK);
        assert_int_equal(b->driver->lag(b, TD_STR_LIT("shop.a"), &a, &lag, &n, &err), TD_OK);
        assert_int_equal(n, 1);
        assert_int_equal(lag->waiting, 1);
        assert_int_equal(lag->oldest_us, m.published_at);
        assert_int_equal(b->driver->lag(b, TD_STR_LIT("shop.x"), &a, &lag, &n, &err),
                         TD_ERR_NOT_FOUND);
        assert_int_equal(b->driver->topology_diff(b, &w, &a, &d, &n, &err), TD_OK);
        assert_int_equal(n, 0);
        assert_int_equal(b->driver->topology_apply(b, &w, &a, &d, &n, &err), TD_ERR_USAGE);
        tdi_broker_close(b);
        assert_int_equal(open_role(&e, TD_BROKER_CONSUME, false, &b, &err), TD_ERR_USAGE);
    }
    emb_rig_end(&e);
    tdi_arena_release(&a);
}

static void people_can_read_the_queues(void **state)
{
    struct emb_rig e;
    char path[512];
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    (void)state;
    emb_rig_init(&e, NULL, false);
    emb_rig_start(&e, true);
    broker_declare_simple(&e.base);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    struct td_message m = broker_message("readable", "order.paid", "{\"n\":1}");
    m.key = TD_STR_LIT("k1");
    assert_int_equal(broker_publish(p, "orders", &m).result, TD_PUBLISH_ACCEPTED);
    path_in(&e, "broker.db", path);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT source, id, type, key, body, published_at "
                                        "FROM \"queue_shop.a\"",
                                        -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(s, 0), "shop");
    assert_string_equal((const char *)sqlite3_column_text(s, 1), "readable");
    assert_string_equal((const char *)sqlite3_column_text(s, 2), "order.paid");
    assert_string_equal((const char *)sqlite3_column_text(s, 3), "k1");
    assert_string_equal((const char *)sqlite3_column_text(s, 4), "{\"n\":1}");
    assert_int_equal(sqlite3_column_text(s, 5)[0], '2');
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
    tdi_broker_close(p);
    emb_rig_end(&e);
}

static void an_edited_row_is_a_defect(void **state)
{
    struct emb_rig e;
    struct tdi_arena a;
    (void)state;
    tdi_arena_init(&a, 0);
    emb_rig_init(&e, NULL, false);
    emb_rig_start(&e, true);
    broker_declare_simple(&e.base);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    broker_publish_many(p, "orders", "order.paid", "m", 0, 2);
    tdi_broker_close(p);
    emb_rig_stop(&e);
    sql(&e, "UPDATE q_1 SET env = '{not json', body = 'kept' WHERE id = 1");
    emb_rig_start(&e, false);
    struct td_broker *c = broker_subscribe(&e.base, "shop.a", "orders", 8);
    struct td_delivery *d = broker_fetch(c, &a, 2);
    assert_true(d[0].defect.len > 0);
    assert_int_equal(d[0].message.body.len, 4);
    assert_int_equal(d[1].defect.len, 0);
    broker_ack(c, d, 2);
    tdi_broker_close(c);
    emb_rig_end(&e);
    tdi_arena_release(&a);
}

static void a_session_does_only_what_its_role_is(void **state)
{
    struct emb_rig e;
    struct td_error err = {0};
    struct td_published got;
    uint64_t handle = 1;
    size_t n = 0;
    (void)state;
    emb_rig_init(&e, NULL, false);
    emb_rig_start(&e, true);
    broker_declare_simple(&e.base);
    struct td_broker *p = broker_open(&e.base, TD_BROKER_PUBLISH);
    struct td_broker *c = broker_open(&e.base, TD_BROKER_CONSUME);
    struct td_message m = broker_message("r", "order.paid", "{}");
    struct td_publish item = {.topic = TD_STR_LIT("orders"), .message = &m};
    assert_int_equal(c->driver->submit(c, &item, 1, &n, &err), TD_ERR_USAGE);
    assert_string_equal(err.driver, "embedded");
    assert_string_equal(err.op, "submit");
    assert_int_equal(c->driver->collect(c, 0, &got, 1, &n, &err), TD_ERR_USAGE);
    assert_int_equal(p->driver->ack(p, &handle, 1, &err), TD_ERR_USAGE);
    assert_int_equal(p->driver->nack(p, &handle, 1, &err), TD_ERR_USAGE);
    assert_int_equal(p->driver->pause(p, -1, true, &err), TD_ERR_USAGE);
    struct td_subscription s = {.consumer = TD_STR_LIT("shop.a"), .prefetch = 1};
    assert_int_equal(p->driver->subscribe(p, &s, &err), TD_ERR_USAGE);
    assert_int_equal(c->driver->subscribe(c, &s, &err), TD_OK);
    assert_int_equal(c->driver->subscribe(c, &s, &err), TD_ERR_USAGE);
    tdi_broker_close(c);
    c = broker_open(&e.base, TD_BROKER_CONSUME);
    s.topic = TD_STR_LIT("other");
    assert_int_equal(c->driver->subscribe(c, &s, &err), TD_ERR_CONFLICT);
    tdi_broker_close(c);
    tdi_broker_close(p);
    emb_rig_end(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_owner_is_told_who_has_it),
        cmocka_unit_test(what_is_missing_names_init),
        cmocka_unit_test(foreign_and_newer_files_are_refused),
        cmocka_unit_test(a_file_in_place_of_the_directory_is_refused),
        cmocka_unit_test(kill_without_threads),
        cmocka_unit_test(kill_with_threads),
        cmocka_unit_test(status_works_with_and_without_an_owner),
        cmocka_unit_test(people_can_read_the_queues),
        cmocka_unit_test(an_edited_row_is_a_defect),
        cmocka_unit_test(a_session_does_only_what_its_role_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
