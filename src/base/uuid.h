/*
 * UUIDs as text (RFC 9562): version 7 for new ids, version 5 for ids that follow from others.
 */
#ifndef TDI_BASE_UUID_H
#define TDI_BASE_UUID_H

#include "tidings/types.h"

struct tdi_random;

#define TDI_UUID_TEXT_LEN 36

/* 36 characters and a NUL. now_us: civil time. */
void tdi_uuid7(struct tdi_random *r, td_time_us now_us, char out[TDI_UUID_TEXT_LEN + 1]);
/* In the one namespace of Tidings, over the length-prefixed (32 bits, big endian) parts. */
void tdi_uuid5(const struct td_str *parts, size_t count, char out[TDI_UUID_TEXT_LEN + 1]);
/* Plain version 5: a name in any namespace. */
void tdi_uuid5_in(const unsigned char space[16], struct td_str name,
                  char out[TDI_UUID_TEXT_LEN + 1]);

#endif
