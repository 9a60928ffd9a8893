/* Threads around the loops of relays and consumers. */
#include "cli/app.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/str.h"
#include "broker/registry.h"
#include "cli/session.h"
#include "handler/registry.h"
#include "store/registry.h"

static enum td_err out_of_memory(struct td_error *err)
{
    return td_error_set(err, TD_ERR_NOMEM, "no memory to run the configuration");
}

static enum td_err make_lock(struct cli_app *app, struct td_error *err)
{
    pthread_condattr_t attr;
    if (pthread_mutex_init(&app->lock, NULL) != 0) {
        return out_of_memory(err);
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&app->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (rc != 0) {
        pthread_mutex_destroy(&app->lock);
        return out_of_memory(err);
    }
    app->lock_made = true;
    return TD_OK;
}

static struct td_broker_options broker_options(const struct cli_app *app, size_t i,
                                               enum td_broker_role role)
{
    return (struct td_broker_options){
        .location = app->config->brokers[i].location,
        .service = app->config->service,
        .role = role,
        .instance = app->brokers[i].instance,
        .clock = app->clock,
        .threads = true,
    };
}

/* Queues that are missing would make relay and consumer fail one by one; say it once, at the start. */
static enum td_err check_topology(struct cli_app *app, size_t i, struct td_error *err)
{
    struct td_broker_options o = broker_options(app, i, TD_BROKER_ADMIN);
    struct td_topology wanted;
    struct td_topology_difference *differences;
    struct td_broker *session;
    struct tdi_random random;
    size_t count = 0;
    enum td_err rc =
        tdi_plan_topology(&app->plan, &app->config->brokers[i], &app->arena, &wanted, err);
    if (rc != TD_OK) {
        return rc;
    }
    if (!tdi_random_seed_system(&random)) {
        return td_error_set(err, TD_ERR_INTERNAL, "the system gives no random numbers");
    }
    o.random = &random;
    rc = tdi_broker_open(app->brokers[i].driver, &o, &session, err);
    if (rc != TD_OK) {
        return rc;
    }
    rc = session->driver->topology_diff(session, &wanted, &app->arena, &differences, &count, err);
    for (size_t k = 0; rc == TD_OK && k < count; k++) {
        if (differences[k].kind == TD_TOPOLOGY_MISSING_TOPIC ||
            differences[k].kind == TD_TOPOLOGY_MISSING_QUEUE ||
            differences[k].kind == TD_TOPOLOGY_CHANGED_BINDING) {
            rc = td_error_set(err, TD_ERR_SCHEMA, "broker %s: %.*s; run 'tidings init'",
                              app->config->brokers[i].name.data, (int)differences[k].text.len,
                              differences[k].text.data);
        }
    }
    tdi_broker_close(session);
    return rc;
}

static enum td_err open_broker(struct cli_app *app, size_t i, struct td_error *err)
{
    struct cli_app_broker *b = &app->brokers[i];
    b->driver = tdi_broker_driver(app->config->brokers[i].driver);
    if (b->driver == NULL) {
        return td_error_set(err, TD_ERR_CONFIG, "there is no broker driver '%s'",
                            app->config->brokers[i].driver.data);
    }
    if (b->driver->instance_open != NULL) {
        struct td_broker_options o = broker_options(app, i, TD_BROKER_ADMIN);
        struct tdi_random *random = tdi_arena_alloc(&app->arena, sizeof(*random));
        if (random == NULL || !tdi_random_seed_system(random)) {
            return out_of_memory(err);
        }
        o.random = random;
        enum td_err rc = cli_instance_take(b->driver, &o, &b->instance, err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return check_topology(app, i, err);
}

static enum td_err store_options(const struct cli_app *app, const struct tdi_config_store *store,
                                 struct tdi_random *random,
                                 const struct td_store_driver **ret_driver,
                                 struct td_store_options *ret, struct td_error *err)
{
    *ret_driver = tdi_store_driver(store->driver);
    if (*ret_driver == NULL) {
        return td_error_set(err, TD_ERR_CONFIG, "there is no store driver '%s'",
                            store->driver.data);
    }
    *ret = (struct td_store_options){
        .location = store->location,
        .service = app->config->service,
        .clock = app->clock,
        .random = random,
    };
    return TD_OK;
}

static bool store_used(const struct cli_app *app, const struct tdi_config_store *store)
{
    for (size_t i = 0; i < app->config->outboxes_count; i++) {
        if (app->config->outboxes[i].store == store) {
            return true;
        }
    }
    for (size_t i = 0; i < app->config->consumers_count; i++) {
        if (app->config->consumers[i].store == store) {
            return true;
        }
    }
    return false;
}

/* Every store that is used: can it be opened, and is it ours? */
static enum td_err check_stores(struct cli_app *app, struct td_error *err)
{
    if (!tdi_random_seed_system(&app->random)) {
        return td_error_set(err, TD_ERR_INTERNAL, "the system gives no random numbers");
    }
    for (size_t i = 0; i < app->config->stores_count; i++) {
        const struct td_store_driver *driver;
        struct td_store_options o;
        if (!store_used(app, &app->config->stores[i])) {
            continue;
        }
        enum td_err rc =
            store_options(app, &app->config->stores[i], &app->random, &driver, &o, err);
        if (rc == TD_OK) {
            rc = cli_missing(tdi_store_open(driver, &o, &app->checks[i], err), err);
        }
        if (rc != TD_OK) {
            return rc;
        }
    }
    return TD_OK;
}

enum td_err cli_app_open(struct cli_app *app, const struct tdi_config *config, struct tdi_log *log,
                         struct td_error *err)
{
    memset(app, 0, sizeof(*app));
    tdi_arena_init(&app->arena, 0);
    app->config = config;
    app->log = log;
    app->clock = tdi_clock_system();
    enum td_err rc = make_lock(app, err);
    if (rc == TD_OK) {
        rc = tdi_plan_make(config, &app->arena, &app->plan, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    app->parts_max = app->plan.relays_count + config->consumers_count;
    app->parts = tdi_arena_array(&app->arena, app->parts_max, sizeof(*app->parts));
    app->brokers = tdi_arena_array(&app->arena, config->brokers_count, sizeof(*app->brokers));
    app->checks = tdi_arena_array(&app->arena, config->stores_count, sizeof(*app->checks));
    if (app->checks == NULL || app->parts == NULL || app->brokers == NULL) {
        return out_of_memory(err);
    }
    rc = check_stores(app, err); /* first: a wrong service shows there, not as missing queues */
    if (rc != TD_OK) {
        return rc;
    }
    for (size_t i = 0; i < config->brokers_count; i++) {
        rc = open_broker(app, i, err);
        if (rc != TD_OK) {
            return rc;
        }
    }
    return TD_OK;
}

/* ---- parts ---- */

static size_t broker_number(const struct cli_app *app, const struct tdi_config_broker *broker)
{
    return (size_t)(broker - app->config->brokers);
}

static struct cli_app_part *new_part(struct cli_app *app, struct td_str name)
{
    struct cli_app_part *p =
        app->parts_count < app->parts_max ? &app->parts[app->parts_count] : NULL;
    if (p == NULL || !tdi_random_seed_system(&p->random)) {
        return NULL;
    }
    p->app = app;
    p->name = name;
    return p;
}

enum td_err cli_app_add_relay(struct cli_app *app, const struct tdi_plan_relay *relay,
                              struct td_error *err)
{
    struct cli_app_part *part = new_part(app, relay->name);
    size_t broker = broker_number(app, relay->broker);
    if (part == NULL) {
        return out_of_memory(err);
    }
    struct tdi_relay_options o = {
        .name = relay->name,
        .service = app->config->service,
        .catalogue = &app->plan.catalogue,
        .broker_name = relay->broker->name,
        .unmatched_ours = relay->unmatched_ours,
        .broker_driver = app->brokers[broker].driver,
        .broker = broker_options(app, broker, TD_BROKER_PUBLISH),
        .keep_us = relay->outbox->keep_us,
        .drain_us = app->config->drain_deadline_us,
        .clock = app->clock,
        .random = &part->random,
        .log = app->log,
    };
    o.broker.random = &part->random;
    enum td_err rc =
        store_options(app, relay->outbox->store, &part->random, &o.store_driver, &o.store, err);
    if (rc == TD_OK) {
        rc = tdi_relay_new(&o, &part->relay, err);
    }
    app->parts_count += rc == TD_OK ? 1 : 0;
    return rc;
}

static struct td_handler_options handler_options(const struct cli_app *app,
                                                 const struct tdi_config_consumer *c,
                                                 struct tdi_random *random)
{
    return (struct td_handler_options){
        .consumer = c->full_name,
        .steps = c->steps,
        .steps_count = c->steps_count,
        .params = c->params,
        .params_count = c->params_count,
        .params_missing_null = c->params_missing_null,
        .command = c->command,
        .command_count = c->command_count,
        .directory = c->directory,
        .workers = c->workers,
        .timeout_us = c->timeout_us,
        .classify = c->classify,
        .classify_count = c->classify_count,
        .clock = app->clock,
        .random = random,
        .log = app->log,
    };
}

enum td_err cli_app_add_consumer(struct cli_app *app, const struct tdi_config_consumer *c,
                                 struct td_error *err)
{
    struct cli_app_part *part = new_part(app, c->full_name);
    size_t broker = broker_number(app, c->topic->broker);
    if (part == NULL) {
        return out_of_memory(err);
    }
    struct tdi_consumer_options o = {
        .name = c->full_name,
        .topic = c->topic->name,
        .types = c->types,
        .types_count = c->types_count,
        .order = c->order,
        .on_dead = c->on_dead,
        .retry = c->retry,
        .breaker = {c->breaker.failures, c->breaker.share_percent, c->breaker.window_us},
        .prefetch = (size_t)c->prefetch,
        .batch = (size_t)c->batch,
        .inbox_keep_us = c->inbox_keep_us,
        .parked_keep_us = c->parked_keep_us,
        .parked_max = c->parked_max,
        .drain_us = app->config->drain_deadline_us,
        .broker_driver = app->brokers[broker].driver,
        .broker = broker_options(app, broker, TD_BROKER_CONSUME),
        .handler_driver = tdi_handler_driver(c->handler),
        .handler = handler_options(app, c, &part->random),
        .clock = app->clock,
        .random = &part->random,
        .log = app->log,
    };
    if (o.handler_driver == NULL) {
        return td_error_set(err, TD_ERR_CONFIG, "there is no handler '%s'", c->handler.data);
    }
    o.broker.random = &part->random;
    enum td_err rc = store_options(app, c->store, &part->random, &o.store_driver, &o.store, err);
    if (rc == TD_OK) {
        rc = tdi_consumer_new(&o, &part->consumer, err);
    }
    app->parts_count += rc == TD_OK ? 1 : 0;
    return rc;
}

void cli_app_end_checks(struct cli_app *app)
{
    for (size_t i = 0; app->checks != NULL && i < app->config->stores_count; i++) {
        tdi_store_close(app->checks[i]);
        app->checks[i] = NULL;
    }
}

/* ---- threads ---- */

static enum tdi_step step(struct cli_app_part *p, td_time_us *ret_wake)
{
    return p->relay != NULL ? tdi_relay_step(p->relay, ret_wake)
                            : tdi_consumer_step(p->consumer, ret_wake);
}

static struct timespec to_timespec(td_time_us t)
{
    t = t < 0 ? 0 : t;
    return (struct timespec){.tv_sec = t / TD_SECOND_US, .tv_nsec = t % TD_SECOND_US * 1000};
}

/* Sleep until then, or until somebody asks for the end. */
static void sleep_until(struct cli_app *app, td_time_us wake)
{
    struct timespec until = to_timespec(wake);
    pthread_mutex_lock(&app->lock);
    int stops = app->stops;
    while (app->stops == stops &&
           pthread_cond_timedwait(&app->changed, &app->lock, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&app->lock);
}

static void *loop(void *arg)
{
    struct cli_app_part *p = arg;
    td_time_us wake = 0;
    enum tdi_step s;
    while ((s = step(p, &wake)) != TDI_STEP_ENDED) {
        if (s == TDI_STEP_WAIT) {
            sleep_until(p->app, wake);
        }
    }
    pthread_mutex_lock(&p->app->lock);
    p->ended = true;
    pthread_cond_broadcast(&p->app->changed);
    pthread_mutex_unlock(&p->app->lock);
    return NULL;
}

enum td_err cli_app_start(struct cli_app *app, struct td_error *err)
{
    for (size_t i = 0; i < app->parts_count; i++) {
        struct cli_app_part *p = &app->parts[i];
        int rc = pthread_create(&p->thread, NULL, loop, p);
        if (rc != 0) {
            return td_error_set(err, TD_ERR_UNAVAILABLE, "cannot start a thread: %s", strerror(rc));
        }
        p->started = true;
    }
    return TD_OK;
}

void cli_app_stop(struct cli_app *app)
{
    for (size_t i = 0; i < app->parts_count; i++) {
        struct cli_app_part *p = &app->parts[i];
        if (p->relay != NULL) {
            tdi_relay_stop(p->relay);
            tdi_relay_interrupt(p->relay);
        } else {
            tdi_consumer_stop(p->consumer);
            tdi_consumer_interrupt(p->consumer);
        }
    }
    pthread_mutex_lock(&app->lock);
    app->stops++;
    pthread_cond_broadcast(&app->changed);
    pthread_mutex_unlock(&app->lock);
}

static bool all_ended(const struct cli_app *app)
{
    for (size_t i = 0; i < app->parts_count; i++) {
        if (app->parts[i].started && !app->parts[i].ended) {
            return false;
        }
    }
    return true;
}

bool cli_app_wait(struct cli_app *app, td_time_us deadline_us)
{
    struct timespec until = to_timespec(deadline_us);
    pthread_mutex_lock(&app->lock);
    while (!all_ended(app) &&
           pthread_cond_timedwait(&app->changed, &app->lock, &until) != ETIMEDOUT) {
    }
    bool ended = all_ended(app);
    pthread_mutex_unlock(&app->lock);
    return ended;
}

enum td_err cli_app_health(struct cli_app *app, struct td_error *err)
{
    for (size_t i = 0; i < app->config->brokers_count; i++) {
        const struct cli_app_broker *b = &app->brokers[i];
        if (b->instance != NULL) {
            enum td_err rc = b->driver->instance_health(b->instance, err);
            if (rc != TD_OK) {
                return rc;
            }
        }
    }
    return TD_OK;
}

static void end_parts(struct cli_app *app)
{
    if (!cli_app_wait(app, 0)) {
        cli_app_stop(app);
        cli_app_stop(app);
    }
    for (size_t i = 0; i < app->parts_count; i++) {
        struct cli_app_part *p = &app->parts[i];
        if (p->started) {
            pthread_join(p->thread, NULL);
        }
        tdi_relay_free(p->relay);
        tdi_consumer_free(p->consumer);
    }
    app->parts_count = 0;
}

void cli_app_close(struct cli_app *app)
{
    if (app->lock_made) {
        end_parts(app);
    }
    cli_app_end_checks(app);
    for (size_t i = 0; app->brokers != NULL && i < app->config->brokers_count; i++) {
        if (app->brokers[i].instance != NULL) {
            app->brokers[i].driver->instance_close(app->brokers[i].instance);
        }
    }
    if (app->lock_made) {
        pthread_cond_destroy(&app->changed);
        pthread_mutex_destroy(&app->lock);
    }
    tdi_arena_release(&app->arena);
}
