/*
 * The order gate of one shard of a consumer: decides for each delivery whether it may run now, must
 * wait for an earlier one of its key, or must be parked behind one. Pure: it knows tokens and keys,
 * neither messages nor who runs them.
 *
 *   none    everything runs; the gate keeps nothing
 *   skip    one run of a key at a time, live deliveries in order of arrival
 *   block   the same, and live deliveries of a blocked key are parked in order of arrival
 *
 * A key is blocked as long as the store says that any parked row blocks it (`key_blocked` of a
 * settlement, parked_keys at take-over), and as long as a delivery that the gate sent to be parked
 * is not reported back: otherwise a key could be unblocked between that decision and its commit.
 * Results must be reported in the order of their commits, and each report drained with
 * tdi_gate_next() before the next delivery is offered.
 *
 * Messages without a key (absent or empty) always run. Handlers inside the transaction, of which
 * one batch runs at a time, need only tdi_gate_blocked() and tdi_gate_mark().
 *
 * Invariants: at most one run of a key; waiting deliveries leave in order of arrival; never more
 * than keys_max keys and waiting_max waiting deliveries. Not for threads.
 */
#ifndef TDI_CORE_GATE_H
#define TDI_CORE_GATE_H

#include "base/map.h"
#include "tidings/types.h"

enum tdi_gate_mode {
    TDI_GATE_NONE,
    TDI_GATE_SKIP,
    TDI_GATE_BLOCK,
};

enum tdi_gate_answer {
    TDI_GATE_RUN,  /* start it; report the end with tdi_gate_end() */
    TDI_GATE_WAIT, /* the gate keeps its token; tdi_gate_next() gives it back */
    TDI_GATE_PARK, /* settle it as blocked, after those sent before; report tdi_gate_parked() */
    TDI_GATE_FULL, /* a limit or memory: nothing was changed. Offer this one again before any other
                      delivery of the shard */
};

struct tdi_gate_waiting; /* private: a delivery in the queue of its key */

struct tdi_gate {
    enum tdi_gate_mode mode;
    struct tdi_map keys;           /* key -> private entry: blocked, running, parking or waiting */
    struct tdi_gate_waiting *pool; /* waiting_max of them */
    struct tdi_gate_waiting *pool_free;
    size_t waiting; /* in all queues */
    size_t running; /* keys with a run */
    size_t blocked; /* keys with the mark */
};

/* false: out of memory. seed: for the hash of keys. */
bool tdi_gate_init(struct tdi_gate *g, enum tdi_gate_mode mode, size_t keys_max, size_t waiting_max,
                   const uint64_t seed[2]);
void tdi_gate_release(struct tdi_gate *g);
/* Forget everything, marks too: before the keys are loaded at a take-over. No report of what was
 * decided before may follow. */
void tdi_gate_clear(struct tdi_gate *g);
/* Forget the waiting live deliveries, as their session is gone. Runs, marks and waiting parked runs
 * stay, and what is running or being parked must still be reported (a parking that was given up as
 * blocked = true). */
void tdi_gate_forget_live(struct tdi_gate *g);

/* A live delivery. */
enum tdi_gate_answer tdi_gate_offer(struct tdi_gate *g, struct td_str key, uint64_t token);
/* A leased parked row: the mark of its key does not hold it. RUN, WAIT or FULL. */
enum tdi_gate_answer tdi_gate_offer_parked(struct tdi_gate *g, struct td_str key, uint64_t token);

/* A run has ended and is settled, or was given up. blocked: does a row block the key now? */
void tdi_gate_end(struct tdi_gate *g, struct td_str key, bool blocked);
/* A delivery with answer PARK is settled. */
void tdi_gate_parked(struct tdi_gate *g, struct td_str key, bool blocked);
/* The next waiting delivery of the key that may go: RUN or PARK. Repeat until false. */
bool tdi_gate_next(struct tdi_gate *g, struct td_str key, uint64_t *ret_token,
                   enum tdi_gate_answer *ret_answer);

/* What the store said about a key outside of a run: at take-over, of a known unfinished message, of
 * a row that was settled dead. Only BLOCK keeps marks. false: full or out of memory, and the key is
 * NOT marked: the shard must not go on. */
bool tdi_gate_mark(struct tdi_gate *g, struct td_str key, bool blocked);
bool tdi_gate_blocked(const struct tdi_gate *g, struct td_str key);
/* A run of this key is going on. */
bool tdi_gate_busy(const struct tdi_gate *g, struct td_str key);

#endif
