/*
 * A store in memory with one writer at a time: staged changes, one savepoint, rollback; inbox,
 * parked rows, one lease, effects. A transaction whose COMMIT was not answered may go on living in
 * its old backend until somebody takes the lease.
 */
#ifndef TESTS_FAKE_CONSUMER_STORE_H
#define TESTS_FAKE_CONSUMER_STORE_H

#include "fake/consumer_world.h"

#define FAKE_TEXT_MAX 96

extern const struct td_store_driver fake_store_driver;

struct fake_parked {
    char source[FAKE_TEXT_MAX], id[FAKE_TEXT_MAX], type[FAKE_TEXT_MAX], key[FAKE_TEXT_MAX];
    char reason[128];
    bool has_key;
    int64_t arrival;
    enum td_outcome outcome;
    td_time_us due_at;
    int32_t attempts, attempt_limit;
    bool blocks_key, alone;
    bool running; /* leased, no verdict yet */
    int64_t lease_fence;
    td_time_us row_until;
    enum td_dead_code code;
    td_time_us published_at, expires_at;
    bool body;
};

struct fake_store_data *fake_store_data_new(void);
void fake_store_data_free(struct fake_store_data *s);

/* ---- for handlers ---- */
void fake_store_effect(struct td_store *store, const struct td_message *m); /* in the transaction */
void fake_store_refuse_commit(struct td_store *store); /* a deferred constraint */
void fake_store_worker_settles(struct fake_world *w, const char *source, const char *id,
                               int32_t attempts);

/* ---- for tests: what is committed ---- */
enum td_outcome fake_outcome(const struct fake_world *w, const char *id); /* source "shop" */
int32_t fake_attempts(const struct fake_world *w, const char *id);
size_t fake_inbox_count(const struct fake_world *w);
enum td_outcome fake_inbox_at(const struct fake_world *w, size_t index, const char **ret_id);
const struct fake_parked *fake_parked_of(const struct fake_world *w, const char *id); /* or NULL */
size_t fake_parked_count(const struct fake_world *w, enum td_outcome outcome);
int fake_effects(const struct fake_world *w, const char *id); /* times */
size_t fake_effects_count(const struct fake_world *w);
const char *fake_effect_id(const struct fake_world *w, size_t index);
size_t fake_emitted(const struct fake_world *w);
int fake_commits(const struct fake_world *w);           /* of transactions with begin */
size_t fake_largest_commit(const struct fake_world *w); /* inbox rows that it made or changed */
int64_t fake_fence(const struct fake_world *w);
bool fake_unclean(const struct fake_world *w);
bool fake_lease_free(const struct fake_world *w);
const char *fake_report(const struct fake_world *w);

/* ---- for tests: changes by others ---- */
void fake_set_report(struct fake_world *w, const char *json);
void fake_set_unclean(struct fake_world *w, bool unclean);
bool fake_replay(struct fake_world *w, const char *id, int32_t more);
bool fake_discard(struct fake_world *w, const char *id);
/* A row that failed once, behind the consumer's back; it blocks its key. */
void fake_park(struct fake_world *w, const char *id, const char *key, td_time_us due_after_us);
void fake_forget(struct fake_world *w, const char *id);         /* the inbox row is pruned */
void fake_steal_lease(struct fake_world *w, td_time_us ttl_us); /* somebody else has it now */
bool fake_resolve_pending(struct fake_world *w,
                          bool commit); /* an old backend; false: there is none */

#endif
