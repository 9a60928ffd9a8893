/*
 * Every case of tests/badinput/config is a test: load it, compare exit code and words.
 * The format of a case is in the README.md beside them.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "support.h"

#define CASES_MAX 512
#define LINES_MAX 32
#define CASE_BYTES_MAX 65536
#define NAME_MAX_BYTES 256

struct bad_case {
    char name[NAME_MAX_BYTES];
    char path[NAME_MAX_BYTES * 2];
    char *text; /* of the file; cut into lines by parsing */
    size_t len;
    const char *says[LINES_MAX];
    size_t says_count;
    const char *env[LINES_MAX + 1];
    size_t env_count;
    const char *source;
    const char *append;
    int exit_code;
};

static void read_case(struct bad_case *c)
{
    FILE *f = fopen(c->path, "rb");
    assert_non_null(f);
    c->text = malloc(CASE_BYTES_MAX);
    assert_non_null(c->text);
    c->len = fread(c->text, 1, CASE_BYTES_MAX - 1, f);
    c->text[c->len] = '\0';
    assert_int_equal(fclose(f), 0);
    assert_true(c->len < CASE_BYTES_MAX - 1);
}

static const char *value_of(const char *line, const char *key)
{
    size_t len = strlen(key);
    return strncmp(line, key, len) == 0 && strncmp(line + len, ": ", 2) == 0 ? line + len + 2
                                                                             : NULL;
}

static void take_line(struct bad_case *c, const char *line)
{
    const char *value = NULL;
    if ((value = value_of(line, "exit")) != NULL) {
        c->exit_code = value[0] == '0' ? 0 : 78;
    } else if ((value = value_of(line, "says")) != NULL) {
        assert_true(c->says_count < LINES_MAX);
        c->says[c->says_count++] = value;
    } else if ((value = value_of(line, "env")) != NULL) {
        assert_true(c->env_count < LINES_MAX);
        c->env[c->env_count++] = value;
    } else if ((value = value_of(line, "source")) != NULL) {
        c->source = value;
    } else if ((value = value_of(line, "append")) != NULL) {
        c->append = value;
    } else {
        fail_msg("%s: what is '%s'?", c->name, line);
    }
}

/* Returns the YAML. */
static const char *parse_head(struct bad_case *c)
{
    char *line = c->text;
    c->exit_code = -1;
    while (strncmp(line, "---\n", 4) != 0) {
        char *end = strchr(line, '\n');
        if (end == NULL) {
            fail_msg("%s: no --- line", c->name);
            return "";
        }
        *end = '\0';
        take_line(c, line);
        line = end + 1;
    }
    assert_true(c->exit_code >= 0 && c->says_count > 0);
    return line + 4;
}

/* \n, \e and \xNN */
static size_t unescape(const char *text, char out[NAME_MAX_BYTES])
{
    size_t len = 0;
    for (; *text != '\0' && len < NAME_MAX_BYTES; text++) {
        if (*text != '\\') {
            out[len++] = *text;
        } else if (*++text == 'x') {
            char hex[3] = {text[1], text[2], '\0'};
            out[len++] = (char)strtol(hex, NULL, 16);
            text += 2;
        } else {
            out[len++] = *text == 'e' ? '\033' : '\n';
        }
    }
    return len;
}

static void write_file(const struct bad_case *c, const char *yaml)
{
    char part[NAME_MAX_BYTES];
    char *text_at = NULL;
    size_t times = 0;
    size_t part_len = 0;
    if (c->append != NULL) {
        times = strtoul(c->append, &text_at, 10);
        part_len = unescape(text_at + 1, part);
    }
    struct tdi_buf b;
    tdi_buf_init(&b, 4 * 1024 * 1024);
    tdi_buf_add_cstr(&b, yaml);
    for (size_t i = 0; i < times; i++) {
        tdi_buf_add(&b, part, part_len);
    }
    assert_false(b.failed);
    test_write("tidings.yaml", b.data != NULL ? b.data : "", b.len);
    tdi_buf_release(&b);
}

static void prepare(const struct bad_case *c, const char *yaml)
{
    (void)unlink("tidings.yaml");
    if (c->source == NULL) {
        write_file(c, yaml);
    } else if (strcmp(c->source, "folder") == 0) {
        assert_int_equal(mkdir("tidings.yaml", 0700), 0);
    } else {
        assert_string_equal(c->source, "missing");
    }
}

static void check_output(const struct bad_case *c, const struct loaded *l)
{
    if (td_err_exit_code(l->code) != c->exit_code) {
        fail_msg("%s: exit code %d, not %d:\n%s", c->name, td_err_exit_code(l->code), c->exit_code,
                 l->said.data);
    }
    assert_int_equal(l->code != TD_OK, l->diagnostics.mistakes > 0);
    assert_true(tdi_utf8_valid(tdi_buf_str(&l->said)));
    for (size_t i = 0; i < l->said.len; i++) {
        unsigned char byte = (unsigned char)l->said.data[i];
        assert_true(byte == '\n' || (byte >= 0x20 && byte != 0x7f));
    }
    for (size_t i = 0; i < c->says_count; i++) {
        test_contains(tdi_buf_str(&l->said), c->says[i]);
    }
}

static void test_case(void **state)
{
    struct bad_case *c = *state;
    read_case(c);
    const char *yaml = parse_head(c);
    prepare(c, yaml);
    struct loaded l = test_load_file("tidings.yaml", c->env);
    (void)rmdir("tidings.yaml");
    check_output(c, &l);
    test_loaded_release(&l);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct bad_case *)a)->name, ((const struct bad_case *)b)->name);
}

static size_t find_cases(struct bad_case *cases)
{
    size_t count = 0;
    DIR *d = opendir(TEST_BADINPUT_DIR);
    struct dirent *entry = NULL;
    while (d != NULL && (entry = readdir(d)) != NULL && count < CASES_MAX) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".case") != 0) {
            continue;
        }
        struct bad_case *c = &cases[count++];
        (void)snprintf(c->name, sizeof(c->name), "%.200s", entry->d_name);
        (void)snprintf(c->path, sizeof(c->path), "%.250s/%.200s", TEST_BADINPUT_DIR, c->name);
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    qsort(cases, count, sizeof(*cases), by_name);
    return count;
}

int main(void)
{
    struct bad_case *cases = calloc(CASES_MAX, sizeof(*cases));
    struct CMUnitTest *tests = calloc(CASES_MAX, sizeof(*tests));
    size_t count = cases != NULL && tests != NULL ? find_cases(cases) : 0;
    int failed = 1;
    for (size_t i = 0; i < count; i++) {
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_case, .initial_state = &cases[i]};
    }
    if (count >= 40) {
        failed = _cmocka_run_group_tests("badinput/config", tests, count, test_folder_enter,
                                         test_folder_leave);
    } else {
        print_error("only %zu cases in %s\n", count, TEST_BADINPUT_DIR);
    }
    for (size_t i = 0; i < count; i++) {
        free(cases[i].text);
    }
    free(cases);
    free(tests);
    return failed;
}
