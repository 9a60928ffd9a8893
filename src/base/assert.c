/*
 * A broken promise of our own code: say where, leave a core.
 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void tdi_assert_fail(const char *cond, const char *file, int line, const char *func)
{
    fprintf(stderr, "tidings: internal error: %s:%d: %s: assertion failed: %s\n", file, line, func,
            cond);
    fflush(stderr);
    abort();
}
