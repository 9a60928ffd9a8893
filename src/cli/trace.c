/* `tidings trace ID`. */
#include <time.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "ops/letter.h"
#include "ops/trace.h"
#include "store/registry.h"

static void print_clock(td_time_us t)
{
    char text[32];
    time_t seconds = (time_t)(t / TD_SECOND_US);
    struct tm tm;
    if (t == TD_TIME_NONE || localtime_r(&seconds, &tm) == NULL ||
        strftime(text, sizeof(text), "%H:%M:%S", &tm) == 0) {
        fputs("  not recorded", stdout);
        return;
    }
    printf("  %s.%03d", text, (int)(t % TD_SECOND_US / 1000));
}

static void print_gap(td_time_us before, td_time_us at)
{
    if (before == TD_TIME_NONE || at == TD_TIME_NONE) {
        return;
    }
    td_time_us gap = at - before;
    if (gap >= TD_SECOND_US) {
        printf("  +%.1f s", (double)gap / (double)TD_SECOND_US);
    } else {
        printf("  +%.1f ms", (double)gap / 1000.0);
    }
}

static void print_text(const struct tdi_trace *t)
{
    td_time_us before = TD_TIME_NONE;
    cli_put(stdout, tdi_str_empty(t->type) ? TD_STR_LIT("(type not recorded)") : t->type);
    if (!tdi_str_empty(t->key)) {
        fputs("  ", stdout);
        cli_put(stdout, t->key);
    }
    fputs("  from ", stdout);
    cli_put(stdout, t->source);
    fputc('\n', stdout);
    for (size_t i = 0; i < t->count; i++) {
        const struct tdi_trace_hop *h = &t->hops[i];
        print_clock(h->at);
        printf("  %-12.*s ", (int)h->hop.len, h->hop.data);
        cli_put(stdout, h->where);
        if (!tdi_str_empty(h->evidence)) {
            fputs(", ", stdout);
            cli_put(stdout, h->evidence);
        }
        print_gap(before, h->at);
        fputc('\n', stdout);
        before = h->at;
    }
    fputs("  now: ", stdout);
    cli_put(stdout, t->now);
    fputc('\n', stdout);
}

static void print_json(const struct tdi_trace *t)
{
    struct tdi_buf b;
    bool first = true;
    tdi_buf_init(&b, 16U * 1024 * 1024);
    tdi_buf_add_char(&b, '{');
    tdi_json_add_member(&b, &first, "source", t->source);
    tdi_json_add_member(&b, &first, "id", t->id);
    tdi_json_add_member(&b, &first, "type", t->type);
    tdi_json_add_member(&b, &first, "key", t->key);
    tdi_json_add_key(&b, &first, "hops");
    tdi_buf_add_char(&b, '[');
    for (size_t i = 0; i < t->count; i++) {
        bool member = true;
        tdi_buf_add_cstr(&b, i > 0 ? ",{" : "{");
        tdi_json_add_member(&b, &member, "hop", t->hops[i].hop);
        tdi_json_add_time(&b, &member, "at", t->hops[i].at);
        tdi_json_add_member(&b, &member, "where", t->hops[i].where);
        tdi_json_add_member(&b, &member, "evidence", t->hops[i].evidence);
        tdi_buf_add_char(&b, '}');
    }
    tdi_buf_add_char(&b, ']');
    tdi_json_add_member(&b, &first, "now", t->now);
    tdi_buf_add_cstr(&b, "}\n");
    cli_put_buf(stdout, &b);
    tdi_buf_release(&b);
}

static int trace_run(struct cli *cli)
{
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct tdi_trace trace;
    struct td_error err;
    int rc = cli_config(cli, &config);
    if (rc != CLI_DONE) {
        return rc;
    }
    struct td_store **stores =
        tdi_arena_array(&cli->arena, config->stores_count, sizeof(struct td_store *));
    if (stores == NULL || tdi_plan_make(config, &cli->arena, &plan, &err) != TD_OK) {
        td_error_set(&err, TD_ERR_NOMEM, "no memory for the stores");
        return cli_fail(cli, &err);
    }
    for (size_t i = 0; i < config->stores_count; i++) {
        if (cli_store_open(cli, config, &config->stores[i], CLI_READ, &stores[i], &err) != TD_OK) {
            stores[i] = NULL;
            rc = cli_fail(cli, &err);
        }
    }
    if (rc == CLI_DONE && tdi_trace_gather(&plan, stores, tdi_str(cli->operands[0]), &cli->arena,
                                           &trace, &err) != TD_OK) {
        rc = cli_fail(cli, &err);
    }
    for (size_t i = 0; i < config->stores_count; i++) {
        tdi_store_close(stores[i]);
    }
    if (rc == CLI_DONE && !trace.found) {
        cli_error("no outbox, inbox or parked message has the id %s", cli->operands[0]);
        return CLI_FOUND;
    }
    if (rc == CLI_DONE && cli_flag(cli, "json")) {
        print_json(&trace);
    } else if (rc == CLI_DONE) {
        print_text(&trace);
    }
    return rc;
}

static const struct cli_option trace_options[] = {
    {"json", 0, NULL, false, "one JSON document instead of text"},
};

const struct cli_command cli_command_trace = {
    .name = "trace",
    .operands = "ID",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "Tell where a message is and how it got there",
    .text =
        "Gathers what outbox, relay, inbox and parked messages of every store recorded. What was\n"
        "not recorded is not guessed.",
    .examples = "tidings trace 0192f1c7-1a2b-7000-8000-3f00aa55bb10",
    CLI_OPTIONS(trace_options),
    .run = trace_run,
};
