/* SipHash against the vectors of its authors, SHA-1 against those of FIPS 180. */
#include "base/hash.h"

#include "unit.h"

static const uint64_t key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

static void fill(unsigned char *in, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        in[i] = (unsigned char)i;
    }
}

static void siphash_64_vectors(void **state)
{
    (void)state;
    /* Of the inputs 00, 00 01, 00 01 02, ...; the vectors are little endian bytes. */
    static const struct {
        size_t len;
        unsigned char out[8];
    } vectors[] = {
        {0, {0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72}},
        {1, {0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74}},
        {2, {0x5a, 0x4f, 0xa9, 0xd9, 0x09, 0x80, 0x6c, 0x0d}},
        {3, {0x2d, 0x7e, 0xfb, 0xd7, 0x96, 0x66, 0x67, 0x85}},
        {4, {0xb7, 0x87, 0x71, 0x27, 0xe0, 0x94, 0x27, 0xcf}},
        {5, {0x8d, 0xa6, 0x99, 0xcd, 0x64, 0x55, 0x76, 0x18}},
        {6, {0xce, 0xe3, 0xfe, 0x58, 0x6e, 0x46, 0xc9, 0xcb}},
        {7, {0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab}},
        {8, {0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93}},
        {9, {0xb0, 0xe4, 0xa9, 0x0b, 0xdf, 0x82, 0x00, 0x9e}},
        {15, {0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1}},
        {16, {0xdb, 0x9b, 0xc2, 0x57, 0x7f, 0xcc, 0x2a, 0x3f}},
        {63, {0x72, 0x45, 0x06, 0xeb, 0x4c, 0x32, 0x8a, 0x95}},
    };
    unsigned char in[64];
    fill(in, sizeof(in));
    for (size_t i = 0; i < COUNT(vectors); i++) {
        char *data = exact_copy(in, vectors[i].len);
        uint64_t h = tdi_siphash(key, data, vectors[i].len);
        for (size_t k = 0; k < 8; k++) {
            assert_int_equal((unsigned char)(h >> (8 * k)), vectors[i].out[k]);
        }
        free(data);
    }
    assert_int_equal(tdi_siphash(key, NULL, 0), UINT64_C(0x726fdb47dd0e0e31));
}

static void siphash_128_vectors(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        unsigned char out[16];
    } vectors[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
          0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc,
          0x45}},
        {7,
         {0xa1, 0xf1, 0xeb, 0xbe, 0xd8, 0xdb, 0xc1, 0x53, 0xc0, 0xb8, 0x4a, 0xa6, 0x1f, 0xf0, 0x82,
          0x39}},
        {8,
         {0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61, 0x0f, 0x83, 0xe2, 0x64, 0xf3, 0x14, 0x97,
          0xb4}},
        {15,
         {0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3,
          0xd9}},
        {63,
         {0x51, 0x50, 0xd1, 0x77, 0x2f, 0x50, 0x83, 0x4a, 0x50, 0x3e, 0x06, 0x9a, 0x97, 0x3f, 0xbd,
          0x7c}},
    };
    unsigned char in[64];
    fill(in, sizeof(in));
    for (size_t i = 0; i < COUNT(vectors); i++) {
        unsigned char out[16];
        char *data = exact_copy(in, vectors[i].len);
        tdi_siphash128(key, data, vectors[i].len, out);
        assert_memory_equal(out, vectors[i].out, 16);
        free(data);
    }
}

static void siphash_depends_on_the_key(void **state)
{
    (void)state;
    const uint64_t other[2] = {key[0], key[1] ^ 1};
    const uint64_t third[2] = {key[0] ^ 1, key[1]};
    assert_int_not_equal(tdi_siphash(key, "a", 1), tdi_siphash(other, "a", 1));
    assert_int_not_equal(tdi_siphash(key, "a", 1), tdi_siphash(third, "a", 1));
}

static void assert_sha1(const void *data, size_t len, const unsigned char want[20])
{
    unsigned char out[20];
    struct tdi_sha1 s;
    tdi_sha1_init(&s);
    tdi_sha1_add(&s, data, len);
    tdi_sha1_end(&s, out);
    assert_memory_equal(out, want, 20);
}

static void sha1_vectors(void **state)
{
    (void)state;
    assert_sha1(NULL, 0,
                (const unsigned char *)"\xda\x39\xa3\xee\x5e\x6b\x4b\x0d\x32\x55\xbf\xef\x95\x60"
                                       "\x18\x90\xaf\xd8\x07\x09");
    assert_sha1("abc", 3,
                (const unsigned char *)"\xa9\x99\x3e\x36\x47\x06\x81\x6a\xba\x3e\x25\x71\x78\x50"
                                       "\xc2\x6c\x9c\xd0\xd8\x9d");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_sha1(two, strlen(two),
                (const unsigned char *)"\x84\x98\x3e\x44\x1c\x3b\xd2\x6e\xba\xae\x4a\xa1\xf9\x51"
                                       "\x29\xe5\xe5\x46\x70\xf1");
}

static void sha1_million(void **state)
{
    (void)state;
    static const unsigned char want[20] = {0x34, 0xaa, 0x97, 0x3c, 0xd4, 0xc4, 0xda,
                                           0xa4, 0xf6, 0x1e, 0xeb, 0x2b, 0xdb, 0xad,
                                           0x27, 0x31, 0x65, 0x34, 0x01, 0x6f};
    unsigned char out[20];
    struct tdi_sha1 s;
    tdi_sha1_init(&s);
    char chunk[1000];
    memset(chunk, 'a', sizeof(chunk));
    /* In pieces of odd sizes, so that they cross the blocks everywhere. */
    size_t left = 1000000;
    for (size_t i = 0; left > 0; i++) {
        size_t n = i * 37 % 1000;
        n = n < left ? n : left;
        tdi_sha1_add(&s, chunk, n);
        left -= n;
    }
    tdi_sha1_end(&s, out);
    assert_memory_equal(out, want, 20);
}

static void sha1_every_split(void **state)
{
    (void)state;
    unsigned char in[200];
    fill(in, sizeof(in));
    for (size_t len = 0; len < sizeof(in); len++) {
        struct tdi_sha1 s;
        unsigned char want[20];
        tdi_sha1_init(&s);
        for (size_t i = 0; i < len; i++) {
            tdi_sha1_add(&s, in + i, 1);
        }
        tdi_sha1_end(&s, want);
        char *data = exact_copy(in, len);
        assert_sha1(data, len, want);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siphash_64_vectors),
        cmocka_unit_test(siphash_128_vectors),
        cmocka_unit_test(siphash_depends_on_the_key),
        cmocka_unit_test(sha1_vectors),
        cmocka_unit_test(sha1_million),
        cmocka_unit_test(sha1_every_split),
    };
    return cmocka_run_group_tests_name("base/hash", tests, NULL, NULL);
}
