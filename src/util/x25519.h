/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_X25519_H
#define MDAPL_X25519_H
/*
 * The Diffie-Hellman function X25519 (RFC 7748, section 5): two jobs that know each other's public
 * key have a key that no third one can compute. It is implemented here for the reason that
 * siphash.h gives.
 */
#include <stdint.h>

enum { MDAPL_X25519_BYTES = 32 };

/* out = scalar * point; all three of MDAPL_X25519_BYTES, in the byte order of the RFC. The bits of
 * scalar that the RFC fixes are fixed here. The time does not depend on scalar. */
void mdapl_x25519(uint8_t out[MDAPL_X25519_BYTES], const uint8_t scalar[MDAPL_X25519_BYTES],
                  const uint8_t point[MDAPL_X25519_BYTES]);
/* The public key of a secret one: secret * 9. */
void mdapl_x25519_public(uint8_t out[MDAPL_X25519_BYTES],
                         const uint8_t secret[MDAPL_X25519_BYTES]);

#endif
