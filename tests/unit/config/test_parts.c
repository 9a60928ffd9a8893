/* The pure parts: inbox window, places in a text, printing of diagnostics, the table, help. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "config/inbox_window.h"
#include "config/internal.h"
#include "support.h"

#define MINUTE_US (60 * TD_SECOND_US)
#define HOUR_US (60 * MINUTE_US)
#define DAY_US (24 * HOUR_US)

/* ---- the inbox window ------------------------------------------------------------------- */

static void test_window_twice(void **state)
{
    (void)state;
    struct tdi_window_input in = {
        .keep_us = HOUR_US, .retry_span_us = 71 * MINUTE_US, .outbox_keep_us = 7 * DAY_US};
    struct tdi_inbox_window w = tdi_inbox_window(&in);
    assert_int_equal(w.verdict, TDI_WINDOW_TWICE);
    assert_int_equal(w.needed_us, 7 * DAY_US + 71 * MINUTE_US);
    assert_int_equal(w.proposal_us, 8 * DAY_US);
    in.keep_us = w.needed_us - 1;
    assert_int_equal(tdi_inbox_window(&in).verdict, TDI_WINDOW_TWICE);
    in.keep_us = w.needed_us;
    assert_int_equal(tdi_inbox_window(&in).verdict, TDI_WINDOW_HOLDS);
}

static void test_window_stale(void **state)
{
    (void)state;
    struct tdi_window_input in = {
        .keep_us = HOUR_US, .retry_span_us = 71 * MINUTE_US, .retention_us = 7 * DAY_US};
    struct tdi_inbox_window w = tdi_inbox_window(&in);
    assert_int_equal(w.verdict, TDI_WINDOW_GOES_STALE);
    assert_int_equal(w.needed_us, 7 * DAY_US + 142 * MINUTE_US);
    in.keep_us = w.proposal_us;
    assert_int_equal(tdi_inbox_window(&in).verdict, TDI_WINDOW_HOLDS);
    /* Without retention and outbox its own retries remain. */
    in = (struct tdi_window_input){.keep_us = 2 * HOUR_US, .retry_span_us = 61 * MINUTE_US};
    w = tdi_inbox_window(&in);
    assert_int_equal(w.verdict, TDI_WINDOW_GOES_STALE);
    assert_int_equal(w.proposal_us, 3 * HOUR_US);
}

/* Both reasons: the worse one is told, and the proposal is enough for both. */
static void test_window_both(void **state)
{
    (void)state;
    struct tdi_window_input in = {.keep_us = HOUR_US,
                                  .retry_span_us = MINUTE_US,
                                  .retention_us = 30 * DAY_US,
                                  .outbox_keep_us = DAY_US};
    struct tdi_inbox_window w = tdi_inbox_window(&in);
    assert_int_equal(w.verdict, TDI_WINDOW_TWICE);
    assert_int_equal(w.needed_us, DAY_US + MINUTE_US);
    in.keep_us = w.proposal_us;
    assert_int_equal(tdi_inbox_window(&in).verdict, TDI_WINDOW_HOLDS);
    in.keep_us = 2 * DAY_US;
    assert_int_equal(tdi_inbox_window(&in).verdict, TDI_WINDOW_GOES_STALE);
}

static void test_window_saturates(void **state)
{
    (void)state;
    const struct tdi_window_input in = {.keep_us = DAY_US,
                                        .retry_span_us = INT64_MAX,
                                        .retention_us = INT64_MAX,
                                        .outbox_keep_us = INT64_MAX};
    struct tdi_inbox_window w = tdi_inbox_window(&in);
    assert_int_equal(w.verdict, TDI_WINDOW_TWICE);
    assert_int_equal(w.needed_us, INT64_MAX);
    assert_int_equal(w.proposal_us, INT64_MAX);
}

/* ---- places ----------------------------------------------------------------------------- */

static void test_lines(void **state)
{
    (void)state;
    struct td_str s = TD_STR_LIT("one\ntwo\r\nthree\rfour\xe2\x80\xa8"
                                 "five\xc2\x85six");
    static const char *const lines[] = {"one", "two", "three", "four", "five", "six"};
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(tdi_str_is(tdi_source_line(s, i + 1), lines[i]));
    }
    assert_null(tdi_source_line(s, 7).data);
    assert_null(tdi_source_line(s, 0).data);
}

static void test_place_of_a_byte(void **state)
{
    (void)state;
    struct td_str s = TD_STR_LIT("one\n\xc3\xa4x\nend");
    struct tdi_source_pos pos = tdi_source_at(s, 0);
    assert_int_equal(pos.line * 100 + pos.column, 101);
    pos = tdi_source_at(s, 6); /* x, behind a character of two bytes */
    assert_int_equal(pos.line * 100 + pos.column, 202);
    pos = tdi_source_at(s, 8);
    assert_int_equal(pos.line * 100 + pos.column, 301);
}

/* ---- printing --------------------------------------------------------------------------- */

struct printing {
    struct tdi_arena arena;
    struct tdi_diagnostics d;
    struct tdi_buf out;
};

static struct printing *printing_new(const char *source)
{
    static struct printing p; /* one test at a time */
    tdi_arena_init(&p.arena, 0);
    tdi_buf_init(&p.out, 1024 * 1024);
    tdi_diagnostics_init(&p.d, &p.arena);
    p.d.file = TD_STR_LIT("f.yaml");
    p.d.source = tdi_str(source);
    return &p;
}

static void printing_end(struct printing *p, bool color, const char *wanted)
{
    tdi_diagnostics_print(&p->d, color, &p->out);
    assert_string_equal(p->out.data, wanted);
    tdi_buf_release(&p->out);
    tdi_arena_release(&p->arena);
}

static void test_print_order_and_sum(void **state)
{
    (void)state;
    struct printing *p = printing_new("first: 1\nsecond: 2\n");
    struct tdi_source_pos env = {.variable = TD_STR_LIT("TIDINGS_X")};
    struct tdi_source_pos second = {.line = 2, .column = 9, .length = 1};
    struct tdi_source_pos first = {.line = 1, .column = 1, .length = 5};
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, env, "wrong");
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_FINDING, second, "is %d\nand more", 2);
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, first, "what");
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_NOTE, (struct tdi_source_pos){0}, "all of it");
    printing_end(p, false,
                 "f.yaml: all of it\n"
                 "f.yaml:1:1: what\n"
                 "    1 | first: 1\n"
                 "      | ^~~~~\n"
                 "f.yaml:2:9: is 2\n"
                 "            and more\n"
                 "    2 | second: 2\n"
                 "      |         ^\n"
                 "TIDINGS_X: wrong\n"
                 "2 mistakes, 1 finding\n");
}

static void test_print_order_in_a_line(void **state)
{
    (void)state;
    struct printing *p = printing_new("a: b\n");
    struct tdi_source_pos key = {.line = 1, .column = 1, .length = 1};
    struct tdi_source_pos value = {.line = 1, .column = 4, .length = 1};
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, value, "second");
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, key, "first");
    printing_end(p, false,
                 "f.yaml:1:1: first\n    1 | a: b\n      | ^\n"
                 "f.yaml:1:4: second\n    1 | a: b\n      |    ^\n2 mistakes\n");
}

static void test_print_color(void **state)
{
    (void)state;
    struct printing *p = printing_new("a: b\n");
    struct tdi_source_pos pos = {.line = 1, .column = 4, .length = 1};
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, pos, "no");
    printing_end(p, true, "f.yaml:1:4: no\n    1 | a: b\n      |    \033[31m^\033[0m\n1 mistake\n");
}

static void test_print_cleans(void **state)
{
    (void)state;
    struct printing *p = printing_new("a: \033[2J\xc2\x9b\xff\x7f\xc3\xa4 b\n");
    struct tdi_source_pos pos = {.line = 1, .column = 4, .length = 1};
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, pos, "bell \a");
    printing_end(p, false,
                 "f.yaml:1:4: bell ?\n    1 | a: ?[2J???\xc3\xa4 b\n      |    ^\n1 mistake\n");
}

static void test_print_long_line(void **state)
{
    (void)state;
    char line[401];
    memset(line, 'x', 400);
    line[400] = '\0';
    memcpy(line + 200, "HERE", 4);
    struct printing *p = printing_new(line);
    struct tdi_source_pos pos = {.line = 1, .column = 201, .length = 300};
    tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, pos, "long");
    tdi_diagnostics_print(&p->d, false, &p->out);
    const char *shown = strstr(p->out.data, "HERE");
    const char *caret = strchr(p->out.data, '^');
    assert_non_null(shown);
    assert_non_null(caret);
    const char *shown_line = strstr(p->out.data, "    1 | ");
    const char *caret_line = strstr(p->out.data, "      | ");
    assert_int_equal(shown - shown_line, caret - caret_line);
    assert_true(p->out.len < 400);
    tdi_buf_release(&p->out);
    tdi_arena_release(&p->arena);
}

static void test_print_limit(void **state)
{
    (void)state;
    struct printing *p = printing_new("a\n");
    for (int i = 0; i < TDI_CONFIG_DIAGNOSTICS_MAX + 7; i++) {
        tdi_diagnostics_add(&p->d, TDI_SEVERITY_MISTAKE, (struct tdi_source_pos){0}, "x");
    }
    assert_int_equal(p->d.count, TDI_CONFIG_DIAGNOSTICS_MAX);
    tdi_diagnostics_print(&p->d, false, &p->out);
    test_contains(tdi_buf_str(&p->out), "... and 7 more\n107 mistakes\n");
    tdi_buf_release(&p->out);
    tdi_arena_release(&p->arena);
}

static void test_guesses(void **state)
{
    (void)state;
    char buf[TDI_DID_YOU_MEAN_MAX];
    struct tdi_guess g;
    tdi_guess_init(&g, TD_STR_LIT("ordr"));
    tdi_guess_offer(&g, TD_STR_LIT("from"));
    assert_string_equal(tdi_guess_text(&g, buf), "");
    tdi_guess_offer(&g, TD_STR_LIT("orders"));
    tdi_guess_offer(&g, TD_STR_LIT("order"));
    assert_string_equal(tdi_guess_text(&g, buf), "; did you mean 'order'?");
    tdi_guess_init(&g, TD_STR_LIT("ab"));
    tdi_guess_offer(&g, TD_STR_LIT("on")); /* everything is near to a short word */
    assert_string_equal(tdi_guess_text(&g, buf), "");
}

static void test_shown_cuts_between_characters(void **state)
{
    (void)state;
    char buf[64];
    char text[80];
    memset(text, 'a', sizeof(text));
    memcpy(text + 59, "\xc3\xa4", 2);
    const char *shown = tdi_shown((struct td_str){.data = text, .len = sizeof(text)}, buf);
    assert_int_equal(strlen(shown), 62);
    assert_string_equal(shown + 58, "a...");
    assert_string_equal(tdi_shown(TD_STR_LIT("a\nb"), buf), "a b");
}

/* ---- the table and help ----------------------------------------------------------------- */

static void test_table(void **state)
{
    (void)state;
    size_t count = 0;
    const struct tdi_param_def *defs = tdi_params(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(defs[i].path, defs[k].path);
        }
        assert_non_null(defs[i].text);
        assert_int_equal(defs[i].text[strlen(defs[i].text) - 1] == ' ', 0);
        const char *dot = strrchr(defs[i].path, '.');
        bool parent = dot == NULL;
        for (size_t k = 0; k < i && !parent; k++) {
            parent = strlen(defs[k].path) == (size_t)(dot - defs[i].path) &&
                     strncmp(defs[k].path, defs[i].path, strlen(defs[k].path)) == 0 &&
                     tdi_param_is_container(&defs[k]);
        }
        assert_true(parent);
        assert_int_equal(defs[i].min == NULL, defs[i].max == NULL);
        assert_true(tdi_param_type_name(&defs[i])[0] != '\0');
    }
}

static struct tdi_buf help(const char *key, bool found)
{
    struct tdi_buf out;
    tdi_buf_init(&out, 1024 * 1024);
    assert_int_equal(tdi_config_help(&out, tdi_str(key)), found);
    assert_false(out.failed);
    return out;
}

static void test_help(void **state)
{
    (void)state;
    static const char *const same[] = {"consumers.*.retry.initial",
                                       "consumers.points.retry.initial", "initial"};
    for (size_t i = 0; i < 3; i++) {
        struct tdi_buf out = help(same[i], true);
        assert_string_equal(out.data, "consumers.*.retry.initial\n"
                                      "    First waiting time.\n"
                                      "    a duration from 1ms to 30d; default 1s; a reload may"
                                      " change it\n");
        tdi_buf_release(&out);
    }
    struct tdi_buf out = help("consumers.points.handler.sql.run", true);
    test_contains(tdi_buf_str(&out), "consumers.*.handler.sql.[].run\n");
    assert_null(strstr(out.data, ".on\n"));
    tdi_buf_release(&out);
    out = help("", true);
    test_contains(tdi_buf_str(&out), "service\n");
    test_contains(tdi_buf_str(&out), "drain.deadline\n");
    test_contains(tdi_buf_str(&out), "stores.*.url\n    Not in this version: refused.\n");
    tdi_buf_release(&out);
    out = help("retyr", false);
    assert_string_equal(out.data, "there is no key 'retyr'; did you mean 'retry'?\n");
    tdi_buf_release(&out);
    out = help("consumers.a.b.c", false);
    tdi_buf_release(&out);
}

static void test_markdown(void **state)
{
    (void)state;
    struct tdi_buf out;
    tdi_buf_init(&out, 1024 * 1024);
    tdi_config_markdown(&out);
    assert_false(out.failed);
    size_t count = 0;
    const struct tdi_param_def *defs = tdi_params(&count);
    for (size_t i = 0; i < count; i++) {
        char row[128];
        (void)snprintf(row, sizeof(row), "\n| `%s` | ", defs[i].path);
        test_contains(tdi_buf_str(&out), row);
    }
    test_contains(tdi_buf_str(&out), "| `consumers.*.retry.attempts` | an integer from 1 to 1000 |"
                                     " `8` ");
    tdi_buf_release(&out);
}

/* The page in docs/ is what the table says now. */
static void test_reference_page_is_fresh(void **state)
{
    (void)state;
    struct tdi_buf wanted;
    tdi_buf_init(&wanted, 1024 * 1024);
    tdi_config_markdown(&wanted);
    char *page = calloc(1, wanted.len + 2);
    FILE *f = fopen(TEST_REFERENCE_PAGE, "rb");
    assert_non_null(page);
    assert_non_null(f);
    size_t len = fread(page, 1, wanted.len + 1, f);
    assert_int_equal(fclose(f), 0);
    if (len != wanted.len || memcmp(page, wanted.data, len) != 0) {
        fail_msg("%s is stale: make docs", TEST_REFERENCE_PAGE);
    }
    free(page);
    tdi_buf_release(&wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_twice),
        cmocka_unit_test(test_window_stale),
        cmocka_unit_test(test_window_both),
        cmocka_unit_test(test_window_saturates),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_place_of_a_byte),
        cmocka_unit_test(test_print_order_and_sum),
        cmocka_unit_test(test_print_order_in_a_line),
        cmocka_unit_test(test_print_color),
        cmocka_unit_test(test_print_cleans),
        cmocka_unit_test(test_print_long_line),
        cmocka_unit_test(test_print_limit),
        cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_shown_cuts_between_characters),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_markdown),
        cmocka_unit_test(test_reference_page_is_fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
