/*
 * The parked rows of the fake store: a dead row of the outbox is a letter, which an operator may
 * replay. Slots that a relay calls to run it, and a transaction that other slots must not be called
 * in. Used by relay_store.c; tests use the functions at the end.
 */
#ifndef FAKE_RELAY_LETTERS_H
#define FAKE_RELAY_LETTERS_H

#include "relay_store.h"

struct relay_store_session {
    struct td_store head;
    struct relay_store_client *client;
};

/* relay_store.c: for slots in other files. */
bool relay_store_fails(struct relay_store_client *c, enum relay_store_call call,
                       struct relay_plan *ret);
enum td_err relay_store_refuse(struct td_error *err, enum td_err code, const char *why);

enum td_err relay_store_begin(struct td_store *s, struct td_error *err);
enum td_err relay_store_inbox_settle(struct td_store *s, struct td_str consumer, int32_t shard,
                                     struct td_str lease, int64_t fence, struct td_settle *items,
                                     size_t count, struct td_error *err);
enum td_err relay_store_finish(struct td_store *s, bool commit, struct td_error *err);
enum td_err relay_store_parked_due(struct td_store *s, struct td_str lease,
                                   const struct td_parked_due *ask, struct tdi_arena *a,
                                   struct td_parked_batch *ret_batch, struct td_error *err);
/* The row has just been parked. */
void relay_letter_new(struct relay_row *row);

/* ---- for tests -------------------------------------------------------------------------- */

/* What an operator does: due after so long, with so many runs more. */
void relay_letter_replay(struct relay_db *db, int64_t seq, int32_t more, td_time_us after_us);
/* No letter waits to be run. */
bool relay_letters_ended(const struct relay_db *db);

#endif
