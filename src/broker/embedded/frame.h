/*
 * What goes over <dir>/broker.sock: frames of a 32-bit length (big endian, of what follows), a kind
 * and fields. Pure: no sockets, no allocation but the buffer that is appended to. Whatever the other
 * end sends, parsing reads only what is there.
 *
 *   client: HELLO, then PUBLISH ...      server: WELCOME, then ANSWER ...; or REFUSE and the end
 */
#ifndef TDD_EMBEDDED_FRAME_H
#define TDD_EMBEDDED_FRAME_H

#include "tidings/broker.h"

struct tdi_buf;

#define TDD_EMB_PROTOCOL 1
#define TDD_EMB_FRAME_SMALL_MAX 1024                            /* every kind but PUBLISH */
#define TDD_EMB_FRAME_MAX ((size_t)TD_BODY_BYTES_MAX + 1049600) /* a body and an envelope */

enum tdd_emb_frame_kind {
    TDD_EMB_FRAME_HELLO = 1,
    TDD_EMB_FRAME_WELCOME = 2,
    TDD_EMB_FRAME_PUBLISH = 3,
    TDD_EMB_FRAME_ANSWER = 4,
    TDD_EMB_FRAME_REFUSE = 5,
};

struct tdd_emb_frame {
    enum tdd_emb_frame_kind kind;
    uint16_t protocol; /* HELLO, WELCOME */
    uint32_t epoch;    /* PUBLISH: the client's; grows when it has seen a refusal and drained */
    bool replay;       /* PUBLISH */
    td_time_us published_at;    /* PUBLISH */
    struct td_str topic;        /* PUBLISH */
    struct td_str envelope;     /* PUBLISH */
    struct td_bytes body;       /* PUBLISH */
    uint64_t token;             /* PUBLISH, and its ANSWER */
    struct td_published answer; /* ANSWER */
    enum td_err code;           /* REFUSE */
    struct td_str text;         /* REFUSE */
};

enum tdd_emb_frame_status {
    TDD_EMB_FRAME_GOOD,
    TDD_EMB_FRAME_MORE, /* not all of it is here yet */
    TDD_EMB_FRAME_BAD,  /* never will be one */
};

/* The first frame of data; fields point into it. max: of the length that may be announced. */
enum tdd_emb_frame_status tdd_emb_frame_parse(const void *data, size_t len, size_t max,
                                              struct tdd_emb_frame *ret, size_t *ret_used);

void tdd_emb_frame_hello(struct tdi_buf *b, enum tdd_emb_frame_kind kind, uint16_t protocol);
void tdd_emb_frame_publish(struct tdi_buf *b, const struct tdd_emb_frame *f);
void tdd_emb_frame_answer(struct tdi_buf *b, const struct td_published *a);
void tdd_emb_frame_refuse(struct tdi_buf *b, enum td_err code, struct td_str text);

#endif
