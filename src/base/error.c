/*
 * The error table made into functions. Must not know: who reports or prints an error.
 */
#include "tidings/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct err_row {
    const char *name;
    enum td_err_class class_;
    int exit_code;
};

static const struct err_row rows[] = {[TD_OK] = {"ok", TD_CLASS_RETRY, 0},
#define TD_ERR_ROW(code, class_, exit_, name, text)                                                \
    [TD_ERR_##code] = {name, TD_CLASS_##class_, exit_},
                                      TD_ERR_TABLE(TD_ERR_ROW)
#undef TD_ERR_ROW
};

/* Codes come from drivers in loadable modules too, so an unknown one is possible. */
static bool known(enum td_err code)
{
    return (size_t)code < sizeof(rows) / sizeof(rows[0]);
}

enum td_err td_error_set(struct td_error *err, enum td_err code, const char *fmt, ...)
{
    if (err == NULL) {
        return code;
    }
    *err = (struct td_error){.code = code, .class_ = td_err_class_of(code)};
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    return code;
}

const char *td_err_name(enum td_err code)
{
    return known(code) ? rows[code].name : "unknown";
}

enum td_err_class td_err_class_of(enum td_err code)
{
    return known(code) ? rows[code].class_ : TD_CLASS_FATAL;
}

int td_err_exit_code(enum td_err code)
{
    return known(code) ? rows[code].exit_code : 70;
}
