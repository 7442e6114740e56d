/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_BYTES_H
#define MDAPL_BYTES_H
/*
 * Copies on the hot paths. For a few bytes (packets, short bodies) the C library's memcpy() spends
 * as long on the call and the choice by length as on the copy; here such a copy is two moves, which
 * may overlap. Some hundred bytes go by whole cache lines in vectors.
 *
 * From 2112 bytes on glibc uses rep movsb where the processor says that it is fast for short copies
 * (FSRM), elsewhere from some kilobytes on. Shorter copies begin with the last line if the source
 * is less than 512 bytes ahead of the destination modulo a page, as a buffer of malloc(), which
 * begins 16 bytes after a line, is of a body in shared memory, which begins one. Between two cores
 * of a Xeon bodies of 2048 bytes were slower so than longer ones. So such copies are made here.
 *
 * Longer ones are left to glibc, since rep movsb is the fastest where it works well. On some
 * processors (AMD's Zen 3) it becomes many times as slow where the destination is less than a cache
 * line ahead of the source modulo a page: a body in a cell, which begins a page, and a large buffer
 * of malloc() are so. A process measures once whether its processor has that; `line_perf ahead`
 * beside `line_perf memcpy` (benchmarks) shows it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct mdapl_clock;

enum { MDAPL_BYTES_LONG = 2112 };    /* from here on it is left to glibc */

/* The two moves; each is an instruction, as its length is a constant of at most 16 bytes: what is
 * longer would go by way of the stack. */
#define MDAPL_BYTES_BOTH_ENDS(to, from, n, half)                                                 \
    do {                                                                                         \
        uint8_t head_[half], tail_[half];                                                        \
                                                                                                 \
        memcpy(head_, (from), half);                                                             \
        memcpy(tail_, (const char *)(from) + (n) - (half), half);                                \
        memcpy((to), head_, half);                                                               \
        memcpy((char *)(to) + (n) - (half), tail_, half);                                        \
    } while (0)

/* How some bytes are copied: all of these are as memcpy(). */
typedef void mdapl_bytes_copier(void *to, const void *from, size_t n);

/* By whole cache lines. */
mdapl_bytes_copier mdapl_bytes_copy_lines;

/* For many bytes: it is memcpy(), or by lines where rep movsb is slow. */
mdapl_bytes_copier mdapl_bytes_copy_long;

/* Does a copier take longer than another one, for a few KiB in this core's cache to a destination
 * that is 16 bytes ahead of the source modulo a page? */
bool mdapl_bytes_is_slow(mdapl_bytes_copier *by, mdapl_bytes_copier *than,
                         const struct mdapl_clock *clock);

/* For many bytes, by non-temporal stores: they go to memory without reading the lines first, which
 * another core may have, and leave none of them in this core's caches. When it returns, a release
 * store orders them as it orders others. Where the processor has no such stores it is
 * mdapl_bytes_copy_long(). */
mdapl_bytes_copier mdapl_bytes_copy_stream;

/* The line at p will be written: takes it from the core that has it, without waiting. For x86 the
 * builtin would take a copy only, unless all processors that may run the program have the
 * instruction; those without it ignore it. */
static inline void mdapl_bytes_will_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

/* Of 33 to 64 bytes, the first 32 and the last 32. */
static inline void mdapl_bytes_copy_ends(void *to, const void *from, size_t n)
{
    MDAPL_BYTES_BOTH_ENDS(to, from, 32, 16);
    MDAPL_BYTES_BOTH_ENDS((char *)to + n - 32, (const char *)from + n - 32, 32, 16);
}

/* Of 1 to 3 bytes, the first, one in the middle and the last. */
static inline void mdapl_bytes_copy_three(void *to, const void *from, size_t n)
{
    const char *q = from;
    char *p = to, a = q[0], b = q[n / 2], c = q[n - 1];

    p[0] = a;
    p[n / 2] = b;
    p[n - 1] = c;
}

/* As memcpy(). */
static inline void mdapl_bytes_copy(void *to, const void *from, size_t n)
{
    if (n >= MDAPL_BYTES_LONG)
        mdapl_bytes_copy_long(to, from, n);
    else if (n > 64)
        mdapl_bytes_copy_lines(to, from, n);
    else if (n > 32)
        mdapl_bytes_copy_ends(to, from, n);
    else if (n > 16)
        MDAPL_BYTES_BOTH_ENDS(to, from, n, 16);
    else if (n >= 8)
        MDAPL_BYTES_BOTH_ENDS(to, from, n, 8);
    else if (n >= 4)
        MDAPL_BYTES_BOTH_ENDS(to, from, n, 4);
    else if (n > 0)
        mdapl_bytes_copy_three(to, from, n);
}

#endif
