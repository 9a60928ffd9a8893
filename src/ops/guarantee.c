/* Delivery and order of a consumer, in words for `tidings check`. */
#include "ops/guarantee.h"

#include "base/str.h"

static const char *order_of(const struct tdi_config_consumer *c)
{
    switch (c->order) {
    case TDI_ORDER_NONE:
        return "no order: messages run as they come";
    case TDI_ORDER_SKIP:
        return "in order of the key; a message that fails steps aside and is run later";
    case TDI_ORDER_BLOCK:
        return c->on_dead == TDI_ON_DEAD_HOLD
                   ? "in order of the key; after a failure the key waits, after a dead letter for a "
                     "person"
                   : "in order of the key; after a failure the key waits, a dead letter lets it go on";
    }
    return "";
}

struct tdi_guarantee tdi_guarantee_of(const struct tdi_config_consumer *c)
{
    if (tdi_str_is(c->handler, "sql")) {
        return (struct tdi_guarantee){
            "effectively once",
            "the statements and the inbox row are one transaction",
            order_of(c),
        };
    }
    return (struct tdi_guarantee){
        "at least once",
        "the worker is called outside of any transaction, with a stable id; effectively once if it "
        "writes the inbox row in its own transaction",
        order_of(c),
    };
}
