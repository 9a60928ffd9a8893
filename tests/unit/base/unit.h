/* What every unit test of src/base needs: cmocka, and text without room behind it. */
#ifndef TESTS_UNIT_BASE_UNIT_H
#define TESTS_UNIT_BASE_UNIT_H

/* cmocka.h wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tidings/types.h"

/* A heap block of exactly len bytes, so that AddressSanitizer sees the first byte read too many.
 * The caller frees it. */
static inline char *exact_copy(const void *data, size_t len)
{
    assert_true(len <= PTRDIFF_MAX);
    char *p = malloc(len > 0 ? len : 1);
    assert_non_null(p);
    if (len > 0) {
        memcpy(p, data, len);
    }
    return p;
}

/* assert_string_equal for text that is not terminated. */
#define assert_str(got, want)                                                                      \
    do {                                                                                           \
        const struct td_str got_ = (got);                                                          \
        assert_non_null(got_.data);                                                                \
        assert_int_equal(got_.len, strlen(want));                                                  \
        assert_memory_equal(got_.data, (want), got_.len);                                          \
    } while (0)

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
