/* To which topic a message goes, and whose it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/str.h"
#include "core/catalogue.h"

static const struct td_str order_types[] = {{"order.*", 7}, {"refund.#", 8}};
static const struct td_str mail_types[] = {{"mail.sent", 9}, {"order.paid", 10}};

static const struct tdi_topic topics[] = {
    {.name = {"orders", 6},
     .broker = {"main", 4},
     .types = order_types,
     .types_count = 2,
     .max_bytes = 10},
    {.name = {"mails", 5}, .broker = {"far", 3}, .types = mail_types, .types_count = 2},
    {.name = {"keyed", 5}, .broker = {"far", 3}, .key_required = true},
};
static const struct tdi_catalogue catalogue = {topics, 3};

static struct td_message message(const char *type, const char *topic, const char *key, size_t len)
{
    return (struct td_message){.type = tdi_str(type),
                               .topic = tdi_str(topic),
                               .key = tdi_str(key),
                               .body = {.data = "", .len = len}};
}

static struct tdi_route route_of(struct td_message m)
{
    return tdi_catalogue_route(&catalogue, &m);
}

static void assert_reason(struct td_message m, const char *part)
{
    struct tdi_arena a;
    char text[512] = "";

    tdi_arena_init(&a, 0);
    struct tdi_route route = tdi_catalogue_route(&catalogue, &m);
    struct td_str reason = tdi_route_reason(&route, &m, &a);
    assert_true(reason.len < sizeof(text));
    if (reason.len > 0) {
        memcpy(text, reason.data, reason.len);
    }
    assert_non_null(strstr(text, part));
    tdi_arena_release(&a);
}

static void a_named_topic_wins_over_the_type(void **state)
{
    (void)state;
    struct tdi_route route = route_of(message("order.made", "mails", NULL, 1));
    assert_ptr_equal(route.topic, &topics[1]);
    assert_int_equal(route.dead, TD_DEAD_NONE);
}

static void the_type_finds_the_topic(void **state)
{
    (void)state;
    assert_ptr_equal(route_of(message("order.made", NULL, NULL, 1)).topic, &topics[0]);
    assert_ptr_equal(route_of(message("refund", "", NULL, 1)).topic, &topics[0]);
    assert_ptr_equal(route_of(message("mail.sent", NULL, NULL, 1)).topic, &topics[1]);
}

static void a_topic_without_types_is_reached_by_name_only(void **state)
{
    (void)state;
    assert_ptr_equal(route_of(message("any.type", "keyed", "k", 1)).topic, &topics[2]);
    assert_null(route_of(message("any.type", NULL, "k", 1)).topic);
}

static void no_topic_is_unroutable(void **state)
{
    (void)state;
    assert_int_equal(route_of(message("x.y", NULL, NULL, 1)).dead, TD_DEAD_UNROUTABLE);
    assert_reason(message("x.y", NULL, NULL, 1), "takes the type \"x.y\"");
    assert_int_equal(route_of(message("order.made", "none", NULL, 1)).dead, TD_DEAD_UNROUTABLE);
    assert_reason(message("order.made", "none", NULL, 1), "no topic \"none\"");
}

static void two_topics_are_a_mistake(void **state)
{
    (void)state;
    struct tdi_route route = route_of(message("order.paid", NULL, NULL, 1));
    assert_ptr_equal(route.topic, &topics[0]);
    assert_ptr_equal(route.other, &topics[1]);
    assert_int_equal(route.dead, TD_DEAD_INVALID);
    assert_reason(message("order.paid", NULL, NULL, 1), "orders and mails both take");
}

static void a_required_key_must_be_there(void **state)
{
    (void)state;
    assert_int_equal(route_of(message("t", "keyed", NULL, 1)).dead, TD_DEAD_INVALID);
    assert_int_equal(route_of(message("t", "keyed", "", 1)).dead, TD_DEAD_INVALID);
    assert_int_equal(route_of(message("t", "keyed", "k", 1)).dead, TD_DEAD_NONE);
    assert_reason(message("t", "keyed", NULL, 1), "requires a key");
}

static void a_body_may_have_exactly_max_bytes(void **state)
{
    (void)state;
    assert_int_equal(route_of(message("order.made", NULL, NULL, 10)).dead, TD_DEAD_NONE);
    assert_int_equal(route_of(message("order.made", NULL, NULL, 11)).dead, TD_DEAD_TOO_LARGE);
    assert_int_equal(route_of(message("mail.sent", NULL, NULL, 1000)).dead, TD_DEAD_NONE);
    assert_reason(message("order.made", NULL, NULL, 11), "11 bytes");
}

static void what_may_be_published_has_no_reason(void **state)
{
    (void)state;
    struct tdi_arena a;
    struct td_message m = message("order.made", NULL, NULL, 1);
    struct tdi_route route = route_of(m);

    tdi_arena_init(&a, 0);
    assert_null(tdi_route_reason(&route, &m, &a).data);
    tdi_arena_release(&a);
}

static void a_row_belongs_to_its_topics_broker_else_to_the_first(void **state)
{
    (void)state;
    const struct td_str first = TD_STR_LIT("main");
    struct tdi_route mail = route_of(message("mail.sent", NULL, NULL, 1));
    struct tdi_route none = route_of(message("x.y", NULL, NULL, 1));
    struct tdi_route both = route_of(message("order.paid", NULL, NULL, 1));

    assert_true(tdi_str_is(tdi_route_broker(&mail, first), "far"));
    assert_true(tdi_str_is(tdi_route_broker(&none, first), "main"));
    assert_true(tdi_str_is(tdi_route_broker(&both, TD_STR_LIT("other")), "main"));
}

static void check_names_what_overlaps(void **state)
{
    (void)state;
    struct td_error err;
    const struct tdi_catalogue good = {topics, 1};

    assert_int_equal(tdi_catalogue_check(&good, &err), TD_OK);
    assert_int_equal(tdi_catalogue_check(&catalogue, &err), TD_ERR_CONFIG);
    assert_non_null(strstr(err.text, "orders and mails"));
    assert_non_null(strstr(err.text, "\"order.*\" and \"order.paid\""));
}

static void check_refuses_two_topics_of_one_name(void **state)
{
    (void)state;
    struct td_error err;
    const struct tdi_topic twice[] = {{.name = {"a", 1}}, {.name = {"b", 1}}, {.name = {"a", 1}}};
    const struct tdi_catalogue c = {twice, 3};

    assert_int_equal(tdi_catalogue_check(&c, &err), TD_ERR_CONFIG);
    assert_non_null(strstr(err.text, "two topics are named a"));
}

static void check_refuses_what_is_no_pattern(void **state)
{
    (void)state;
    struct td_error err;
    const struct td_str bad[] = {{"order..x", 8}};
    const struct tdi_topic topic = {.name = {"a", 1}, .types = bad, .types_count = 1};
    const struct tdi_catalogue c = {&topic, 1};

    assert_int_equal(tdi_catalogue_check(&c, &err), TD_ERR_CONFIG);
    assert_non_null(strstr(err.text, "order..x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_topic_wins_over_the_type),
        cmocka_unit_test(the_type_finds_the_topic),
        cmocka_unit_test(a_topic_without_types_is_reached_by_name_only),
        cmocka_unit_test(no_topic_is_unroutable),
        cmocka_unit_test(two_topics_are_a_mistake),
        cmocka_unit_test(a_required_key_must_be_there),
        cmocka_unit_test(a_body_may_have_exactly_max_bytes),
        cmocka_unit_test(what_may_be_published_has_no_reason),
        cmocka_unit_test(a_row_belongs_to_its_topics_broker_else_to_the_first),
        cmocka_unit_test(check_names_what_overlaps),
        cmocka_unit_test(check_refuses_two_topics_of_one_name),
        cmocka_unit_test(check_refuses_what_is_no_pattern),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
