/*
 * A handler that follows a script, inside (fake_inside_driver) or outside (fake_outside_driver). Its
 * effect is a row of the fake store: in the transaction, or, outside, at the moment the call ends.
 */
#ifndef TESTS_FAKE_CONSUMER_HANDLER_H
#define TESTS_FAKE_CONSUMER_HANDLER_H

#include "fake/consumer_world.h"

extern const struct td_handler_driver fake_inside_driver;
extern const struct td_handler_driver fake_outside_driver;

struct fake_handler_data *fake_handler_data_new(void);
void fake_handler_data_free(struct fake_handler_data *h);

/* What happens when this message is run. Without a script: OK. */
struct fake_script {
    const char *id; /* NULL: every message */
    int times;      /* runs that it holds for; -1: all. Then the next script of the id, or OK */
    enum td_verdict_kind kind;
    enum td_dead_code code;
    td_time_us after_us;
    bool broken, uncharged, verdictless;
    bool emit;               /* OK: with one event */
    bool kills;              /* the process dies in the run: w->handler's killed is set */
    bool bad_commit;         /* inside: the run works, COMMIT is refused */
    enum td_err error;       /* instead of a verdict, inside */
    enum td_err start_error; /* outside */
    td_time_us takes_us;     /* inside: time passes; outside: until the result */
    bool worker_settles;     /* outside: the worker inserts the inbox row itself */
};
void fake_script(struct fake_world *w, const struct fake_script *s);
void fake_no_scripts(struct fake_world *w);

bool fake_take_kill(struct fake_world *w);                 /* was it killed? forgets it */
int fake_runs(const struct fake_world *w, const char *id); /* runs that began, or calls */
int fake_kills(const struct fake_world *w, const char *id);
size_t fake_log_count(const struct fake_world *w); /* runs of all */
const char *fake_log_id(const struct fake_world *w, size_t index);
int32_t fake_log_attempt(const struct fake_world *w, size_t index);
size_t fake_running(const struct fake_world *w);     /* outside */
void fake_slots(struct fake_world *w, size_t slots); /* outside; 4 at first */

/* For random tests: called instead of the scripts when set. */
typedef void (*fake_decide_fn)(struct fake_world *w, const struct td_run *run,
                               struct fake_script *ret);
void fake_decide(struct fake_world *w, fake_decide_fn decide);

#endif
