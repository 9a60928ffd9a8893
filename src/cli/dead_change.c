/*
 * `tidings dead replay` and `tidings dead discard`.
 *
 * The selection is frozen first: what dies while the command works is not touched. Each letter is changed in
 * a transaction of its own on the condition that it is still as it was found, so stopping the command in
 * the middle leaves every letter either changed or as it was, and running it twice changes nothing twice.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/dead.h"
#include "cli/session.h"
#include "core/deadletter.h"
#include "core/retry.h"
#include "store/registry.h"

#define SELECTED_MAX 1000000
#define WAIT_STEP_US (100 * TD_MILLISECOND_US)

struct letter {
    struct td_str consumer;
    struct td_message_ref ref;
    int64_t revision;
    enum td_dead_code code;
    size_t store; /* number of the configuration */
    bool changed;
};

struct selection {
    struct letter *letters;
    size_t count, cap;
    size_t skipped; /* stale ones that were not named */
    bool take_stale;
    bool full; /* too many, or no memory */
};

struct outcome {
    size_t selected, replayed, discarded, failed_again, skipped;
};

/* ---- freezing the selection ---- */

static bool grow(struct selection *s)
{
    size_t cap = s->cap == 0 ? 64 : s->cap * 2;
    struct letter *more = realloc(s->letters, cap * sizeof(*more));
    if (more != NULL) {
        s->letters = more;
        s->cap = cap;
    }
    return more != NULL;
}

static size_t store_number(const struct cli_dead *d, struct td_str consumer)
{
    for (size_t i = 0; i < d->plan.relays_count; i++) {
        if (tdi_str_eq(d->plan.relays[i].consumer, consumer)) {
            return (size_t)(d->plan.relays[i].outbox->store - d->config->stores);
        }
    }
    const struct tdi_config_consumer *c = tdi_config_consumer_find(d->config, consumer);
    return c != NULL ? (size_t)(c->store - d->config->stores) : 0;
}

static bool freeze(struct cli_dead *d, struct td_store *store, const struct td_parked_row *row,
                   void *ctx)
{
    struct selection *s = ctx;
    struct tdi_arena *a = &d->cli->arena;
    struct letter l = {
        .revision = row->revision,
        .code = row->code,
        .store = store_number(d, row->consumer),
    };
    (void)store;
    if (row->code == TD_DEAD_STALE && !s->take_stale) {
        s->skipped++;
        return true;
    }
    if (s->count == SELECTED_MAX || (s->count == s->cap && !grow(s)) ||
        !tdi_arena_str(a, row->consumer, &l.consumer) ||
        !tdi_arena_str(a, row->message.source, &l.ref.source) ||
        !tdi_arena_str(a, row->message.id, &l.ref.id)) {
        s->full = true;
        return false;
    }
    s->letters[s->count++] = l;
    return true;
}

static int select_letters(struct cli_dead *d, struct selection *s, bool discard)
{
    if (!cli_dead_selected(d->cli)) {
        return cli_usage(d->cli, "say which letters: --id, --consumer, --code, --type or --all");
    }
    s->take_stale = discard || (d->filter.code == TD_DEAD_STALE && cli_flag(d->cli, "as-new"));
    int rc = cli_dead_walk(d, false, freeze, s);
    if (rc == CLI_DONE && s->full) {
        cli_error("more than %d letters, or no memory for them; select fewer", SELECTED_MAX);
        rc = CLI_DATA;
    }
    return rc;
}

/* ---- changing ---- */

static int32_t attempts_of(const struct cli_dead *d, struct td_str consumer)
{
    const struct tdi_config_consumer *c = tdi_config_consumer_find(d->config, consumer);
    return c != NULL ? c->retry.attempts : tdi_retry_default().attempts; /* else a relay's */
}

/* Letters of one store with one session. */
static enum td_err change_store(struct cli_dead *d, struct selection *s, size_t number,
                                const struct td_parked_change *what, td_time_us gap_us,
                                struct td_error *err)
{
    struct td_store *store = NULL;
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < s->count && rc == TD_OK; i++) {
        struct letter *l = &s->letters[i];
        if (l->store != number) {
            continue;
        }
        if (store == NULL) {
            rc = cli_store_open(d->cli, d->config, &d->config->stores[number], CLI_WRITE, &store,
                                err);
            if (rc != TD_OK) {
                return rc;
            }
        }
        struct td_parked_change change = *what;
        change.consumer = l->consumer;
        change.ref = l->ref;
        change.revision = l->revision;
        change.attempts_more = attempts_of(d, l->consumer);
        change.due_after_us = gap_us * (td_time_us)i;
        rc = store->driver->parked_change(store, &change, err);
        l->changed = rc == TD_OK && change.changed;
    }
    tdi_store_close(store);
    return rc;
}

static int change_all(struct cli_dead *d, struct selection *s, const struct td_parked_change *what,
                      td_time_us gap_us, size_t *ret_changed)
{
    struct td_error err;
    for (size_t i = 0; i < d->config->stores_count; i++) {
        if (change_store(d, s, i, what, gap_us, &err) != TD_OK) {
            return cli_fail(d->cli, &err);
        }
    }
    for (size_t i = 0; i < s->count; i++) {
        *ret_changed += s->letters[i].changed ? 1 : 0;
    }
    return CLI_DONE;
}

static void print_outcome(const struct cli *cli, const struct outcome *o, const char *verb,
                          size_t changed)
{
    if (cli_flag(cli, "json")) {
        printf("{\"selected\":%zu,\"%s\":%zu,\"failed_again\":%zu,\"skipped\":%zu}\n", o->selected,
               verb, changed, o->failed_again, o->skipped);
        return;
    }
    printf("%zu selected, %zu %s", o->selected, changed, verb);
    if (o->skipped > 0) {
        printf(", %zu skipped", o->skipped);
    }
    if (o->failed_again > 0) {
        printf(", %zu failed again", o->failed_again);
    }
    fputc('\n', stdout);
}

/* Ask on a terminal; elsewhere the selector and the reason are the consent. */
static bool consent(const struct cli *cli, const char *verb, size_t count)
{
    char answer[16];
    if (count == 0 || cli_flag(cli, "yes") || isatty(STDIN_FILENO) == 0) {
        return true;
    }
    fprintf(stderr, "%s %zu dead letter%s? [y/N] ", verb, count, count == 1 ? "" : "s");
    return fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
}

/* ---- waiting for a replay ---- */

static bool alive(const struct cli_dead *d, struct td_store *store, const struct letter *l)
{
    struct td_lease_state *leases;
    struct td_error ignored;
    size_t count = 0;
    struct td_str name = tdi_str_starts(l->consumer, "relay:")
                             ? (struct td_str){l->consumer.data + 6, l->consumer.len - 6}
                             : tdi_arena_printf(&d->cli->arena, "consumer:%s:0", l->consumer.data);
    if (store->driver->lease_scan(store, &d->cli->arena, &leases, &count, &ignored) != TD_OK) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (tdi_str_eq(leases[i].name, name)) {
            return leases[i].alive;
        }
    }
    return false;
}

/* Where are the replayed letters of one store? TD_OK with the numbers. */
static enum td_err look(struct cli_dead *d, struct selection *s, size_t number, size_t *ret_waiting,
                        size_t *ret_dead, bool *ret_runs, struct td_error *err)
{
    struct td_store *store = NULL;
    enum td_err rc = TD_OK;
    for (size_t i = 0; i < s->count && rc == TD_OK; i++) {
        struct letter *l = &s->letters[i];
        struct td_inbox_state state;
        if (l->store != number || !l->changed) {
            continue;
        }
        if (store == NULL) {
            rc = cli_store_open(d->cli, d->config, &d->config->stores[number], CLI_READ, &store,
                                err);
            if (rc != TD_OK) {
                return rc;
            }
            *ret_runs = *ret_runs || alive(d, store, l);
        }
        rc = store->driver->inbox_look(store, l->consumer, &l->ref, 1, &state, err);
        if (rc == TD_OK) {
            *ret_dead += state.outcome == TD_OUTCOME_DEAD ? 1 : 0;
            *ret_waiting += state.outcome == TD_OUTCOME_RETRY ? 1 : 0;
        }
    }
    tdi_store_close(store);
    return rc;
}

/* Until every replayed letter has come to an end. Gives up when nothing runs that would do it. */
static int wait_for_end(struct cli_dead *d, struct selection *s, struct outcome *o)
{
    for (;;) {
        size_t waiting = 0, dead = 0;
        bool runs = false;
        struct td_error err;
        for (size_t i = 0; i < d->config->stores_count; i++) {
            if (look(d, s, i, &waiting, &dead, &runs, &err) != TD_OK) {
                return cli_fail(d->cli, &err);
            }
        }
        o->failed_again = dead;
        if (waiting == 0 || !runs) {
            if (waiting > 0) {
                cli_say(d->cli, "nothing runs that would do it: 'tidings run' does");
            }
            return CLI_DONE;
        }
        usleep((useconds_t)WAIT_STEP_US);
    }
}

/* "10/s" or "10": the time between two letters. */
static bool parse_rate(const char *text, td_time_us *ret_gap)
{
    struct td_str s = tdi_str(text);
    int64_t n;
    if (s.len > 2 && memcmp(s.data + s.len - 2, "/s", 2) == 0) {
        s.len -= 2;
    }
    if (!tdi_str_to_i64(s, &n) || n < 1 || n > 1000000) {
        return false;
    }
    *ret_gap = TD_SECOND_US / n;
    return true;
}

static int replay_run(struct cli *cli)
{
    struct cli_dead d;
    struct selection s = {.count = 0};
    struct outcome o = {.selected = 0};
    const char *rate = cli_value(cli, "rate");
    td_time_us gap = 0;
    int rc = cli_dead_begin(cli, &d);
    if (rc == CLI_DONE && rate != NULL && !parse_rate(rate, &gap)) {
        rc = cli_usage(cli, "--rate is a number a second, such as 10/s");
    }
    if (rc == CLI_DONE) {
        rc = select_letters(&d, &s, false);
    }
    o.skipped = s.skipped;
    o.selected = s.count + s.skipped;
    if (rc == CLI_DONE && !cli_flag(cli, "dry-run")) {
        struct td_parked_change what = {.kind = TD_PARKED_REPLAY, .actor = cli_actor(cli)};
        rc = change_all(&d, &s, &what, gap, &o.replayed);
        o.skipped += s.count - o.replayed;
        bool wait = cli_flag(cli, "wait") || (isatty(STDOUT_FILENO) && !cli_flag(cli, "no-wait"));
        if (rc == CLI_DONE && wait && o.replayed > 0) {
            rc = wait_for_end(&d, &s, &o);
        }
    }
    if (rc == CLI_DONE) {
        print_outcome(cli, &o, "replayed", o.replayed);
    }
    free(s.letters);
    return rc;
}

static int discard_run(struct cli *cli)
{
    struct cli_dead d;
    struct selection s = {.count = 0};
    struct outcome o = {.selected = 0};
    const char *reason = cli_value(cli, "reason");
    int rc = cli_dead_begin(cli, &d);
    if (rc == CLI_DONE && (reason == NULL || reason[0] == '\0')) {
        rc = cli_usage(cli, "--reason is missing: it is kept with the letter");
    }
    if (rc == CLI_DONE) {
        rc = select_letters(&d, &s, true);
    }
    o.selected = s.count;
    if (rc == CLI_DONE && !consent(cli, "Discard", s.count)) {
        cli_say(cli, "nothing discarded");
        rc = CLI_FOUND;
    }
    if (rc == CLI_DONE && !cli_flag(cli, "dry-run")) {
        struct td_parked_change what = {
            .kind = TD_PARKED_DISCARD,
            .actor = cli_actor(cli),
            .reason = tdi_str(reason),
        };
        rc = change_all(&d, &s, &what, 0, &o.discarded);
        o.skipped = s.count - o.discarded;
    }
    if (rc == CLI_DONE) {
        print_outcome(cli, &o, "discarded", o.discarded);
    }
    free(s.letters);
    return rc;
}

static const struct cli_option replay_options[] = {
    CLI_DEAD_SELECT_OPTIONS,
    {"all", 0, NULL, false, "every dead letter"},
    {"rate", 0, "N/s", false, "so many a second at most"},
    {"as-new", 0, NULL, false, "with --code stale: run messages that may have taken effect before"},
    {"wait", 0, NULL, false, "wait until they have come to an end (the default on a terminal)"},
    {"no-wait", 0, NULL, false, "do not wait"},
    {"dry-run", 0, NULL, false, "only say how many would be replayed"},
    {"json", 0, NULL, false, "a JSON object instead of text"},
};

const struct cli_command cli_command_dead_replay = {
    .name = "dead replay",
    .operands = "",
    .summary = "Run dead letters again, for exactly the consumer that failed",
    .text =
        "A letter becomes due now with as many runs as its consumer's retry.attempts; a running\n"
        "'tidings run' does the rest. Attempts that were made stay counted, history stays.\n"
        "What dies while this command works is not selected. Stale letters are passed over\n"
        "unless --code stale --as-new names them: they may have taken effect before.",
    .examples =
        "tidings dead replay --id 0192f1c7\ntidings dead replay --consumer mail --rate 10/s",
    CLI_OPTIONS(replay_options),
    .run = replay_run,
};

static const struct cli_option discard_options[] = {
    CLI_DEAD_SELECT_OPTIONS,
    {"all", 0, NULL, false, "every dead letter"},
    {"reason", 0, "TEXT", false, "why; kept with the letter"},
    {"yes", 'y', NULL, false, "do not ask"},
    {"dry-run", 0, NULL, false, "only say how many would be discarded"},
    {"json", 0, NULL, false, "a JSON object instead of text"},
};

const struct cli_command cli_command_dead_discard = {
    .name = "dead discard",
    .operands = "",
    .summary = "Give dead letters up for good, with a reason",
    .text = "Messages of the same key that wait behind a discarded one go on. The body is kept\n"
            "until the inbox row is pruned.",
    .examples = "tidings dead discard --id 0192f1c7 --reason 'test order of the vendor'",
    CLI_OPTIONS(discard_options),
    .run = discard_run,
};
