/*
 * The error type: one code with a class that says what the caller may do next, and one English
 * sentence that is complete enough to print. Lives with the caller, needs no heap.
 *
 * Invariant: a function that returns TD_OK leaves *err untouched; any other return fills it.
 */
#ifndef TIDINGS_ERROR_H
#define TIDINGS_ERROR_H

#include "tidings/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What may follow.
 *   RETRY      certainly not done; the same call may succeed later
 *   UNKNOWN    may have been done; close the session, look, try again under the same id
 *   PERMANENT  certainly not done, and the same input will fail again
 *   FATAL      the session (or the process) can do nothing more; only close may follow
 */
enum td_err_class {
    TD_CLASS_RETRY,
    TD_CLASS_UNKNOWN,
    TD_CLASS_PERMANENT,
    TD_CLASS_FATAL,
};

/* X(code, usual class, exit code of sysexits, name, what it means) */
#define TD_ERR_TABLE(X)                                                                            \
    X(NOMEM, RETRY, 70, "no-memory", "memory is exhausted")                                        \
    X(INTERNAL, FATAL, 70, "internal", "a promise of our own code is broken")                      \
    X(INVALID, PERMANENT, 65, "invalid", "the data does not have the form it must have")           \
    X(USAGE, PERMANENT, 64, "usage", "the call or command line is wrong")                          \
    X(CONFIG, PERMANENT, 78, "configuration", "the configuration is wrong")                        \
    X(LIMIT, PERMANENT, 65, "limit", "a stated limit is exceeded")                                 \
    X(TOO_LARGE, PERMANENT, 65, "too-large", "the message is larger than the topic allows")        \
    X(UNROUTABLE, PERMANENT, 65, "unroutable", "no topic or queue takes the message")              \
    X(DENIED, PERMANENT, 77, "denied", "not permitted")                                            \
    X(NOT_FOUND, PERMANENT, 1, "not-found", "what was named does not exist")                       \
    X(CONFLICT, PERMANENT, 65, "conflict", "it exists already, or is otherwise than expected")     \
    X(STATEMENT, PERMANENT, 65, "statement", "the database refused a statement; see sqlstate")     \
    X(SCHEMA, FATAL, 78, "schema", "tables are missing, older or newer than this version")         \
    X(FOREIGN, FATAL, 78, "foreign", "the file or database belongs to something else")             \
    X(CORRUPT, FATAL, 74, "corrupt", "stored data is damaged")                                     \
    X(REBUILT, PERMANENT, 78, "rebuilt", "the outbox is not the one that the position belongs to") \
    X(READ_ONLY, FATAL, 77, "read-only", "cannot be written")                                      \
    X(CANNOT_CREATE, FATAL, 73, "cannot-create", "a file cannot be created")                       \
    X(IO, FATAL, 74, "io", "reading or writing failed")                                            \
    X(DISK_FULL, RETRY, 74, "disk-full", "no space is left")                                       \
    X(UNAVAILABLE, RETRY, 69, "unavailable", "the peer cannot be reached")                         \
    X(BUSY, RETRY, 75, "busy", "somebody else holds it at the moment")                             \
    X(OWNED, RETRY, 75, "owned", "another process owns it")                                        \
    X(FENCED, RETRY, 75, "fenced", "a newer owner has taken over")                                 \
    X(TIMEOUT, RETRY, 75, "timeout", "the deadline passed; certainly not done")                    \
    X(INTERRUPTED, RETRY, 75, "interrupted", "the call was interrupted")                           \
    X(OUTCOME_UNKNOWN, UNKNOWN, 75, "outcome-unknown", "it may or may not have been done")         \
    X(CLOSED, FATAL, 69, "closed", "the session is closed")

enum td_err {
    TD_OK = 0,
#define TD_ERR_ENUM(code, class_, exit_, name, text) TD_ERR_##code,
    TD_ERR_TABLE(TD_ERR_ENUM)
#undef TD_ERR_ENUM
};

#define TD_ERROR_TEXT_MAX 320

struct td_error {
    enum td_err code;
    enum td_err_class class_;     /* usually the table's; a driver may say otherwise */
    td_time_us retry_after_us;    /* 0: no wish */
    char driver[16];              /* "sqlite", "embedded", ... or empty */
    char op[32];                  /* slot or operation that failed */
    char peer[48];                /* the peer's own code as text, e.g. SQLITE_BUSY */
    char sqlstate[6];             /* five characters, or empty; SQLite's codes are mapped */
    char text[TD_ERROR_TEXT_MAX]; /* one sentence: what, why, what to do; no payload, no secret */
};

/**
 * Fill @p err with a code and a sentence.
 *
 * @param err   may be NULL
 * @param code  not TD_OK; its usual class is set too
 * @param fmt   printf format of the sentence; longer text is cut
 * @return      @p code, so that a caller can write `return td_error_set(...)`
 *
 * Errors:    none
 * Ownership: everything stays the caller's
 * Threads:   any
 * Blocking:  none
 * Since:     0.1
 */
enum td_err td_error_set(struct td_error *err, enum td_err code, const char *fmt, ...)
    TD_PRINTF(3, 4);

/**
 * The name of a code, such as "disk-full".
 *
 * Errors:    an unknown code gives "unknown"
 * Ownership: static text
 * Threads:   any
 * Blocking:  none
 * Since:     0.1
 */
const char *td_err_name(enum td_err code);

/**
 * The usual class of a code.
 *
 * Errors:    TD_OK gives TD_CLASS_RETRY, which nobody should ask
 * Ownership: none
 * Threads:   any
 * Blocking:  none
 * Since:     0.1
 */
enum td_err_class td_err_class_of(enum td_err code);

/**
 * The exit code of sysexits(3) that a command ends with for this code; 0 for TD_OK.
 *
 * Errors:    none
 * Ownership: none
 * Threads:   any
 * Blocking:  none
 * Since:     0.1
 */
int td_err_exit_code(enum td_err code);

#ifdef __cplusplus
}
#endif

#endif
