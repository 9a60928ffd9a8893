/* The address of <dir>/broker.sock, for both ends. */
#ifndef TDD_EMBEDDED_SOCKET_H
#define TDD_EMBEDDED_SOCKET_H

#include "tidings/error.h"

/* A bound (listening) or connected socket, non-blocking once it is there; the caller closes it.
 * Connecting: UNAVAILABLE when nobody listens; waits at most timeout_us. */
enum td_err tdd_emb_socket_listen(const char *dir, int *ret_fd, struct td_error *err);
enum td_err tdd_emb_socket_connect(const char *dir, td_time_us timeout_us, int *ret_fd,
                                   struct td_error *err);
void tdd_emb_socket_unlink(const char *dir);

#endif
