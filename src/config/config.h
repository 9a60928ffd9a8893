/*
 * The configuration: one YAML file and the environment become plain structs, or a list of mistakes
 * that point into the file. Everything comes from one table of parameters (params.h): parser,
 * limits, `tidings help config` and the reference page.
 *
 * Must not know: drivers, how anything is run. Sees base and the pure functions of core.
 *
 * Invariants of a loaded configuration: every reference is resolved (a topic has its broker, an
 * outbox, a consumer and a topic their partners) and never NULL; arrays are in the order of the
 * file; all texts are terminated and live in the arena that was handed in, as does everything else.
 */
#ifndef TDI_CONFIG_CONFIG_H
#define TDI_CONFIG_CONFIG_H

#include "core/order.h"
#include "core/retry.h"
#include "tidings/error.h"
#include "tidings/handler.h"
#include "tidings/types.h"

struct tdi_arena;
struct tdi_buf;
struct tdi_config_node; /* the file as a tree with positions; tree.h */

#define TDI_CONFIG_FILE_BYTES_MAX ((size_t)1024 * 1024)
#define TDI_CONFIG_DIAGNOSTICS_MAX 100

/* ---- diagnostics ------------------------------------------------------------------------ */

enum tdi_severity {
    TDI_SEVERITY_MISTAKE, /* the file is refused: 78 */
    TDI_SEVERITY_FINDING, /* `check` ends with 1 */
    TDI_SEVERITY_NOTE,    /* said, no more */
};

/* Where something was written. Columns and length count characters, from 1. */
struct tdi_source_pos {
    struct td_str variable; /* not absent: it came from this environment variable */
    uint32_t line;          /* 0: nowhere; the whole file is meant */
    uint32_t column;
    uint32_t length; /* of the underline */
};

struct tdi_diagnostic {
    struct tdi_source_pos pos;
    enum tdi_severity severity;
    struct td_str text; /* one sentence; further lines are indented when printed */
};

struct tdi_diagnostics {
    struct tdi_arena *arena; /* borrowed */
    struct td_str file;      /* as it was named; absent: none was found */
    struct td_str source;    /* the text of the file, for the excerpts */
    struct tdi_diagnostic *items;
    size_t count;
    size_t cap;
    size_t dropped;  /* beyond TDI_CONFIG_DIAGNOSTICS_MAX or out of memory */
    size_t mistakes; /* dropped ones included */
    size_t findings;
};

void tdi_diagnostics_init(struct tdi_diagnostics *d, struct tdi_arena *a);
void tdi_diagnostics_add(struct tdi_diagnostics *d, enum tdi_severity severity,
                         struct tdi_source_pos pos, const char *fmt, ...) TD_PRINTF(4, 5);
/* All in the order of the file, each `FILE:LINE:COLUMN: sentence` with its line and an underline;
 * closes with "3 mistakes". color: escape sequences for the place and the underline. */
void tdi_diagnostics_print(const struct tdi_diagnostics *d, bool color, struct tdi_buf *out);

/* ---- the configuration ------------------------------------------------------------------ */

struct tdi_config_store {
    struct td_str name;
    struct td_str driver;   /* "sqlite" */
    struct td_str location; /* path, resolved against the folder of the file */
};

struct tdi_config_broker {
    struct td_str name;
    struct td_str driver;   /* "embedded" */
    struct td_str location; /* folder, resolved likewise */
};

enum tdi_config_unrouted {
    TDI_UNROUTED_DEAD,  /* a message that no queue takes is parked as `unroutable` */
    TDI_UNROUTED_COUNT, /* it is counted and gone; not in this version */
};

struct tdi_config_topic {
    struct td_str name;
    const struct tdi_config_broker *broker;
    struct td_str owner; /* absent: not said */
    bool key_required;
    struct td_str *types; /* patterns, at least one */
    size_t types_count;
    td_time_us retention_us; /* 0: the broker's */
    int32_t partitions;      /* 0: the broker's */
    uint64_t max_bytes;
    enum tdi_config_unrouted unrouted;
};

struct tdi_config_outbox {
    struct td_str name;
    const struct tdi_config_store *store;
    td_time_us keep_us;
};

enum tdi_config_start {
    TDI_START_EARLIEST,
};

struct tdi_config_breaker {
    int32_t failures;      /* opens at so many ... */
    int32_t share_percent; /* ... that are this share of the runs ... */
    td_time_us window_us;  /* ... within this time */
};

struct tdi_config_consumer {
    struct td_str name;      /* short */
    struct td_str full_name; /* SERVICE.NAME */
    const struct tdi_config_topic *topic;
    const struct tdi_config_store *store;
    struct td_str *types; /* patterns; none: everything of the topic */
    size_t types_count;

    struct td_str handler;     /* name of the driver: "sql" or "exec" */
    struct td_sql_step *steps; /* sql */
    size_t steps_count;
    struct td_str *command; /* exec: argv */
    size_t command_count;
    struct td_str directory; /* exec: the folder of the file unless said; empty: ours */
    int32_t workers;
    td_time_us timeout_us;
    struct td_param *params;
    size_t params_count;
    bool params_missing_null;
    struct td_classify *classify;
    size_t classify_count;

    struct tdi_retry_policy retry;
    enum tdi_order order;
    enum tdi_on_dead on_dead;
    struct tdi_config_breaker breaker;
    int32_t prefetch;
    int32_t batch;
    enum tdi_config_start start;
    td_time_us inbox_keep_us;
    td_time_us parked_keep_us;
    int64_t parked_max; /* rows */
};

enum tdi_config_log_format {
    TDI_CONFIG_LOG_AUTO, /* lines on a terminal, JSON elsewhere */
    TDI_CONFIG_LOG_TEXT,
    TDI_CONFIG_LOG_JSON,
};

enum tdi_config_log_level { /* in the order of enum tdi_log_level */
    TDI_CONFIG_LOG_ERROR,
    TDI_CONFIG_LOG_WARN,
    TDI_CONFIG_LOG_INFO,
    TDI_CONFIG_LOG_DEBUG,
};

struct tdi_config {
    struct td_str path;   /* of the file */
    struct td_str folder; /* of the file; empty: the working directory */
    struct td_str service;

    struct tdi_config_store *stores;
    size_t stores_count;
    struct tdi_config_broker *brokers;
    size_t brokers_count;
    struct tdi_config_topic *topics;
    size_t topics_count;
    struct tdi_config_outbox *outboxes;
    size_t outboxes_count;
    struct tdi_config_consumer *consumers;
    size_t consumers_count;

    enum tdi_config_log_level log_level;
    enum tdi_config_log_format log_format;
    td_time_us drain_deadline_us;

    const struct tdi_config_node *root; /* for tdi_config_at() */
};

/**
 * Read, bind and cross-check a configuration file.
 *
 * All mistakes are collected. The file is the one named by @p path or, where that is NULL, the first
 * of $TIDINGS_CONFIG, ./tidings.yaml, $XDG_CONFIG_HOME/tidings/tidings.yaml (or below ~/.config) and
 * /etc/tidings/tidings.yaml.
 *
 * @param path         the value of --config, or NULL
 * @param env          "NAME=value" texts ending with NULL, as environ
 * @param arena        owns the result and the texts of the diagnostics
 * @param ret_config   set on success
 * @param diagnostics  initialised by the caller; filled also on success (findings, notes)
 *
 * Errors:    TD_ERR_CONFIG: mistakes, see @p diagnostics, or no file; TD_ERR_NOMEM, TD_ERR_LIMIT
 * Ownership: everything lives in @p arena
 * Threads:   any, one at a time per arena
 * Blocking:  reads one file
 * Since:     0.1
 */
TD_NODISCARD enum td_err tdi_config_load(const char *path, const char *const *env,
                                         struct tdi_arena *arena,
                                         const struct tdi_config **ret_config,
                                         struct tdi_diagnostics *diagnostics, struct td_error *err);

/* Where `consumers.crm.inbox.keep` was written: the key; or the nearest thing above it that was. */
struct tdi_source_pos tdi_config_at(const struct tdi_config *c, const char *path);

const struct tdi_config_store *tdi_config_store_find(const struct tdi_config *c, struct td_str n);
const struct tdi_config_broker *tdi_config_broker_find(const struct tdi_config *c, struct td_str n);
const struct tdi_config_topic *tdi_config_topic_find(const struct tdi_config *c, struct td_str n);
const struct tdi_config_outbox *tdi_config_outbox_find(const struct tdi_config *c, struct td_str n);
/* Short or full name. */
const struct tdi_config_consumer *tdi_config_consumer_find(const struct tdi_config *c,
                                                           struct td_str n);

/* ---- help ------------------------------------------------------------------------------- */

/* `tidings help config [KEY]`: everything, or the keys at and below KEY (`consumers.points.retry`
 * and `consumers.*.retry` are the same; the last word alone does too). false: no such key; out then
 * holds one sentence with a proposal. */
bool tdi_config_help(struct tdi_buf *out, struct td_str key);
/* docs/reference/configuration.md */
void tdi_config_markdown(struct tdi_buf *out);

#endif
