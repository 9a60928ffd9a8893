/*
 * The lines that the exec handler and its workers exchange (contract section 4): one JSON object a
 * line. Pure: bytes in, structs out.
 *
 * Must not know: processes, pipes, time.
 */
#ifndef TDD_EXEC_PROTOCOL_H
#define TDD_EXEC_PROTOCOL_H

#include "tidings/handler.h"

struct tdi_arena;
struct tdi_buf;

#define TDD_EXEC_PROTOCOL_VERSION 1
#define TDD_EXEC_LINE_MAX                                                                          \
    ((size_t)8 * 1024 * 1024)  /* an answer of a worker, emitted events included */
#define TDD_EXEC_WINDOW_MAX 64 /* deliveries in flight that a worker may ask for */
#define TDD_EXEC_EMIT_MAX 100

enum tdd_exec_line_kind {
    TDD_EXEC_STRAY, /* no line of the protocol: logged, not fatal */
    TDD_EXEC_HELLO,
    TDD_EXEC_PONG,
    TDD_EXEC_ANSWER,
};

struct tdd_exec_line {
    enum tdd_exec_line_kind kind;
    const char *why; /* STRAY: static sentence */
    int64_t number;  /* HELLO: protocol; PONG: n; ANSWER: delivery */
    int64_t window;  /* HELLO: 1..TDD_EXEC_WINDOW_MAX, a larger wish is cut to that */
    enum td_verdict_kind result;
    bool result_valid;    /* false: ANSWER without one of the four words */
    struct td_str reason; /* decoded, in the arena */
    td_time_us after_us;
    struct td_str emit; /* raw JSON text, or absent */
};

/* {"hello":{"protocol":1,...}} and a line feed. */
void tdd_exec_write_hello(struct tdi_buf *b, struct td_str consumer, td_time_us timeout_us);
void tdd_exec_write_ping(struct tdi_buf *b, int64_t number);
void tdd_exec_write_shutdown(struct tdi_buf *b);
/* JSON bodies go in token by token, all others as data_base64. */
void tdd_exec_write_delivery(struct tdi_buf *b, int64_t delivery, const struct td_run *run,
                             td_time_us remaining_us);

/* line: without its line feed. */
void tdd_exec_read_line(struct td_str line, struct tdi_arena *a, struct tdd_exec_line *ret);

/* The events of an answer: id = UUIDv5 of (consumer, source, id, index); causation, correlation, trace
 * and tenant as of the message that caused them. They point into `json` and the arena.
 * INVALID or LIMIT: what is wrong with which one; NOMEM. */
enum td_err tdd_exec_read_emit(struct td_str json, const struct td_run *run, struct tdi_arena *a,
                               struct td_message **ret, size_t *ret_count, struct td_error *err);

#endif
