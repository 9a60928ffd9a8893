/*
 * UUIDs of RFC 9562 as text.
 *
 * Invariant: the namespace never changes, for ids that follow from others must stay the same over
 * versions of this program.
 */
#include "base/uuid.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

static const unsigned char tidings_namespace[16] = {
    0x62, 0xea, 0x1d, 0x53, 0x55, 0xfb, 0x45, 0xc4, 0x98, 0x5d, 0x76, 0xfd, 0xad, 0x48, 0x74, 0x32,
};

static void text(unsigned char id[16], unsigned version, char out[TDI_UUID_TEXT_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";
    id[6] = (unsigned char)((id[6] & 0x0f) | version << 4);
    id[8] = (unsigned char)((id[8] & 0x3f) | 0x80);
    char *p = out;
    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *p++ = '-';
        }
        *p++ = digits[id[i] >> 4];
        *p++ = digits[id[i] & 15];
    }
    *p = '\0';
}

static void put_be(unsigned char *p, uint64_t v, size_t bytes)
{
    for (size_t i = bytes; i > 0; i--) {
        p[i - 1] = (unsigned char)v;
        v >>= 8;
    }
}

void tdi_uuid7(struct tdi_random *r, td_time_us now_us, char out[TDI_UUID_TEXT_LEN + 1])
{
    uint64_t us = now_us > 0 ? (uint64_t)now_us : 0;
    unsigned char id[16];
    put_be(id, us / 1000, 6);
    /* rand_a: the part of the millisecond in 1/4096 (section 6.2, method 3), so that ids of one
     * process sort by microseconds. */
    put_be(id + 6, us % 1000 * 4096 / 1000, 2);
    put_be(id + 8, tdi_random_u64(r), 8);
    text(id, 7, out);
}

static void uuid5_end(struct tdi_sha1 *sha, char out[TDI_UUID_TEXT_LEN + 1])
{
    unsigned char digest[20];
    tdi_sha1_end(sha, digest);
    text(digest, 5, out);
}

void tdi_uuid5(const struct td_str *parts, size_t count, char out[TDI_UUID_TEXT_LEN + 1])
{
    struct tdi_sha1 sha;
    tdi_sha1_init(&sha);
    tdi_sha1_add(&sha, tidings_namespace, sizeof(tidings_namespace));
    for (size_t i = 0; i < count; i++) {
        unsigned char length[4];
        put_be(length, parts[i].len, sizeof(length));
        tdi_sha1_add(&sha, length, sizeof(length));
        tdi_sha1_add(&sha, parts[i].data, parts[i].len);
    }
    uuid5_end(&sha, out);
}

void tdi_uuid5_in(const unsigned char space[16], struct td_str name,
                  char out[TDI_UUID_TEXT_LEN + 1])
{
    struct tdi_sha1 sha;
    tdi_sha1_init(&sha);
    tdi_sha1_add(&sha, space, 16);
    tdi_sha1_add(&sha, name.data, name.len);
    uuid5_end(&sha, out);
}
