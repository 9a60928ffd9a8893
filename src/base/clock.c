/*
 * The machine's clock, and xoshiro256** (Blackman and Vigna, 2018) seeded by splitmix64.
 */
#include "base/clock.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

static td_time_us read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t); /* cannot fail for these two */
    return (td_time_us)t.tv_sec * TD_SECOND_US + t.tv_nsec / 1000;
}

static td_time_us system_wall(void *ctx)
{
    (void)ctx;
    return read_clock(CLOCK_REALTIME);
}

static td_time_us system_mono(void *ctx)
{
    (void)ctx;
    return read_clock(CLOCK_MONOTONIC);
}

struct td_clock tdi_clock_system(void)
{
    return (struct td_clock){.wall = system_wall, .mono = system_mono};
}

void tdi_random_seed(struct tdi_random *r, uint64_t seed)
{
    for (size_t i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        r->s[i] = z ^ (z >> 31);
    }
}

bool tdi_random_seed_system(struct tdi_random *r)
{
    unsigned char *p = (unsigned char *)r->s;
    size_t left = sizeof(r->s);
    while (left > 0) {
        ssize_t n = getrandom(p, left, 0);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return false;
        }
        p += n;
        left -= (size_t)n;
    }
    /* All zeroes is the one state that never changes. */
    return (r->s[0] | r->s[1] | r->s[2] | r->s[3]) != 0;
}

static uint64_t rotl(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

uint64_t tdi_random_u64(struct tdi_random *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t tdi_random_below(struct tdi_random *r, uint64_t bound)
{
    if (bound == 0) {
        return 0;
    }
    /* The first 2^64 mod bound numbers would make the small results likelier. */
    uint64_t uneven = (0 - bound) % bound;
    uint64_t x;
    do {
        x = tdi_random_u64(r);
    } while (x < uneven);
    return x % bound;
}
