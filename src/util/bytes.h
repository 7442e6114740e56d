/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_BYTES_H
#define MDAPL_BYTES_H
/*
 * Copies on the hot paths. For a few bytes (packets, short bodies) the C library's memcpy() spends
 * as long on the call and the choice by length as on the copy; here such a copy is two moves, which
 * may overlap. For many bytes glibc uses rep movsb, which is slow when the source is in another
 * core's cache or the destination was read by another core: 256 KiB took 30 us, and 24 us with full
 * lines in vectors.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The two moves; each is an instruction or two, because its length is a constant. */
#define MDAPL_BYTES_BOTH_ENDS(to, from, n, half)                                                 \
    do {                                                                                         \
        uint8_t head_[half], tail_[half];                                                        \
                                                                                                 \
        memcpy(head_, (from), half);                                                             \
        memcpy(tail_, (const char *)(from) + (n) - (half), half);                                \
        memcpy((to), head_, half);                                                               \
        memcpy((char *)(to) + (n) - (half), tail_, half);                                        \
    } while (0)

/* As memcpy(), by whole cache lines, for many bytes that another core has written or will read.
 * Whether it is faster than memcpy() differs between processors. */
void mdapl_bytes_copy_lines(void *to, const void *from, size_t n);

/* As memcpy(). */
static inline void mdapl_bytes_copy(void *to, const void *from, size_t n)
{
    if (n > 64 || n < 4)
        mdapl_bytes_copy_lines(to, from, n);
    else if (n > 32)
        MDAPL_BYTES_BOTH_ENDS(to, from, n, 32);
    else if (n > 16)
        MDAPL_BYTES_BOTH_ENDS(to, from, n, 16);
    else if (n >= 8)
        MDAPL_BYTES_BOTH_ENDS(to, from, n, 8);
    else
        MDAPL_BYTES_BOTH_ENDS(to, from, n, 4);
}

#endif
