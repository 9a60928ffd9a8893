/*
 * Hashes: SipHash-2-4 with 64 and 128 bits (keyed), SHA-1 (for UUIDv5 only).
 * Sources: Aumasson and Bernstein, "SipHash", 2012; FIPS 180-4.
 */
#ifndef TDI_BASE_HASH_H
#define TDI_BASE_HASH_H

#include "tidings/types.h"

uint64_t tdi_siphash(const uint64_t key[2], const void *data, size_t len);
void tdi_siphash128(const uint64_t key[2], const void *data, size_t len, unsigned char out[16]);

struct tdi_sha1 {
    uint32_t h[5];
    uint64_t len;
    unsigned char block[64];
};
void tdi_sha1_init(struct tdi_sha1 *s);
void tdi_sha1_add(struct tdi_sha1 *s, const void *data, size_t len);
void tdi_sha1_end(struct tdi_sha1 *s, unsigned char out[20]);

#endif
