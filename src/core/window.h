/*
 * The relay's window: the rows that were read from an outbox and are not settled yet, in publishing
 * order, and the two questions that keep the promises of a relay: which rows may be submitted now,
 * and up to which row everything is settled. Pure; knows neither store nor broker sessions.
 *
 * Order of one key, in both modes: a refused (dead) row holds later rows of its key from being
 * submitted until tdi_window_settled() says that the transaction which parks it is committed.
 *   ordered    the broker takes rows strictly in order and refuses everything after a failure
 *              (TD_BROKER_ORDERED_PIPELINE). A row that is refused or given back breaks the session:
 *              later submitted rows go back to queued, nothing is submitted before
 *              tdi_window_session(), and nothing behind a refused row before it is settled.
 *   otherwise  at most one row of a key is in flight; a row without a key is never held.
 *
 * Invariants: tokens grow by one from 0 and are never used again; rows leave only at the front, by
 * tdi_window_settled(). Not for threads.
 */
#ifndef TDI_CORE_WINDOW_H
#define TDI_CORE_WINDOW_H

#include "base/map.h"
#include "tidings/store.h"

#define TDI_WINDOW_ROWS_MAX 65536
#define TDI_WINDOW_TOKEN_NONE UINT64_MAX

enum tdi_window_state {
    TDI_WINDOW_QUEUED,    /* not at the broker, or given back */
    TDI_WINDOW_SUBMITTED, /* at the broker, no answer yet */
    TDI_WINDOW_ACCEPTED,
    TDI_WINDOW_REFUSED, /* by its own fault: to be parked as dead */
    TDI_WINDOW_SKIPPED, /* of another broker */
};

struct tdi_window_key; /* private: the unsettled rows of one key */

struct tdi_window_row {
    const struct td_outbox_row *row; /* borrowed until the row is settled */
    enum tdi_window_state state;
    enum td_dead_code dead_code; /* REFUSED */
    struct td_str dead_reason;   /* REFUSED; borrowed until the row is settled */
    uint64_t evidence;           /* ACCEPTED: the broker's number */
    struct tdi_window_key *key;  /* private: NULL if the row is not bound by a key */
    uint64_t next;               /* private: token of the next row of that key */
};

struct tdi_window {
    struct tdi_window_row *rows; /* ring; a row lies at token % capacity */
    size_t capacity;
    uint64_t first;   /* token of the oldest row */
    uint64_t end;     /* token of the next row to come */
    size_t submitted; /* rows at the broker */
    bool ordered;
    bool broken;         /* ordered: wait for a new session */
    uint64_t cursor;     /* ordered: no row before it is queued */
    struct tdi_map keys; /* otherwise: key -> struct tdi_window_key */
    struct tdi_window_key *pool;
    struct tdi_window_key *pool_free;
    uint64_t *ready; /* otherwise: ring of queued rows that may go now */
    size_t ready_first;
    size_t ready_count;
};

/* false: out of memory, capacity 0 or above TDI_WINDOW_ROWS_MAX; the window is then released.
 * seed: for the hash of keys. */
bool tdi_window_init(struct tdi_window *w, size_t capacity, bool ordered, const uint64_t seed[2]);
void tdi_window_release(struct tdi_window *w);
/* Forget all rows, as at a take-over; tokens go on growing. */
void tdi_window_clear(struct tdi_window *w);

static inline size_t tdi_window_count(const struct tdi_window *w)
{
    return (size_t)(w->end - w->first);
}

static inline size_t tdi_window_room(const struct tdi_window *w)
{
    return w->capacity - tdi_window_count(w);
}

/* A row that is in the window. */
const struct tdi_window_row *tdi_window_at(const struct tdi_window *w, uint64_t token);

/* Add the next row, queued; its token is the former `end`. false: full (ask for room first) or out
 * of memory; nothing was added. */
bool tdi_window_push(struct tdi_window *w, const struct td_outbox_row *row);
/* The same for a row that another broker gets. */
bool tdi_window_push_skipped(struct tdi_window *w, const struct td_outbox_row *row);
/* The same for a row that cannot be published at all (defect, no topic). */
bool tdi_window_push_refused(struct tdi_window *w, const struct td_outbox_row *row,
                             enum td_dead_code code, struct td_str reason);

/* Tokens of at most max rows that may be submitted now, in the order in which to submit them. */
size_t tdi_window_ready(const struct tdi_window *w, uint64_t *ret_tokens, size_t max);
/* The broker took the first `taken` of the rows that tdi_window_ready() gave last. */
void tdi_window_submitted(struct tdi_window *w, size_t taken);

/* Answers of the broker. false: the row is not submitted (any more): an answer of a former session,
 * nothing was changed. */
bool tdi_window_accept(struct tdi_window *w, uint64_t token, uint64_t evidence);
bool tdi_window_refuse(struct tdi_window *w, uint64_t token, enum td_dead_code code,
                       struct td_str reason);
/* Not stored, not by its own fault: queued again. */
bool tdi_window_give_back(struct tdi_window *w, uint64_t token);
/* A new session is open, the answers of the old one are lost: what was submitted is queued again. */
void tdi_window_session(struct tdi_window *w);

/* The settled front of the window: what one relay_settle() may store. */
struct tdi_window_front {
    size_t rows;                        /* 0: nothing is settled, the rest is not set */
    const struct td_position *position; /* after the last of them */
    int64_t from_seq;                   /* lowest and highest sequence number; TD_NUMBER_NONE: */
    int64_t to_seq;                     /* no row had one */
    int64_t published;                  /* accepted ones */
    size_t dead;                        /* refused ones; look for them with tdi_window_at() */
    uint64_t evidence;                  /* of the last accepted one; 0 if none */
};

/* Ends before the row that would be the (dead_max + 1)th refused one. */
void tdi_window_front(const struct tdi_window *w, size_t dead_max, struct tdi_window_front *ret);
/* The transaction with the position after the first `rows` rows is committed: they leave, and what
 * the refused ones among them held may go. */
void tdi_window_settled(struct tdi_window *w, size_t rows);

#endif
