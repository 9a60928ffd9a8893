/*
 * `tidings publish`: events from files or stdin to a topic of the broker, or into an outbox.
 *
 * Works in rounds: read at most ROUND messages, publish them, wait until each is settled, print their ids. So
 * memory is bounded, and an id on stdout means that the message is safe.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "base/uuid.h"
#include "broker/registry.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/session.h"
#include "core/catalogue.h"
#include "core/envelope.h"
#include "ops/plan.h"
#include "store/registry.h"

#define ROUND 256
#define ROUND_BYTES_MAX (256U * 1024 * 1024)
#define CONFIRM_US (30 * TD_SECOND_US)
#define OWNER_WAIT_US (10 * TD_SECOND_US)
#define OWNER_STEP_US 50000

struct publish {
    struct cli *cli;
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct td_header *headers; /* as given */
    size_t headers_count;
    const struct tdi_config_broker *broker; /* opened, or NULL */
    struct td_broker_instance *instance;
    struct td_broker *session;
    struct td_store *store; /* with --outbox */
    FILE *input;
    const char *input_name;
    size_t line; /* lines read so far */
    size_t bytes_max;
    struct tdi_arena round; /* messages of the round that is going on */
    struct td_message messages[ROUND];
    size_t lines[ROUND];
    size_t count;
};

/* ---- reading ---- */

static int wrong(const struct publish *p, size_t line, const char *why)
{
    if (line > 0) {
        cli_error("%s:%zu: %s", p->input_name, line, why);
    } else {
        cli_error("%s: %s", p->input_name, why);
    }
    return CLI_DATA;
}

static void apply_options(struct publish *p, struct td_message *m)
{
    const struct cli *cli = p->cli;
    const struct {
        const char *option;
        struct td_str *field;
    } texts[] = {
        {"type", &m->type}, {"topic", &m->topic},   {"key", &m->key},
        {"id", &m->id},     {"source", &m->source}, {"content-type", &m->content_type},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *value = cli_value(cli, texts[i].option);
        if (value != NULL) {
            *texts[i].field = tdi_str(value);
        }
    }
    if (p->headers_count > 0) {
        m->headers = p->headers;
        m->headers_count = p->headers_count;
    }
}

/* What a message needs and the input did not say. */
static bool complete(struct publish *p, struct td_message *m)
{
    char id[TDI_UUID_TEXT_LEN + 1];
    td_time_us now = tdi_wall(&p->cli->clock);
    if (m->source.data == NULL) {
        m->source = p->config->service;
    }
    if (m->time == TD_TIME_NONE) {
        m->time = now;
    }
    if (m->id.data == NULL) {
        tdi_uuid7(&p->cli->random, now, id);
        return tdi_arena_str(&p->round, tdi_str(id), &m->id);
    }
    return true;
}

static int add_message(struct publish *p, struct td_str text, size_t line)
{
    struct td_message *m = &p->messages[p->count];
    struct td_error err;
    *m = (struct td_message){
        .time = TD_TIME_NONE,
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
    };
    if (cli_flag(p->cli, "structured")) {
        if (tdi_envelope_read(text, true, &p->round, m, &err) != TD_OK) {
            return wrong(p, line, err.text);
        }
    } else {
        m->body = (struct td_bytes){text.data, text.len};
    }
    apply_options(p, m);
    if (!complete(p, m)) {
        return wrong(p, line, "no memory for the message");
    }
    if (tdi_message_check(m, &err) != TD_OK) {
        return wrong(p, line, err.text);
    }
    p->lines[p->count++] = line;
    return CLI_DONE;
}

/* The next round of lines, or the whole input as one message. *ret_end: nothing is left. */
static int read_lines(struct publish *p, bool *ret_end)
{
    char *text = NULL;
    size_t cap = 0, bytes = 0;
    int rc = CLI_DONE;
    while (rc == CLI_DONE && p->count < ROUND && bytes < ROUND_BYTES_MAX / 4) {
        struct td_str copy;
        ssize_t n = getline(&text, &cap, p->input);
        if (n < 0) {
            *ret_end = true;
            break;
        }
        p->line++;
        size_t len = (size_t)n;
        len -= len > 0 && text[len - 1] == '\n' ? 1 : 0;
        if (len == 0) {
            continue;
        }
        bytes += len;
        if (!tdi_arena_str(&p->round, (struct td_str){text, len}, &copy)) {
            rc = wrong(p, p->line, "the line is too long");
        } else {
            rc = add_message(p, copy, p->line);
        }
    }
    if (ferror(p->input) != 0) {
        cli_error("cannot read %s: %s", p->input_name, strerror(errno));
        rc = CLI_IO;
    }
    free(text);
    return rc;
}

static int read_whole(struct publish *p, bool *ret_end)
{
    struct td_bytes body;
    const char *path = p->cli->operands_count > 0 ? p->cli->operands[0] : "-";
    *ret_end = true;
    int rc = cli_read_file(p->cli, path, TD_BODY_BYTES_MAX, &body);
    return rc == CLI_DONE ? add_message(p, (struct td_str){body.data, body.len}, 0) : rc;
}

/* ---- publishing ---- */

static int route(struct publish *p, size_t i, struct td_publish *ret,
                 const struct tdi_config_broker **ret_broker)
{
    struct td_message *m = &p->messages[i];
    struct tdi_route r = tdi_catalogue_route(&p->plan.catalogue, m);
    if (r.dead != TD_DEAD_NONE) {
        struct td_str why = tdi_route_reason(&r, m, &p->round);
        return wrong(p, p->lines[i], why.data != NULL ? why.data : "it cannot be routed");
    }
    m->topic = r.topic->name;
    *ret = (struct td_publish){.topic = r.topic->name, .message = m, .token = i};
    *ret_broker = tdi_config_broker_find(p->config, r.topic->broker);
    return CLI_DONE;
}

/* Nobody owns the broker: own it for the while. Somebody does: through its socket. OWNED: by one that has
 * no socket yet, or for as short a while as this. */
static enum td_err try_session(struct publish *p, const struct tdi_config_broker *broker,
                               struct td_error *err)
{
    struct td_error why;
    enum td_err owned = cli_instance_open(p->cli, p->config, broker, false, &p->instance, err);
    if (owned != TD_OK && owned != TD_ERR_OWNED) {
        return owned;
    }
    enum td_err rc = cli_broker_open(p->cli, p->config, broker, TD_BROKER_PUBLISH, p->instance,
                                     &p->session, &why);
    if (rc == TD_OK) {
        return TD_OK;
    }
    cli_instance_close(broker, p->instance);
    p->instance = NULL;
    if (owned == TD_ERR_OWNED && rc == TD_ERR_UNAVAILABLE) {
        return owned;
    }
    *err = why;
    return rc;
}

static int open_session(struct publish *p, const struct tdi_config_broker *broker)
{
    struct td_error err;
    if (p->broker == broker) {
        return CLI_DONE;
    }
    if (p->broker != NULL) {
        cli_error("the input goes to several brokers; publish it topic by topic");
        return CLI_USAGE;
    }
    td_time_us deadline = tdi_mono(&p->cli->clock) + OWNER_WAIT_US;
    enum td_err rc = TD_OK;
    bool again = true;
    while (again) {
        rc = try_session(p, broker, &err);
        again = rc == TD_ERR_OWNED && tdi_mono(&p->cli->clock) < deadline;
        if (again) {
            usleep(OWNER_STEP_US);
        }
    }
    if (rc != TD_OK) {
        return cli_fail(p->cli, &err);
    }
    p->broker = broker;
    return CLI_DONE;
}

static const char *meaning(enum td_err code)
{
    static const char *const texts[] = {
#define TEXT(code_, class_, exit_, name_, text_) [TD_ERR_##code_] = text_,
        TD_ERR_TABLE(TEXT)
#undef TEXT
    };
    bool known = (size_t)code < sizeof(texts) / sizeof(texts[0]) && texts[code] != NULL;
    return known ? texts[code] : td_err_name(code);
}

static int settle(struct publish *p, const struct td_published *s)
{
    const char *why;
    switch (s->result) {
    case TD_PUBLISH_ACCEPTED:
        return CLI_DONE;
    case TD_PUBLISH_UNKNOWN:
        cli_error("%s:%zu: it is not known whether it was stored; publish it again with --id %.*s",
                  p->input_name, p->lines[s->token], (int)p->messages[s->token].id.len,
                  p->messages[s->token].id.data);
        return CLI_TRY_AGAIN;
    case TD_PUBLISH_REFUSED:
        why = s->code == TD_ERR_UNROUTABLE ? "no queue of the topic takes this type"
                                           : meaning(s->code);
        wrong(p, p->lines[s->token], why);
        return td_err_exit_code(s->code);
    }
    return CLI_INTERNAL;
}

static int publish_items(struct publish *p, const struct td_publish *items)
{
    struct td_published settled[ROUND];
    const struct td_broker_driver *driver = p->session->driver;
    struct td_error err;
    size_t sent = 0, done = 0;
    int rc = CLI_DONE;
    td_time_us deadline = tdi_mono(&p->cli->clock) + CONFIRM_US;
    while (done < p->count) {
        size_t n = 0;
        if (sent < p->count) {
            if (driver->submit(p->session, items + sent, p->count - sent, &n, &err) != TD_OK) {
                return cli_fail(p->cli, &err);
            }
            sent += n;
        }
        if (driver->collect(p->session, deadline, settled, ROUND, &n, &err) != TD_OK) {
            return cli_fail(p->cli, &err);
        }
        if (n == 0 && tdi_mono(&p->cli->clock) >= deadline) {
            cli_error("the broker does not confirm; it is not known what was stored");
            return CLI_TRY_AGAIN;
        }
        for (size_t i = 0; i < n; i++) {
            int one = settle(p, &settled[i]);
            rc = rc == CLI_DONE ? one : rc;
        }
        done += n;
    }
    return rc;
}

static int publish_round(struct publish *p)
{
    struct td_publish items[ROUND];
    struct td_error err;
    int rc = CLI_DONE;
    if (p->store != NULL) {
        if (p->count > 0 &&
            p->store->driver->outbox_add(p->store, p->messages, p->count, &err) != TD_OK) {
            rc = cli_fail(p->cli, &err);
        }
    } else {
        for (size_t i = 0; i < p->count && rc == CLI_DONE; i++) {
            const struct tdi_config_broker *broker = NULL;
            rc = route(p, i, &items[i], &broker);
            if (rc == CLI_DONE) {
                rc = open_session(p, broker);
            }
        }
        if (rc == CLI_DONE && p->count > 0) {
            rc = publish_items(p, items);
        }
    }
    for (size_t i = 0; i < p->count && rc == CLI_DONE; i++) {
        cli_put(stdout, p->messages[i].id);
        fputc('\n', stdout);
    }
    p->count = 0;
    return rc;
}

/* ---- the command ---- */

static int begin(struct publish *p)
{
    struct cli *cli = p->cli;
    const char *given;
    struct td_error err;
    int rc = cli_config(cli, &p->config);
    if (rc != CLI_DONE) {
        return rc;
    }
    if (cli_flag(cli, "in") || cli_flag(cli, "at")) {
        return cli_usage(cli, "--in and --at: scheduling is not in this version");
    }
    if (!cli_flag(cli, "structured") && cli_value(cli, "type") == NULL) {
        return cli_usage(cli, "--type is missing");
    }
    if (cli_flag(cli, "lines") && cli_flag(cli, "id")) {
        return cli_usage(cli, "--id names one message, --lines gives many");
    }
    if (tdi_plan_make(p->config, &cli->arena, &p->plan, &err) != TD_OK) {
        return cli_fail(cli, &err);
    }
    p->headers = tdi_arena_array(&cli->arena, CLI_VALUES_MAX, sizeof(*p->headers));
    for (size_t i = 0; (given = cli_value_at(cli, "header", i)) != NULL; i++) {
        if (p->headers == NULL || !cli_header(given, &p->headers[p->headers_count++])) {
            return cli_usage(cli, "--header wants NAME=VALUE with a lower-case name, not '%s'",
                             given);
        }
    }
    const char *outbox = cli_value(cli, "outbox");
    if (outbox == NULL) {
        return CLI_DONE;
    }
    const struct tdi_config_outbox *o = tdi_config_outbox_find(p->config, tdi_str(outbox));
    if (o == NULL) {
        return cli_usage(cli, "there is no outbox '%s' in %s", outbox, p->config->path.data);
    }
    if (cli_flag(cli, "source")) {
        return cli_usage(cli, "--source does not go with --outbox: the database has its service");
    }
    return cli_store_open(cli, p->config, o->store, CLI_WRITE, &p->store, &err) == TD_OK
               ? CLI_DONE
               : cli_fail(cli, &err);
}

static int open_input(struct publish *p)
{
    const char *path = p->cli->operands_count > 0 ? p->cli->operands[0] : "-";
    bool is_stdin = strcmp(path, "-") == 0;
    p->input_name = is_stdin ? "standard input" : path;
    p->input = is_stdin ? stdin : fopen(path, "rbe");
    if (p->input == NULL) {
        cli_error("cannot read %s: %s", path, strerror(errno));
        return CLI_IO;
    }
    return CLI_DONE;
}

static int publish_all(struct publish *p)
{
    bool end = false, lines = cli_flag(p->cli, "lines");
    int rc = CLI_DONE;
    while (rc == CLI_DONE && !end) {
        tdi_arena_reset(&p->round);
        rc = lines ? read_lines(p, &end) : read_whole(p, &end);
        if (rc == CLI_DONE || lines) {
            /* Lines before a wrong one are published: the message names where to go on. */
            int published = publish_round(p);
            rc = rc == CLI_DONE ? published : rc;
        }
    }
    return rc;
}

static int publish_run(struct cli *cli)
{
    static struct publish p; /* large; one command, one round at a time */
    p.cli = cli;
    tdi_arena_init(&p.round, ROUND_BYTES_MAX);
    int rc = begin(&p);
    if (rc == CLI_DONE) {
        rc = open_input(&p);
    }
    if (rc == CLI_DONE) {
        rc = publish_all(&p);
    }
    tdi_broker_close(p.session);
    if (p.broker != NULL) {
        cli_instance_close(p.broker, p.instance);
    }
    tdi_store_close(p.store);
    if (p.input != NULL && p.input != stdin) {
        fclose(p.input);
    }
    tdi_arena_release(&p.round);
    return rc;
}

static const struct cli_option publish_options[] = {
    {"type", 't', "TYPE", false, "event type, such as order.paid"},
    {"topic", 0, "TOPIC", false, "topic; without it the one that takes the type"},
    {"key", 'k', "KEY", false, "partition key: messages of one key stay in order"},
    {"id", 0, "ID", false, "message id; without it a new one is made"},
    {"source", 0, "SOURCE", false, "who publishes; without it the service of the configuration"},
    {"header", 0, "NAME=VALUE", true, "a header"},
    {"content-type", 0, "TYPE", false, "media type of the body"},
    {"lines", 0, NULL, false, "each line is a body"},
    {"structured", 0, NULL, false, "the input is CloudEvents JSON (with --lines one a line)"},
    {"outbox", 0, "NAME", false, "insert into this outbox instead of publishing"},
    {"in", 0, "DURATION", false, "not in this version"},
    {"at", 0, "TIME", false, "not in this version"},
};

const struct cli_command cli_command_publish = {
    .name = "publish",
    .operands = "[FILE|-]",
    .operands_max = 1,
    .summary = "Publish events from a file or stdin, and print their ids",
    .text = "Returns when the broker has confirmed. An id that is printed is safe. While a\n"
            "'tidings run' owns the embedded broker this goes through its socket, otherwise the\n"
            "command writes by itself.",
    .examples = "echo '{\"user_id\":7}' | tidings publish --type order.paid --key order-1001\n"
                "tidings publish --type order.paid --lines orders.jsonl\n"
                "tidings publish --structured event.json",
    CLI_OPTIONS(publish_options),
    .run = publish_run,
};
