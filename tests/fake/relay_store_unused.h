/*
 * Slots of a store that a relay must not call: all of them fail with INTERNAL. Included by
 * relay_store.c only.
 */
#ifndef FAKE_RELAY_STORE_UNUSED_H
#define FAKE_RELAY_STORE_UNUSED_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define UNUSED(name, ...)                                                                          \
    static enum td_err unused_##name(__VA_ARGS__, struct td_error *err)                            \
    {                                                                                              \
        return relay_store_refuse(err, TD_ERR_INTERNAL, "a relay does not call " #name);           \
    }

UNUSED(info, struct td_store *s, struct tdi_arena *a, struct td_store_info *ret_info)
UNUSED(migrate, struct td_store *s)
UNUSED(schema_sql, const struct td_store_options *o, struct tdi_arena *a, struct td_str *ret_sql)
UNUSED(now, struct td_store *s, td_time_us *ret_now)
UNUSED(savepoint, struct td_store *s)
UNUSED(savepoint_end, struct td_store *s, bool keep)
UNUSED(relay_rebase, struct td_store *s, struct td_str relay, int64_t fence,
       const struct td_position *to, struct td_str actor)
UNUSED(lease_clear_unclean, struct td_store *s, struct td_str name, int64_t fence)
UNUSED(lease_scan, struct td_store *s, struct tdi_arena *a, struct td_lease_state **ret,
       size_t *ret_count)
UNUSED(inbox_look, struct td_store *s, struct td_str consumer, const struct td_message_ref *refs,
       size_t count, struct td_inbox_state *ret_states)
UNUSED(inbox_claim, struct td_store *s, struct td_str consumer, struct td_str lease, int64_t fence,
       struct td_claim *claims, size_t count)
UNUSED(parked_return, struct td_store *s, struct td_str consumer, const struct td_message_ref *refs,
       size_t count)
UNUSED(parked_keys, struct td_store *s, struct td_str consumer, int32_t shard, struct tdi_arena *a,
       struct td_str **ret_keys, size_t *ret_count)
UNUSED(inbox_prune, struct td_store *s, struct td_str consumer, td_time_us keep_us,
       td_time_us parked_keep_us, size_t max, size_t *ret_removed)
UNUSED(counts, struct td_store *s, struct td_str consumer, struct td_consumer_counts *ret_counts)
UNUSED(statement_prepare, struct td_store *s, const struct td_statement *statement, int *ret_handle)
UNUSED(statement_run, struct td_store *s, int handle, const struct td_value *values, size_t rows,
       int64_t *ret_changed, size_t *ret_failed)
UNUSED(parked_scan, struct td_store *s, const struct td_parked_filter *filter, int64_t *cursor,
       size_t max, struct tdi_arena *a, struct td_parked_row **ret_rows, size_t *ret_count)
UNUSED(parked_change, struct td_store *s, struct td_parked_change *change)
UNUSED(outbox_find, struct td_store *s, struct td_str id, struct tdi_arena *a,
       struct td_outbox_row *ret_row, bool *ret_found)
UNUSED(inbox_find, struct td_store *s, struct td_str id, struct tdi_arena *a,
       struct td_inbox_row **ret_rows, size_t *ret_count)
UNUSED(published_find, struct td_store *s, int64_t seq, struct tdi_arena *a,
       struct td_published_row **ret_rows, size_t *ret_count)
UNUSED(audit_find, struct td_store *s, struct td_str id, struct tdi_arena *a,
       struct td_audit_row **ret_rows, size_t *ret_count)
UNUSED(outbox_add, struct td_store *s, const struct td_message *messages, size_t count)

#pragma GCC diagnostic pop

#define RELAY_STORE_UNUSED                                                                         \
    .info = unused_info, .migrate = unused_migrate, .schema_sql = unused_schema_sql,               \
    .now = unused_now, .savepoint = unused_savepoint, .savepoint_end = unused_savepoint_end,       \
    .relay_rebase = unused_relay_rebase, .lease_clear_unclean = unused_lease_clear_unclean,        \
    .lease_scan = unused_lease_scan, .inbox_look = unused_inbox_look,                              \
    .inbox_claim = unused_inbox_claim, .parked_return = unused_parked_return,                      \
    .parked_keys = unused_parked_keys, .inbox_prune = unused_inbox_prune, .counts = unused_counts, \
    .statement_prepare = unused_statement_prepare, .statement_run = unused_statement_run,          \
    .parked_scan = unused_parked_scan, .parked_change = unused_parked_change,                      \
    .outbox_find = unused_outbox_find, .inbox_find = unused_inbox_find,                            \
    .published_find = unused_published_find, .audit_find = unused_audit_find,                      \
    .outbox_add = unused_outbox_add

#endif
