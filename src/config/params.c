/*
 * The table, and how to walk it. A new parameter is a row here, a field in config.h and, if it can
 * contradict another one, a check in check.c.
 *
 * Invariants: a parent stands before its children; a fallback is a valid value (a test binds all).
 */
#include "config/params.h"

#include <string.h>

#include "base/str.h"

#define CONFIG(field) TDI_OWNER_CONFIG, offsetof(struct tdi_config, field)
#define STORE(field) TDI_OWNER_STORE, offsetof(struct tdi_config_store, field)
#define BROKER(field) TDI_OWNER_BROKER, offsetof(struct tdi_config_broker, field)
#define TOPIC(field) TDI_OWNER_TOPIC, offsetof(struct tdi_config_topic, field)
#define OUTBOX(field) TDI_OWNER_OUTBOX, offsetof(struct tdi_config_outbox, field)
#define CONSUMER(field) TDI_OWNER_CONSUMER, offsetof(struct tdi_config_consumer, field)
#define STEP(field) TDI_OWNER_STEP, offsetof(struct td_sql_step, field)

#define REQUIRED TDI_PARAM_REQUIRED
#define RELOAD TDI_PARAM_RELOAD

/* clang-format off */
#define GROUP(path, text) \
    {path, TDI_PARAM_GROUP, TDI_OWNER_CONFIG, 0, NULL, NULL, NULL, NULL, text, NULL, 0}
#define NAMED(path, owner, text, example) \
    {path, TDI_PARAM_NAMED, owner, 0, NULL, NULL, NULL, NULL, text, example, 0}
#define LEAF(path, type, field, fallback, text, example, flags) \
    {path, TDI_PARAM_##type, field, fallback, NULL, NULL, NULL, text, example, flags}
#define RANGE(path, type, field, fallback, min, max, text, flags) \
    {path, TDI_PARAM_##type, field, fallback, min, max, NULL, text, NULL, flags}
#define CHOICE(path, type, field, fallback, choices, text, flags) \
    {path, TDI_PARAM_##type, field, fallback, NULL, NULL, choices, text, NULL, flags}
#define LATER(path, text) \
    {path, TDI_PARAM_TEXT, TDI_OWNER_CONFIG, 0, NULL, NULL, NULL, NULL, text, NULL, TDI_PARAM_LATER}

static const struct tdi_param_def params[] = {
    LEAF("service", NAME, CONFIG(service), NULL,
         "Prefix of consumers, queues and groups, and source of what is published.", "shop",
         REQUIRED),

    NAMED("stores", TDI_OWNER_STORE,
          "The SQL databases that keep outbox, inbox and parked messages.",
          "shop: { driver: sqlite, path: shop.db }"),
    GROUP("stores.*", "One database."),
    CHOICE("stores.*.driver", DRIVER, STORE(driver), "sqlite", "sqlite|-postgres|-mysql|-mariadb",
           "Which kind of database.", 0),
    LEAF("stores.*.path", PATH, STORE(location), NULL,
         "File of the database, relative to the folder of this file.", "shop.db", REQUIRED),
    LATER("stores.*.url", "Address of a database server."),
    LATER("stores.*.url_file", "File that holds the address."),
    LATER("stores.*.schema", "Schema of our tables."),
    LATER("stores.*.prefix", "Prefix of our tables."),

    NAMED("brokers", TDI_OWNER_BROKER, "The transports between services.",
          "main: { driver: embedded, path: broker.d }"),
    GROUP("brokers.*", "One broker."),
    CHOICE("brokers.*.driver", DRIVER, BROKER(driver), "embedded",
           "embedded|-rabbitmq|-kafka|-rocketmq|-redis|-sqs|-postgres", "Which kind of broker.", 0),
    LEAF("brokers.*.path", PATH, BROKER(location), NULL,
         "Folder of the embedded broker, relative to the folder of this file.", "broker.d",
         REQUIRED),
    LATER("brokers.*.url", "Address of a broker."),
    LATER("brokers.*.url_file", "File that holds the address."),

    NAMED("topics", TDI_OWNER_TOPIC,
          "The catalogue: what is not here is neither created nor published to.",
          "orders: { key: required, types: [\"order.*\"] }"),
    GROUP("topics.*", "One topic."),
    LEAF("topics.*.broker", BROKER, TOPIC(broker), NULL,
         "The broker that carries it; may be left out where there is one.", "main", 0),
    LEAF("topics.*.owner", TEXT, TOPIC(owner), NULL, "Who answers for it; for people.",
         "order-team", 0),
    CHOICE("topics.*.key", FLAG, TOPIC(key_required), "optional", "optional|required",
           "Must each message have a partition key?", 0),
    LEAF("topics.*.types", PATTERNS, TOPIC(types), NULL,
         "Event types that belong to it: `*` is one word, `#` any number.", "[\"order.*\"]",
         REQUIRED),
    RANGE("topics.*.retention", DURATION, TOPIC(retention_us), NULL, "1s", "3650d",
          "How long the broker keeps messages; by default as the broker does. Without meaning on the"
          " embedded broker.", 0),
    RANGE("topics.*.partitions", INT, TOPIC(partitions), NULL, "1", "1024",
          "Number of partitions; by default as the broker does. Without meaning on the embedded"
          " broker.", 0),
    RANGE("topics.*.max_bytes", SIZE, TOPIC(max_bytes), "1MiB", "1B", "64MiB",
          "Largest body.", 0),
    CHOICE("topics.*.unrouted", CHOICE, TOPIC(unrouted), "dead", "dead|-count",
           "What becomes of a message that no queue takes: a dead letter of the relay.", 0),
    LATER("topics.*.rabbitmq", "Names of an existing topology."),
    LATER("topics.*.kafka", "Names of an existing topology."),
    LATER("topics.*.rocketmq", "Names of an existing topology."),

    NAMED("outboxes", TDI_OWNER_OUTBOX,
          "The outbox tables, each with a relay that publishes from it.", "shop: { keep: 7d }"),
    GROUP("outboxes.*", "One outbox."),
    LEAF("outboxes.*.store", STORE, OUTBOX(store), NULL,
         "The store that holds the table; may be left out where there is one.", "shop", 0),
    RANGE("outboxes.*.keep", DURATION, OUTBOX(keep_us), "7d", "1s", "3650d",
          "How long published rows stay.", RELOAD),
    LATER("outboxes.*.columns", "Columns of a table of the application that is the outbox."),
    LATER("outboxes.*.preset", "A known shape of such a table."),
    LATER("outboxes.*.mark", "How such a table shows what is published."),

    NAMED("consumers", TDI_OWNER_CONSUMER,
          "Subscriptions, each with a handler, an inbox and parked messages.", NULL),
    GROUP("consumers.*", "One consumer; its full name is SERVICE.NAME."),
    LEAF("consumers.*.from", TOPIC, CONSUMER(topic), NULL, "The topic.", "orders", REQUIRED),
    LEAF("consumers.*.types", PATTERNS, CONSUMER(types), NULL,
         "Event types that it wants; everything of the topic by default.", "[\"order.paid\"]", 0),
    LEAF("consumers.*.store", STORE, CONSUMER(store), NULL,
         "The store of inbox, parked messages and effect; may be left out where there is one.",
         "shop", 0),
    {"consumers.*.handler", TDI_PARAM_GROUP, TDI_OWNER_CONSUMER, 0, NULL, NULL, NULL, NULL,
     "What is done with a message: one of `sql`, `exec`.", NULL, REQUIRED},
    {"consumers.*.handler.sql", TDI_PARAM_ITEMS, TDI_OWNER_CONSUMER, 0, NULL, NULL, NULL, NULL,
     "SQL statements that run in the transaction of the inbox.", NULL, 0},
    GROUP("consumers.*.handler.sql.[]", "One statement."),
    LEAF("consumers.*.handler.sql.[].run", TEXT, STEP(run), NULL,
         "The statement, with :name parameters.", "UPDATE stock SET n = n - 1 WHERE id = :item",
         REQUIRED),
    LEAF("consumers.*.handler.sql.[].on", PATTERN, STEP(on), NULL,
         "Only for this type; every type by default.", "order.paid", 0),
    GROUP("consumers.*.handler.sql.[].rows", "What a number of changed rows means."),
    CHOICE("consumers.*.handler.sql.[].rows.0", CHOICE, STEP(rows_0), "ok", "ok|retry|dead",
           "The verdict when no row was changed.", 0),
    GROUP("consumers.*.handler.exec", "Worker processes that get one event a line."),
    LEAF("consumers.*.handler.exec.command", COMMAND, CONSUMER(command), NULL,
         "The program and its arguments; no shell.", "[python3, mail.py]", REQUIRED),
    LEAF("consumers.*.handler.exec.directory", PATH, CONSUMER(directory), NULL,
         "Working folder of the workers; the folder of this file by default.", "workers", 0),
    RANGE("consumers.*.handler.exec.workers", INT, CONSUMER(workers), "1", "1", "256",
          "Number of processes.", 0),
    RANGE("consumers.*.handler.exec.timeout", DURATION, CONSUMER(timeout_us), "30s", "10ms", "1d",
          "Longest run of one message.", 0),
    LATER("consumers.*.handler.http", "A POST to an HTTP endpoint."),
    LATER("consumers.*.handler.c", "A function of a loaded library."),
    LEAF("consumers.*.params", SOURCES, CONSUMER(params), NULL,
         "Where the :name parameters of the statements come from: /pointer into the body,"
         " $attribute, $header.NAME, $body, $consumer, $attempt.", "{ user: /user_id, order: $key }", 0),
    CHOICE("consumers.*.params_missing", FLAG, CONSUMER(params_missing_null), "dead", "dead|null",
           "When a pointer leads nowhere: the message is dead (`schema`), or the value is NULL.", 0),
    {"consumers.*.classify", TDI_PARAM_CLASSIFY, CONSUMER(classify), NULL, NULL, NULL,
     "ok|retry|dead|drop",
     "Verdicts of your own: for SQLSTATEs, or their first two characters, with sql; for exit codes"
     " of the worker with exec.", "{ \"23505\": ok, \"22\": dead }", RELOAD},
    GROUP("consumers.*.retry", "How often and when a failed message runs again."),
    LEAF("consumers.*.retry.delays", DELAYS, CONSUMER(retry), NULL,
         "Waiting times between runs; the last one repeats. Instead of `initial` and `factor`.",
         "[10s, 1m, 10m]", RELOAD),
    RANGE("consumers.*.retry.initial", DURATION, CONSUMER(retry.initial_us), "1s", "1ms", "30d",
          "First waiting time.", RELOAD),
    RANGE("consumers.*.retry.factor", DECIMAL, CONSUMER(retry.factor), "2", "1", "100",
          "How much longer each further one is.", RELOAD),
    RANGE("consumers.*.retry.max_delay", DURATION, CONSUMER(retry.max_delay_us), "1h", "1ms",
          "30d", "Longest waiting time, also of one that a handler asks for.", RELOAD),
    RANGE("consumers.*.retry.attempts", INT, CONSUMER(retry.attempts), "8", "1", "1000",
          "Runs in all, the first included; then the message is dead (`exhausted`).", RELOAD),
    CHOICE("consumers.*.retry.jitter", CHOICE, CONSUMER(retry.jitter), "full", "full|none",
           "`full`: each wait is random between nothing and the waiting time.", RELOAD),
    CHOICE("consumers.*.order", CHOICE, CONSUMER(order), "block", "none|skip|block",
           "Messages of one key: in any order; in order, failed ones step aside; in order, the next"
           " ones wait for a failed one.", 0),
    CHOICE("consumers.*.on_dead", CHOICE, CONSUMER(on_dead), "hold", "hold|release",
           "With `order: block`, when a message is dead: the next ones of its key wait for a person,"
           " or go on.", 0),
    GROUP("consumers.*.breaker", "When what a handler needs is down, fetching stops."),
    RANGE("consumers.*.breaker.failures", INT, CONSUMER(breaker.failures), "20", "1", "100000",
          "At least so many failures ...", RELOAD),
    RANGE("consumers.*.breaker.share", PERCENT, CONSUMER(breaker.share_percent), "50%", "1%",
          "100%", "... and this share of the runs ...", RELOAD),
    RANGE("consumers.*.breaker.window", DURATION, CONSUMER(breaker.window_us), "10s", "100ms",
          "1h", "... within this time.", RELOAD),
    RANGE("consumers.*.prefetch", INT, CONSUMER(prefetch), "256", "1", "65536",
          "Messages in hand at most.", 0),
    RANGE("consumers.*.batch", INT, CONSUMER(batch), "256", "1", "4096",
          "Messages of one transaction at most; never more than `prefetch`.", 0),
    CHOICE("consumers.*.start", CHOICE, CONSUMER(start), "earliest", "earliest|-latest",
           "Where a new consumer begins.", 0),
    LATER("consumers.*.id", "Where the id of messages comes from that have none."),
    GROUP("consumers.*.inbox", "The memory of what took effect."),
    RANGE("consumers.*.inbox.keep", DURATION, CONSUMER(inbox_keep_us), "14d", "1s", "3650d",
          "How long it is kept; must outlast every way in which a message can come again. A message that"
          " waits longer in the broker goes dead as `stale`.", RELOAD),
    GROUP("consumers.*.parked", "Messages that wait for a retry or a person."),
    RANGE("consumers.*.parked.keep", DURATION, CONSUMER(parked_keep_us), "90d", "1s", "3650d",
          "How long dead ones are kept.", RELOAD),
    RANGE("consumers.*.parked.max", LONG, CONSUMER(parked_max), "1000000", "1", "1000000000",
          "Rows at most; then the consumer pauses.", RELOAD),
    LATER("consumers.*.rabbitmq", "Names of an existing topology."),
    LATER("consumers.*.kafka", "Names of an existing topology."),
    LATER("consumers.*.rocketmq", "Names of an existing topology."),

    LATER("http", "Admin API, health and metrics over HTTP."),

    GROUP("log", "What is written to standard error."),
    CHOICE("log.level", CHOICE, CONFIG(log_level), "info", "error|warn|info|debug",
           "The least important lines that are written.", RELOAD),
    CHOICE("log.format", CHOICE, CONFIG(log_format), "auto", "auto|text|json",
           "`auto`: lines for people on a terminal, JSON elsewhere.", 0),

    GROUP("drain", "The end of the program."),
    RANGE("drain.deadline", DURATION, CONFIG(drain_deadline_us), "20s", "0s", "1h",
          "How long work in hand may take after SIGTERM.", RELOAD),
};
/* clang-format on */

#define PARAMS_COUNT (sizeof(params) / sizeof(params[0]))

const struct tdi_param_def *tdi_params(size_t *ret_count)
{
    *ret_count = PARAMS_COUNT;
    return params;
}

const char *tdi_param_key(const struct tdi_param_def *def)
{
    const char *dot = strrchr(def->path, '.');
    return dot != NULL ? dot + 1 : def->path;
}

static bool is_child(const struct tdi_param_def *parent, const struct tdi_param_def *def)
{
    const char *rest = def->path;
    if (parent != NULL) {
        size_t len = strlen(parent->path);
        if (strncmp(def->path, parent->path, len) != 0 || def->path[len] != '.') {
            return false;
        }
        rest += len + 1;
    }
    return strchr(rest, '.') == NULL;
}

const struct tdi_param_def *tdi_param_next(const struct tdi_param_def *parent, size_t *cursor)
{
    while (*cursor < PARAMS_COUNT) {
        const struct tdi_param_def *def = &params[(*cursor)++];
        if (is_child(parent, def)) {
            return def;
        }
    }
    return NULL;
}

const struct tdi_param_def *tdi_param_child(const struct tdi_param_def *parent, struct td_str key)
{
    bool any =
        parent != NULL && (parent->type == TDI_PARAM_NAMED || parent->type == TDI_PARAM_ITEMS);
    size_t cursor = 0;
    const struct tdi_param_def *def = NULL;
    while ((def = tdi_param_next(parent, &cursor)) != NULL) {
        if (any || tdi_str_is(key, tdi_param_key(def))) {
            return def;
        }
    }
    return NULL;
}

bool tdi_param_is_container(const struct tdi_param_def *def)
{
    return def->type == TDI_PARAM_GROUP || def->type == TDI_PARAM_NAMED ||
           def->type == TDI_PARAM_ITEMS;
}

struct td_str tdi_param_choice(const struct tdi_param_def *def, size_t n, bool *ret_later)
{
    const char *at = def->choices;
    while (at != NULL) {
        size_t len = strcspn(at, "|");
        if (n == 0) {
            *ret_later = *at == '-';
            size_t sign = *ret_later ? 1 : 0;
            return (struct td_str){.data = at + sign, .len = len - sign};
        }
        n--;
        at = at[len] == '|' ? at + len + 1 : NULL;
    }
    return TD_STR_NONE;
}

const char *tdi_param_type_name(const struct tdi_param_def *def)
{
    switch (def->type) {
    case TDI_PARAM_GROUP:
        return "a map";
    case TDI_PARAM_NAMED:
        return "a map of named things";
    case TDI_PARAM_ITEMS:
        return "a list of maps";
    case TDI_PARAM_TEXT:
        return "a text";
    case TDI_PARAM_NAME:
        return "a name";
    case TDI_PARAM_PATH:
        return "a path";
    case TDI_PARAM_PATTERN:
        return "a type pattern";
    case TDI_PARAM_CHOICE:
    case TDI_PARAM_FLAG:
    case TDI_PARAM_DRIVER:
        return "a word";
    case TDI_PARAM_INT:
    case TDI_PARAM_LONG:
        return "an integer";
    case TDI_PARAM_DECIMAL:
        return "a number";
    case TDI_PARAM_PERCENT:
        return "a percentage";
    case TDI_PARAM_DURATION:
        return "a duration";
    case TDI_PARAM_SIZE:
        return "a size";
    case TDI_PARAM_STORE:
        return "the name of a store";
    case TDI_PARAM_BROKER:
        return "the name of a broker";
    case TDI_PARAM_TOPIC:
        return "the name of a topic";
    case TDI_PARAM_DELAYS:
        return "a list of durations";
    case TDI_PARAM_PATTERNS:
        return "a list of type patterns";
    case TDI_PARAM_COMMAND:
        return "a list of words";
    case TDI_PARAM_SOURCES:
        return "a map of parameters";
    case TDI_PARAM_CLASSIFY:
        return "a map of verdicts";
    }
    return "";
}
