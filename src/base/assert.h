/*
 * Asserts for what our own code promised; on in release builds. Never for input, peers or disks.
 */
#ifndef TDI_BASE_ASSERT_H
#define TDI_BASE_ASSERT_H

#define TDI_ASSERT(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            tdi_assert_fail(#cond, __FILE__, __LINE__, __func__);                                  \
        }                                                                                          \
    } while (0)

_Noreturn void tdi_assert_fail(const char *cond, const char *file, int line, const char *func);

#endif
