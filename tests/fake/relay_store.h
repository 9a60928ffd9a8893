/*
 * An in-memory store for tests of the relay: one outbox, positions, one lease for each relay name,
 * dead letters. Time is virtual. It checks what a store can see of the relay's promises and keeps
 * the first violation as text.
 *
 * A database is shared; each process has a client, which holds its identity, its counts of calls
 * and the faults that are planned for it. A client's pointer travels in td_store_options.location.
 */
#ifndef FAKE_RELAY_STORE_H
#define FAKE_RELAY_STORE_H

#include "relay_fault.h"
#include "tidings/store.h"

#define RELAY_ROWS_MAX 8192
#define RELAY_NAMES_MAX 2
#define RELAY_BODY_BYTES 24
#define RELAY_TX_MAX 256

/* ---- the database ----------------------------------------------------------------------- */

/* A dead row that is parked; see relay_letters.h. */
struct relay_letter {
    enum td_outcome outcome; /* NONE: it is not parked */
    int32_t attempts;
    int32_t limit;
    td_time_us due_at; /* wall */
    bool running;
    int64_t fence;      /* of who leased it */
    const char *edited; /* new body */
    int published;      /* accepted by the broker as a replay, times */
};

struct relay_row {
    struct td_message message; /* points into the fields below */
    char id[24];
    char key[16];
    char type[32];
    char topic[32];
    unsigned char body[RELAY_BODY_BYTES];
    const char *defect;
    bool foreign; /* test's knowledge: of another broker */
    /* what became of it */
    int accepted; /* by the broker, times */
    int dead;     /* parked, times */
    enum td_dead_code dead_code;
    char dead_reason[160];
    struct relay_letter letter;
    bool purged;
};

struct relay_name {
    char name[32];
    bool declared;
    int64_t position; /* seq of the last row that is covered */
    int64_t published_total;
    int64_t fence;
    int owner; /* client; 0: nobody */
    td_time_us until;
    bool unclean;
    char report[4096];
    size_t report_len;
};

struct relay_db {
    struct relay_time *time;
    struct relay_row rows[RELAY_ROWS_MAX]; /* row of seq s at s - 1 */
    int64_t committed;                     /* rows 1..committed are visible */
    int64_t shown;                         /* highest seq that a read gave out */
    int64_t durable;                       /* rows up to here are on disk */
    struct relay_name names[RELAY_NAMES_MAX];
    bool rebuilt; /* reads fail REBUILT until it is false */
    bool woken;
    int reads;
    size_t position_bytes; /* of the data of a position, and a few more */
    int settlements;
    td_time_us settled_at[RELAY_ROWS_MAX];
    char violation[200]; /* the first broken promise; empty: none */
};

enum relay_store_call {
    RELAY_STORE_OPEN,
    RELAY_STORE_CLOSE,
    RELAY_STORE_DECLARE,
    RELAY_STORE_POSITION,
    RELAY_STORE_READ,
    RELAY_STORE_DURABLE,
    RELAY_STORE_SETTLE,
    RELAY_STORE_PURGE,
    RELAY_STORE_WAIT,
    RELAY_STORE_TAKE,
    RELAY_STORE_RENEW,
    RELAY_STORE_RELEASE,
    RELAY_STORE_STATS,
    RELAY_STORE_DUE,
    RELAY_STORE_BEGIN,
    RELAY_STORE_INBOX,
    RELAY_STORE_FINISH,
    RELAY_STORE_CALLS,
};

struct relay_tx_item {
    int64_t seq;
    struct relay_letter letter; /* as it will be */
    enum td_dead_code code;
    char reason[160];
};

struct relay_store_client {
    struct relay_db *db;
    int id; /* 1..; who owns leases */
    struct relay_faults faults;
    int calls[RELAY_STORE_CALLS];
    int calls_total;
    td_time_us slow_us[RELAY_STORE_CALLS]; /* TAKE, RENEW: done at once, answered so much later */
    int open;                              /* sessions */
    int interrupted;
    size_t read_rows_max; /* the largest `max` that was asked for */
    bool in_tx;
    struct relay_tx_item tx[RELAY_TX_MAX];
    size_t tx_count;
};

extern const struct td_store_driver relay_store_driver;         /* with a waker */
extern const struct td_store_driver relay_store_driver_no_wait; /* wait is NULL */

/* db: zeroed. */
void relay_db_init(struct relay_db *db, struct relay_time *t);
/* Add a row, committed at once; key, topic may be NULL. Change it before anybody reads it. */
struct relay_row *relay_db_add(struct relay_db *db, const char *key, const char *type);
void relay_db_topic(struct relay_row *row, const char *topic);
struct relay_name *relay_db_name(struct relay_db *db, const char *name);
struct relay_name *relay_db_name_of(struct relay_db *db, struct td_str name);
struct td_str relay_store_location(struct relay_store_client *c);
void relay_violation(struct relay_db *db, const char *fmt, ...) TD_PRINTF(2, 3);
/* Every visible row is accepted, dead or foreign? */
bool relay_db_all_settled(const struct relay_db *db);

#endif
