/* Log lines: both formats, hostile text, cutting, levels, threads on one pipe. */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "unit.h"

#define NOW "2026-11-29T22:24:48.123456Z"

static td_time_us fixed_time(void *ctx)
{
    (void)ctx;
    return INT64_C(1795991088123456);
}

static const struct td_clock fixed_clock = {.wall = fixed_time, .mono = fixed_time};

/* A log into a pipe, and what was written to it. */
struct fixture {
    int ends[2];
    struct tdi_log *log;
    char text[3 * TDI_LOG_LINE_MAX];
    size_t len;
};

static void open_log(struct fixture *f, enum tdi_log_level level, enum tdi_log_format format,
                     bool color)
{
    assert_int_equal(pipe(f->ends), 0);
    assert_int_not_equal(fcntl(f->ends[0], F_SETFL, O_NONBLOCK), -1);
    f->log = tdi_log_new(f->ends[1], level, format, color, fixed_clock);
    assert_non_null(f->log);
}

static void close_log(struct fixture *f)
{
    tdi_log_free(f->log);
    close(f->ends[0]);
    close(f->ends[1]);
}

/* What is in the pipe now, terminated. */
static const char *written(struct fixture *f)
{
    f->len = 0;
    ssize_t n;
    while ((n = read(f->ends[0], f->text + f->len, sizeof(f->text) - 1 - f->len)) > 0) {
        f->len += (size_t)n;
    }
    f->text[f->len] = '\0';
    return f->text;
}

static void text_line(void **state)
{
    (void)state;
    struct fixture f;
    open_log(&f, TDI_LOG_INFO, TDI_LOG_TEXT, false);
    TDI_LOG(f.log, TDI_LOG_INFO, "relay stopped", TDI_LOG_STR("outbox", TD_STR_LIT("shop")),
            TDI_LOG_INT("rows", -12), TDI_LOG_STR("why", TD_STR_LIT("it was told to")),
            TDI_LOG_STR("empty", TD_STR_LIT("")), TDI_LOG_STR("eq", TD_STR_LIT("a=b")));
    assert_string_equal(written(&f), NOW " INFO  relay stopped outbox=shop rows=-12"
                                         " why=\"it was told to\" empty=\"\" eq=\"a=b\"\n");
    tdi_log_write(f.log, TDI_LOG_ERROR, "no fields", NULL, 0);
    assert_string_equal(written(&f), NOW " ERROR no fields\n");
    close_log(&f);
}

static void values_are_quoted_where_needed(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *want;
    } cases[] = {
        {"plain-1/2:3", "plain-1/2:3"},
        {"", "\"\""},
        {" ", "\" \""},
        {"a\"b", "\"a\\\"b\""},
        {"a\\b", "\"a\\\\b\""},
        {"a=b", "\"a=b\""},
        {"\x7f", "\"\\x7f\""},
        {"\xc3\xa4", "\"\xc3\xa4\""},
        {"\xc3\x84\xc2\xa0", "\"\xc3\x84\xc2\xa0\""},
        {"\x80", "\"\\x80\""},
        {"!~", "!~"},
    };
    struct fixture f;
    open_log(&f, TDI_LOG_INFO, TDI_LOG_TEXT, false);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct tdi_log_field field = TDI_LOG_STR("v", tdi_str(cases[i].value));
        tdi_log_write(f.log, TDI_LOG_INFO, "e", &field, 1);
        char want[80];
        snprintf(want, sizeof(want), NOW " INFO  e v=%s\n", cases[i].want);
        assert_string_equal(written(&f), want);
    }
    close_log(&f);
}

static void json_line(void **state)
{
    (void)state;
    struct fixture f;
    open_log(&f, TDI_LOG_INFO, TDI_LOG_JSON, true);
    TDI_LOG(f.log, TDI_LOG_WARN, "relay \"x\" stopped", TDI_LOG_STR("key", TD_STR_LIT("a\\b")),
            TDI_LOG_INT("rows", INT64_MIN));
    assert_string_equal(written(&f), "{\"time\":\"" NOW "\",\"level\":\"warn\","
                                     "\"event\":\"relay \\\"x\\\" stopped\",\"key\":\"a\\\\b\","
                                     "\"rows\":-9223372036854775808}\n");
    assert_true(tdi_json_valid((struct td_str){f.text, f.len}, NULL, NULL));
    close_log(&f);
}

static void colors_are_for_text(void **state)
{
    (void)state;
    struct fixture f;
    open_log(&f, TDI_LOG_DEBUG, TDI_LOG_TEXT, true);
    tdi_log_write(f.log, TDI_LOG_ERROR, "x", NULL, 0);
    assert_string_equal(written(&f), NOW " \033[31mERROR\033[0m x\n");
    tdi_log_write(f.log, TDI_LOG_DEBUG, "x", NULL, 0);
    assert_string_equal(written(&f), NOW " \033[2mDEBUG\033[0m x\n");
    close_log(&f);
}

static void control_bytes_do_not_get_through(void **state)
{
    (void)state;
    static const char hostile[] = "\x1b[2J\n\r\t\x01\x7f\xc2\x9b"
                                  "0m\xff\0\"\\\xe4\xb8\xad";
    struct fixture f;
    const struct tdi_log_field field =
        TDI_LOG_STR("key", ((struct td_str){hostile, sizeof(hostile) - 1}));
    open_log(&f, TDI_LOG_INFO, TDI_LOG_TEXT, false);
    tdi_log_write(f.log, TDI_LOG_INFO, "odd\nevent", &field, 1);
    assert_string_equal(written(&f),
                        NOW " INFO  odd\\nevent key=\"\\x1b[2J\\n\\r\\t\\x01\\x7f\\u009b0m\\xff"
                            "\\x00\\\"\\\\\xe4\xb8\xad\"\n");
    close_log(&f);
    open_log(&f, TDI_LOG_INFO, TDI_LOG_JSON, false);
    tdi_log_write(f.log, TDI_LOG_INFO, "odd\nevent", &field, 1);
    assert_string_equal(written(&f),
                        "{\"time\":\"" NOW "\",\"level\":\"info\",\"event\":\"odd\\nevent\","
                        "\"key\":\"\\u001b[2J\\n\\r\\t\\u0001\\u007f\\u009b0m\\ufffd\\u0000\\\"\\\\"
                        "\xe4\xb8\xad\"}\n");
    assert_true(tdi_json_valid((struct td_str){f.text, f.len}, NULL, NULL));
    close_log(&f);
}

/* Fields so long that the line is cut at every possible place. */
static void cut_at(struct fixture *f, const char *unit, size_t len, enum tdi_log_format format)
{
    static char big[2 * TDI_LOG_LINE_MAX];
    size_t unit_len = strlen(unit);
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = unit[i % unit_len];
    }
    len -= len % unit_len;
    const struct tdi_log_field fields[] = {
        TDI_LOG_STR("big", ((struct td_str){big, len})),
        TDI_LOG_INT("n", 1234567890),
        TDI_LOG_STR("last", TD_STR_LIT("x y")),
    };
    tdi_log_write(f->log, TDI_LOG_INFO, "e", fields, COUNT(fields));
    written(f);
    assert_in_range(f->len, 1, TDI_LOG_LINE_MAX);
    assert_int_equal(f->text[f->len - 1], '\n');
    assert_ptr_equal(strchr(f->text, '\n'), f->text + f->len - 1);
    bool whole = strstr(f->text, "x y") != NULL;
    if (format == TDI_LOG_JSON) {
        assert_true(tdi_json_valid((struct td_str){f->text, f->len}, NULL, NULL));
        assert_true((strstr(f->text, ",\"cut\":true}\n") == NULL) == whole);
        const char *n = strstr(f->text, "\"n\":");
        assert_true(n == NULL || strncmp(n, "\"n\":1234567890", 14) == 0);
    } else {
        assert_true((strstr(f->text, "...\n") == NULL) == whole);
        assert_true(tdi_utf8_valid((struct td_str){f->text, f->len}));
        const char *n = strstr(f->text, " n=");
        assert_true(n == NULL || strncmp(n, " n=1234567890", 13) == 0);
    }
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    static const char *const units[] = {"x",    "\"",           "\n",
                                        "\x01", "\xe4\xb8\xad", "\xf0\x9f\x98\x80"};
    static struct fixture f;
    for (int format = TDI_LOG_TEXT; format <= TDI_LOG_JSON; format++) {
        open_log(&f, TDI_LOG_INFO, (enum tdi_log_format)format, false);
        for (size_t u = 0; u < COUNT(units); u++) {
            for (size_t len = 3900; len < 4150; len++) {
                cut_at(&f, units[u], len, (enum tdi_log_format)format);
            }
            for (size_t len = 600; len < 2100; len += 7) {
                cut_at(&f, units[u], len, (enum tdi_log_format)format);
            }
            cut_at(&f, units[u], 2 * TDI_LOG_LINE_MAX, (enum tdi_log_format)format);
        }
        close_log(&f);
    }
}

static void long_event_and_name_are_cut(void **state)
{
    (void)state;
    static struct fixture f;
    static char event[2 * TDI_LOG_LINE_MAX];
    memset(event, 'e', sizeof(event) - 1);
    const struct tdi_log_field field = TDI_LOG_INT(event, 1);
    for (int format = TDI_LOG_TEXT; format <= TDI_LOG_JSON; format++) {
        open_log(&f, TDI_LOG_INFO, (enum tdi_log_format)format, false);
        tdi_log_write(f.log, TDI_LOG_INFO, event, &field, 1);
        written(&f);
        assert_in_range(f.len, TDI_LOG_LINE_MAX - 32, TDI_LOG_LINE_MAX);
        tdi_log_write(f.log, TDI_LOG_INFO, "short", &field, 1);
        written(&f);
        assert_in_range(f.len, 10, 100);
        assert_non_null(strstr(f.text, format == TDI_LOG_JSON ? "\"cut\":true}\n" : "...\n"));
        close_log(&f);
    }
}

static void levels(void **state)
{
    (void)state;
    struct fixture f;
    open_log(&f, TDI_LOG_WARN, TDI_LOG_TEXT, false);
    assert_true(tdi_log_on(f.log, TDI_LOG_ERROR));
    assert_true(tdi_log_on(f.log, TDI_LOG_WARN));
    assert_false(tdi_log_on(f.log, TDI_LOG_INFO));
    tdi_log_write(f.log, TDI_LOG_INFO, "not shown", NULL, 0);
    TDI_LOG(f.log, TDI_LOG_DEBUG, "not shown", TDI_LOG_INT("n", 1));
    const struct td_error e = {.code = TD_ERR_IO};
    tdi_log_error(f.log, TDI_LOG_INFO, "not shown", &e, NULL, 0);
    assert_string_equal(written(&f), "");
    tdi_log_set_level(f.log, TDI_LOG_DEBUG);
    assert_true(tdi_log_on(f.log, TDI_LOG_DEBUG));
    tdi_log_write(f.log, TDI_LOG_DEBUG, "shown", NULL, 0);
    assert_string_equal(written(&f), NOW " DEBUG shown\n");
    tdi_log_set_level(f.log, TDI_LOG_ERROR);
    assert_false(tdi_log_on(f.log, TDI_LOG_WARN));
    close_log(&f);
}

static void no_log_is_fine(void **state)
{
    (void)state;
    const struct td_error e = {.code = TD_ERR_IO};
    assert_false(tdi_log_on(NULL, TDI_LOG_ERROR));
    tdi_log_write(NULL, TDI_LOG_ERROR, "x", NULL, 0);
    tdi_log_error(NULL, TDI_LOG_ERROR, "x", &e, NULL, 0);
    tdi_log_free(NULL);
}

static void error_fields(void **state)
{
    (void)state;
    struct fixture f;
    struct td_error e;
    const struct tdi_log_field field = TDI_LOG_STR("store", TD_STR_LIT("shop"));
    open_log(&f, TDI_LOG_INFO, TDI_LOG_TEXT, false);
    td_error_set(&e, TD_ERR_BUSY, "the database is locked");
    tdi_log_error(f.log, TDI_LOG_WARN, "cannot read", &e, &field, 1);
    assert_string_equal(written(&f), NOW " WARN  cannot read store=shop error=busy class=retry"
                                         " reason=\"the database is locked\"\n");
    e.class_ = TD_CLASS_UNKNOWN; /* a driver may say so */
    memcpy(e.driver, "sqlite", 7);
    memcpy(e.op, "finish", 7);
    memcpy(e.peer, "SQLITE_BUSY", 12);
    memcpy(e.sqlstate, "55P03", 6);
    tdi_log_error(f.log, TDI_LOG_WARN, "cannot read", &e, &field, 1);
    assert_string_equal(written(&f), NOW " WARN  cannot read store=shop error=busy class=unknown"
                                         " driver=sqlite op=finish peer=SQLITE_BUSY sqlstate=55P03"
                                         " reason=\"the database is locked\"\n");
    close_log(&f);
}

static void too_many_fields_are_left_out(void **state)
{
    (void)state;
    struct fixture f;
    struct tdi_log_field fields[TDI_LOG_FIELDS_MAX + 5];
    struct td_error e;
    for (size_t i = 0; i < COUNT(fields); i++) {
        fields[i] = TDI_LOG_INT(i < TDI_LOG_FIELDS_MAX ? "a" : "b", 1);
    }
    open_log(&f, TDI_LOG_INFO, TDI_LOG_TEXT, false);
    td_error_set(&e, TD_ERR_CLOSED, "t");
    memcpy(e.driver, "d", 2);
    memcpy(e.op, "o", 2);
    memcpy(e.peer, "p", 2);
    memcpy(e.sqlstate, "s", 2);
    tdi_log_write(f.log, TDI_LOG_INFO, "x", fields, COUNT(fields));
    assert_null(strstr(written(&f), "b=1"));
    tdi_log_error(f.log, TDI_LOG_INFO, "x", &e, fields, COUNT(fields));
    assert_null(strstr(written(&f), "b=1"));
    assert_non_null(strstr(f.text, "a=1 error=closed class=fatal driver=d op=o peer=p sqlstate=s "
                                   "reason=t\n"));
    close_log(&f);
}

static void unwritable_log_stops_nothing(void **state)
{
    (void)state;
    struct tdi_log *log = tdi_log_new(-1, TDI_LOG_INFO, TDI_LOG_TEXT, false, fixed_clock);
    assert_non_null(log);
    tdi_log_write(log, TDI_LOG_ERROR, "x", NULL, 0);
    tdi_log_free(log);
}

enum {
    THREADS = 4,
    LINES = 500
};

static void *write_lines(void *arg)
{
    for (int i = 0; i < LINES; i++) {
        TDI_LOG(arg, TDI_LOG_INFO, "a line of a thread", TDI_LOG_INT("n", i));
    }
    return NULL;
}

static void lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    static struct fixture f;
    open_log(&f, TDI_LOG_INFO, TDI_LOG_JSON, false);
    assert_int_not_equal(fcntl(f.ends[0], F_SETFL, 0), -1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, f.log), 0);
    }
    FILE *in = fdopen(dup(f.ends[0]), "r");
    assert_non_null(in);
    for (int i = 0; i < THREADS * LINES; i++) {
        assert_non_null(fgets(f.text, sizeof(f.text), in));
        assert_true(tdi_json_valid(tdi_str(f.text), NULL, NULL));
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    fclose(in);
    close_log(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_line),
        cmocka_unit_test(values_are_quoted_where_needed),
        cmocka_unit_test(json_line),
        cmocka_unit_test(colors_are_for_text),
        cmocka_unit_test(control_bytes_do_not_get_through),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(long_event_and_name_are_cut),
        cmocka_unit_test(levels),
        cmocka_unit_test(no_log_is_fine),
        cmocka_unit_test(error_fields),
        cmocka_unit_test(too_many_fields_are_left_out),
        cmocka_unit_test(unwritable_log_stops_nothing),
        cmocka_unit_test(lines_of_threads_do_not_mix),
    };
    return cmocka_run_group_tests_name("base/log", tests, NULL, NULL);
}
