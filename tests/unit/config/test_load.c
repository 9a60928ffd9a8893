/* A good file becomes the structs; defaults, references, places. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "config/internal.h"
#include "support.h"

#define DAY_US (INT64_C(86400) * TD_SECOND_US)

static void test_full_topology(void **state)
{
    (void)state;
    struct loaded l = test_load_good(test_full, NULL);
    const struct tdi_config *c = l.config;
    assert_str(c->service, "shop");
    assert_str(c->path, "tidings.yaml");
    assert_int_equal(c->stores_count, 2);
    assert_str(c->stores[0].name, "shop");
    assert_str(c->stores[0].driver, "sqlite");
    assert_str(c->stores[0].location, "shop.db");
    assert_str(c->stores[1].driver, "sqlite");
    assert_str(c->stores[1].location, "/var/lib/crm.db");
    assert_int_equal(c->brokers_count, 1);
    assert_str(c->brokers[0].location, "broker.d");
    assert_int_equal(c->topics_count, 2);
    const struct tdi_config_topic *t = &c->topics[0];
    assert_ptr_equal(t->broker, &c->brokers[0]);
    assert_str(t->owner, "order-team");
    assert_true(t->key_required);
    assert_int_equal(t->types_count, 1);
    assert_str(t->types[0], "order.*");
    assert_int_equal(t->retention_us, 7 * DAY_US);
    assert_int_equal(t->partitions, 8);
    assert_int_equal(t->max_bytes, 2 * 1024 * 1024);
    assert_int_equal(t->unrouted, TDI_UNROUTED_DEAD);
    t = &c->topics[1];
    assert_ptr_equal(t->broker, &c->brokers[0]);
    assert_false(t->key_required);
    assert_int_equal(t->types_count, 2);
    assert_int_equal(t->retention_us, 0);
    assert_int_equal(t->max_bytes, 1024 * 1024);
    assert_int_equal(t->unrouted, TDI_UNROUTED_DEAD);
    assert_null(t->owner.data);
    assert_int_equal(c->outboxes_count, 1);
    assert_ptr_equal(c->outboxes[0].store, &c->stores[0]);
    assert_int_equal(c->outboxes[0].keep_us, 3 * DAY_US);
    assert_int_equal(c->log_level, TDI_CONFIG_LOG_DEBUG);
    assert_int_equal(c->log_format, TDI_CONFIG_LOG_JSON);
    assert_int_equal(c->drain_deadline_us, 5 * TD_SECOND_US);
    test_loaded_release(&l);
}

static void test_full_sql_consumer(void **state)
{
    (void)state;
    struct loaded l = test_load_good(test_full, NULL);
    const struct tdi_config_consumer *c = &l.config->consumers[0];
    assert_str(c->name, "points");
    assert_str(c->full_name, "shop.points");
    assert_ptr_equal(c->topic, &l.config->topics[0]);
    assert_ptr_equal(c->store, &l.config->stores[0]);
    assert_int_equal(c->types_count, 1);
    assert_str(c->types[0], "order.paid");
    assert_str(c->handler, "sql");
    assert_int_equal(c->steps_count, 2);
    assert_str(c->steps[0].run, "INSERT INTO points(user_id, order_id, amount) VALUES (:user, "
                                ":order, :amount)\n");
    assert_true(tdi_str_empty(c->steps[0].on));
    assert_false(c->steps[0].rows_0_set);
    assert_int_equal(c->steps[0].rows_0, TD_VERDICT_OK);
    assert_str(c->steps[1].on, "order.paid");
    assert_true(c->steps[1].rows_0_set);
    assert_int_equal(c->steps[1].rows_0, TD_VERDICT_RETRY);
    assert_int_equal(c->params_count, 3);
    assert_str(c->params[1].name, "order");
    assert_str(c->params[1].from, "$key");
    assert_str(c->params[2].from, "/total/points");
    assert_true(c->params_missing_null);
    assert_int_equal(c->classify_count, 2);
    assert_str(c->classify[0].match, "23505");
    assert_int_equal(c->classify[0].verdict, TD_VERDICT_OK);
    assert_int_equal(c->classify[1].verdict, TD_VERDICT_DEAD);
    assert_int_equal(c->retry.delays_count, 3);
    assert_int_equal(c->retry.delays[2], 600 * TD_SECOND_US);
    assert_int_equal(c->retry.attempts, 5);
    assert_int_equal(c->retry.jitter, TDI_JITTER_NONE);
    assert_int_equal(c->order, TDI_ORDER_BLOCK);
    assert_int_equal(c->on_dead, TDI_ON_DEAD_RELEASE);
    assert_int_equal(c->inbox_keep_us, 30 * DAY_US);
    assert_int_equal(c->parked_keep_us, 10 * DAY_US);
    assert_int_equal(c->parked_max, 500);
    assert_int_equal(c->prefetch, 64);
    assert_int_equal(c->batch, 64); /* never more than prefetch */
    test_loaded_release(&l);
}

static void test_full_exec_consumer(void **state)
{
    (void)state;
    struct loaded l = test_load_good(test_full, NULL);
    const struct tdi_config_consumer *c = &l.config->consumers[1];
    assert_str(c->handler, "exec");
    assert_ptr_equal(c->store, &l.config->stores[1]);
    assert_int_equal(c->types_count, 0);
    assert_int_equal(c->command_count, 2);
    assert_str(c->command[0], "python3");
    assert_str(c->command[1], "mail.py");
    assert_true(tdi_str_empty(c->directory));
    assert_int_equal(c->workers, 2);
    assert_int_equal(c->timeout_us, 10 * TD_SECOND_US);
    assert_int_equal(c->retry.delays_count, 0);
    assert_int_equal(c->retry.initial_us, 2 * TD_SECOND_US);
    assert_true(c->retry.factor > 1.49 && c->retry.factor < 1.51);
    assert_int_equal(c->retry.max_delay_us, 600 * TD_SECOND_US);
    assert_int_equal(c->retry.attempts, 3);
    assert_int_equal(c->order, TDI_ORDER_SKIP);
    assert_int_equal(c->classify_count, 2);
    assert_str(c->classify[1].match, "65");
    assert_int_equal(c->breaker.failures, 5);
    assert_int_equal(c->breaker.share_percent, 25);
    assert_int_equal(c->breaker.window_us, 60 * TD_SECOND_US);
    assert_int_equal(c->prefetch, 256);
    assert_int_equal(c->batch, 16);
    test_loaded_release(&l);
}

static const char small[] = "service: shop\n"
                            "stores: { shop: { path: shop.db } }\n"
                            "brokers: { main: { path: broker.d } }\n"
                            "consumers:\n" /* before the topic it names */
                            "  c: { from: orders, handler: { exec: { command: [cat] } } }\n"
                            "topics: { orders: { types: [\"#\"] } }\n"
                            "outboxes: { shop: }\n";

static void test_defaults(void **state)
{
    (void)state;
    struct loaded l = test_load_good(small, NULL);
    const struct tdi_config_consumer *c = &l.config->consumers[0];
    struct tdi_retry_policy retry = tdi_retry_default();
    assert_int_equal(l.diagnostics.count, 0);
    assert_int_equal(c->retry.initial_us, retry.initial_us);
    assert_true(c->retry.factor >= retry.factor && c->retry.factor <= retry.factor);
    assert_int_equal(c->retry.max_delay_us, retry.max_delay_us);
    assert_int_equal(c->retry.attempts, retry.attempts);
    assert_int_equal(c->retry.jitter, retry.jitter);
    assert_int_equal(c->retry.delays_count, 0);
    assert_int_equal(c->order, TDI_ORDER_BLOCK);
    assert_int_equal(c->on_dead, TDI_ON_DEAD_HOLD);
    assert_int_equal(c->prefetch, 256);
    assert_int_equal(c->batch, 256);
    assert_int_equal(c->breaker.failures, 20);
    assert_int_equal(c->breaker.share_percent, 50);
    assert_int_equal(c->breaker.window_us, 10 * TD_SECOND_US);
    assert_int_equal(c->inbox_keep_us, 14 * DAY_US);
    assert_int_equal(c->parked_keep_us, 90 * DAY_US);
    assert_int_equal(c->parked_max, 1000000);
    assert_int_equal(c->workers, 1);
    assert_int_equal(c->timeout_us, 30 * TD_SECOND_US);
    assert_int_equal(c->start, TDI_START_EARLIEST);
    assert_false(c->params_missing_null);
    assert_int_equal(l.config->outboxes[0].keep_us, 7 * DAY_US);
    assert_ptr_equal(l.config->outboxes[0].store, &l.config->stores[0]);
    assert_ptr_equal(c->store, &l.config->stores[0]);
    assert_ptr_equal(c->topic, &l.config->topics[0]);
    assert_int_equal(l.config->log_level, TDI_CONFIG_LOG_INFO);
    assert_int_equal(l.config->log_format, TDI_CONFIG_LOG_AUTO);
    assert_int_equal(l.config->drain_deadline_us, 20 * TD_SECOND_US);
    test_loaded_release(&l);
}

static void test_every_default_is_valid(void **state)
{
    (void)state;
    size_t count = 0;
    const struct tdi_param_def *defs = tdi_params(&count);
    size_t bound = 0;
    for (size_t i = 0; i < count; i++) {
        if (defs[i].fallback == NULL) {
            continue;
        }
        struct tdi_arena arena;
        struct tdi_diagnostics d;
        tdi_arena_init(&arena, 0);
        tdi_diagnostics_init(&d, &arena);
        struct tdi_config config = {0};
        struct tdi_loader l = {.arena = &arena, .diagnostics = &d, .config = &config};
        struct tdi_config_node node = {.kind = TDI_NODE_SCALAR, .text = tdi_str(defs[i].fallback)};
        struct tdi_config_consumer field = {0};
        tdi_config_convert(&l, &defs[i], &node, &field);
        assert_int_equal(d.count, 0);
        tdi_arena_release(&arena);
        bound++;
    }
    assert_true(bound > 20);
}

static void test_paths_are_relative_to_the_file(void **state)
{
    (void)state;
    test_write("other.yaml", test_full, strlen(test_full));
    char cwd[256];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    char path[300];
    assert_true(snprintf(path, sizeof(path), "%s/other.yaml", cwd) < (int)sizeof(path));
    struct loaded l = test_load_file(path, NULL);
    assert_int_equal(l.code, TD_OK);
    assert_str(l.config->folder, cwd);
    assert_str(l.config->consumers[1].directory, cwd);
    assert_str(l.config->stores[1].location, "/var/lib/crm.db");
    assert_true(tdi_str_starts(l.config->stores[0].location, cwd));
    assert_string_equal(l.config->stores[0].location.data + strlen(cwd), "/shop.db");
    test_loaded_release(&l);
}

static void test_places(void **state)
{
    (void)state;
    struct loaded l = test_load_good(test_full, NULL);
    struct tdi_source_pos pos = tdi_config_at(l.config, "consumers.points.inbox.keep");
    assert_int_equal(pos.line, 33);
    assert_int_equal(pos.column, 14);
    assert_int_equal(pos.length, 4);
    pos = tdi_config_at(l.config, "consumers.mail.inbox.keep"); /* not written: the consumer */
    assert_int_equal(pos.line, 36);
    assert_int_equal(pos.column, 3);
    pos = tdi_config_at(l.config, "nothing.of.this");
    assert_int_equal(pos.line, 1);
    test_loaded_release(&l);
}

static void test_lookups(void **state)
{
    (void)state;
    struct loaded l = test_load_good(test_full, NULL);
    const struct tdi_config *c = l.config;
    assert_ptr_equal(tdi_config_consumer_find(c, TD_STR_LIT("mail")), &c->consumers[1]);
    assert_ptr_equal(tdi_config_consumer_find(c, TD_STR_LIT("shop.mail")), &c->consumers[1]);
    assert_null(tdi_config_consumer_find(c, TD_STR_LIT("shop")));
    assert_ptr_equal(tdi_config_store_find(c, TD_STR_LIT("crm")), &c->stores[1]);
    assert_ptr_equal(tdi_config_broker_find(c, TD_STR_LIT("main")), &c->brokers[0]);
    assert_ptr_equal(tdi_config_topic_find(c, TD_STR_LIT("stock")), &c->topics[1]);
    assert_ptr_equal(tdi_config_outbox_find(c, TD_STR_LIT("shop")), &c->outboxes[0]);
    assert_null(tdi_config_topic_find(c, TD_STR_LIT("shop")));
    test_loaded_release(&l);
}

static void test_notes_are_no_mistakes(void **state)
{
    (void)state;
    struct loaded l = test_load_good(test_full, NULL);
    test_contains(tdi_buf_str(&l.said), "retention has no meaning on the embedded broker");
    test_contains(tdi_buf_str(&l.said), "partitions has no meaning on the embedded broker");
    assert_int_equal(l.diagnostics.count, 2);
    assert_int_equal(l.diagnostics.findings, 0);
    test_loaded_release(&l);
}

static void test_highest_values(void **state)
{
    (void)state;
    struct loaded l = test_load_good(
        "service: s\nstores: { a: { path: a } }\nbrokers: { b: { path: b } }\n"
        "topics: { t: { types: [x], max_bytes: 64MiB, partitions: 1024 } }\n"
        "consumers:\n  c:\n    from: t\n    retry: { factor: 100, attempts: 1000, initial: 1ms }\n"
        "    breaker: { share: 100% }\n    inbox: { keep: 3650d }\n"
        "    handler: { exec: { command: [cat], workers: 256 } }\n",
        NULL);
    assert_int_equal(l.config->topics[0].max_bytes, 64 * 1024 * 1024);
    assert_int_equal(l.config->topics[0].partitions, 1024);
    assert_int_equal(l.config->consumers[0].breaker.share_percent, 100);
    assert_int_equal(l.config->consumers[0].retry.attempts, 1000);
    assert_int_equal(l.config->consumers[0].workers, 256);
    assert_int_equal(l.config->consumers[0].inbox_keep_us, 3650 * DAY_US);
    test_loaded_release(&l);
}

static void test_tiers_are_not_cut(void **state)
{
    (void)state;
    struct loaded l =
        test_load_good("service: s\nstores: { a: { path: a } }\nbrokers: { b: { path: b } }\n"
                       "topics: { t: { types: [x] } }\n"
                       "consumers:\n  c:\n    from: t\n    retry: { delays: [5h] }\n"
                       "    handler: { exec: { command: [cat] } }\n",
                       NULL);
    assert_int_equal(l.config->consumers[0].retry.max_delay_us, 5 * 3600 * TD_SECOND_US);
    test_loaded_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_topology),
        cmocka_unit_test(test_full_sql_consumer),
        cmocka_unit_test(test_full_exec_consumer),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_default_is_valid),
        cmocka_unit_test(test_paths_are_relative_to_the_file),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_lookups),
        cmocka_unit_test(test_notes_are_no_mistakes),
        cmocka_unit_test(test_highest_values),
        cmocka_unit_test(test_tiers_are_not_cut),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
