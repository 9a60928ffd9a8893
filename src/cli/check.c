/*
 * `tidings check`: is the file right, are databases and brokers as it says, and what does each consumer
 * really give. Changes nothing.
 */
#include "base/json.h"
#include "base/str.h"
#include "broker/registry.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "handler/registry.h"
#include "ops/guarantee.h"
#include "ops/plan.h"
#include "store/registry.h"

#define FINDINGS_MAX 200

/* A finding ends with 1. A warning is advice that may be heeded already, where we cannot look. */
struct finding {
    struct td_str where; /* "store shop" */
    struct td_str text;
    bool warning;
};

struct check {
    struct cli *cli;
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct finding findings[FINDINGS_MAX];
    size_t count;
    size_t warnings; /* of them */
    size_t dropped;
};

static void add(struct check *k, struct td_str where, struct td_str text, bool warning)
{
    struct td_str copy;
    if (k->count == FINDINGS_MAX || !tdi_arena_str(&k->cli->arena, text, &copy)) {
        k->dropped++;
        return;
    }
    k->findings[k->count++] = (struct finding){where, copy, warning};
    k->warnings += warning ? 1 : 0;
}

static void find(struct check *k, struct td_str where, struct td_str text)
{
    add(k, where, text, false);
}

/* Sentences, one a line. */
static void warn_lines(struct check *k, struct td_str where, struct td_str lines)
{
    size_t at = 0;
    while (at < lines.len) {
        size_t end = at;
        while (end < lines.len && lines.data[end] != '\n') {
            end++;
        }
        if (end > at) {
            add(k, where, (struct td_str){lines.data + at, end - at}, true);
        }
        at = end + 1;
    }
}

/* What the configuration itself has to say beside mistakes. */
static void add_diagnostics(struct check *k, const struct tdi_diagnostics *d)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct tdi_diagnostic *item = &d->items[i];
        struct td_str where = tdi_arena_printf(&k->cli->arena, "%s:%u:%u", k->config->path.data,
                                               item->pos.line, item->pos.column);
        add(k, where, item->text, item->severity == TDI_SEVERITY_NOTE);
    }
    k->dropped += d->dropped;
}

/* The statements of the sql handlers against the real tables. */
static void check_statements(struct check *k, struct td_store *store,
                             const struct tdi_config_store *where)
{
    for (size_t i = 0; i < k->config->consumers_count; i++) {
        const struct tdi_config_consumer *c = &k->config->consumers[i];
        const struct td_handler_driver *driver = tdi_handler_driver(c->handler);
        struct td_handler *handler;
        struct td_error err;
        if (c->store != where || driver == NULL || driver->place != TD_HANDLER_INSIDE) {
            continue;
        }
        struct td_handler_options o = {
            .consumer = c->full_name,
            .steps = c->steps,
            .steps_count = c->steps_count,
            .params = c->params,
            .params_count = c->params_count,
            .classify = c->classify,
            .classify_count = c->classify_count,
            .clock = k->cli->clock,
            .random = &k->cli->random,
        };
        struct td_str name = tdi_arena_printf(&k->cli->arena, "consumer %s", c->name.data);
        if (tdi_handler_open(driver, &o, &handler, &err) != TD_OK) {
            find(k, name, tdi_str(err.text));
            continue;
        }
        if (driver->prepare(handler, store, &err) != TD_OK) {
            find(k, name, tdi_str(err.text));
        }
        tdi_handler_close(handler, 0);
    }
}

static void check_store(struct check *k, const struct tdi_config_store *where)
{
    struct td_str name = tdi_arena_printf(&k->cli->arena, "store %s", where->name.data);
    struct td_store_info info;
    struct td_store *store;
    struct td_error err;
    if (cli_store_open(k->cli, k->config, where, CLI_READ, &store, &err) != TD_OK) {
        find(k, name, tdi_str(err.text));
        return;
    }
    if (store->driver->info(store, &k->cli->arena, &info, &err) != TD_OK) {
        find(k, name, tdi_str(err.text));
    } else {
        warn_lines(k, name, info.warnings);
        check_statements(k, store, where);
    }
    tdi_store_close(store);
}

static void check_topology(struct check *k, struct td_str name, struct td_broker *broker,
                           const struct tdi_config_broker *where)
{
    struct td_topology wanted;
    struct td_topology_difference *differences;
    struct td_error err;
    size_t count;
    if (tdi_plan_topology(&k->plan, where, &k->cli->arena, &wanted, &err) != TD_OK ||
        broker->driver->topology_diff(broker, &wanted, &k->cli->arena, &differences, &count,
                                      &err) != TD_OK) {
        find(k, name, tdi_str(err.text));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        find(k, name, differences[i].text);
    }
}

static void check_broker(struct check *k, const struct tdi_config_broker *where)
{
    struct td_str name = tdi_arena_printf(&k->cli->arena, "broker %s", where->name.data);
    struct td_broker_info info;
    struct td_broker *broker;
    struct td_error err;
    if (cli_broker_open(k->cli, k->config, where, TD_BROKER_ADMIN, NULL, &broker, &err) != TD_OK) {
        find(k, name, tdi_str(err.text));
        return;
    }
    if (broker->driver->info(broker, &k->cli->arena, &info, &err) != TD_OK) {
        find(k, name, tdi_str(err.text));
    } else {
        warn_lines(k, name, info.warnings);
        check_topology(k, name, broker, where);
    }
    tdi_broker_close(broker);
}

/* Order needs a broker that redelivers in order. */
static void check_orders(struct check *k)
{
    for (size_t i = 0; i < k->config->consumers_count; i++) {
        const struct tdi_config_consumer *c = &k->config->consumers[i];
        const struct td_broker_driver *driver = tdi_broker_driver(c->topic->broker->driver);
        if (c->order != TDI_ORDER_NONE && driver != NULL &&
            (driver->caps & TD_BROKER_REDELIVERS_IN_ORDER) == 0) {
            find(k, tdi_arena_printf(&k->cli->arena, "consumer %s", c->name.data),
                 TD_STR_LIT("order needs a broker that delivers again in order; set order: none"));
        }
    }
}

static size_t findings(const struct check *k)
{
    return k->count - k->warnings + k->dropped;
}

static void print_text(const struct check *k)
{
    printf("%s: service %s\n", k->config->path.data, k->config->service.data);
    for (size_t i = 0; i < k->config->consumers_count; i++) {
        struct tdi_guarantee g = tdi_guarantee_of(&k->config->consumers[i]);
        printf("  %-16s %s: %s\n", k->config->consumers[i].name.data, g.delivery, g.why);
        printf("  %-16s %s\n", "", g.order);
    }
    for (size_t i = 0; i < k->count; i++) {
        cli_put(stdout, k->findings[i].where);
        fputs(k->findings[i].warning ? ": warning: " : ": ", stdout);
        cli_put(stdout, k->findings[i].text);
        fputc('\n', stdout);
    }
    if (findings(k) == 0) {
        puts("nothing to find fault with");
    } else {
        printf("%zu finding%s\n", findings(k), findings(k) == 1 ? "" : "s");
    }
}

static void add_findings(struct tdi_buf *b, bool *first, const char *key, const struct check *k,
                         bool warnings)
{
    bool any = false;
    tdi_json_add_key(b, first, key);
    tdi_buf_add_char(b, '[');
    for (size_t i = 0; i < k->count; i++) {
        bool member = true;
        if (k->findings[i].warning == warnings) {
            tdi_buf_add_cstr(b, any ? ",{" : "{");
            tdi_json_add_member(b, &member, "where", k->findings[i].where);
            tdi_json_add_member(b, &member, "text", k->findings[i].text);
            tdi_buf_add_char(b, '}');
            any = true;
        }
    }
    tdi_buf_add_char(b, ']');
}

static void print_json(const struct check *k)
{
    struct tdi_buf b;
    bool first = true;
    tdi_buf_init(&b, 16U * 1024 * 1024);
    tdi_buf_add_char(&b, '{');
    tdi_json_add_member(&b, &first, "config", k->config->path);
    tdi_json_add_key(&b, &first, "consumers");
    tdi_buf_add_char(&b, '{');
    for (size_t i = 0; i < k->config->consumers_count; i++) {
        struct tdi_guarantee g = tdi_guarantee_of(&k->config->consumers[i]);
        bool member = true;
        tdi_buf_add_cstr(&b, i > 0 ? "," : "");
        tdi_json_add_string(&b, k->config->consumers[i].name);
        tdi_buf_add_cstr(&b, ":{");
        tdi_json_add_member(&b, &member, "delivery", tdi_str(g.delivery));
        tdi_json_add_member(&b, &member, "why", tdi_str(g.why));
        tdi_json_add_member(&b, &member, "order", tdi_str(g.order));
        tdi_buf_add_char(&b, '}');
    }
    tdi_buf_add_char(&b, '}');
    add_findings(&b, &first, "findings", k, false);
    add_findings(&b, &first, "warnings", k, true);
    tdi_buf_add_cstr(&b, "}\n");
    cli_put_buf(stdout, &b);
    tdi_buf_release(&b);
}

static int check_run(struct cli *cli)
{
    static struct check k; /* large; one command, one check */
    struct td_error err;
    struct tdi_diagnostics diagnostics;
    int rc = cli_config_diagnosed(cli, &k.config, &diagnostics);
    if (rc != CLI_DONE) {
        return rc;
    }
    k.cli = cli;
    if (tdi_plan_make(k.config, &cli->arena, &k.plan, &err) != TD_OK) {
        return cli_fail(cli, &err);
    }
    add_diagnostics(&k, &diagnostics);
    check_orders(&k);
    for (size_t i = 0; i < k.config->stores_count; i++) {
        check_store(&k, &k.config->stores[i]);
    }
    for (size_t i = 0; i < k.config->brokers_count; i++) {
        check_broker(&k, &k.config->brokers[i]);
    }
    if (cli_flag(cli, "json")) {
        print_json(&k);
    } else {
        print_text(&k);
    }
    return findings(&k) == 0 ? CLI_DONE : CLI_FOUND;
}

static const struct cli_option check_options[] = {
    {"json", 0, NULL, false, "one JSON document instead of text"},
};

const struct cli_command cli_command_check = {
    .name = "check",
    .operands = "",
    .summary = "Check the configuration, databases and brokers, and say what each consumer gives",
    .text =
        "Mistakes in the file end with 78, findings (a missing table, a queue that nobody\n"
        "reads, an inbox window that is short) with 1. Warnings are advice and change no exit code. Nothing is\n"
        "changed or started.",
    .examples = "tidings check\ntidings check -c shop.yaml --json",
    CLI_OPTIONS(check_options),
    .run = check_run,
};
