/*
 * For the tests of the configuration: a file in a folder of its own, loaded, with what was said.
 */
#ifndef TEST_CONFIG_SUPPORT_H
#define TEST_CONFIG_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "config/config.h"

struct loaded {
    struct tdi_arena arena;
    struct tdi_diagnostics diagnostics;
    struct tdi_buf said; /* as it is printed */
    const struct tdi_config *config;
    enum td_err code;
    struct td_error error;
};

/* The folder that the test works in, made and entered by the first call, removed by the last. */
int test_folder_enter(void **state);
int test_folder_leave(void **state);
void test_write(const char *name, const void *data, size_t len);

/* Load `text` as tidings.yaml; env may be NULL. */
struct loaded test_load(const char *text, const char *const *env);
/* Load the file of that name (NULL: whichever is found). */
struct loaded test_load_file(const char *path, const char *const *env);
void test_loaded_release(struct loaded *l);

/* Is loaded without a mistake. */
struct loaded test_load_good(const char *text, const char *const *env);
/* Is refused, and the output holds this. */
void test_refused(const char *text, const char *const *env, const char *says);
void test_contains(struct td_str text, const char *part);

/* A good file that uses every part. */
extern const char test_full[];

#define assert_str(s, cstr) assert_string_equal((s).data, (cstr))

#endif
