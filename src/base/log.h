/*
 * Structured log: one line an event, either for people or JSON. Bodies and secrets never go in.
 * Any thread may write; a line is written with one write(2).
 */
#ifndef TDI_BASE_LOG_H
#define TDI_BASE_LOG_H

#include "tidings/error.h"
#include "tidings/types.h"

enum tdi_log_level {
    TDI_LOG_ERROR,
    TDI_LOG_WARN,
    TDI_LOG_INFO,
    TDI_LOG_DEBUG,
};

enum tdi_log_format {
    TDI_LOG_TEXT,
    TDI_LOG_JSON,
};

struct tdi_log; /* opaque */

/* fd is borrowed. color: escape sequences for levels. NULL when out of memory. */
struct tdi_log *tdi_log_new(int fd, enum tdi_log_level level, enum tdi_log_format format,
                            bool color, struct td_clock clock);
void tdi_log_free(struct tdi_log *log);
bool tdi_log_on(const struct tdi_log *log, enum tdi_log_level level); /* NULL log: false */
void tdi_log_set_level(struct tdi_log *log, enum tdi_log_level level);

/* A field of a line: text (absent: the field is left out) or a number. */
struct tdi_log_field {
    const char *name;
    struct td_str text;
    int64_t number;
    bool is_text;
};

#define TDI_LOG_STR(n, s) ((struct tdi_log_field){.name = (n), .text = (s), .is_text = true})
#define TDI_LOG_INT(n, v) ((struct tdi_log_field){.name = (n), .number = (v)})
#define TDI_LOG_FIELDS_MAX 16
#define TDI_LOG_LINE_MAX 4096

/* event: a short sentence, "relay stopped". Control bytes are escaped; long lines are cut. */
void tdi_log_write(struct tdi_log *log, enum tdi_log_level level, const char *event,
                   const struct tdi_log_field *fields, size_t count);
/* With the fields of an error: error, class, driver, op, peer. */
void tdi_log_error(struct tdi_log *log, enum tdi_log_level level, const char *event,
                   const struct td_error *e, const struct tdi_log_field *fields, size_t count);

#define TDI_LOG(log, level, event, ...)                                                            \
    do {                                                                                           \
        if (tdi_log_on((log), (level))) {                                                          \
            const struct tdi_log_field tdi_fields_[] = {__VA_ARGS__};                              \
            tdi_log_write((log), (level), (event), tdi_fields_,                                    \
                          sizeof(tdi_fields_) / sizeof(tdi_fields_[0]));                           \
        }                                                                                          \
    } while (0)

#endif
