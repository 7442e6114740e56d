/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SEQ_H
#define MDAPL_SEQ_H
/*
 * Serial numbers. Counters in memory have 64 bits and never wrap; frames carry their low 32 bits
 * (RFC 1982 serial arithmetic). That is enough because a window is far smaller than 2^31, and the
 * frames of an old connection are discarded before a new connection carries any.
 */
#include <stdbool.h>
#include <stdint.h>

/* The full number nearest to `near` whose low 32 bits are `low`. */
static inline uint64_t mdapl_seq_widen(uint64_t near, uint32_t low)
{
    return near + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)near);
}

/* Is a before b, by less than 2^31? */
static inline bool mdapl_seq_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

#endif
