/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SIPHASH_H
#define MDAPL_SIPHASH_H
/*
 * SipHash-2-4 with a 128-bit result (Aumasson and Bernstein, "SipHash: a fast short-input PRF"):
 * the MAC of hellos. It is implemented here because libmpi must not depend on a cryptographic
 * library for 16 bytes per connection.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void mdapl_siphash(const uint8_t key[16], const void *data, size_t len, uint8_t mac[16]);
/* Compares two MACs in constant time. */
bool mdapl_mac_equal(const uint8_t a[16], const uint8_t b[16]);

#endif
