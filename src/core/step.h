/* What one step of a loop (relay, consumer) answers to whoever drives it. */
#ifndef TDI_CORE_STEP_H
#define TDI_CORE_STEP_H

enum tdi_step {
    TDI_STEP_AGAIN, /* there is more to do: call again */
    TDI_STEP_WAIT,  /* nothing to do before the wake time, unless interrupted */
    TDI_STEP_ENDED, /* stopped; only free may follow */
};

#endif
