/* How a consumer keeps order, in the words of the configuration. */
#ifndef TDI_CORE_ORDER_H
#define TDI_CORE_ORDER_H

enum tdi_order {
    TDI_ORDER_NONE,
    TDI_ORDER_SKIP,  /* in order of the key; a failed message steps aside */
    TDI_ORDER_BLOCK, /* followers of a failed message wait, parked */
};

enum tdi_on_dead {
    TDI_ON_DEAD_HOLD,    /* block: followers of a dead message wait for a person */
    TDI_ON_DEAD_RELEASE, /* block: they go on */
};

#endif
