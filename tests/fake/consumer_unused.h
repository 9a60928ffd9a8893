/*
 * Slots of a store and of a broker that a consumer must not call: all of them fail with INTERNAL.
 * Included by consumer_store.c and consumer_broker.c only.
 */
#ifndef TESTS_FAKE_CONSUMER_UNUSED_H
#define TESTS_FAKE_CONSUMER_UNUSED_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"

/* clang-format off */
#define UNUSED(name, ...)                                                                          \
    static enum td_err unused_##name(__VA_ARGS__, struct td_error *err)                            \
    {                                                                                              \
        return td_error_set(err, TD_ERR_INTERNAL, "a consumer does not call " #name);              \
    }

/* ---- store ---- */
UNUSED(info, struct td_store *s, struct tdi_arena *a, struct td_store_info *ret)
UNUSED(migrate, struct td_store *s)
UNUSED(schema_sql, const struct td_store_options *o, struct tdi_arena *a, struct td_str *ret)
UNUSED(relay_declare, struct td_store *s, struct td_str relay)
UNUSED(relay_position, struct td_store *s, struct td_str relay, struct tdi_arena *a,
       struct td_position *ret)
UNUSED(outbox_read, struct td_store *s, const struct td_position *after, size_t max,
       size_t bytes_max, struct tdi_arena *a, struct td_outbox_row **ret, size_t *ret_count)
UNUSED(outbox_durable, struct td_store *s)
UNUSED(relay_settle, struct td_store *s, const struct td_relay_settle *settle)
UNUSED(outbox_purge, struct td_store *s, td_time_us keep_us, size_t max, size_t *ret)
UNUSED(relay_rebase, struct td_store *s, struct td_str relay, int64_t fence,
       const struct td_position *to, struct td_str actor)
UNUSED(parked_return, struct td_store *s, struct td_str consumer,
       const struct td_message_ref *refs, size_t count)
UNUSED(statement_prepare, struct td_store *s, const struct td_statement *statement, int *ret)
UNUSED(statement_run, struct td_store *s, int handle, const struct td_value *values, size_t rows,
       int64_t *ret_changed, size_t *ret_failed)
UNUSED(parked_scan, struct td_store *s, const struct td_parked_filter *filter, int64_t *cursor,
       size_t max, struct tdi_arena *a, struct td_parked_row **ret, size_t *ret_count)
UNUSED(parked_change, struct td_store *s, struct td_parked_change *change)
UNUSED(relay_stats, struct td_store *s, struct td_str relay, struct td_relay_stats *ret)
UNUSED(outbox_find, struct td_store *s, struct td_str id, struct tdi_arena *a,
       struct td_outbox_row *ret, bool *ret_found)
UNUSED(inbox_find, struct td_store *s, struct td_str id, struct tdi_arena *a,
       struct td_inbox_row **ret, size_t *ret_count)
UNUSED(published_find, struct td_store *s, int64_t seq, struct tdi_arena *a,
       struct td_published_row **ret, size_t *ret_count)
UNUSED(audit_find, struct td_store *s, struct td_str id, struct tdi_arena *a,
       struct td_audit_row **ret, size_t *ret_count)
UNUSED(outbox_add, struct td_store *s, const struct td_message *messages, size_t count)

#define STORE_UNUSED                                                                               \
    .info = unused_info, .migrate = unused_migrate, .schema_sql = unused_schema_sql,               \
    .relay_declare = unused_relay_declare, .relay_position = unused_relay_position,                \
    .outbox_read = unused_outbox_read, .outbox_durable = unused_outbox_durable,                    \
    .relay_settle = unused_relay_settle, .outbox_purge = unused_outbox_purge,                      \
    .relay_rebase = unused_relay_rebase, .parked_return = unused_parked_return,                    \
    .statement_prepare = unused_statement_prepare, .statement_run = unused_statement_run,          \
    .parked_scan = unused_parked_scan, .parked_change = unused_parked_change,                      \
    .relay_stats = unused_relay_stats, .outbox_find = unused_outbox_find,                          \
    .inbox_find = unused_inbox_find, .published_find = unused_published_find,                      \
    .audit_find = unused_audit_find, .outbox_add = unused_outbox_add

/* ---- broker ---- */
UNUSED(broker_info, struct td_broker *b, struct tdi_arena *a, struct td_broker_info *ret)
UNUSED(topology_diff, struct td_broker *b, const struct td_topology *wanted, struct tdi_arena *a,
       struct td_topology_difference **ret, size_t *ret_count)
UNUSED(topology_apply, struct td_broker *b, const struct td_topology *wanted, struct tdi_arena *a,
       struct td_topology_difference **ret, size_t *ret_count)
UNUSED(submit, struct td_broker *b, const struct td_publish *items, size_t count, size_t *ret)
UNUSED(collect, struct td_broker *b, td_time_us deadline_us, struct td_published *ret, size_t max,
       size_t *ret_count)
UNUSED(nack, struct td_broker *b, const uint64_t *handles, size_t count)
UNUSED(pause, struct td_broker *b, int32_t shard, bool paused)
UNUSED(lag, struct td_broker *b, struct td_str consumer, struct tdi_arena *a, struct td_lag **ret,
       size_t *ret_count)

#define BROKER_UNUSED                                                                              \
    .info = unused_broker_info, .topology_diff = unused_topology_diff,                             \
    .topology_apply = unused_topology_apply, .submit = unused_submit, .collect = unused_collect,   \
    .nack = unused_nack, .pause = unused_pause, .lag = unused_lag
/* clang-format on */

#pragma GCC diagnostic pop

#endif
