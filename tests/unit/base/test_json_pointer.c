/* RFC 6901 pointers: the RFC's examples, duplicate keys, hostile texts. */
#include <stdio.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "unit.h"

struct fixture {
    struct tdi_arena arena;
    struct td_error err;
    struct tdi_json_token token;
};

static int setup(void **state)
{
    static struct fixture f;
    memset(&f, 0, sizeof(f));
    tdi_arena_init(&f.arena, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tdi_arena_release(&f->arena);
    return 0;
}

/* On heap copies of exact size; raw is checked before they are freed. */
static enum td_err look(struct fixture *f, const char *text, const char *pointer, const char *want)
{
    size_t text_len = strlen(text);
    size_t pointer_len = strlen(pointer);
    char *t = exact_copy(text, text_len);
    char *p = exact_copy(pointer, pointer_len);
    enum td_err e = tdi_json_pointer((struct td_str){t, text_len}, (struct td_str){p, pointer_len},
                                     &f->arena, &f->token, &f->err);
    if (e == TD_OK && want != NULL) {
        if (!tdi_str_is(f->token.raw, want)) {
            fail_msg("%s in %s: '%.*s' instead of '%s'", pointer, text, (int)f->token.raw.len,
                     f->token.raw.data, want);
        }
        assert_ptr_equal(f->token.raw.data,
                         t + f->token.offset + (f->token.kind == TDI_JSON_STRING ? 1 : 0));
        assert_in_range(f->token.end, f->token.offset + 1, text_len);
    }
    free(t);
    free(p);
    return e;
}

static void expect(struct fixture *f, const char *text, const char *pointer, const char *want)
{
    if (look(f, text, pointer, want) != TD_OK) {
        fail_msg("%s not found in %s: %s", pointer, text, f->err.text);
    }
}

static void expect_none(struct fixture *f, const char *text, const char *pointer)
{
    f->token.offset = 12345;
    if (look(f, text, pointer, NULL) != TD_ERR_NOT_FOUND) {
        fail_msg("%s in %s is not NOT_FOUND", pointer, text);
    }
    assert_int_equal(f->err.code, TD_ERR_NOT_FOUND);
    assert_int_equal(f->token.offset, 12345);
}

static void examples_of_the_rfc(void **state)
{
    struct fixture *f = *state;
    static const char doc[] = "{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,"
                              "\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}";
    expect(f, doc, "", doc);
    expect(f, doc, "/foo", "[\"bar\",\"baz\"]");
    expect(f, doc, "/foo/0", "bar");
    assert_int_equal(f->token.kind, TDI_JSON_STRING);
    expect(f, doc, "/foo/1", "baz");
    expect(f, doc, "/", "0");
    expect(f, doc, "/a~1b", "1");
    expect(f, doc, "/c%d", "2");
    expect(f, doc, "/e^f", "3");
    expect(f, doc, "/g|h", "4");
    expect(f, doc, "/i\\j", "5");
    expect(f, doc, "/k\"l", "6");
    expect(f, doc, "/ ", "7");
    expect(f, doc, "/m~0n", "8");
    expect_none(f, doc, "/foo/2");
    expect_none(f, doc, "/foo/-");
    expect_none(f, doc, "/a/b");
    expect_none(f, doc, "/foo/0/0");
    expect_none(f, doc, "/m~0n/x");
}

static void every_kind_of_value(void **state)
{
    struct fixture *f = *state;
    static const char doc[] = " [ null , true,false,-1.50e1,\"s\\n\",[ 1 ],{ \"a\" : 1 }, [] ] ";
    static const struct {
        const char *pointer;
        const char *raw;
        enum tdi_json_kind kind;
    } cases[] = {
        {"/0", "null", TDI_JSON_NULL},
        {"/1", "true", TDI_JSON_TRUE},
        {"/2", "false", TDI_JSON_FALSE},
        {"/3", "-1.50e1", TDI_JSON_NUMBER},
        {"/4", "s\\n", TDI_JSON_STRING},
        {"/5", "[ 1 ]", TDI_JSON_ARRAY_BEGIN},
        {"/6", "{ \"a\" : 1 }", TDI_JSON_OBJECT_BEGIN},
        {"/7", "[]", TDI_JSON_ARRAY_BEGIN},
        {"/6/a", "1", TDI_JSON_NUMBER},
        {"", "[ null , true,false,-1.50e1,\"s\\n\",[ 1 ],{ \"a\" : 1 }, [] ]",
         TDI_JSON_ARRAY_BEGIN},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        expect(f, doc, cases[i].pointer, cases[i].raw);
        assert_int_equal(f->token.kind, cases[i].kind);
        assert_true(f->token.escaped == (i == 4));
    }
    expect(f, "7", "", "7");
    expect(f, "\"x\"", "", "x");
    expect_none(f, "7", "/");
    expect_none(f, "\"x\"", "/0");
}

static void array_indices_are_strict(void **state)
{
    struct fixture *f = *state;
    static const char doc[] = "[0,1,2,3,4,5,6,7,8,9,10,11]";
    expect(f, doc, "/0", "0");
    expect(f, doc, "/10", "10");
    expect(f, doc, "/11", "11");
    expect_none(f, doc, "/12");
    expect_none(f, doc, "/00");
    expect_none(f, doc, "/01");
    expect_none(f, doc, "/+1");
    expect_none(f, doc, "/-1");
    expect_none(f, doc, "/1 ");
    expect_none(f, doc, "/");
    expect_none(f, doc, "/1e0");
    expect_none(f, doc, "/18446744073709551616");
    expect_none(f, doc, "/18446744073709551617");
    expect_none(f, "[]", "/0");
    expect(f, "{\"0\":\"a\",\"00\":\"b\",\"-\":\"c\"}", "/00", "b");
    expect(f, "{\"0\":\"a\",\"00\":\"b\",\"-\":\"c\"}", "/-", "c");
}

static void deep_paths(void **state)
{
    struct fixture *f = *state;
    static const char doc[] = "{\"x\":{\"a\":0},\"a\":[{\"b\":1},{\"b\":[[2,3],[4,{\"c\":5}]]}],"
                              "\"b\":6}";
    expect(f, doc, "/a/0/b", "1");
    expect(f, doc, "/a/1/b/0/1", "3");
    expect(f, doc, "/a/1/b/1/1/c", "5");
    expect(f, doc, "/x/a", "0");
    expect(f, doc, "/b", "6");
    expect_none(f, doc, "/x/b");
    expect_none(f, doc, "/a/b");
    expect_none(f, doc, "/a/0/b/1");
    expect_none(f, doc, "/a/1/b/1/1/c/d");
    expect_none(f, doc, "/c");
}

static void last_duplicate_counts(void **state)
{
    struct fixture *f = *state;
    expect(f, "{\"a\":1,\"a\":2}", "/a", "2");
    expect(f, "{\"a\":[1],\"b\":0,\"a\":{\"c\":3}}", "/a", "{\"c\":3}");
    expect(f, "{\"a\":{\"c\":3},\"a\":4}", "/a", "4");
    expect(f, "{\"a\":{\"c\":1},\"a\":{\"c\":2}}", "/a/c", "2");
    expect(f, "{\"a\":{\"c\":1,\"c\":2},\"x\":{\"c\":9}}", "/a/c", "2");
    expect(f, "{\"a\":1,\"\\u0061\":2}", "/a", "2");
    expect(f, "{\"\\u0061\":1,\"b\":2}", "/a", "1");
    /* What the last one does not have is not there. */
    expect_none(f, "{\"a\":{\"c\":1},\"a\":{}}", "/a/c");
    expect_none(f, "{\"a\":{\"c\":1},\"a\":2}", "/a/c");
    expect_none(f, "{\"a\":[1],\"a\":[]}", "/a/0");
    expect_none(f, "{\"a\":{\"b\":{\"c\":1}},\"a\":{\"b\":7}}", "/a/b/c");
    expect(f, "{\"a\":[1,2],\"a\":[3,4]}", "/a/1", "4");
    /* The same key elsewhere is another key. */
    expect(f, "{\"a\":1,\"b\":{\"a\":2},\"c\":[{\"a\":3}]}", "/a", "1");
}

static void escaped_keys_match(void **state)
{
    struct fixture *f = *state;
    expect(f, "{\"\\u00e4\":1}", "/\xc3\xa4", "1");
    expect(f, "{\"\xc3\xa4\":1}", "/\xc3\xa4", "1");
    expect(f, "{\"\\ud83d\\ude00\":1}", "/\xf0\x9f\x98\x80", "1");
    expect(f, "{\"\\/\":1}", "/~1", "1");
    expect(f, "{\"~1\":1,\"/\":2}", "/~01", "1");
    expect(f, "{\"\\ud800\":1,\"b\":2}", "/b", "2");
    expect_none(f, "{\"\\ud800\":1}", "/?");
    struct td_str pointer = TD_STR_LIT("/\0x");
    assert_int_equal(tdi_json_pointer(TD_STR_LIT("{\"\":1,\"\\u0000x\":2}"), pointer, &f->arena,
                                      &f->token, &f->err),
                     TD_OK);
    assert_str(f->token.raw, "2");
}

static void whole_text_is_validated(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[] = {
        "",
        " ",
        "{\"a\":1",
        "{\"a\":1}x",
        "{\"a\":1,}",
        "{\"a\":1,\"b\":[01]}",
        "{\"a\":1,\"b\":\"\xff\"}",
        "[1}",
        "{\"a\":1} {}",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        f->token.offset = 12345;
        assert_int_equal(look(f, cases[i], "/a", NULL), TD_ERR_INVALID);
        assert_int_equal(f->err.code, TD_ERR_INVALID);
        assert_non_null(strstr(f->err.text, "not JSON"));
        assert_int_equal(f->token.offset, 12345);
    }
    look(f, "{\"a\":1,}", "/a", NULL);
    assert_string_equal(f->err.text, "not JSON: a key is expected, at byte 7");
    assert_int_equal(tdi_json_pointer(TD_STR_NONE, TD_STR_LIT(""), &f->arena, &f->token, NULL),
                     TD_ERR_INVALID);
}

static void pointers_are_checked(void **state)
{
    struct fixture *f = *state;
    static const char *const good[] = {"", "/", "//", "/a", "/~0", "/~1", "/~0~1/b", "/\xc3\xa4"};
    static const char *const bad[] = {"a",     "a/b",  "#/a", "/~",   "/~2",
                                      "/a~/b", "/~~0", " /a", "/\xff"};
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_true(tdi_json_pointer_valid(tdi_str(good[i])));
    }
    assert_true(tdi_json_pointer_valid(TD_STR_NONE));
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(tdi_json_pointer_valid(tdi_str(bad[i])));
        assert_int_equal(look(f, "{}", bad[i], NULL), TD_ERR_USAGE);
    }
}

static void depth_is_limited_on_both_sides(void **state)
{
    struct fixture *f = *state;
    char doc[4 * TDI_JSON_DEPTH_MAX];
    char pointer[4 * TDI_JSON_DEPTH_MAX];
    memset(doc, '[', TDI_JSON_DEPTH_MAX);
    doc[TDI_JSON_DEPTH_MAX] = '7';
    memset(doc + TDI_JSON_DEPTH_MAX + 1, ']', TDI_JSON_DEPTH_MAX);
    doc[2 * TDI_JSON_DEPTH_MAX + 1] = '\0';
    for (size_t i = 0; i < TDI_JSON_DEPTH_MAX + 1; i++) {
        memcpy(pointer + 2 * i, "/0", 3);
    }
    expect_none(f, doc, pointer); /* one step too many */
    pointer[2 * TDI_JSON_DEPTH_MAX] = '\0';
    expect(f, doc, pointer, "7");
    pointer[2 * TDI_JSON_DEPTH_MAX - 2] = '\0';
    expect(f, doc, pointer, "[7]");
    memset(doc, '[', TDI_JSON_DEPTH_MAX + 1);
    assert_int_equal(look(f, doc, "/0", NULL), TD_ERR_INVALID);
    assert_non_null(strstr(f->err.text, "too deeply"));
}

static void memory_is_needed_for_tildes_only(void **state)
{
    struct fixture *f = *state;
    struct tdi_arena none;
    tdi_arena_init(&none, 1);
    assert_int_equal(
        tdi_json_pointer(TD_STR_LIT("{\"a\":1}"), TD_STR_LIT("/a"), &none, &f->token, &f->err),
        TD_OK);
    assert_int_equal(
        tdi_json_pointer(TD_STR_LIT("{\"~\":1}"), TD_STR_LIT("/~0"), &none, &f->token, &f->err),
        TD_ERR_NOMEM);
    tdi_arena_release(&none);
}

static void long_pointer_is_cut_in_the_sentence(void **state)
{
    struct fixture *f = *state;
    char pointer[2000];
    memset(pointer, 'x', sizeof(pointer));
    pointer[0] = '/';
    pointer[sizeof(pointer) - 1] = '\0';
    expect_none(f, "{}", pointer);
    assert_in_range(strlen(f->err.text), 100, 150);
}

/* ---- against a slow model: build a random document, remember where each path leads -------- */

struct build {
    struct tdi_random random;
    char doc[4000];
    size_t len;
    char paths[40][64];
    char values[40][8];
    size_t count;
};

static void add(struct build *b, const char *s)
{
    size_t n = strlen(s);
    assert_true(b->len + n < sizeof(b->doc));
    memcpy(b->doc + b->len, s, n + 1);
    b->len += n;
}

/* Levels of objects and arrays with distinct keys; every leaf is a distinct number. */
static void build_value(struct build *b, const char *path, int level)
{
    uint64_t kind =
        level == 0 ? 1 + tdi_random_below(&b->random, 2) : tdi_random_below(&b->random, 3);
    if (level == 3 || kind == 0 || b->count > 30) {
        assert_true(b->count < COUNT(b->paths));
        snprintf(b->paths[b->count], sizeof(b->paths[0]), "%s", path);
        snprintf(b->values[b->count], sizeof(b->values[0]), "%zu", b->count + 100);
        add(b, b->values[b->count++]);
        return;
    }
    uint64_t n = tdi_random_below(&b->random, 3) + (level == 0 ? 1 : 0);
    add(b, kind == 1 ? "{" : "[");
    for (uint64_t i = 0; i < n; i++) {
        char key[8];
        char inner[64];
        snprintf(key, sizeof(key), "%c", (char)('0' + i));
        snprintf(inner, sizeof(inner), "%.40s/%s", path, key);
        add(b, i > 0 ? ", " : "");
        if (kind == 1) {
            add(b, "\"");
            add(b, key);
            add(b, "\" :");
        }
        build_value(b, inner, level + 1);
    }
    add(b, kind == 1 ? "}" : " ]");
}

static void every_leaf_is_found(void **state)
{
    struct fixture *f = *state;
    for (uint64_t run = 0; run < 500; run++) {
        struct build b = {.len = 0};
        tdi_random_seed(&b.random, run);
        build_value(&b, "", 0);
        for (size_t i = 0; i < b.count; i++) {
            expect(f, b.doc, b.paths[i], b.values[i]);
            char beyond[80];
            snprintf(beyond, sizeof(beyond), "%s/0", b.paths[i]);
            expect_none(f, b.doc, beyond);
        }
        expect_none(f, b.doc, "/3");
        tdi_arena_reset(&f->arena);
    }
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(examples_of_the_rfc),
        WITH(every_kind_of_value),
        WITH(array_indices_are_strict),
        WITH(deep_paths),
        WITH(last_duplicate_counts),
        WITH(escaped_keys_match),
        WITH(whole_text_is_validated),
        WITH(pointers_are_checked),
        WITH(depth_is_limited_on_both_sides),
        WITH(memory_is_needed_for_tildes_only),
        WITH(long_pointer_is_cut_in_the_sentence),
        WITH(every_leaf_is_found),
    };
    return cmocka_run_group_tests_name("base/json_pointer", tests, NULL, NULL);
}
