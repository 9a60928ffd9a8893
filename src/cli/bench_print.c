/* What was measured, for people (each figure with its aim and the bare disk) and as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"
#include "bench/db.h"
#include "cli/bench.h"
#include "tdi_version.h"

#define JSON_BYTES_MAX 65536

/* ---- text ---- */

static void line(const char *what, const char *is, const char *aim, const char *raw)
{
    printf("%-38s %12s  %12s  %s\n", what, is, aim, raw);
}

static void flow_line(const char *what, const struct bench_flow *f, const char *aim)
{
    char is[32], raw[96];
    if (f->measured) {
        snprintf(is, sizeof(is), "%.0f/s", f->per_second);
        snprintf(raw, sizeof(raw), "%.0f/s appended and synced", f->raw.per_second);
        line(what, is, aim, raw);
    }
}

static void cpu_line(const struct bench_flow *f)
{
    char is[64], raw[96];
    if (f->measured) {
        snprintf(is, sizeof(is), "%.1f us", f->cpu_us_per_message);
        snprintf(raw, sizeof(raw), "%.1f us of it in tidings run, others used %.0f %%",
                 f->cpu_run_us_per_message, f->cpu_others_percent);
        line("  processor time of a message", is, "", raw);
        snprintf(is, sizeof(is), "%" PRId64, f->backlog_last);
        line("  waiting at the end", is, "bounded", "");
        snprintf(is, sizeof(is), "%.1f MiB", f->rss_after_mib);
        line("  memory of tidings run after it", is, "", "");
    }
}

static void ms_line(const char *what, double ms, const char *aim, const struct bench_raw *r,
                    double raw_ms)
{
    char is[32], raw[96] = "";
    (void)r;
    snprintf(is, sizeof(is), "%.2f ms", ms);
    if (raw_ms > 0) {
        snprintf(raw, sizeof(raw), "%.2f ms for one append and sync", raw_ms);
    }
    line(what, is, aim, raw);
}

static void print_rest(const struct bench *b)
{
    char is[32], raw[96];
    if (b->broker.measured) {
        const struct bench_broker *k = &b->broker;
        snprintf(is, sizeof(is), "%.0f/s", k->per_second);
        snprintf(raw, sizeof(raw), "%.0f/s appended and synced; ratio %.2f, others used %.0f %%",
                 k->raw.per_second, k->per_second / k->raw.per_second, k->cpu_others_percent);
        line("the broker alone", is, ">= raw / 3", raw);
    }
    if (b->idle.measured) {
        snprintf(is, sizeof(is), "%.1f MiB", b->idle.rss_mib);
        snprintf(raw, sizeof(raw), "%.1f of it anonymous, %.1f of files; %" PRId64 " threads",
                 b->idle.anonymous_mib, b->idle.file_mib, b->idle.threads);
        line("memory at rest", is, "< 8 MiB", raw);
    }
    if (b->start.measured) {
        ms_line("from exec to the first row published", b->start.median_ms, "< 50 ms", NULL, 0);
        ms_line("  the slowest start", b->start.worst_ms, "", NULL, 0);
    }
    if (b->app_commit.measured) {
        const struct bench_flow *a = &b->app_commit;
        ms_line("commit of an application, p99", a->p99_ms, "< 50 ms", &a->raw, a->raw.p99_ms);
        ms_line("  p50", a->p50_ms, "", &a->raw, a->raw.p50_ms);
        flow_line("  rows a second meanwhile", a, "");
    }
}

void bench_print_text(const struct bench *b)
{
    printf("tidings bench %s, SQLite %s, %ld processors, %d s a part, load %.1f before, %.1f "
           "after\n\n",
           TDI_VERSION, bench_db_version(), b->processors, b->seconds, b->load_first, b->load_last);
    line("", "measured", "aim", "bare disk, in the same minute");
    flow_line("committed row to effect", &b->path, ">= 25000/s");
    cpu_line(&b->path);
    flow_line("all of one key", &b->single_key, ">= 5000/s");
    flow_line("one row a commit", &b->one_row, "");
    if (b->latency.measured) {
        const struct bench_flow *l = &b->latency;
        ms_line("row to effect at 1,000/s, p99", l->p99_ms, "< 25 ms", &l->raw, l->raw.p99_ms);
        ms_line("  p50", l->p50_ms, "", &l->raw, l->raw.p50_ms);
        flow_line("  rows a second", l, "1000/s");
    }
    print_rest(b);
}

/* ---- JSON ---- */

static void number(struct tdi_buf *out, bool *first, const char *key, double v)
{
    tdi_json_add_key(out, first, key);
    tdi_buf_printf(out, "%.3f", v);
}

static void open_object(struct tdi_buf *out, bool *first, const char *key)
{
    tdi_json_add_key(out, first, key);
    tdi_buf_add_char(out, '{');
}

static void add_raw(struct tdi_buf *out, bool *first, const struct bench_raw *r)
{
    number(out, first, "raw_per_second", r->per_second);
    number(out, first, "raw_p50_ms", r->p50_ms);
    number(out, first, "raw_p99_ms", r->p99_ms);
}

static void add_flow(struct tdi_buf *out, bool *first, const char *key, const struct bench_flow *f)
{
    bool in = true;
    if (!f->measured) {
        return;
    }
    open_object(out, first, key);
    number(out, &in, "per_second", f->per_second);
    if (f->samples > 0) {
        number(out, &in, "p50_ms", f->p50_ms);
        number(out, &in, "p99_ms", f->p99_ms);
        tdi_json_add_member_int(out, &in, "samples", f->samples);
    }
    number(out, &in, "cpu_us_per_message", f->cpu_us_per_message);
    number(out, &in, "cpu_run_us_per_message", f->cpu_run_us_per_message);
    number(out, &in, "cpu_others_percent", f->cpu_others_percent);
    tdi_json_add_member_int(out, &in, "backlog_first", f->backlog_first);
    tdi_json_add_member_int(out, &in, "backlog_last", f->backlog_last);
    tdi_json_add_member_int(out, &in, "committed", f->committed);
    tdi_json_add_member_int(out, &in, "effects", f->effects);
    number(out, &in, "rss_after_mib", f->rss_after_mib);
    add_raw(out, &in, &f->raw);
    tdi_buf_add_char(out, '}');
}

static void add_broker(struct tdi_buf *out, bool *first, const struct bench_broker *k)
{
    bool in = true;
    open_object(out, first, "broker");
    number(out, &in, "per_second", k->per_second);
    number(out, &in, "cpu_us_per_message", k->cpu_us_per_message);
    number(out, &in, "cpu_others_percent", k->cpu_others_percent);
    number(out, &in, "ratio_to_raw", k->per_second / k->raw.per_second);
    tdi_buf_add_char(out, '}');
    in = true;
    open_object(out, first, "raw");
    number(out, &in, "per_second", k->raw.per_second);
    number(out, &in, "p50_ms", k->raw.p50_ms);
    number(out, &in, "p99_ms", k->raw.p99_ms);
    tdi_buf_add_char(out, '}');
}

static void add_rest(struct tdi_buf *out, bool *first, const struct bench *b)
{
    if (b->broker.measured) {
        add_broker(out, first, &b->broker);
    }
    if (b->idle.measured) {
        number(out, first, "idle_rss_mib", b->idle.rss_mib);
        number(out, first, "idle_anonymous_mib", b->idle.anonymous_mib);
        number(out, first, "idle_file_mib", b->idle.file_mib);
        tdi_json_add_member_int(out, first, "idle_threads", b->idle.threads);
    }
    if (b->start.measured) {
        number(out, first, "start_to_publish_ms", b->start.median_ms);
        number(out, first, "start_to_publish_worst_ms", b->start.worst_ms);
    }
    if (b->app_commit.measured) {
        number(out, first, "app_commit_p99_ms", b->app_commit.p99_ms);
        number(out, first, "app_commit_p50_ms", b->app_commit.p50_ms);
        add_flow(out, first, "app_commit", &b->app_commit);
    }
}

void bench_print_json(const struct bench *b)
{
    struct tdi_buf out;
    bool first = true;
    tdi_buf_init(&out, JSON_BYTES_MAX);
    tdi_buf_add_char(&out, '{');
    tdi_json_add_member(&out, &first, "version", tdi_str(TDI_VERSION));
    tdi_json_add_member(&out, &first, "sqlite", tdi_str(bench_db_version()));
    tdi_json_add_member_int(&out, &first, "processors", b->processors);
    tdi_json_add_member_int(&out, &first, "seconds", b->seconds);
    number(&out, &first, "load_first", b->load_first);
    number(&out, &first, "load_last", b->load_last);
    add_flow(&out, &first, "path", &b->path);
    add_flow(&out, &first, "single_key", &b->single_key);
    add_flow(&out, &first, "one_row_per_commit", &b->one_row);
    add_flow(&out, &first, "latency_at_1000", &b->latency);
    add_rest(&out, &first, b);
    tdi_buf_add_cstr(&out, "}\n");
    cli_put_buf(stdout, &out);
    tdi_buf_release(&out);
}
