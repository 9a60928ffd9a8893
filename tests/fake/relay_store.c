/* See relay_store.h. */
#include "relay_store.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "relay_letters.h"

/* ---- the database ----------------------------------------------------------------------- */

void relay_violation(struct relay_db *db, const char *fmt, ...)
{
    va_list args;

    if (db->violation[0] == '\0') {
        va_start(args, fmt);
        vsnprintf(db->violation, sizeof(db->violation), fmt, args);
        va_end(args);
    }
}

void relay_db_init(struct relay_db *db, struct relay_time *t)
{
    db->time = t;
}

static struct td_str text(const char *s)
{
    return (struct td_str){.data = s, .len = strlen(s)};
}

struct relay_row *relay_db_add(struct relay_db *db, const char *key, const char *type)
{
    if (db->committed == RELAY_ROWS_MAX) {
        relay_violation(db, "the fake's table is full");
        return &db->rows[RELAY_ROWS_MAX - 1];
    }
    struct relay_row *row = &db->rows[db->committed++];
    snprintf(row->id, sizeof(row->id), "id-%" PRId64, db->committed);
    snprintf(row->key, sizeof(row->key), "%s", key == NULL ? "" : key);
    snprintf(row->type, sizeof(row->type), "%s", type);
    snprintf((char *)row->body, sizeof(row->body), "body of %" PRId64, db->committed);
    row->message = (struct td_message){
        .id = text(row->id),
        .source = TD_STR_LIT("shop"),
        .type = text(row->type),
        .key = key == NULL ? TD_STR_NONE : text(row->key),
        .time = db->time->wall,
        .sequence = db->committed,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
        .body = {.data = row->body, .len = sizeof(row->body)},
    };
    db->woken = true;
    return row;
}

void relay_db_topic(struct relay_row *row, const char *topic)
{
    snprintf(row->topic, sizeof(row->topic), "%s", topic);
    row->message.topic = text(row->topic);
}

struct relay_name *relay_db_name_of(struct relay_db *db, struct td_str name)
{
    for (size_t i = 0; i < RELAY_NAMES_MAX; i++) {
        struct relay_name *n = &db->names[i];
        if (n->name[0] == '\0') {
            snprintf(n->name, sizeof(n->name), "%.*s", (int)name.len, name.data);
        }
        if (strlen(n->name) == name.len && memcmp(n->name, name.data, name.len) == 0) {
            return n;
        }
    }
    relay_violation(db, "more relay names than the fake holds");
    return &db->names[0];
}

struct relay_name *relay_db_name(struct relay_db *db, const char *name)
{
    return relay_db_name_of(db, text(name));
}

bool relay_db_all_settled(const struct relay_db *db)
{
    for (int64_t i = 0; i < db->committed; i++) {
        const struct relay_row *row = &db->rows[i];
        if (row->accepted == 0 && row->dead == 0 && !row->foreign) {
            return false;
        }
    }
    return true;
}

struct td_str relay_store_location(struct relay_store_client *c)
{
    return (struct td_str){.data = (const char *)c, .len = sizeof(*c)};
}

/* ---- slots ------------------------------------------------------------------------------ */

static struct relay_store_client *client_of(struct td_store *s)
{
    return ((struct relay_store_session *)s)->client;
}

bool relay_store_fails(struct relay_store_client *c, enum relay_store_call call,
                       struct relay_plan *ret)
{
    if (c->in_tx && call != RELAY_STORE_INBOX && call != RELAY_STORE_FINISH) {
        relay_violation(c->db, "a slot is called inside of a transaction");
    }
    c->calls[call]++;
    c->calls_total++;
    return relay_fails(&c->faults, (int)call, ret);
}

enum td_err relay_store_refuse(struct td_error *err, enum td_err code, const char *why)
{
    memset(err, 0, sizeof(*err));
    return td_error_set(err, code, "%s", why);
}

static enum td_err store_open(struct td_store *s, const struct td_store_options *o,
                              struct td_error *err)
{
    struct relay_store_client *c = (struct relay_store_client *)(uintptr_t)o->location.data;
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_OPEN, &p)) {
        return relay_failure(&p, err);
    }
    ((struct relay_store_session *)s)->client = c;
    c->open++;
    return TD_OK;
}

static void store_close(struct td_store *s)
{
    struct relay_store_client *c = client_of(s);
    if (c != NULL) {
        c->calls[RELAY_STORE_CLOSE]++;
        c->calls_total++;
        c->open--;
        c->in_tx = false; /* rolled back */
    }
}

static void store_interrupt(struct td_store *s)
{
    client_of(s)->interrupted++;
}

static enum td_err store_declare(struct td_store *s, struct td_str relay, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_DECLARE, &p)) {
        return relay_failure(&p, err);
    }
    relay_db_name_of(c->db, relay)->declared = true;
    return TD_OK;
}

/* Data of positions: so many bytes of 0xa5, different in length from read to read. */
static bool position_data(struct relay_db *db, struct tdi_arena *a, struct td_bytes *ret)
{
    size_t len = 1 + (size_t)(db->reads++ % 7) + db->position_bytes;
    unsigned char *data = tdi_arena_alloc(a, len);
    if (data != NULL) {
        memset(data, 0xa5, len);
    }
    *ret = (struct td_bytes){.data = data, .len = len};
    return data != NULL;
}

static int64_t get_position(struct relay_db *db, const struct td_position *p)
{
    const unsigned char *data = p->data.data;
    for (size_t i = 0; i < p->data.len; i++) {
        if (data[i] != 0xa5) {
            relay_violation(db, "the data of a position was changed or freed");
            break;
        }
    }
    if (p->data.len == 0 && p->order != 0) {
        relay_violation(db, "a position has lost its data");
    }
    return p->order;
}

static enum td_err store_position(struct td_store *s, struct td_str relay, struct tdi_arena *a,
                                  struct td_position *ret, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_POSITION, &p)) {
        return relay_failure(&p, err);
    }
    *ret = (struct td_position){.order = relay_db_name_of(c->db, relay)->position};
    if (ret->order > 0 && !position_data(c->db, a, &ret->data)) {
        return relay_store_refuse(err, TD_ERR_NOMEM, "no memory");
    }
    return TD_OK;
}

static bool copy_row(struct relay_db *db, int64_t seq, struct tdi_arena *a,
                     struct td_outbox_row *ret)
{
    const struct relay_row *row = &db->rows[seq - 1];
    ret->message = row->message;
    ret->position.order = seq;
    if (row->defect != NULL) {
        ret->defect = text(row->defect);
    }
    return tdi_arena_str(a, row->message.id, &ret->message.id) &&
           tdi_arena_str(a, row->message.key, &ret->message.key) &&
           tdi_arena_str(a, row->message.type, &ret->message.type) &&
           tdi_arena_str(a, row->message.topic, &ret->message.topic) &&
           tdi_arena_bytes(a, row->message.body, &ret->message.body);
}

static enum td_err store_read(struct td_store *s, const struct td_position *after, size_t max,
                              size_t bytes_max, struct tdi_arena *a,
                              struct td_outbox_row **ret_rows, size_t *ret_count,
                              struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_db *db = c->db;
    struct relay_plan p;
    int64_t seq = get_position(c->db, after);
    size_t count = 0;

    if (relay_store_fails(c, RELAY_STORE_READ, &p)) {
        return relay_failure(&p, err);
    }
    c->read_rows_max = max > c->read_rows_max ? max : c->read_rows_max;
    if (db->rebuilt) {
        return relay_store_refuse(err, TD_ERR_REBUILT, "the outbox was rebuilt");
    }
    struct td_outbox_row *rows = tdi_arena_array(a, max, sizeof(*rows));
    struct td_bytes data;
    if (!position_data(db, a, &data)) {
        return relay_store_refuse(err, TD_ERR_NOMEM, "no memory");
    }
    while (rows != NULL && count < max && seq < db->committed &&
           count * RELAY_BODY_BYTES < bytes_max) {
        seq++;
        if (db->rows[seq - 1].purged) {
            continue;
        }
        if (!copy_row(db, seq, a, &rows[count])) {
            return relay_store_refuse(err, TD_ERR_NOMEM, "no memory");
        }
        rows[count++].position.data = data;
    }
    db->shown = seq > db->shown ? seq : db->shown;
    *ret_rows = rows;
    *ret_count = count;
    return TD_OK;
}

static enum td_err store_durable(struct td_store *s, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_DURABLE, &p)) {
        return relay_failure(&p, err);
    }
    c->db->durable = c->db->shown;
    return TD_OK;
}

static void park(struct relay_db *db, const struct td_relay_dead *d, int64_t to)
{
    int64_t seq = d->message->sequence;
    if (seq < 1 || seq > to) {
        relay_violation(db, "row %" PRId64 " is parked, but the position does not pass it", seq);
        return;
    }
    struct relay_row *row = &db->rows[seq - 1];
    if (++row->dead > 1) {
        relay_violation(db, "row %" PRId64 " is parked twice", seq);
    }
    relay_letter_new(row);
    row->dead_code = d->code;
    snprintf(row->dead_reason, sizeof(row->dead_reason), "%.*s", (int)d->reason.len,
             d->reason.data == NULL ? "" : d->reason.data);
    if (d->message->id.len != strlen(row->id) ||
        memcmp(d->message->id.data, row->id, d->message->id.len) != 0) {
        relay_violation(db, "another row than %" PRId64 " is parked under its number", seq);
    }
}

static void carry_out(struct relay_db *db, struct relay_name *n, const struct td_relay_settle *x)
{
    int64_t to = get_position(db, &x->position);
    if (to <= n->position) {
        relay_violation(db, "the position goes from %" PRId64 " to %" PRId64, n->position, to);
    }
    for (size_t i = 0; i < x->dead_count; i++) {
        park(db, &x->dead[i], to);
    }
    for (int64_t seq = n->position + 1; seq <= to; seq++) {
        const struct relay_row *row = &db->rows[seq - 1];
        if (row->accepted == 0 && row->dead == 0 && !row->foreign) {
            relay_violation(db, "the position covers row %" PRId64 ", whose fate is open", seq);
        }
    }
    n->position = to;
    n->published_total += x->published;
    if (db->settlements < RELAY_ROWS_MAX) {
        db->settled_at[db->settlements] = db->time->mono;
    }
    db->settlements++;
}

static enum td_err store_settle(struct td_store *s, const struct td_relay_settle *x,
                                struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_name *n = relay_db_name_of(c->db, x->relay);
    struct relay_plan p;
    bool failed = relay_store_fails(c, RELAY_STORE_SETTLE, &p);

    if (failed && !p.done) {
        return relay_failure(&p, err);
    }
    if (n->fence != x->fence) {
        return relay_store_refuse(err, TD_ERR_FENCED, "a newer owner");
    }
    carry_out(c->db, n, x);
    return failed ? relay_failure(&p, err) : TD_OK;
}

static enum td_err store_purge(struct td_store *s, td_time_us keep_us, size_t max,
                               size_t *ret_removed, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_db *db = c->db;
    struct relay_plan p;
    size_t removed = 0;

    if (relay_store_fails(c, RELAY_STORE_PURGE, &p)) {
        return relay_failure(&p, err);
    }
    for (int64_t seq = 1; seq <= db->names[0].position && removed < max; seq++) {
        struct relay_row *row = &db->rows[seq - 1];
        if (!row->purged && row->message.time <= db->time->wall - keep_us) {
            row->purged = true;
            removed++;
        }
    }
    *ret_removed = removed;
    return TD_OK;
}

static enum td_err store_wait(struct td_store *s, td_time_us deadline_us, bool *ret_woken,
                              struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_db *db = c->db;
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_WAIT, &p)) {
        return relay_failure(&p, err);
    }
    if (!db->woken && db->time->patient) {
        relay_time_pass(db->time, deadline_us - db->time->mono);
    }
    *ret_woken = db->woken;
    db->woken = false;
    return TD_OK;
}

static enum td_err store_take(struct td_store *s, struct td_str name, td_time_us ttl_us,
                              struct td_lease *ret_lease, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_name *n = relay_db_name_of(c->db, name);
    struct relay_plan p;
    bool failed = relay_store_fails(c, RELAY_STORE_TAKE, &p);

    if (failed && !p.done) {
        return relay_failure(&p, err);
    }
    if (n->owner != 0 && n->owner != c->id && c->db->time->mono < n->until) {
        ret_lease->owner_pid = n->owner;
        return relay_store_refuse(err, TD_ERR_OWNED, "another process owns the relay");
    }
    n->unclean = n->unclean || n->owner != 0;
    n->owner = c->id;
    n->until = c->db->time->mono + ttl_us;
    n->fence++;
    if (failed) {
        return relay_failure(&p, err);
    }
    *ret_lease = (struct td_lease){.fence = n->fence, .unclean = n->unclean};
    relay_time_pass(c->db->time, c->slow_us[RELAY_STORE_TAKE]);
    return TD_OK;
}

static enum td_err store_renew(struct td_store *s, struct td_str name, int64_t fence,
                               td_time_us ttl_us, struct td_str report, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_name *n = relay_db_name_of(c->db, name);
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_RENEW, &p)) {
        return relay_failure(&p, err);
    }
    if (n->fence != fence) {
        return relay_store_refuse(err, TD_ERR_FENCED, "a newer owner");
    }
    n->owner = c->id;
    n->until = c->db->time->mono + ttl_us;
    n->report_len = report.len < sizeof(n->report) ? report.len : sizeof(n->report) - 1;
    memcpy(n->report, report.data, n->report_len);
    n->report[n->report_len] = '\0';
    relay_time_pass(c->db->time, c->slow_us[RELAY_STORE_RENEW]);
    return TD_OK;
}

static enum td_err store_release(struct td_store *s, struct td_str name, int64_t fence,
                                 struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_name *n = relay_db_name_of(c->db, name);
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_RELEASE, &p)) {
        return relay_failure(&p, err);
    }
    if (n->fence != fence) {
        return relay_store_refuse(err, TD_ERR_FENCED, "a newer owner");
    }
    n->owner = 0;
    return TD_OK;
}

static enum td_err store_stats(struct td_store *s, struct td_str relay,
                               struct td_relay_stats *ret_stats, struct td_error *err)
{
    struct relay_store_client *c = client_of(s);
    struct relay_name *n = relay_db_name_of(c->db, relay);
    struct relay_plan p;

    if (relay_store_fails(c, RELAY_STORE_STATS, &p)) {
        return relay_failure(&p, err);
    }
    memset(ret_stats, 0, sizeof(*ret_stats));
    ret_stats->position = n->position;
    ret_stats->declared = n->declared;
    ret_stats->pending = c->db->committed - n->position;
    ret_stats->published_total = n->published_total;
    ret_stats->oldest_pending_us =
        ret_stats->pending > 0 ? c->db->rows[n->position].message.time : TD_TIME_NONE;
    return TD_OK;
}

#include "relay_store_unused.h"

#define TABLE(wait_slot, caps_)                                                                    \
    {                                                                                              \
        .abi = TD_STORE_ABI, .struct_size = sizeof(struct td_store_driver), .name = "fake",        \
        .caps = (caps_), .session_size = sizeof(struct relay_store_session), .open = store_open,   \
        .close = store_close, .interrupt = store_interrupt, .relay_declare = store_declare,        \
        .relay_position = store_position, .outbox_read = store_read,                               \
        .outbox_durable = store_durable, .relay_settle = store_settle,                             \
        .outbox_purge = store_purge, .wait = (wait_slot), .lease_take = store_take,                \
        .lease_renew = store_renew, .lease_release = store_release, .relay_stats = store_stats,    \
        .begin = relay_store_begin, .finish = relay_store_finish,                                  \
        .inbox_settle = relay_store_inbox_settle, .parked_due = relay_store_parked_due,            \
        RELAY_STORE_UNUSED                                                                         \
    }

const struct td_store_driver relay_store_driver =
    TABLE(store_wait, TD_STORE_SERIAL_WRITER | TD_STORE_WAKER);
const struct td_store_driver relay_store_driver_no_wait = TABLE(NULL, TD_STORE_SERIAL_WRITER);
