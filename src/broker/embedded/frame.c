/* Frames of the broker's socket; see frame.h. */
#include "broker/embedded/frame.h"

#include <string.h>

#include "base/buf.h"

#define LENGTH_BYTES 4
#define TEXT_BYTES_MAX 320
#define FLAG_REPLAY 1u
#define FLAG_TOMBSTONE 2u

static const char magic[4] = {'T', 'd', 'B', 'r'};

/* ---- writing ---- */

static void put(struct tdi_buf *b, uint64_t v, unsigned bytes)
{
    char out[8];
    for (unsigned i = 0; i < bytes; i++) {
        out[i] = (char)(unsigned char)((v >> (8 * (bytes - 1 - i))) & 0xff);
    }
    tdi_buf_add(b, out, bytes);
}

static void put_head(struct tdi_buf *b, size_t payload, enum tdd_emb_frame_kind kind)
{
    put(b, payload + 1, LENGTH_BYTES);
    put(b, (uint64_t)kind, 1);
}

void tdd_emb_frame_hello(struct tdi_buf *b, enum tdd_emb_frame_kind kind, uint16_t protocol)
{
    put_head(b, sizeof(magic) + 2, kind);
    tdi_buf_add(b, magic, sizeof(magic));
    put(b, protocol, 2);
}

void tdd_emb_frame_publish(struct tdi_buf *b, const struct tdd_emb_frame *f)
{
    size_t fixed = 8 + 4 + 1 + 8 + 2 + 4;
    put_head(b, fixed + f->topic.len + f->envelope.len + f->body.len, TDD_EMB_FRAME_PUBLISH);
    put(b, f->token, 8);
    put(b, f->epoch, 4);
    put(b, (f->replay ? FLAG_REPLAY : 0) | (f->body.data == NULL ? FLAG_TOMBSTONE : 0), 1);
    put(b, (uint64_t)f->published_at, 8);
    put(b, f->topic.len, 2);
    put(b, f->envelope.len, 4);
    tdi_buf_add_str(b, f->topic);
    tdi_buf_add_str(b, f->envelope);
    if (f->body.len > 0) {
        tdi_buf_add(b, f->body.data, f->body.len);
    }
}

void tdd_emb_frame_answer(struct tdi_buf *b, const struct td_published *a)
{
    put_head(b, 8 + 1 + 1 + 1 + 2 + 8, TDD_EMB_FRAME_ANSWER);
    put(b, a->token, 8);
    put(b, (uint64_t)a->result, 1);
    put(b, a->duplicate ? 1 : 0, 1);
    put(b, (uint64_t)a->class_, 1);
    put(b, (uint64_t)a->code, 2);
    put(b, a->evidence, 8);
}

void tdd_emb_frame_refuse(struct tdi_buf *b, enum td_err code, struct td_str text)
{
    text.len = text.len < TEXT_BYTES_MAX ? text.len : TEXT_BYTES_MAX;
    put_head(b, 2 + text.len, TDD_EMB_FRAME_REFUSE);
    put(b, (uint64_t)code, 2);
    tdi_buf_add_str(b, text);
}

/* ---- reading ---- */

struct cursor {
    const unsigned char *at;
    size_t left;
    bool bad;
};

static uint64_t get(struct cursor *c, unsigned bytes)
{
    uint64_t v = 0;
    if (c->left < bytes) {
        c->bad = true;
        c->left = 0;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++) {
        v = v << 8 | c->at[i];
    }
    c->at += bytes;
    c->left -= bytes;
    return v;
}

static struct td_str get_str(struct cursor *c, size_t len)
{
    if (c->left < len) {
        c->bad = true;
        c->left = 0;
        return TD_STR_NONE;
    }
    struct td_str s = {.data = (const char *)c->at, .len = len};
    c->at += len;
    c->left -= len;
    return s;
}

static void parse_hello(struct cursor *c, struct tdd_emb_frame *f)
{
    struct td_str m = get_str(c, sizeof(magic));
    f->protocol = (uint16_t)get(c, 2);
    c->bad = c->bad || c->left > 0 || m.data == NULL || memcmp(m.data, magic, sizeof(magic)) != 0;
}

static void parse_publish(struct cursor *c, struct tdd_emb_frame *f)
{
    f->token = get(c, 8);
    f->epoch = (uint32_t)get(c, 4);
    uint64_t flags = get(c, 1);
    f->replay = (flags & FLAG_REPLAY) != 0;
    f->published_at = (int64_t)get(c, 8);
    size_t topic = (size_t)get(c, 2);
    size_t envelope = (size_t)get(c, 4);
    f->topic = get_str(c, topic);
    f->envelope = get_str(c, envelope);
    bool tombstone = (flags & FLAG_TOMBSTONE) != 0;
    f->body = tombstone ? TD_BYTES_NONE : (struct td_bytes){.data = c->at, .len = c->left};
    c->bad = c->bad || (flags & ~(uint64_t)(FLAG_REPLAY | FLAG_TOMBSTONE)) != 0 ||
             (tombstone && c->left > 0);
}

/* A number of the other end as one of our codes; 0 is TD_OK. */
static bool code_of(uint64_t v, enum td_err *ret)
{
    if (v > TD_ERR_CLOSED) {
        return false;
    }
    *ret = (enum td_err)v;
    return true;
}

static void parse_answer(struct cursor *c, struct tdd_emb_frame *f)
{
    f->token = f->answer.token = get(c, 8);
    uint64_t result = get(c, 1);
    uint64_t duplicate = get(c, 1);
    uint64_t class_ = get(c, 1);
    uint64_t code = get(c, 2);
    f->answer.evidence = get(c, 8);
    c->bad = c->bad || c->left > 0 || result > TD_PUBLISH_UNKNOWN || duplicate > 1 ||
             class_ > TD_CLASS_FATAL || !code_of(code, &f->answer.code);
    if (!c->bad) {
        f->answer.result = (enum td_publish_result)result;
        f->answer.duplicate = duplicate == 1;
        f->answer.class_ = (enum td_err_class)class_;
    }
}

static void parse_refuse(struct cursor *c, struct tdd_emb_frame *f)
{
    c->bad = !code_of(get(c, 2), &f->code) || f->code == TD_OK || c->bad;
    f->text = get_str(c, c->left < TEXT_BYTES_MAX ? c->left : TEXT_BYTES_MAX);
}

static bool parse_payload(struct cursor *c, uint64_t kind, struct tdd_emb_frame *f)
{
    switch (kind) {
    case TDD_EMB_FRAME_HELLO:
    case TDD_EMB_FRAME_WELCOME:
        parse_hello(c, f);
        break;
    case TDD_EMB_FRAME_PUBLISH:
        parse_publish(c, f);
        break;
    case TDD_EMB_FRAME_ANSWER:
        parse_answer(c, f);
        break;
    case TDD_EMB_FRAME_REFUSE:
        parse_refuse(c, f);
        break;
    default: /* a number from outside */
        return false;
    }
    f->kind = (enum tdd_emb_frame_kind)kind;
    return !c->bad;
}

enum tdd_emb_frame_status tdd_emb_frame_parse(const void *data, size_t len, size_t max,
                                              struct tdd_emb_frame *ret, size_t *ret_used)
{
    struct cursor c = {.at = data, .left = len};
    if (len < LENGTH_BYTES + 1) {
        return TDD_EMB_FRAME_MORE;
    }
    size_t length = (size_t)get(&c, LENGTH_BYTES);
    uint64_t kind = get(&c, 1);
    /* A wrong beginning is seen before a buffer of the announced size is filled. */
    size_t limit = kind == TDD_EMB_FRAME_PUBLISH ? TDD_EMB_FRAME_MAX : TDD_EMB_FRAME_SMALL_MAX;
    if (length < 1 || length > limit || length > max || kind < TDD_EMB_FRAME_HELLO ||
        kind > TDD_EMB_FRAME_REFUSE) {
        return TDD_EMB_FRAME_BAD;
    }
    if (len - LENGTH_BYTES < length) {
        return TDD_EMB_FRAME_MORE;
    }
    struct tdd_emb_frame f = {0};
    c.left = length - 1;
    if (!parse_payload(&c, kind, &f)) {
        return TDD_EMB_FRAME_BAD;
    }
    *ret = f;
    *ret_used = LENGTH_BYTES + length;
    return TDD_EMB_FRAME_GOOD;
}
