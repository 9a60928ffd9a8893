/* `tidings status`: one look at everything, for people or as JSON. */
#include <inttypes.h>

#include "base/json.h"
#include "base/str.h"
#include "broker/registry.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "ops/letter.h"
#include "ops/status.h"
#include "store/registry.h"

#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"

/* ---- text ---- */

static const char *color_of(const struct cli *cli, struct td_str state)
{
    if (!cli->out_color || tdi_str_is(state, "ok")) {
        return "";
    }
    return tdi_str_is(state, "halted") || tdi_str_is(state, "store down") ||
                   tdi_str_is(state, "broker down")
               ? RED
               : YELLOW;
}

static void print_state(const struct cli *cli, struct td_str name, struct td_str state)
{
    const char *color = color_of(cli, state);
    printf("%-16.*s %s", (int)name.len, name.data, color);
    cli_put(stdout, state);
    printf("%s%*s", color[0] != '\0' ? PLAIN : "", state.len < 18 ? (int)(18 - state.len) : 0, "");
}

static void print_seconds(const char *what, td_time_us us)
{
    if (us != TD_TIME_NONE) {
        printf("  %s %.1f s", what, (double)us / (double)TD_SECOND_US);
    }
}

static void print_error(struct td_str error)
{
    if (!tdi_str_empty(error)) {
        fputs("                 ", stdout);
        cli_put(stdout, error);
        fputc('\n', stdout);
    }
}

static void print_outbox(const struct cli *cli, const struct tdi_status_outbox *o)
{
    char name[300];
    snprintf(name, sizeof(name), "outbox %.*s", (int)o->name.len, o->name.data);
    print_state(cli, tdi_str(name), o->state);
    if (o->pending >= 0) {
        printf(" %" PRId64 " waiting", o->pending);
    }
    print_seconds("oldest", o->oldest_pending_us);
    printf("  %" PRId64 "/s", o->rate_per_second);
    if (o->pending > 0) {
        print_seconds("drained in", o->drain_us);
    }
    fputc('\n', stdout);
    if (!tdi_str_is(o->state, "ok")) {
        print_error(o->last_error);
    }
}

static void print_consumer(const struct cli *cli, const struct tdi_status_consumer *c)
{
    print_state(cli, c->name, c->state);
    if (c->lag >= 0) {
        printf(" lag %" PRId64, c->lag);
    }
    if (c->counts_known && (c->counts.retrying > 0 || c->counts.blocked > 0)) {
        printf("  retrying %" PRId64 ", blocked %" PRId64, c->counts.retrying, c->counts.blocked);
    }
    printf("  %" PRId64 "/s", c->rate_per_second);
    if (c->lag > 0) {
        print_seconds("drained in", c->drain_us);
    }
    fputc('\n', stdout);
    if (tdi_str_is(c->state, "downstream down")) {
        char at[TDI_TIME_BYTES];
        printf("                 the backlog stays in the broker; no attempt is used up%s%s\n",
               c->next_probe_at != TD_TIME_NONE ? "; next probe " : "",
               c->next_probe_at != TD_TIME_NONE ? tdi_time_format(c->next_probe_at, at) : "");
    }
    if (!tdi_str_is(c->state, "ok")) {
        print_error(c->last_error);
    }
}

static void print_dead(const struct tdi_status *s)
{
    bool any = false;
    for (size_t i = 0; i < s->outboxes_count; i++) {
        if (s->outboxes[i].dead > 0) {
            printf("%s relay:%.*s %" PRId64, any ? " ·" : "dead letters    ",
                   (int)s->outboxes[i].name.len, s->outboxes[i].name.data, s->outboxes[i].dead);
            any = true;
        }
    }
    for (size_t i = 0; i < s->consumers_count; i++) {
        if (s->consumers[i].counts.dead > 0) {
            printf("%s %.*s %" PRId64, any ? " ·" : "dead letters    ",
                   (int)s->consumers[i].name.len, s->consumers[i].name.data,
                   s->consumers[i].counts.dead);
            any = true;
        }
    }
    puts(any ? "                  tidings dead list" : "no dead letters");
}

static void print_text(const struct cli *cli, const struct tdi_status *s)
{
    for (size_t i = 0; i < s->outboxes_count; i++) {
        print_outbox(cli, &s->outboxes[i]);
    }
    for (size_t i = 0; i < s->consumers_count; i++) {
        print_consumer(cli, &s->consumers[i]);
    }
    for (size_t i = 0; i < s->brokers_count; i++) {
        if (!s->brokers[i].up) {
            printf("broker %-9s down\n", s->brokers[i].name.data);
            print_error(s->brokers[i].text);
        }
    }
    for (size_t i = 0; i < s->stores_count; i++) {
        if (!s->stores[i].up) {
            printf("store %-10s down\n", s->stores[i].name.data);
            print_error(s->stores[i].text);
        }
    }
    print_dead(s);
}

/* ---- JSON ---- */

static void add_seconds(struct tdi_buf *b, bool *first, const char *key, td_time_us us)
{
    tdi_json_add_key(b, first, key);
    if (us == TD_TIME_NONE) {
        tdi_buf_add_cstr(b, "null");
    } else {
        tdi_buf_printf(b, "%.3f", (double)us / (double)TD_SECOND_US);
    }
}

static void add_known(struct tdi_buf *b, bool *first, const char *key, int64_t n)
{
    if (n == TDI_STATUS_UNKNOWN) {
        tdi_json_add_key(b, first, key);
        tdi_buf_add_cstr(b, "null");
    } else {
        tdi_json_add_member_int(b, first, key, n);
    }
}

static void add_outbox(struct tdi_buf *b, const struct tdi_status_outbox *o)
{
    bool first = true;
    tdi_json_add_member(b, &first, "state", o->state);
    add_known(b, &first, "pending", o->pending);
    add_seconds(b, &first, "oldest_pending_seconds", o->oldest_pending_us);
    tdi_json_add_member_int(b, &first, "published_total", o->published_total);
    tdi_json_add_member_int(b, &first, "rate_per_second", o->rate_per_second);
    add_seconds(b, &first, "drain_seconds", o->drain_us);
    tdi_json_add_member(b, &first, "owner", o->owner);
    tdi_json_add_member_int(b, &first, "dead", o->dead);
    tdi_json_add_member(b, &first, "last_error", o->last_error);
}

static void add_consumer(struct tdi_buf *b, const struct tdi_status_consumer *c)
{
    bool first = true;
    int64_t unknown = c->counts_known ? 0 : TDI_STATUS_UNKNOWN;
    tdi_json_add_member(b, &first, "state", c->state);
    add_known(b, &first, "lag", c->lag);
    tdi_json_add_member_int(b, &first, "in_flight", c->in_flight);
    add_known(b, &first, "retrying", c->counts.retrying + unknown);
    add_known(b, &first, "blocked", c->counts.blocked + unknown);
    add_known(b, &first, "dead", c->counts.dead + unknown);
    tdi_json_add_member_int(b, &first, "handled_total", c->handled_total);
    tdi_json_add_member_int(b, &first, "duplicates_total", c->duplicates_total);
    tdi_json_add_member_int(b, &first, "rate_per_second", c->rate_per_second);
    add_seconds(b, &first, "drain_seconds", c->drain_us);
    tdi_json_add_member(b, &first, "owner", c->owner);
    tdi_json_add_member(b, &first, "last_error", c->last_error);
}

static void add_ends(struct tdi_buf *b, bool *first, const char *key,
                     const struct tdi_status_end *ends, size_t count, bool brokers)
{
    tdi_json_add_key(b, first, key);
    tdi_buf_add_char(b, '{');
    for (size_t i = 0; i < count; i++) {
        bool member = true;
        tdi_buf_add_cstr(b, i > 0 ? "," : "");
        tdi_json_add_string(b, ends[i].name);
        tdi_buf_add_cstr(b, ":{");
        tdi_json_add_key(b, &member, "up");
        tdi_buf_add_cstr(b, ends[i].up ? "true" : "false");
        tdi_json_add_member(b, &member, "version", ends[i].version);
        if (brokers) {
            tdi_json_add_time(b, &member, "since", ends[i].since);
        }
        if (ends[i].owner_pid > 0) {
            tdi_json_add_member_int(b, &member, "owner_pid", ends[i].owner_pid);
        }
        tdi_json_add_member(b, &member, "error", ends[i].text);
        tdi_buf_add_char(b, '}');
    }
    tdi_buf_add_char(b, '}');
}

static void print_json(const struct tdi_status *s)
{
    struct tdi_buf b;
    bool first = true;
    tdi_buf_init(&b, 16U * 1024 * 1024);
    tdi_buf_add_char(&b, '{');
    tdi_json_add_key(&b, &first, "outboxes");
    tdi_buf_add_char(&b, '{');
    for (size_t i = 0; i < s->outboxes_count; i++) {
        tdi_buf_add_cstr(&b, i > 0 ? "," : "");
        tdi_json_add_string(&b, s->outboxes[i].name);
        tdi_buf_add_cstr(&b, ":{");
        add_outbox(&b, &s->outboxes[i]);
        tdi_buf_add_char(&b, '}');
    }
    tdi_buf_add_char(&b, '}');
    tdi_json_add_key(&b, &first, "consumers");
    tdi_buf_add_char(&b, '{');
    for (size_t i = 0; i < s->consumers_count; i++) {
        tdi_buf_add_cstr(&b, i > 0 ? "," : "");
        tdi_json_add_string(&b, s->consumers[i].name);
        tdi_buf_add_cstr(&b, ":{");
        add_consumer(&b, &s->consumers[i]);
        tdi_buf_add_char(&b, '}');
    }
    tdi_buf_add_char(&b, '}');
    add_ends(&b, &first, "brokers", s->brokers, s->brokers_count, true);
    add_ends(&b, &first, "stores", s->stores, s->stores_count, false);
    tdi_buf_add_cstr(&b, "}\n");
    cli_put_buf(stdout, &b);
    tdi_buf_release(&b);
}

/* ---- the command ---- */

static int gather(struct cli *cli, const struct tdi_plan *plan, struct tdi_status *ret)
{
    const struct tdi_config *c = plan->config;
    struct tdi_status_store *stores =
        tdi_arena_array(&cli->arena, c->stores_count, sizeof(*stores));
    struct tdi_status_broker *brokers =
        tdi_arena_array(&cli->arena, c->brokers_count, sizeof(*brokers));
    struct td_error err;
    enum td_err rc = td_error_set(&err, TD_ERR_NOMEM, "no memory for the status");
    if (stores == NULL || brokers == NULL) {
        return cli_fail(cli, &err);
    }
    for (size_t i = 0; i < c->stores_count; i++) {
        if (cli_store_open(cli, c, &c->stores[i], CLI_READ, &stores[i].session, &stores[i].why) !=
            TD_OK) {
            stores[i].session = NULL;
        }
    }
    for (size_t i = 0; i < c->brokers_count; i++) {
        if (cli_broker_open(cli, c, &c->brokers[i], TD_BROKER_ADMIN, NULL, &brokers[i].session,
                            &brokers[i].why) != TD_OK) {
            brokers[i].session = NULL;
        }
    }
    rc = tdi_status_gather(plan, stores, brokers, tdi_wall(&cli->clock), &cli->arena, ret, &err);
    for (size_t i = 0; i < c->stores_count; i++) {
        tdi_store_close(stores[i].session);
    }
    for (size_t i = 0; i < c->brokers_count; i++) {
        tdi_broker_close(brokers[i].session);
    }
    return rc == TD_OK ? CLI_DONE : cli_fail(cli, &err);
}

static int status_run(struct cli *cli)
{
    const struct tdi_config *config;
    struct tdi_plan plan;
    struct tdi_status status;
    struct td_error err;
    int rc = cli_config(cli, &config);
    if (rc != CLI_DONE) {
        return rc;
    }
    if (tdi_plan_make(config, &cli->arena, &plan, &err) != TD_OK) {
        return cli_fail(cli, &err);
    }
    rc = gather(cli, &plan, &status);
    if (rc == CLI_DONE && cli_flag(cli, "json")) {
        print_json(&status);
    } else if (rc == CLI_DONE) {
        print_text(cli, &status);
    }
    return rc;
}

static const struct cli_option status_options[] = {
    {"json", 0, NULL, false, "one JSON document instead of text"},
};

const struct cli_command cli_command_status = {
    .name = "status",
    .operands = "",
    .summary = "Show what waits, what runs, what failed",
    .text = "Works with or without a running program. Numbers that cannot be had are null in JSON.",
    .examples = "tidings status\ntidings status --json",
    CLI_OPTIONS(status_options),
    .run = status_run,
};
