/*
 * The tables of the fake store and their rules, without sessions and transactions. The rules are
 * written down again from store.h, not taken from a driver.
 */
#ifndef TESTS_FAKE_CONSUMER_TABLES_H
#define TESTS_FAKE_CONSUMER_TABLES_H

#include "fake/consumer_store.h"

struct tdi_arena;

struct fake_inbox {
    char source[FAKE_TEXT_MAX], id[FAKE_TEXT_MAX];
    enum td_outcome outcome;
    int32_t attempts;
};

struct fake_effect {
    char id[FAKE_TEXT_MAX];
};

struct fake_lease {
    bool owned, alive, unclean;
    int64_t session;
    int64_t fence;
    td_time_us until;
    char report[2048];
};

struct fake_tables {
    struct fake_inbox *inbox;
    size_t inbox_count, inbox_cap;
    struct fake_parked *parked;
    size_t parked_count, parked_cap;
    struct fake_effect *effects;
    size_t effects_count, effects_cap;
    int64_t arrivals;
    size_t emitted;
    struct fake_lease lease; /* of `now` only */
};

struct fake_store_data {
    union {
        struct {
            struct fake_tables now;    /* committed */
            struct fake_tables staged; /* of the writer */
            struct fake_tables saved;  /* at the savepoint */
            struct fake_tables late;   /* pending: of a COMMIT that was not answered */
        };
        struct fake_tables all[4];
    };
    int64_t sessions;
    int64_t writer; /* session with a transaction; 0: none */
    bool pending;
    bool late_commits; /* a pending COMMIT always succeeds at a take-over */
    int commits;
    size_t changes; /* of the transaction that is open */
    size_t changes_saved;
    size_t largest;
};

void tables_release(struct fake_tables *t);
void tables_copy(struct fake_tables *to, const struct fake_tables *from);
struct td_inbox_state tables_state(const struct fake_tables *t, const struct td_message_ref *ref);
void tables_put(struct fake_tables *t, const struct td_message_ref *ref, enum td_outcome outcome,
                int32_t attempts);
void tables_remove(struct fake_tables *t, const struct td_message_ref *ref);
struct fake_parked *tables_parked(const struct fake_tables *t, const struct td_message_ref *ref);
size_t tables_parked_count(const struct fake_tables *t, enum td_outcome outcome);
void tables_effect(struct fake_tables *t, struct td_str id);
void tables_settle(struct fake_tables *t, td_time_us now, struct td_settle *item);
void tables_due(struct fake_tables *t, td_time_us now, const struct td_parked_due *ask,
                struct tdi_arena *a, struct td_parked_batch *ret);
void tables_keys(const struct fake_tables *t, struct tdi_arena *a, struct td_str **ret,
                 size_t *ret_count);
bool tables_replay(struct fake_tables *t, td_time_us now, const struct td_message_ref *ref,
                   int32_t more);
bool tables_discard(struct fake_tables *t, td_time_us now, const struct td_message_ref *ref);

#endif
