/* ${VAR}, TIDINGS_A__B, and which file is found. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "config/internal.h"
#include "support.h"

#define HEAD                                                                                        \
    "service: shop\nstores: { shop: { path: \"${DB}\" } }\nbrokers: { main: { path: broker.d } }\n" \
    "topics: { orders: { types: [\"order.*\"] } }\n"

static const char plain[] = "service: shop\nlog: { level: info }\n";

static void test_substitution(void **state)
{
    (void)state;
    const char *const env[] = {"DB=/data/shop.db", "EMPTY=", "DBX=wrong", NULL};
    struct loaded l = test_load_good(
        HEAD
        "consumers:\n  c:\n    from: orders\n    handler:\n      exec:\n"
        "        command: [\"a${DB}b${DB}\", \"${EMPTY}\", \"${EMPTY:-e}\", \"${NO:-d:-}\", '$${DB}', \"$DB\","
        " \"${NO:-}\", \"$\"]\n",
        env);
    const struct tdi_config_consumer *c = &l.config->consumers[0];
    assert_str(l.config->stores[0].location, "/data/shop.db");
    assert_int_equal(c->command_count, 8);
    assert_str(c->command[0], "a/data/shop.dbb/data/shop.db");
    assert_str(c->command[1], "");
    assert_str(c->command[2], "e");
    assert_str(c->command[3], "d:-");
    assert_str(c->command[4], "${DB}");
    assert_str(c->command[5], "$DB");
    assert_str(c->command[6], "");
    assert_str(c->command[7], "$");
    test_loaded_release(&l);
}

static void test_substituted_values_keep_their_limits(void **state)
{
    (void)state;
    const char *const env[] = {"LEVEL=loud", NULL};
    test_refused("service: shop\nlog: { level: \"${LEVEL}\" }\n", env,
                 "'level' is loud: it must be");
    const char *const empty[] = {"LEVEL=", NULL};
    test_refused("service: shop\nlog:\n  level: ${LEVEL}\n", empty, "'level' is : it must be");
}

static void test_overrides(void **state)
{
    (void)state;
    const char *const env[] = {
        "TIDINGS_SERVICE=other",
        "TIDINGS_STORES__SHOP__PATH=env.db",
        "TIDINGS_TOPICS__ORDERS__TYPES=[\"a.*\", b.c]",
        "TIDINGS_TOPICS__ORDERS__MAX_BYTES=64KiB",
        "TIDINGS_CONSUMERS__MY_POINTS__RETRY__ATTEMPTS=3",
        "TIDINGS_CONSUMERS__MY_POINTS__HANDLER__SQL__1__RUN=SELECT :user, '${X}'",
        "TIDINGS_CONSUMERS__MY_POINTS__PARAMS__USER=/other",
        "TIDINGS_CONSUMERS__my-points__RETRY__DELAYS=[1s, 2s]",
        "TIDINGS_LOG__LEVEL=debug",
        "TIDINGS_CONFIG=elsewhere",
        "TIDINGSX=1",
        "XTIDINGS_A=1",
        NULL};
    /* The path of the store names a variable that is not set, but is overridden. */
    struct loaded l = test_load_good(
        HEAD "consumers:\n  my-points:\n    from: orders\n    params: { user: /user }\n"
             "    handler: { sql: [ { run: \"SELECT 1\" }, { run: \"SELECT 2\" } ] }\n",
        env);
    const struct tdi_config *c = l.config;
    assert_str(c->service, "other");
    assert_str(c->consumers[0].full_name, "other.my-points");
    assert_str(c->stores[0].location, "env.db");
    assert_int_equal(c->topics[0].types_count, 2);
    assert_str(c->topics[0].types[1], "b.c");
    assert_int_equal(c->topics[0].max_bytes, 65536);
    assert_int_equal(c->consumers[0].retry.attempts, 3);
    assert_int_equal(c->consumers[0].retry.delays_count, 2);
    assert_str(c->consumers[0].steps[0].run, "SELECT 1");
    assert_str(c->consumers[0].steps[1].run, "SELECT :user, '${X}'");
    assert_str(c->consumers[0].params[0].from, "/other");
    assert_int_equal(c->log_level, TDI_CONFIG_LOG_DEBUG);
    test_loaded_release(&l);
}

static void test_override_of_an_item(void **state)
{
    (void)state;
    const char *const env[] = {"TIDINGS_CONSUMERS__C__HANDLER__EXEC__COMMAND__1=two", NULL};
    struct loaded l = test_load_good(
        "service: shop\nstores: { s: { path: a } }\nbrokers: { b: { path: b } }\n"
        "topics: { t: { types: [x] } }\nconsumers:\n  c: { from: t, handler: { exec: {"
        " command: [cat, one] } } }\n",
        env);
    assert_str(l.config->consumers[0].command[0], "cat");
    assert_str(l.config->consumers[0].command[1], "two");
    assert_int_equal(l.config->consumers[0].command_count, 2);
    test_loaded_release(&l);
    const char *const behind[] = {"TIDINGS_TOPICS__T__TYPES__1=y", NULL};
    test_refused("service: s\ntopics: { t: { types: [x] } }\n", behind, "there is no '1'");
}

static void test_override_into_an_empty_section(void **state)
{
    (void)state;
    const char *const env[] = {"TIDINGS_LOG__FORMAT=json", "TIDINGS_DRAIN__DEADLINE=1s", NULL};
    struct loaded l = test_load_good("service: shop\nlog:\n", env);
    assert_int_equal(l.config->log_format, TDI_CONFIG_LOG_JSON);
    assert_int_equal(l.config->drain_deadline_us, TD_SECOND_US);
    test_loaded_release(&l);
}

static void test_names(void **state)
{
    (void)state;
    assert_true(tdi_config_same_name(TD_STR_LIT("my-Points"), TD_STR_LIT("MY_POINTS")));
    assert_false(tdi_config_same_name(TD_STR_LIT("my-point"), TD_STR_LIT("MY_POINTS")));
    assert_false(tdi_config_same_name(TD_STR_LIT("a.b"), TD_STR_LIT("a_b")));
}

/* ---- which file ------------------------------------------------------------------------- */

static void write_service(const char *name, const char *service)
{
    char text[64];
    int len = snprintf(text, sizeof(text), "service: %s\n", service);
    test_write(name, text, (size_t)len);
}

static void expect_service(const char *path, const char *const *env, const char *service)
{
    struct loaded l = test_load_file(path, env);
    assert_int_equal(l.code, TD_OK);
    assert_str(l.config->service, service);
    test_loaded_release(&l);
}

static void test_search(void **state)
{
    (void)state;
    char cwd[200];
    char xdg[300];
    char home[300];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    (void)snprintf(xdg, sizeof(xdg), "XDG_CONFIG_HOME=%s/xdg", cwd);
    (void)snprintf(home, sizeof(home), "HOME=%s", cwd);
    assert_int_equal(mkdir("xdg", 0700), 0);
    assert_int_equal(mkdir("xdg/tidings", 0700), 0);
    assert_int_equal(mkdir(".config", 0700), 0);
    assert_int_equal(mkdir(".config/tidings", 0700), 0);
    write_service("xdg/tidings/tidings.yaml", "xdg");
    write_service(".config/tidings/tidings.yaml", "home");
    write_service("other.yaml", "other");
    write_service("tidings.yaml", "here");
    const char *const named[] = {"TIDINGS_CONFIG=other.yaml", xdg, home, NULL};
    const char *const all[] = {xdg, home, NULL};
    const char *const only_home[] = {home, NULL};
    expect_service("tidings.yaml", named, "here"); /* --config wins */
    expect_service(NULL, named, "other");
    expect_service(NULL, all, "here");
    assert_int_equal(unlink("tidings.yaml"), 0);
    expect_service(NULL, all, "xdg");
    expect_service(NULL, only_home, "home");
}

static void test_search_finds_nothing(void **state)
{
    (void)state;
    (void)unlink("tidings.yaml");
    if (access("/etc/tidings/tidings.yaml", F_OK) == 0) {
        skip();
    }
    const char *const env[] = {"XDG_CONFIG_HOME=/nowhere-at-all", NULL};
    struct loaded l = test_load_file(NULL, env);
    assert_int_equal(l.code, TD_ERR_CONFIG);
    test_contains(tdi_buf_str(&l.said),
                  "no configuration found: neither ./tidings.yaml nor"
                  " /nowhere-at-all/tidings/tidings.yaml nor"
                  " /etc/tidings/tidings.yaml is there; name one with --config");
    test_loaded_release(&l);
    const char *const wrong[] = {"TIDINGS_CONFIG=missing.yaml", NULL};
    l = test_load_file(NULL, wrong);
    assert_int_equal(l.code, TD_ERR_CONFIG);
    test_contains(tdi_buf_str(&l.said), "missing.yaml: cannot be read: No such file");
    test_loaded_release(&l);
}

static void test_bom_is_no_text(void **state)
{
    (void)state;
    struct loaded l = test_load_good("\xef\xbb\xbfservice: shop\n", NULL);
    assert_str(l.config->service, "shop");
    test_loaded_release(&l);
    l = test_load("\xef\xbb\xbfservic: shop\nservice: shop\n", NULL);
    assert_int_equal(l.code, TD_ERR_CONFIG);
    assert_string_equal(l.said.data,
                        "tidings.yaml:1:1: unknown key 'servic'; did you mean 'service'?\n"
                        "    1 | servic: shop\n"
                        "      | ^~~~~~\n"
                        "1 mistake\n");
    test_loaded_release(&l);
    l = test_load_good(plain, NULL);
    assert_int_equal(l.diagnostics.count, 0);
    test_loaded_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_substitution),
        cmocka_unit_test(test_substituted_values_keep_their_limits),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_override_of_an_item),
        cmocka_unit_test(test_override_into_an_empty_section),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_search_finds_nothing),
        cmocka_unit_test(test_bom_is_no_text),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
