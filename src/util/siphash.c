/* SPDX-License-Identifier: MIT */
#include "siphash.h"

#include "little.h"

#include <string.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

static void rounds(struct state *s, int n)
{
    while (n-- > 0) {
        s->v0 += s->v1;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v2 = rotl(s->v2, 32);
    }
}

static void absorb(struct state *s, uint64_t m)
{
    s->v3 ^= m;
    rounds(s, 2);
    s->v0 ^= m;
}

static uint64_t squeeze(const struct state *s)
{
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

void mdapl_siphash(const uint8_t key[16], const void *data, size_t len, uint8_t mac[16])
{
    const uint8_t *p = data;
    uint64_t k0 = mdapl_get64(key), k1 = mdapl_get64(key + 8);
    uint8_t tail[8] = { 0 };
    struct state s = { k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee,
                       k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u };

    for (size_t i = 0; i + 8 <= len; i += 8)
        absorb(&s, mdapl_get64(p + i));
    memcpy(tail, p + len / 8 * 8, len % 8);
    tail[7] = (uint8_t)len;
    absorb(&s, mdapl_get64(tail));
    s.v2 ^= 0xee;
    rounds(&s, 4);
    mdapl_put64(mac, squeeze(&s));
    s.v1 ^= 0xdd;
    rounds(&s, 4);
    mdapl_put64(mac + 8, squeeze(&s));
}

bool mdapl_mac_equal(const uint8_t a[16], const uint8_t b[16])
{
    uint8_t diff = 0;

    for (int i = 0; i < 16; i++)
        diff |= a[i] ^ b[i];
    return diff == 0;
}
