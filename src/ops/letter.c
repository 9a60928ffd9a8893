/* Dead letters and other parked messages as JSON. */
#include "ops/letter.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"
#include "core/deadletter.h"
#include "core/envelope.h"

void tdi_json_add_time(struct tdi_buf *b, bool *first, const char *key, td_time_us t)
{
    char text[TDI_TIME_BYTES];
    tdi_json_add_member(b, first, key,
                        t == TD_TIME_NONE ? TD_STR_NONE : tdi_str(tdi_time_format(t, text)));
}

/* JSON that we stored ourselves; anything else becomes null rather than a broken document. */
static void add_raw(struct tdi_buf *b, bool *first, const char *key, struct td_str json)
{
    tdi_json_add_key(b, first, key);
    if (tdi_str_empty(json) || !tdi_json_valid(json, NULL, NULL)) {
        tdi_buf_add_cstr(b, "null");
    } else {
        tdi_buf_add_str(b, json);
    }
}

static void add_body(struct tdi_buf *b, bool *first, const struct td_parked_row *row)
{
    struct td_str text = {row->message.body.data, row->message.body.len};
    if (row->body_dropped) {
        return;
    }
    if (text.data == NULL || tdi_utf8_valid(text)) {
        tdi_json_add_member(b, first, "body", text);
        return;
    }
    tdi_json_add_key(b, first, "body_base64");
    tdi_buf_add_char(b, '"');
    tdi_base64_add(b, text.data, text.len);
    tdi_buf_add_char(b, '"');
}

static void add_full(struct tdi_buf *b, bool *first, const struct td_parked_row *row)
{
    tdi_json_add_member(b, first, "outcome", tdi_str(tdi_outcome_name(row->outcome)));
    tdi_json_add_member_int(b, first, "attempt_limit", row->attempt_limit);
    tdi_json_add_member_int(b, first, "revision", row->revision);
    tdi_json_add_time(b, first, "due_at", row->due_at);
    tdi_json_add_member(b, first, "error_type", row->error_type);
    tdi_json_add_member(b, first, "error_message", row->error_message);
    tdi_json_add_member(b, first, "handler", row->handler);
    tdi_json_add_key(b, first, "headers");
    tdi_headers_write(b, row->message.headers, row->message.headers_count);
    tdi_json_add_key(b, first, "envelope");
    tdi_envelope_write(b, &row->message);
    add_body(b, first, row);
    add_raw(b, first, "history", row->history);
}

void tdi_letter_json(struct tdi_buf *b, const struct tdi_plan *plan,
                     const struct td_parked_row *row, bool full, struct tdi_arena *a)
{
    bool first = true;
    tdi_buf_add_char(b, '{');
    tdi_json_add_member(b, &first, "consumer", tdi_plan_short(plan, row->consumer, a));
    tdi_json_add_member(b, &first, "source", row->message.source);
    tdi_json_add_member(b, &first, "id", row->message.id);
    tdi_json_add_member(b, &first, "type", row->message.type);
    tdi_json_add_member(b, &first, "key", row->message.key);
    tdi_json_add_member(b, &first, "code", tdi_str(tdi_dead_code_name(row->code)));
    tdi_json_add_member(b, &first, "reason", row->reason);
    tdi_json_add_member_int(b, &first, "attempts", row->attempts);
    tdi_json_add_time(b, &first, "first_failed_at", row->first_failed_at);
    tdi_json_add_time(b, &first, "last_failed_at", row->last_failed_at);
    add_raw(b, &first, "origin", row->origin);
    if (full) {
        add_full(b, &first, row);
    }
    tdi_buf_add_char(b, '}');
}
