/*
 * SipHash-2-4 (reference: veorq/SipHash) and SHA-1 (FIPS 180-4). Pure.
 */
#include "base/hash.h"

#include <string.h>

static inline uint64_t rotl64(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

static inline uint32_t rotl32(uint32_t x, int n)
{
    return (x << n) | (x >> (32 - n));
}

/* Compilers make one load of this. */
static inline uint64_t load_le64(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 |
           (uint64_t)p[7] << 56;
}

static inline void store_le64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) {
        p[i] = (unsigned char)(v >> (8 * i));
    }
}

/* ---- SipHash ---------------------------------------------------------------------------- */

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v1 = rotl64(s->v1, 13) ^ s->v0;
    s->v0 = rotl64(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotl64(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotl64(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotl64(s->v1, 17) ^ s->v2;
    s->v2 = rotl64(s->v2, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

static inline uint64_t sip_end(struct sip *s)
{
    for (int i = 0; i < 4; i++) {
        sip_round(s);
    }
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* Everything up to the finalization, which is where 64 and 128 bits part. */
static inline struct sip sip_all(const uint64_t key[2], const void *data, size_t len, uint64_t v1)
{
    struct sip s = {
        .v0 = UINT64_C(0x736f6d6570736575) ^ key[0],
        .v1 = UINT64_C(0x646f72616e646f6d) ^ key[1] ^ v1,
        .v2 = UINT64_C(0x6c7967656e657261) ^ key[0],
        .v3 = UINT64_C(0x7465646279746573) ^ key[1],
    };
    const unsigned char *p = data;
    size_t rest = len;
    while (rest >= 8) {
        sip_word(&s, load_le64(p));
        p += 8;
        rest -= 8;
    }
    uint64_t last = (uint64_t)len << 56;
    for (size_t i = 0; i < rest; i++) {
        last |= (uint64_t)p[i] << (8 * i);
    }
    sip_word(&s, last);
    return s;
}

uint64_t tdi_siphash(const uint64_t key[2], const void *data, size_t len)
{
    struct sip s = sip_all(key, data, len, 0);
    s.v2 ^= 0xff;
    return sip_end(&s);
}

void tdi_siphash128(const uint64_t key[2], const void *data, size_t len, unsigned char out[16])
{
    struct sip s = sip_all(key, data, len, 0xee);
    s.v2 ^= 0xee;
    store_le64(out, sip_end(&s));
    s.v1 ^= 0xdd;
    store_le64(out + 8, sip_end(&s));
}

/* ---- SHA-1 ------------------------------------------------------------------------------ */

void tdi_sha1_init(struct tdi_sha1 *s)
{
    *s = (struct tdi_sha1){
        .h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
    };
}

static uint32_t sha1_mix(int t, uint32_t b, uint32_t c, uint32_t d)
{
    if (t < 20) {
        return ((b & c) | (~b & d)) + 0x5a827999;
    }
    if (t < 40) {
        return (b ^ c ^ d) + 0x6ed9eba1;
    }
    if (t < 60) {
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    }
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void sha1_block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80];
    for (int t = 0; t < 16; t++, p += 4) {
        w[t] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (int t = 16; t < 80; t++) {
        w[t] = rotl32(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    }
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int t = 0; t < 80; t++) {
        uint32_t next = rotl32(a, 5) + sha1_mix(t, b, c, d) + e + w[t];
        e = d;
        d = c;
        c = rotl32(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void tdi_sha1_add(struct tdi_sha1 *s, const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t have = s->len % sizeof(s->block);
    s->len += len;
    if (have > 0) {
        size_t room = sizeof(s->block) - have;
        size_t part = len < room ? len : room;
        if (part > 0) {
            memcpy(s->block + have, p, part);
            p += part;
            len -= part;
        }
        if (part < room) {
            return;
        }
        sha1_block(s->h, s->block);
    }
    for (; len >= sizeof(s->block); p += sizeof(s->block), len -= sizeof(s->block)) {
        sha1_block(s->h, p);
    }
    if (len > 0) {
        memcpy(s->block, p, len);
    }
}

void tdi_sha1_end(struct tdi_sha1 *s, unsigned char out[20])
{
    static const unsigned char pad[64] = {0x80};
    uint64_t bits = s->len * 8;
    size_t have = s->len % 64;
    tdi_sha1_add(s, pad, have < 56 ? 56 - have : 120 - have);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    }
    tdi_sha1_add(s, length, sizeof(length));
    for (int i = 0; i < 20; i++) {
        out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    }
}
