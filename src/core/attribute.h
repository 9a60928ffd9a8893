/*
 * The attributes of an envelope: one table for writing, reading, checking, copying and looking up.
 * Only for src/core.
 *
 * Source: CloudEvents 1.0.2 and its extensions partitioning, sequence, distributed tracing,
 * expirytime, dataref. The order is that in which they are written.
 */
#ifndef TDI_CORE_ATTRIBUTE_H
#define TDI_CORE_ATTRIBUTE_H

#include "tidings/message.h"

enum tdi_attribute_kind {
    TDI_ATTRIBUTE_TEXT,
    TDI_ATTRIBUTE_TIME,     /* RFC 3339 */
    TDI_ATTRIBUTE_INTEGER,  /* a JSON number */
    TDI_ATTRIBUTE_SEQUENCE, /* an integer in a JSON string */
};

struct tdi_attribute {
    struct td_str name;
    struct td_str member; /* ,"name": */
    enum tdi_attribute_kind kind;
    size_t offset;    /* of its field in struct td_message */
    size_t bytes_max; /* TEXT */
};

#define TDI_ATTRIBUTES 20
extern const struct tdi_attribute tdi_attributes[TDI_ATTRIBUTES];

/* NULL: no attribute of this name. *hint: where to look first, starts as 0; attributes that come in
 * the order of the table are found at once. */
const struct tdi_attribute *tdi_attribute_find(struct td_str name, size_t *hint);

/* Years 0000 to 9999, which RFC 3339 can write. */
bool tdi_time_writable(td_time_us t);

static inline struct td_str *tdi_attribute_text(struct td_message *m, const struct tdi_attribute *a)
{
    return (struct td_str *)(void *)((char *)m + a->offset);
}

/* A time or an integer; TD_NUMBER_NONE, which is TD_TIME_NONE, when it is absent. */
static inline int64_t *tdi_attribute_number(struct td_message *m, const struct tdi_attribute *a)
{
    return (int64_t *)(void *)((char *)m + a->offset);
}

static inline struct td_str tdi_attribute_get_text(const struct td_message *m,
                                                   const struct tdi_attribute *a)
{
    return *(const struct td_str *)(const void *)((const char *)m + a->offset);
}

static inline int64_t tdi_attribute_get_number(const struct td_message *m,
                                               const struct tdi_attribute *a)
{
    return *(const int64_t *)(const void *)((const char *)m + a->offset);
}

#endif
