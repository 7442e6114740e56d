/* SPDX-License-Identifier: MIT */
#include "x25519.h"

#include "little.h"

#include <string.h>

/*
 * Numbers modulo p = 2^255 - 19 as eight words of 32 bits, the lowest first. Between operations a
 * number may be anything below 2^256: since 2^256 = 38 (mod p), what exceeds the eight words is
 * added again, 38 times.
 */
enum { WORDS = 8, BITS = 255, FOLD = 38 };

struct number {
    uint32_t w[WORDS];
};

/* Adds c * 2^256 to r; c * FOLD fits into 64 bits and is far below 2^256. */
static void fold(struct number *r, uint64_t c)
{
    c *= FOLD;
    for (int i = 0; i < WORDS; i++) {
        c += r->w[i];
        r->w[i] = (uint32_t)c;
        c >>= 32;
    }
    r->w[0] += (uint32_t)c * FOLD;       /* after such a carry r is small: there is no other one */
}

static void add(struct number *r, const struct number *a, const struct number *b)
{
    uint64_t t = 0;

    for (int i = 0; i < WORDS; i++) {
        t += (uint64_t)a->w[i] + b->w[i];
        r->w[i] = (uint32_t)t;
        t >>= 32;
    }
    fold(r, t);
}

/* r = a - b, as a + 4p - b: 4p = 2 * (2^256 - 38), word by word, so that no word becomes
 * negative. */
static void subtract(struct number *r, const struct number *a, const struct number *b)
{
    uint64_t t = 0;

    for (int i = 0; i < WORDS; i++) {
        t += a->w[i] + 2 * (uint64_t)(i ? UINT32_MAX : UINT32_MAX - FOLD + 1) - b->w[i];
        r->w[i] = (uint32_t)t;
        t >>= 32;
    }
    fold(r, t);
}

static void multiply(struct number *r, const struct number *a, const struct number *b)
{
    uint32_t product[2 * WORDS] = { 0 };
    uint64_t t = 0;

    for (int i = 0; i < WORDS; i++) {
        t = 0;
        for (int j = 0; j < WORDS; j++) {
            t += (uint64_t)a->w[i] * b->w[j] + product[i + j];
            product[i + j] = (uint32_t)t;
            t >>= 32;
        }
        product[i + WORDS] = (uint32_t)t;
    }
    t = 0;
    for (int i = 0; i < WORDS; i++) {
        t += product[i] + (uint64_t)FOLD * product[i + WORDS];
        r->w[i] = (uint32_t)t;
        t >>= 32;
    }
    fold(r, t);
}

static void multiply_small(struct number *r, const struct number *a, uint32_t b)
{
    uint64_t t = 0;

    for (int i = 0; i < WORDS; i++) {
        t += (uint64_t)a->w[i] * b;
        r->w[i] = (uint32_t)t;
        t >>= 32;
    }
    fold(r, t);
}

/* r = a^(p - 2), which is 1 / a: of the 255 bits of p - 2 all but the bits 2 and 4 are set. */
static void invert(struct number *r, const struct number *a)
{
    struct number x = { { 1 } };

    for (int bit = BITS - 1; bit >= 0; bit--) {
        multiply(&x, &x, &x);
        if (bit != 2 && bit != 4)
            multiply(&x, &x, a);
    }
    *r = x;
}

/* Exchanges a and b if bit is 1. */
static void exchange(uint32_t bit, struct number *a, struct number *b)
{
    for (int i = 0; i < WORDS; i++) {
        uint32_t differ = (0 - bit) & (a->w[i] ^ b->w[i]);

        a->w[i] ^= differ;
        b->w[i] ^= differ;
    }
}

/* r = a + n, without a reduction; n is small. */
static void add_small(struct number *r, const struct number *a, uint32_t n)
{
    uint64_t t = n;

    for (int i = 0; i < WORDS; i++) {
        t += a->w[i];
        r->w[i] = (uint32_t)t;
        t >>= 32;
    }
}

/* a becomes the one number below p that is equal to it modulo p. */
static void reduce(struct number *a)
{
    const uint32_t top = UINT32_C(1) << 31;
    struct number more;

    for (int i = 0; i < 2; i++) {        /* bit 255 is 19 */
        uint32_t n = a->w[WORDS - 1] >> 31 ? 19 : 0;

        a->w[WORDS - 1] &= ~top;
        add_small(a, a, n);
    }
    add_small(&more, a, 19);             /* a >= p if and only if this has bit 255 */
    exchange(more.w[WORDS - 1] >> 31, a, &more);
    a->w[WORDS - 1] &= ~top;
}

static void load(struct number *r, const uint8_t in[MDAPL_X25519_BYTES])
{
    for (int i = 0; i < WORDS; i++)
        r->w[i] = mdapl_get32(in + 4 * i);
}

static void store(uint8_t out[MDAPL_X25519_BYTES], const struct number *a)
{
    for (int i = 0; i < WORDS; i++)
        mdapl_put32(out + 4 * i, a->w[i]);
}

/* One step of the Montgomery ladder with the point of u coordinate u: (x2 : z2) becomes its double,
 * (x3 : z3) the sum of both. */
static void step(const struct number *u, struct number *x2, struct number *z2, struct number *x3,
                 struct number *z3)
{
    struct number plus, minus, plus3, minus3, square, square_minus, e;

    add(&plus, x2, z2);
    subtract(&minus, x2, z2);
    add(&plus3, x3, z3);
    subtract(&minus3, x3, z3);
    multiply(&minus3, &minus3, &plus);
    multiply(&plus3, &plus3, &minus);
    add(x3, &minus3, &plus3);
    multiply(x3, x3, x3);
    subtract(z3, &minus3, &plus3);
    multiply(z3, z3, z3);
    multiply(z3, z3, u);
    multiply(&square, &plus, &plus);
    multiply(&square_minus, &minus, &minus);
    multiply(x2, &square, &square_minus);
    subtract(&e, &square, &square_minus);
    multiply_small(z2, &e, 121665);      /* (486662 - 2) / 4 */
    add(z2, z2, &square);
    multiply(z2, z2, &e);
}

void mdapl_x25519(uint8_t out[MDAPL_X25519_BYTES], const uint8_t scalar[MDAPL_X25519_BYTES],
                  const uint8_t point[MDAPL_X25519_BYTES])
{
    struct number u, x2 = { { 1 } }, z2 = { { 0 } }, x3, z3 = { { 1 } };
    uint8_t k[MDAPL_X25519_BYTES];
    uint32_t bit = 0, swapped = 0;

    memcpy(k, scalar, sizeof(k));
    k[0] &= 248;
    k[31] = (uint8_t)((k[31] & 127) | 64);
    load(&u, point);
    u.w[WORDS - 1] &= ~(UINT32_C(1) << 31);
    x3 = u;
    for (int at = BITS - 1; at >= 0; at--) {
        bit = k[at / 8] >> at % 8 & 1;
        exchange(bit ^ swapped, &x2, &x3);
        exchange(bit ^ swapped, &z2, &z3);
        swapped = bit;
        step(&u, &x2, &z2, &x3, &z3);
    }
    exchange(swapped, &x2, &x3);
    exchange(swapped, &z2, &z3);
    invert(&z2, &z2);
    multiply(&x2, &x2, &z2);
    reduce(&x2);
    store(out, &x2);
}

void mdapl_x25519_public(uint8_t out[MDAPL_X25519_BYTES], const uint8_t secret[MDAPL_X25519_BYTES])
{
    static const uint8_t base[MDAPL_X25519_BYTES] = { 9 };

    mdapl_x25519(out, secret, base);
}
