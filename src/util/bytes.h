/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_BYTES_H
#define MDAPL_BYTES_H
/*
 * Copies on the way of messages. Of a few bytes (packets, short bodies): a call of the C library's
 * memcpy() goes through a jump table and finds out the length's class by itself, which is as long
 * as the copy; these are two moves that may overlap. Of many: glibc takes an instruction of the
 * processor's (rep movsb), which is slow when the bytes come from another core's cache or go where
 * another core has read: 256 KiB took 30 us where whole lines in vectors take 24.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One such move: its length is a constant, so the compiler has an instruction or two for it. */
#define MDAPL_BYTES_BOTH_ENDS(to, from, n, half)                                                 \
    do {                                                                                         \
        uint8_t head_[half], tail_[half];                                                        \
                                                                                                 \
        memcpy(head_, (from), half);                                                             \
        memcpy(tail_, (const char *)(from) + (n) - (half), half);                                \
        memcpy((to), head_, half);                                                               \
        memcpy((char *)(to) + (n) - (half), tail_, half);                                        \
    } while (0)

/* As memcpy(), for many bytes that go between cores. */
void mdapl_bytes_between_cores(void *to, const void *from, size_t n);

/* As memcpy(). */
static inline void mdapl_bytes_copy(void *to, const void *from, size_t n)
{
    if (n > 64 || n < 4)
        mdapl_bytes_between_cores(to, from, n);
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
