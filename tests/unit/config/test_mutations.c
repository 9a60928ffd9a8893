/*
 * Deterministic fuzzing: a good file cut, changed and doubled at every byte, and every variable of
 * the environment likewise, is loaded or refused, with clean output, and nothing else happens. Memory
 * that runs out at any point is an error.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "support.h"

static void load_any(const char *text, size_t len, const char *const *env)
{
    test_write("tidings.yaml", text, len);
    struct loaded l = test_load_file("tidings.yaml", env);
    assert_true(l.code == TD_OK || l.code == TD_ERR_CONFIG);
    assert_int_equal(l.code == TD_OK, l.diagnostics.mistakes == 0);
    assert_int_equal(l.code == TD_OK, l.config != NULL);
    assert_true(tdi_utf8_valid(tdi_buf_str(&l.said)));
    for (size_t i = 0; i < l.said.len; i++) {
        unsigned char c = (unsigned char)l.said.data[i];
        assert_true(c == '\n' || (c >= 0x20 && c != 0x7f));
    }
    test_loaded_release(&l);
}

static void test_cut(void **state)
{
    (void)state;
    for (size_t len = 0; len <= strlen(test_full); len++) {
        load_any(test_full, len, NULL);
    }
}

static void test_changed(void **state)
{
    (void)state;
    static const char bytes[] = {'\0', '\n', '\t', ':', '{',    ']', '"',
                                 '&',  '-',  '$',  '0', '\xff', ' '};
    char text[4096];
    size_t len = strlen(test_full);
    assert_true(len < sizeof(text));
    for (size_t at = 0; at < len; at++) {
        memcpy(text, test_full, len);
        text[at] = bytes[at % sizeof(bytes)];
        load_any(text, len, NULL);
    }
}

static void test_left_out_and_doubled(void **state)
{
    (void)state;
    char text[4096];
    size_t len = strlen(test_full);
    for (size_t at = 0; at < len; at++) {
        memcpy(text, test_full, at);
        memcpy(text + at, test_full + at + 1, len - at - 1);
        load_any(text, len - 1, NULL);
        memcpy(text, test_full, at + 1);
        memcpy(text + at + 1, test_full + at, len - at);
        load_any(text, len + 1, NULL);
    }
}

/* Lines are what people move about. */
static void test_lines_left_out(void **state)
{
    (void)state;
    char text[4096];
    for (const char *line = test_full; *line != '\0';) {
        const char *next = strchr(line, '\n') + 1;
        size_t before = (size_t)(line - test_full);
        memcpy(text, test_full, before);
        memcpy(text + before, next, strlen(next));
        load_any(text, before + strlen(next), NULL);
        line = next;
    }
}

static void test_variables(void **state)
{
    (void)state;
    static const char *const good[] = {
        "TIDINGS_CONSUMERS__POINTS__HANDLER__SQL__1__ROWS__0=dead",
        "TIDINGS_TOPICS__ORDERS__TYPES__0=[a, {b: c}]",
        "TIDINGS_CONSUMERS__MAIL__CLASSIFY__75={a: [b}",
        "TIDINGS_STORES__SHOP=${A:-}",
    };
    char text[256];
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        size_t len = strlen(good[i]);
        for (size_t at = strlen("TIDINGS_"); at <= len; at++) {
            const char *const env[] = {text, NULL};
            (void)snprintf(text, sizeof(text), "%.*s=[x", (int)at, good[i]);
            load_any(test_full, strlen(test_full), env);
            (void)snprintf(text, sizeof(text), "%.*s", (int)at, good[i]);
            load_any(test_full, strlen(test_full), env);
            (void)snprintf(text, sizeof(text), "%s", good[i]);
            text[at] = at < len ? "_={[1\xff"[at % 6] : '\0';
            load_any(test_full, strlen(test_full), env);
        }
    }
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    test_write("tidings.yaml", test_full, strlen(test_full));
    const char *const env[] = {"TIDINGS_LOG__LEVEL=warn", "TIDINGS_TOPICS__ORDERS__TYPES=[a, b]",
                               NULL};
    bool refused = false;
    bool loaded = false;
    for (size_t bytes = 512; bytes < 512 * 1024 && !loaded; bytes += 512) {
        struct tdi_arena arena;
        struct tdi_diagnostics d;
        const struct tdi_config *config = NULL;
        struct td_error err = {0};
        tdi_arena_init(&arena, bytes);
        tdi_diagnostics_init(&d, &arena);
        enum td_err code = tdi_config_load("tidings.yaml", env, &arena, &config, &d, &err);
        if (code != TD_OK) {
            assert_true(code == TD_ERR_LIMIT || code == TD_ERR_NOMEM);
            assert_int_equal(err.code, code);
            assert_null(config);
            refused = true;
        } else {
            loaded = true;
        }
        tdi_arena_release(&arena);
    }
    assert_true(refused);
    assert_true(loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_left_out_and_doubled),
        cmocka_unit_test(test_lines_left_out),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
