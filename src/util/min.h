/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_MIN_H
#define MDAPL_MIN_H
/* The smaller and the larger of two numbers of bytes, transfers or nanoseconds. */
#include <stdint.h>

static inline uint64_t mdapl_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t mdapl_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
