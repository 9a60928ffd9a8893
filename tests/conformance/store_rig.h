/*
 * What the conformance suite of stores needs of a driver under test: a fresh database, sessions on
 * it, an application's own connection, and the death of an owner. A driver joins the suite by
 * adding its rig to store_rigs[].
 *
 * Must not know: how a driver stores anything.
 */
#ifndef TESTS_STORE_RIG_H
#define TESTS_STORE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/str.h"
#include "tidings/store.h"

struct store_world;

struct store_rig {
    const char *name;
    const struct td_store_driver *driver;
    /* An empty place for a database; sets world->location. */
    void (*make)(struct store_world *w);
    void (*remove)(struct store_world *w);
    /* One or more statements on a connection of the application; fails the test if they fail. */
    void (*app)(struct store_world *w, const char *sql);
    /* The first column of the first row, as text in world->text; "" if there is none. */
    const char *(*ask)(struct store_world *w, const char *sql);
};

extern const struct store_rig store_rig_sqlite;

/* A database and its sessions. Civil time stands still unless the test moves it. */
struct store_world {
    const struct store_rig *rig;
    char folder[256];
    char location[300];
    char text[4096];
    void *app_connection;
    td_time_us now;
    struct tdi_random random;
    struct tdi_arena arena;
    struct td_store_options options;
    struct td_store *a; /* two sessions of the service "shop" */
    struct td_store *b;
    struct td_error err;
};

/* cmocka's setup and teardown of one test; *state is the world. */
int world_setup(void **state);
int world_teardown(void **state);
/* The rig of the tests that are set up from now on. */
void world_use(const struct store_rig *rig);

struct td_store *world_open(struct store_world *w);
/* The session ends as if its process was killed: nothing is given back. */
void world_kill(struct td_store **session);

#define LIT(text) TD_STR_LIT(text)

#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        w->err = (struct td_error){.code = TD_OK};                                                 \
        enum td_err rc_ = (expr);                                                                  \
        if (rc_ != TD_OK) {                                                                        \
            print_error("%s: %s\n", td_err_name(rc_), w->err.text);                                \
        }                                                                                          \
        assert_int_equal(rc_, TD_OK);                                                              \
    } while (0)
#define assert_err(expr, wanted) assert_int_equal((expr), (wanted))
#define assert_str(value, wanted)                                                                  \
    do {                                                                                           \
        struct td_str v_ = (value);                                                                \
        assert_non_null(v_.data);                                                                  \
        assert_int_equal(v_.len, strlen(wanted));                                                  \
        assert_memory_equal(v_.data, (wanted), v_.len);                                            \
    } while (0)
/* What the application sees. */
#define assert_ask(sql, wanted) assert_string_equal(w->rig->ask(w, (sql)), (wanted))

#define CALL(session, slot, ...) (session)->driver->slot((session), __VA_ARGS__)

/* A message of the service "shop" with this id, type, key (NULL: none) and body. */
struct td_message message_of(const char *id, const char *type, const char *key, const char *body);
/* A settlement that expects what inbox_claim() left. */
struct td_settle settle_of(const struct td_message *m, enum td_outcome outcome);

/* One settlement in a transaction of its own. */
void settle_alone(struct store_world *w, struct td_store *s, const char *consumer,
                  struct td_settle *item);
/* A first delivery that ends so: claimed and settled; ordered keys block. */
struct td_settle deliver(struct store_world *w, struct td_store *s, const char *consumer,
                         const struct td_message *m, enum td_outcome outcome, int32_t limit);

/* ---- consumers */

#define CONSUMER "shop.points"
#define OUTCOMES "SELECT group_concat(outcome) FROM (SELECT outcome FROM tidings_inbox ORDER BY id)"
/* The two tables never disagree about a message. */
#define DISAGREE                                                                                   \
    "SELECT count(*) FROM tidings_parked AS p JOIN tidings_inbox AS i USING (consumer, source, "   \
    "id) WHERE p.outcome <> i.outcome OR p.attempts <> i.attempts"

/* Rows of CONSUMER, shard 0 if `ask` says nothing else, leased for 30 s; then nothing disagrees. */
struct td_parked_batch due_with(struct store_world *w, struct td_store *s, struct td_parked_due ask,
                                const char *lease);
struct td_parked_batch due_now(struct store_world *w, struct td_store *s);
/* The settlement of a run that parked_due() gave out. */
struct td_settle verdict_of(const struct td_parked_row *row, enum td_outcome outcome);
bool key_is_blocked(struct store_world *w, const char *key);

/* ---- relays */

struct td_position nowhere(void);
/* By session b. */
size_t read_rows(struct store_world *w, const struct td_position *after, size_t max,
                 struct td_outbox_row **ret);
/* Taken for 10 s; the fence. */
int64_t own_lease(struct store_world *w, struct td_store *s, const char *name);
struct td_relay_settle settle_up_to(const char *relay, int64_t fence,
                                    const struct td_outbox_row *rows, size_t count);

#endif
