#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/tidings-config-XXXXXX";
static const char *const files[] = {"tidings.yaml", "other.yaml", "xdg/tidings/tidings.yaml",
                                    ".config/tidings/tidings.yaml"};
static const char *const folders[] = {"xdg/tidings", "xdg", ".config/tidings", ".config", "sub"};

const char test_full[] =
    "service: shop\n"
    "stores:\n"
    "  shop: { driver: sqlite, path: shop.db }\n"
    "  crm: { path: /var/lib/crm.db }\n"
    "brokers:\n"
    "  main: { driver: embedded, path: broker.d }\n"
    "topics:\n"
    "  orders: { broker: main, owner: order-team, key: required, types: [\"order.*\"],\n"
    "            retention: 7d, partitions: 8, max_bytes: 2MiB, unrouted: dead }\n"
    "  stock:\n"
    "    types: [stock.low, \"stock.#\"]\n"
    "outboxes:\n"
    "  shop: { store: shop, keep: 3d }\n"
    "consumers:\n"
    "  points:\n"
    "    from: orders\n"
    "    types: [\"order.paid\"]\n"
    "    store: shop\n"
    "    handler:\n"
    "      sql:\n"
    "        - run: >\n"
    "            INSERT INTO points(user_id, order_id, amount)\n"
    "            VALUES (:user, :order, :amount)\n"
    "        - run: DELETE FROM carts WHERE user_id = :user -- not :this\n"
    "          on: order.paid\n"
    "          rows: { 0: retry }\n"
    "    params: { user: /user_id, order: $key, amount: /total/points }\n"
    "    params_missing: null\n"
    "    classify: { \"23505\": ok, \"22\": dead }\n"
    "    retry: { delays: [10s, 1m, 10m], attempts: 5, jitter: none }\n"
    "    order: block\n"
    "    on_dead: release\n"
    "    inbox: { keep: 30d }\n"
    "    parked: { keep: 10d, max: 500 }\n"
    "    prefetch: 64\n"
    "  mail:\n"
    "    from: orders\n"
    "    store: crm\n"
    "    order: skip\n"
    "    handler: { exec: { command: [python3, \"mail.py\"], workers: 2, timeout: 10s } }\n"
    "    retry: { initial: 2s, factor: 1.5, max_delay: 10m, attempts: 3 }\n"
    "    classify: { 75: retry, 65: dead }\n"
    "    breaker: { failures: 5, share: 25%, window: 1m }\n"
    "    batch: 16\n"
    "log: { level: debug, format: json }\n"
    "drain: { deadline: 5s }\n";

int test_folder_enter(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) {
        return -1;
    }
    return 0;
}

int test_folder_leave(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void)unlink(files[i]);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        (void)rmdir(folders[i]);
    }
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

void test_write(const char *name, const void *data, size_t len)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(fd, (const char *)data + done, len - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
    assert_int_equal(close(fd), 0);
}

struct loaded test_load_file(const char *path, const char *const *env)
{
    struct loaded l = {.config = NULL};
    tdi_arena_init(&l.arena, 0);
    tdi_buf_init(&l.said, 1024 * 1024);
    tdi_diagnostics_init(&l.diagnostics, &l.arena);
    l.code = tdi_config_load(path, env, &l.arena, &l.config, &l.diagnostics, &l.error);
    tdi_buf_add(&l.said, "", 0);
    tdi_diagnostics_print(&l.diagnostics, false, &l.said);
    assert_false(l.said.failed);
    return l;
}

struct loaded test_load(const char *text, const char *const *env)
{
    test_write("tidings.yaml", text, strlen(text));
    return test_load_file("tidings.yaml", env);
}

void test_loaded_release(struct loaded *l)
{
    tdi_buf_release(&l->said);
    tdi_arena_release(&l->arena);
}

struct loaded test_load_good(const char *text, const char *const *env)
{
    struct loaded l = test_load(text, env);
    if (l.code != TD_OK) {
        print_error("%s\n", l.said.data);
    }
    assert_int_equal(l.code, TD_OK);
    assert_non_null(l.config);
    assert_int_equal(l.diagnostics.mistakes, 0);
    return l;
}

void test_contains(struct td_str text, const char *part)
{
    if (text.data == NULL || strstr(text.data, part) == NULL) {
        fail_msg("'%s' is not in:\n%s", part, text.data != NULL ? text.data : "");
    }
}

void test_refused(const char *text, const char *const *env, const char *says)
{
    struct loaded l = test_load(text, env);
    assert_int_equal(l.code, TD_ERR_CONFIG);
    assert_int_equal(td_err_exit_code(l.code), 78);
    assert_true(l.diagnostics.mistakes > 0);
    assert_null(l.config);
    test_contains(tdi_buf_str(&l.said), says);
    test_loaded_release(&l);
}
