/* `tidings dead list` and `tidings dead show`. */
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/dead.h"
#include "core/deadletter.h"
#include "ops/letter.h"

#define JSON_MAX (256U * 1024 * 1024)

static const char *clock_of(td_time_us t, char buf[16])
{
    time_t seconds = (time_t)(t / TD_SECOND_US);
    struct tm tm;
    if (t == TD_TIME_NONE || localtime_r(&seconds, &tm) == NULL ||
        strftime(buf, 16, "%H:%M:%S", &tm) == 0) {
        snprintf(buf, 16, "-");
    }
    return buf;
}

/* At most `width` bytes of text, cut with an ellipsis, padded. */
static void put_cell(struct td_str s, size_t width)
{
    size_t cut = s.len > width ? width - 1 : s.len;
    while (cut > 0 && cut < s.len && ((unsigned char)s.data[cut] & 0xc0) == 0x80) {
        cut--; /* not within a character */
    }
    cli_put(stdout, (struct td_str){s.data, cut});
    fputs(cut < s.len ? "…" : "", stdout);
    size_t shown = cut + (cut < s.len ? 1 : 0);
    printf("%*s", (int)(shown < width ? width - shown : 0) + 2, "");
}

struct list {
    size_t count;
    struct tdi_buf line;
};

static bool list_text(struct cli_dead *d, struct td_store *store, const struct td_parked_row *row,
                      void *ctx)
{
    struct list *l = ctx;
    char first[16], last[16];
    (void)store;
    if (l->count++ == 0) {
        puts("CONSUMER          ID                                    TYPE              KEY"
             "               TRIES  FIRST     LAST      REASON");
    }
    put_cell(tdi_plan_short(&d->plan, row->consumer, &d->cli->arena), 16);
    put_cell(row->message.id, 36);
    put_cell(row->message.type, 16);
    put_cell(tdi_str_empty(row->message.key) ? TD_STR_LIT("-") : row->message.key, 16);
    printf("%5" PRId32 "  %-8s  %-8s  %s: ", row->attempts, clock_of(row->first_failed_at, first),
           clock_of(row->last_failed_at, last), tdi_dead_code_name(row->code));
    cli_put(stdout, row->reason);
    fputc('\n', stdout);
    return true;
}

static bool list_json(struct cli_dead *d, struct td_store *store, const struct td_parked_row *row,
                      void *ctx)
{
    struct list *l = ctx;
    (void)store;
    tdi_buf_clear(&l->line);
    tdi_letter_json(&l->line, &d->plan, row, false, &d->cli->arena);
    tdi_buf_add_char(&l->line, '\n');
    cli_put_buf(stdout, &l->line);
    l->count++;
    return !ferror(stdout);
}

static int list_run(struct cli *cli)
{
    struct cli_dead d;
    struct list l = {.count = 0};
    bool json = cli_flag(cli, "jsonl");
    int rc = cli_dead_begin(cli, &d);
    if (rc != CLI_DONE) {
        return rc;
    }
    tdi_buf_init(&l.line, JSON_MAX);
    rc = cli_dead_walk(&d, false, json ? list_json : list_text, &l);
    tdi_buf_release(&l.line);
    if (rc == CLI_DONE && !json) {
        if (l.count == 0) {
            puts("no dead letters");
        } else {
            printf("%zu dead letter%s · tidings dead show ID · tidings dead replay --id ID\n",
                   l.count, l.count == 1 ? "" : "s");
        }
    }
    return rc;
}

static const struct cli_option list_options[] = {
    CLI_DEAD_SELECT_OPTIONS,
    {"jsonl", 0, NULL, false, "one JSON object a line instead of a table"},
};

const struct cli_command cli_command_dead_list = {
    .name = "dead list",
    .operands = "",
    .summary = "List the dead letters",
    .text = "Without options all of them, store by store, oldest first.",
    .examples = "tidings dead list\ntidings dead list --consumer mail --code exhausted --jsonl",
    CLI_OPTIONS(list_options),
    .run = list_run,
};

/* ---- show ---- */

struct show {
    size_t count;
    bool json;
    struct tdi_buf buf;
};

static void show_field(const char *name, struct td_str value)
{
    if (!tdi_str_empty(value)) {
        printf("  %-14s ", name);
        cli_put(stdout, value);
        fputc('\n', stdout);
    }
}

static void show_time(const char *name, td_time_us t)
{
    char text[TDI_TIME_BYTES];
    if (t != TD_TIME_NONE) {
        show_field(name, tdi_str(tdi_time_format(t, text)));
    }
}

static void show_body(const struct td_parked_row *row)
{
    struct td_str body = {row->message.body.data, row->message.body.len};
    if (row->body_dropped) {
        puts("  body           dropped, the message is finished");
    } else if (body.data == NULL) {
        puts("  body           NULL (tombstone)");
    } else if (!tdi_utf8_valid(body)) {
        printf("  body           %zu bytes that are not UTF-8; --json shows them in base64\n",
               body.len);
    } else {
        printf("  body           %zu bytes\n\n", body.len);
        cli_put(stdout, body);
        puts("\n");
    }
}

static void show_text(struct cli_dead *d, const struct td_parked_row *row)
{
    cli_put(stdout, row->message.type);
    fputs("  ", stdout);
    cli_put(stdout, tdi_str_empty(row->message.key) ? TD_STR_LIT("(no key)") : row->message.key);
    fputs("  from ", stdout);
    cli_put(stdout, row->message.source);
    fputc('\n', stdout);
    show_field("id", row->message.id);
    show_field("consumer", tdi_plan_short(&d->plan, row->consumer, &d->cli->arena));
    show_field("outcome", tdi_str(tdi_outcome_name(row->outcome)));
    show_field("code", tdi_str(tdi_dead_code_name(row->code)));
    show_field("reason", row->reason);
    show_field("error type", row->error_type);
    show_field("error", row->error_message);
    show_field("handler", row->handler);
    printf("  %-14s %" PRId32 " of %" PRId32 "\n", "attempts", row->attempts, row->attempt_limit);
    show_time("first failed", row->first_failed_at);
    show_time("last failed", row->last_failed_at);
    show_field("origin", row->origin);
    for (size_t i = 0; i < row->message.headers_count; i++) {
        fputs("  header         ", stdout);
        cli_put(stdout, row->message.headers[i].name);
        fputs(": ", stdout);
        cli_put(stdout, row->message.headers[i].value);
        fputc('\n', stdout);
    }
    show_field("history", row->history);
    show_body(row);
}

static bool show_row(struct cli_dead *d, struct td_store *store, const struct td_parked_row *row,
                     void *ctx)
{
    struct show *s = ctx;
    (void)store;
    if (s->json) {
        tdi_buf_add_cstr(&s->buf, s->count > 0 ? "," : "");
        tdi_letter_json(&s->buf, &d->plan, row, true, &d->cli->arena);
    } else {
        show_text(d, row);
    }
    s->count++;
    return true;
}

static int show_run(struct cli *cli)
{
    struct cli_dead d;
    struct show s = {.json = cli_flag(cli, "json")};
    int rc = cli_dead_begin(cli, &d);
    if (rc != CLI_DONE) {
        return rc;
    }
    d.filter.id = tdi_str(cli->operands[0]);
    d.filter.any_outcome = true;
    d.filter.with_body = true;
    tdi_buf_init(&s.buf, JSON_MAX);
    rc = cli_dead_walk(&d, false, show_row, &s);
    if (rc == CLI_DONE && s.count == 0) {
        cli_error("no consumer has a parked message %s; 'tidings trace %s' tells where it is",
                  cli->operands[0], cli->operands[0]);
        rc = CLI_FOUND;
    } else if (rc == CLI_DONE && s.json) {
        /* One object where one consumer has it, else a list. */
        fputs(s.count > 1 ? "[" : "", stdout);
        cli_put_buf(stdout, &s.buf);
        puts(s.count > 1 ? "]" : "");
    }
    tdi_buf_release(&s.buf);
    return rc;
}

static const struct cli_option show_options[] = {
    {"consumer", 0, "NAME", false, "only of this consumer"},
    {"json", 0, NULL, false, "a JSON object (a list where several consumers have it)"},
};

const struct cli_command cli_command_dead_show = {
    .name = "dead show",
    .operands = "ID",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "Show a dead letter (or another parked message) with body and history",
    .text = "",
    .examples = "tidings dead show 0192f1c7-1a2b-7000-8000-3f00aa55bb10\n"
                "tidings dead show 0192f1c7 --json",
    CLI_OPTIONS(show_options),
    .run = show_run,
};
