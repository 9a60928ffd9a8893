/*
 * `tidings bench`: measures this program on this machine, with real files that are removed afterwards.
 */
#include "cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/commands.h"

#define SECONDS_DEFAULT 60

struct part {
    const char *name; /* of the figure in the JSON */
    enum td_err (*run)(struct bench *b, struct td_error *err);
};

static const struct part parts[] = {
    {"path", bench_path},
    {"single_key", bench_single_key},
    {"one_row_per_commit", bench_one_row},
    {"latency_at_1000", bench_latency},
    {"broker", bench_broker_alone},
    {"idle_rss_mib", bench_idle_memory},
    {"start_to_publish_ms", bench_start_time},
    {"app_commit_p99_ms", bench_app_commit},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static int read_seconds(struct cli *cli, int *ret)
{
    const char *text = cli_value(cli, "seconds");
    int64_t seconds = SECONDS_DEFAULT;
    if (text != NULL &&
        (!tdi_str_to_i64(tdi_str(text), &seconds) || seconds < 1 || seconds > BENCH_SECONDS_MAX)) {
        return cli_usage(cli, "--seconds takes 1 to %d", BENCH_SECONDS_MAX);
    }
    *ret = (int)seconds;
    return CLI_DONE;
}

/* A part is named by its figure, or the beginning of it. */
static bool is_named(const struct cli *cli, const struct part *part)
{
    const char *name;
    for (size_t i = 0; (name = cli_value_at(cli, "only", i)) != NULL; i++) {
        if (strncmp(part->name, name, strlen(name)) == 0 && name[0] != '\0') {
            return true;
        }
    }
    return !cli_flag(cli, "only");
}

static int check_names(struct cli *cli)
{
    const char *name;
    for (size_t i = 0; (name = cli_value_at(cli, "only", i)) != NULL; i++) {
        bool found = false;
        for (size_t k = 0; k < PARTS; k++) {
            found = found || (strncmp(parts[k].name, name, strlen(name)) == 0 && name[0] != '\0');
        }
        if (!found) {
            return cli_usage(cli, "there is no part '%s'", name);
        }
    }
    return CLI_DONE;
}

static enum td_err make_shared(struct bench *b, struct td_error *err)
{
    size_t rows = (size_t)(b->seconds + BENCH_SLACK_SECONDS) * BENCH_LATENCY_RATE;
    b->shared_bytes = sizeof(*b->shared) + rows * sizeof(b->shared->noted_us[0]);
    void *at =
        mmap(NULL, b->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return td_error_set(err, TD_ERR_NOMEM, "no memory for the measurement");
    }
    b->shared = at;
    b->shared->noted_max = rows;
    return TD_OK;
}

static enum td_err make_folder(struct bench *b, const char *above, struct td_error *err)
{
    int len = snprintf(b->folder, sizeof(b->folder), "%s/tidings-bench-XXXXXX", above);
    if (len < 0 || (size_t)len + 64 > sizeof(b->folder)) {
        return td_error_set(err, TD_ERR_USAGE, "the name of the folder is too long");
    }
    if (mkdtemp(b->folder) == NULL) {
        return td_error_set(err, TD_ERR_CANNOT_CREATE, "%s: %s", b->folder, strerror(errno));
    }
    return TD_OK;
}

static double load_now(void)
{
    double load[1] = {0};
    return getloadavg(load, 1) == 1 ? load[0] : 0;
}

static enum td_err run_parts(struct cli *cli, struct bench *b, struct td_error *err)
{
    enum td_err rc = TD_OK;
    b->load_first = load_now();
    for (size_t i = 0; rc == TD_OK && i < PARTS; i++) {
        if (is_named(cli, &parts[i])) {
            cli_say(cli, "tidings bench: %s ...", parts[i].name);
            rc = parts[i].run(b, err);
        }
    }
    b->load_last = load_now();
    return rc;
}

static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

static int bench_run(struct cli *cli)
{
    struct bench b = {.cli = cli, .clock = cli->clock, .processors = sysconf(_SC_NPROCESSORS_ONLN)};
    struct td_error err;
    const char *above = cli_value(cli, "dir");
    int rc = read_seconds(cli, &b.seconds);
    rc = rc == CLI_DONE ? check_names(cli) : rc;
    if (rc != CLI_DONE) {
        return rc;
    }
    block_signals();
    enum td_err done = make_shared(&b, &err);
    if (done == TD_OK) {
        done = make_folder(&b, above != NULL ? above : ".", &err);
    }
    if (done == TD_OK) {
        done = run_parts(cli, &b, &err);
        bench_folder_remove(b.folder);
    }
    if (b.shared != NULL) {
        munmap(b.shared, b.shared_bytes);
    }
    if (done != TD_OK) {
        return cli_fail(cli, &err);
    }
    if (cli_flag(cli, "json")) {
        bench_print_json(&b);
    } else {
        bench_print_text(&b);
    }
    return CLI_DONE;
}

static const struct cli_option bench_options[] = {
    {"json", 0, NULL, false, "one JSON document instead of text"},
    {"seconds", 0, "N", false, "length of each part (60)"},
    {"dir", 0, "DIR", false, "where the files go; the current folder otherwise"},
    {"only", 0, "PART", true,
     "only this part: path, single_key, one_row, latency, broker, idle, "
     "start, app"},
};

const struct cli_command cli_command_bench = {
    .name = "bench",
    .operands = "",
    .summary = "Measure throughput, latency and memory on this machine",
    .text =
        "Makes databases, a broker and a configuration of its own in a fresh folder, runs\n"
        "`tidings run` on them and removes them. Everything is durable. Each figure is printed\n"
        "with its aim and with what the bare disk gives in the same minute: compare ratios, for\n"
        "rates differ between machines. Needs no configuration.",
    .examples = "tidings bench --seconds 10\ntidings bench --json --only path --only broker",
    CLI_OPTIONS(bench_options),
    .run = bench_run,
};
