/*
 * A loop as steps: relay and consumer are driven by calling their step function again and again,
 * by a thread in the program and by one thread for everybody in the simulator. A step makes at
 * most one driver call.
 */
#ifndef TDI_CORE_STEP_H
#define TDI_CORE_STEP_H

enum tdi_step {
    TDI_STEP_AGAIN, /* something was done, there may be more: call again at once */
    TDI_STEP_WAIT,  /* nothing to do before *ret_wake (clock.mono), or an interrupt */
    TDI_STEP_ENDED, /* stopped; only free may follow */
};

#endif
