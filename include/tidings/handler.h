/*
 * The handler interface: what a consumer does with a message. Inside handlers run in the inbox
 * transaction; outside handlers are started, polled and cancelled, with no transaction open.
 *
 * Rules common to all slots: as in store.h. A verdict is data; an error means that the handler
 * itself could not work (and says by its class whether it may later).
 *
 * Must not know: brokers, configuration files, who calls.
 */
#ifndef TIDINGS_HANDLER_H
#define TIDINGS_HANDLER_H

#include "tidings/error.h"
#include "tidings/message.h"
#include "tidings/store.h"
#include "tidings/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_handler;

#define TD_HANDLER_ABI 1

enum td_handler_place {
    TD_HANDLER_INSIDE,
    TD_HANDLER_OUTSIDE,
};

enum td_verdict_kind {
    TD_VERDICT_OK,
    TD_VERDICT_RETRY,
    TD_VERDICT_DEAD,
    TD_VERDICT_DROP,
};

#define TD_REASON_TEXT_MAX 512

struct td_verdict {
    enum td_verdict_kind kind;
    enum td_dead_code code; /* DEAD: REJECTED, SCHEMA, ...; RETRY: NONE */
    td_time_us after_us;    /* RETRY: the handler's wish; 0: none */
    bool broken;            /* what the handler needs seems down; the breaker counts it */
    bool uncharged;         /* RETRY: costs no attempt (deadlock, serialization) */
    bool verdictless;       /* RETRY: the run ended without an answer (worker died) */
    struct td_str reason;   /* these and emit live in the arena of the call */
    struct td_str error_type;
    struct td_str error_message;
    const struct td_message *emit; /* events for the store's outbox; ids and causation set */
    size_t emit_count;
};

/* One message for a handler. */
struct td_run {
    uint64_t token; /* the caller's */
    const struct td_message *message;
    struct td_str consumer; /* full name */
    int32_t attempt;        /* 1 for the first run */
    int64_t fence;          /* of the shard; 0: unordered */
    td_time_us deadline_us; /* clock.mono; outside handlers */
};

struct td_run_result {
    uint64_t token;
    struct td_verdict verdict;
};

/* sql: one statement with what its result means. Rows changed 0, by default, is OK. */
struct td_sql_step {
    struct td_str run;           /* one statement, :name parameters */
    struct td_str on;            /* type pattern; empty: every type */
    bool rows_0_set;             /* `rows: {0: ...}` was given */
    enum td_verdict_kind rows_0; /* verdict when no row was changed */
};

/* A named parameter and where it comes from. */
struct td_param {
    struct td_str name;
    struct td_str from; /* /pointer (RFC 6901), $attribute, $header.NAME */
};

/* Overrides the built-in classification: SQLSTATE (or its first two characters), exit code. */
struct td_classify {
    struct td_str match;
    enum td_verdict_kind verdict;
};

struct td_handler_options {
    struct td_str consumer;          /* full name */
    const struct td_sql_step *steps; /* sql */
    size_t steps_count;
    const struct td_param *params;
    size_t params_count;
    bool params_missing_null;     /* a missing pointer is NULL instead of `schema`, dead */
    const struct td_str *command; /* exec: argv */
    size_t command_count;
    struct td_str directory; /* exec: working directory; empty: ours */
    int32_t workers;         /* exec */
    td_time_us timeout_us;   /* exec: one run */
    const struct td_classify *classify;
    size_t classify_count;
    struct td_clock clock;
    struct tdi_random *random;
    struct tdi_log *log; /* for stderr and stray lines of workers; may be NULL */
};

struct td_handler_driver {
    uint32_t abi;
    uint32_t struct_size;
    const char *name; /* "sql", "exec", "http", "c" */
    enum td_handler_place place;
    size_t session_size;

    /* Check the options; start nothing. CONFIG when they cannot work. */
    enum td_err (*open)(struct td_handler *h, const struct td_handler_options *o,
                        struct td_error *err);
    /* Outside: asks workers to end and kills those that have not by the deadline (clock.mono). */
    void (*close)(struct td_handler *h, td_time_us deadline_us);

    /* -- inside ---- */
    /* Prepare statements on this session of the store; again after each new session. */
    enum td_err (*prepare)(struct td_handler *h, struct td_store *store, struct td_error *err);
    /* Run all in order in the open transaction. verdicts[i] for runs[i]. A verdict other than OK
     * ends the run: *ret_done = how many have a verdict (that one is the last). Something of it and
     * of later messages may be in the transaction, so the caller undoes all that this call did, and
     * then runs singly if there were several. */
    enum td_err (*run)(struct td_handler *h, struct td_store *store, const struct td_run *runs,
                       size_t count, struct tdi_arena *a, struct td_verdict *ret_verdicts,
                       size_t *ret_done, struct td_error *err);

    /* -- outside ---- */
    /* Start a run; the message must live until its result is polled or it is cancelled. BUSY: no
     * worker is free. UNAVAILABLE: no worker can be started now (counts as broken). */
    enum td_err (*start)(struct td_handler *h, const struct td_run *run, struct td_error *err);
    /* Ended runs, time-outs included; waits until one is there or until the deadline. */
    enum td_err (*poll)(struct td_handler *h, td_time_us deadline_us, struct tdi_arena *a,
                        struct td_run_result *ret, size_t max, size_t *ret_count,
                        struct td_error *err);
    /* The lease has ended: kill what runs under this token; no result will come. */
    void (*cancel)(struct td_handler *h, uint64_t token);
    /* How many more start() would take now. */
    size_t (*free_slots)(struct td_handler *h);
};

struct td_handler {
    const struct td_handler_driver *driver;
};

#ifdef __cplusplus
}
#endif

#endif
