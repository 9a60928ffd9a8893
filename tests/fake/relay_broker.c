/* See relay_broker.h. */
#include "relay_broker.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

struct relay_broker_session {
    struct td_broker head;
    struct relay_broker_client *client;
    int number;
    bool ordered;
    bool failed; /* ordered: refuses everything from now on */
    struct relay_pending pending[RELAY_PENDING_MAX];
    size_t pending_count;
    struct td_published results[RELAY_PENDING_MAX];
    size_t results_count;
};

void relay_world_init(struct relay_world *w, struct relay_db *db)
{
    w->db = db;
    w->time = db->time;
}

struct td_str relay_broker_location(struct relay_broker_client *c)
{
    return (struct td_str){.data = (const char *)c, .len = sizeof(*c)};
}

void relay_verdict(struct relay_world *w, int64_t seq, int times, enum td_publish_result result,
                   enum td_err code, enum td_err_class class_)
{
    for (size_t i = 0; i < RELAY_VERDICTS_MAX; i++) {
        if (w->verdicts[i].times == 0) {
            w->verdicts[i] = (struct relay_verdict){seq, times, result, code, class_, false};
            return;
        }
    }
}

/* ---- what the broker does with a row ---------------------------------------------------- */

static void check_order(struct relay_db *db, int64_t seq)
{
    const struct relay_row *row = &db->rows[seq - 1];

    for (int64_t s = 1; s < seq && row->key[0] != '\0'; s++) {
        const struct relay_row *before = &db->rows[s - 1];
        if (strcmp(before->key, row->key) == 0 && before->accepted == 0 && before->dead == 0 &&
            !before->foreign) {
            relay_violation(db, "row %" PRId64 " is published before %" PRId64 " of its key", seq,
                            s);
        }
    }
}

static void store_row(struct relay_world *w, int64_t seq, bool replay)
{
    struct relay_row *row = &w->db->rows[seq - 1];

    if (replay) {
        row->letter.published++; /* out of order by nature */
        return;
    }
    if (row->accepted++ == 0) {
        check_order(w->db, seq);
    }
    if (row->foreign) {
        relay_violation(w->db, "row %" PRId64 " of another broker is published", seq);
    }
}

static void check_submitted(struct relay_world *w, const struct td_publish *item)
{
    const struct td_message *m = item->message;
    struct td_bytes body = TD_BYTES_NONE;
    int64_t seq = m->sequence;

    if (seq < 1 || seq > w->db->committed) {
        relay_violation(w->db, "row %" PRId64 " does not exist", seq);
        return;
    }
    const struct relay_row *row = &w->db->rows[seq - 1];
    if (seq > w->db->durable) {
        relay_violation(w->db, "row %" PRId64 " is published before it is on disk", seq);
    }
    body = row->message.body;
    if (item->replay && row->letter.edited != NULL) {
        body = (struct td_bytes){row->letter.edited, strlen(row->letter.edited)};
    }
    if (item->replay && row->letter.fence == 0) {
        relay_violation(w->db, "letter %" PRId64 " is published, and nobody has leased it", seq);
    }
    if (!tdi_str_is(m->id, row->id) || m->body.len != body.len ||
        memcmp(m->body.data, body.data, body.len) != 0) {
        relay_violation(w->db, "row %" PRId64 " is not what was written", seq);
    }
    if (m->published_at == TD_TIME_NONE || m->published_at > w->time->wall) {
        relay_violation(w->db, "row %" PRId64 " has no time of publication", seq);
    }
    if (m->deliver_at != TD_TIME_NONE) {
        relay_violation(w->db, "row %" PRId64 " goes out with a time that has passed", seq);
    }
    if (item->topic.len == 0 || !tdi_str_eq(item->topic, m->topic)) {
        relay_violation(w->db, "row %" PRId64 " has no topic", seq);
    }
}

static struct relay_verdict verdict_of(struct relay_world *w, int64_t seq)
{
    struct relay_verdict v = {seq, 1, TD_PUBLISH_ACCEPTED, TD_OK, TD_CLASS_RETRY, false};

    for (size_t i = 0; i < RELAY_VERDICTS_MAX; i++) {
        if (w->verdicts[i].times > 0 && w->verdicts[i].seq == seq) {
            w->verdicts[i].times--;
            return w->verdicts[i];
        }
    }
    if (w->judge != NULL) {
        w->judge(w->ctx, seq, &v);
    }
    return v;
}

bool relay_broker_answer_at(struct relay_broker_client *c, size_t index)
{
    struct relay_broker_session *s = c->session;

    if (s == NULL || index >= s->pending_count || (s->ordered && index > 0)) {
        return false;
    }
    struct relay_pending p = s->pending[index];
    if (p.message->sequence != p.seq) {
        relay_violation(c->world->db, "row %" PRId64 " was changed or freed in flight", p.seq);
    }
    struct relay_verdict v = {p.seq,          1,    TD_PUBLISH_REFUSED, TD_ERR_UNAVAILABLE,
                              TD_CLASS_RETRY, false};
    if (!s->failed) {
        v = verdict_of(c->world, p.seq);
    }
    memmove(&s->pending[index], &s->pending[index + 1],
            (s->pending_count - index - 1) * sizeof(s->pending[0]));
    s->pending_count--;
    if (v.result == TD_PUBLISH_ACCEPTED || v.stored) {
        store_row(c->world, p.seq, p.replay);
    }
    s->failed = s->failed || (s->ordered && v.result != TD_PUBLISH_ACCEPTED);
    s->results[s->results_count++] = (struct td_published){
        .token = p.token,
        .result = v.result,
        .code = v.code,
        .class_ = v.class_,
        .evidence = (uint64_t)p.seq,
    };
    return true;
}

bool relay_broker_answer(struct relay_broker_client *c, int64_t seq)
{
    for (size_t i = 0; c->session != NULL && i < c->session->pending_count; i++) {
        if (c->session->pending[i].seq == seq) {
            return relay_broker_answer_at(c, i);
        }
    }
    return false;
}

size_t relay_broker_in_flight(const struct relay_broker_client *c)
{
    return c->session == NULL ? 0 : c->session->pending_count;
}

td_time_us relay_broker_published_at(const struct relay_broker_client *c, int64_t seq)
{
    for (size_t i = 0; c->session != NULL && i < c->session->pending_count; i++) {
        if (c->session->pending[i].seq == seq) {
            return c->session->pending[i].message->published_at;
        }
    }
    return 0;
}

bool relay_broker_holds(const struct relay_broker_client *c, int64_t seq)
{
    return relay_broker_published_at(c, seq) != 0;
}

void relay_broker_late(struct relay_world *w, size_t index)
{
    if (index >= w->late_count) {
        return;
    }
    struct relay_late l = w->late[index];
    for (size_t i = 0; l.ordered && i < index; i++) {
        if (w->late[i].session == l.session) {
            return;
        }
    }
    memmove(&w->late[index], &w->late[index + 1], (w->late_count - index - 1) * sizeof(l));
    w->late_count--;
    store_row(w, l.seq, l.replay);
}

/* ---- slots ------------------------------------------------------------------------------ */

static struct relay_broker_client *client_of(struct td_broker *b)
{
    return ((struct relay_broker_session *)b)->client;
}

static bool fails(struct relay_broker_client *c, enum relay_broker_call call,
                  struct relay_plan *ret)
{
    c->calls[call]++;
    c->calls_total++;
    return relay_fails(&c->faults, (int)call, ret);
}

static enum td_err open_session(struct td_broker *b, const struct td_broker_options *o,
                                bool ordered, struct td_error *err)
{
    struct relay_broker_session *s = (struct relay_broker_session *)b;
    struct relay_broker_client *c = (struct relay_broker_client *)(uintptr_t)o->location.data;
    struct relay_plan p;

    if (fails(c, RELAY_BROKER_OPEN, &p)) {
        return relay_failure(&p, err);
    }
    if (o->role != TD_BROKER_PUBLISH || c->session != NULL) {
        relay_violation(c->world->db, "a second session, or not one for publishing");
    }
    s->client = c;
    s->ordered = ordered;
    s->number = ++c->world->sessions;
    c->session = s;
    c->open++;
    return TD_OK;
}

static enum td_err broker_open(struct td_broker *b, const struct td_broker_options *o,
                               struct td_error *err)
{
    return open_session(b, o, false, err);
}

static enum td_err broker_open_ordered(struct td_broker *b, const struct td_broker_options *o,
                                       struct td_error *err)
{
    return open_session(b, o, true, err);
}

/* What was not processed may be, later: the connection is gone, the data may be under way. */
static void broker_close(struct td_broker *b)
{
    struct relay_broker_session *s = (struct relay_broker_session *)b;
    struct relay_broker_client *c = s->client;

    if (c == NULL) {
        return;
    }
    c->calls[RELAY_BROKER_CLOSE]++;
    c->calls_total++;
    for (size_t i = 0; i < s->pending_count; i++) {
        if (s->pending[i].message->sequence != s->pending[i].seq) {
            relay_violation(c->world->db, "a row was freed in flight");
        }
    }
    for (size_t i = 0; i < s->pending_count && !s->failed; i++) {
        if (c->world->late_count < RELAY_LATE_MAX) {
            c->world->late[c->world->late_count++] =
                (struct relay_late){s->pending[i].seq, s->number, s->ordered, s->pending[i].replay};
        }
    }
    c->session = NULL;
    c->open--;
}

static void broker_interrupt(struct td_broker *b)
{
    client_of(b)->interrupted++;
}

static enum td_err broker_submit(struct td_broker *b, const struct td_publish *items, size_t count,
                                 size_t *ret_taken, struct td_error *err)
{
    struct relay_broker_session *s = (struct relay_broker_session *)b;
    struct relay_broker_client *c = s->client;
    size_t max = c->pipeline_max > 0 ? c->pipeline_max : RELAY_PENDING_MAX;
    size_t taken = 0;
    struct relay_plan p;

    if (fails(c, RELAY_BROKER_SUBMIT, &p)) {
        return relay_failure(&p, err);
    }
    while (taken < count && s->pending_count < max &&
           s->results_count + s->pending_count < RELAY_PENDING_MAX) {
        check_submitted(c->world, &items[taken]);
        if (s->pending_count > 0 && s->pending[0].replay != items[taken].replay) {
            relay_violation(c->world->db, "letters and rows are in flight together");
        }
        s->pending[s->pending_count++] = (struct relay_pending){
            .token = items[taken].token,
            .seq = items[taken].message->sequence,
            .replay = items[taken].replay,
            .message = items[taken].message,
        };
        taken++;
    }
    c->submitted += (int)taken;
    c->in_flight_max = s->pending_count > c->in_flight_max ? s->pending_count : c->in_flight_max;
    *ret_taken = taken;
    return TD_OK;
}

static void answer_all(struct relay_broker_client *c)
{
    struct relay_broker_session *s = c->session;

    while (s->pending_count > 0) {
        relay_broker_answer_at(c, c->world->reversed && !s->ordered ? s->pending_count - 1 : 0);
    }
}

static enum td_err broker_collect(struct td_broker *b, td_time_us deadline_us,
                                  struct td_published *ret, size_t max, size_t *ret_count,
                                  struct td_error *err)
{
    struct relay_broker_session *s = (struct relay_broker_session *)b;
    struct relay_broker_client *c = s->client;
    struct relay_plan p;

    if (fails(c, RELAY_BROKER_COLLECT, &p)) {
        return relay_failure(&p, err);
    }
    if (!c->world->held) {
        answer_all(c);
    }
    if (s->results_count == 0 && c->world->time->patient) {
        relay_time_pass(c->world->time, deadline_us - c->world->time->mono);
    }
    size_t count = s->results_count < max ? s->results_count : max;
    memcpy(ret, s->results, count * sizeof(*ret));
    memmove(s->results, s->results + count, (s->results_count - count) * sizeof(*ret));
    s->results_count -= count;
    *ret_count = count;
    return TD_OK;
}

/* ---- slots that a relay must not call --------------------------------------------------- */

static enum td_err refuse(struct td_error *err, const char *why)
{
    memset(err, 0, sizeof(*err));
    return td_error_set(err, TD_ERR_INTERNAL, "%s", why);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define UNUSED(name, ...)                                                                          \
    static enum td_err unused_##name(struct td_broker *b, __VA_ARGS__, struct td_error *err)       \
    {                                                                                              \
        return refuse(err, "a relay does not call " #name);                                        \
    }

UNUSED(info, struct tdi_arena *a, struct td_broker_info *ret_info)
UNUSED(topology_diff, const struct td_topology *wanted, struct tdi_arena *a,
       struct td_topology_difference **ret, size_t *ret_count)
UNUSED(topology_apply, const struct td_topology *wanted, struct tdi_arena *a,
       struct td_topology_difference **ret, size_t *ret_count)
UNUSED(subscribe, const struct td_subscription *sub)
UNUSED(fetch, size_t max, td_time_us deadline_us, struct tdi_arena *a, struct td_fetch *ret_fetch)
UNUSED(ack, const uint64_t *handles, size_t count)
UNUSED(nack, const uint64_t *handles, size_t count)
UNUSED(pause, int32_t shard, bool paused)
UNUSED(lag, struct td_str consumer, struct tdi_arena *a, struct td_lag **ret, size_t *ret_count)
UNUSED(seek, int32_t shard, int64_t offset, td_time_us time_us)

#pragma GCC diagnostic pop

#define TABLE(open_slot, caps_)                                                                    \
    {                                                                                              \
        .abi = TD_BROKER_ABI, .struct_size = sizeof(struct td_broker_driver), .name = "fake",      \
        .caps = (caps_), .session_size = sizeof(struct relay_broker_session), .open = (open_slot), \
        .close = broker_close, .interrupt = broker_interrupt, .submit = broker_submit,             \
        .collect = broker_collect, .info = unused_info, .topology_diff = unused_topology_diff,     \
        .topology_apply = unused_topology_apply, .subscribe = unused_subscribe,                    \
        .fetch = unused_fetch, .ack = unused_ack, .nack = unused_nack, .pause = unused_pause,      \
        .lag = unused_lag, .seek = unused_seek                                                     \
    }

const struct td_broker_driver relay_broker_driver = TABLE(broker_open, 0);
const struct td_broker_driver relay_broker_driver_ordered =
    TABLE(broker_open_ordered, TD_BROKER_ORDERED_PIPELINE);
