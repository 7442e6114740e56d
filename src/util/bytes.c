/* SPDX-License-Identifier: MIT */
#include "bytes.h"

#include "clock.h"
#include "min.h"

#include <stdatomic.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    LINE = 64,
    PAGE = 4096,
    AHEAD = 16,                  /* bytes from a line to a buffer of malloc() */
    SAMPLES = 4,                 /* of each copier; other processes disturb some */
};

/* The compiler's vectors, which any processor supports; unaligned, and may alias any type. */
typedef uint8_t vector __attribute__((vector_size(16), aligned(1), may_alias));

static inline void line(char *to, const char *from)
{
    const vector *q = (const vector *)(const void *)from;
    vector *p = (vector *)(void *)to, a = q[0], b = q[1], c = q[2], d = q[3];

    p[0] = a;
    p[1] = b;
    p[2] = c;
    p[3] = d;
}

/* Stores of full cache lines: a partial store costs a read for ownership. What is before the first
 * one and behind the last one goes with bytes of these, which are copied twice: for less than a
 * line gcc makes of memcpy() a `rep movsq`, whose start takes longer than such a copy. */
void mdapl_bytes_copy_lines(void *to, const void *from, size_t n)
{
    size_t first = n < 4 * LINE ? 0 : -(uintptr_t)to % LINE;
    const char *q = from;
    char *p = to;

    if (n <= LINE) {
        mdapl_bytes_copy(to, from, n);
        return;
    }
    if (first > 0) {
        line(p, q);
        p += first, q += first, n -= first;
    }
    for (; n > LINE; n -= LINE, p += LINE, q += LINE)
        line(p, q);
    line(p + n - LINE, q + n - LINE);
}

static void by_memcpy(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
}

bool mdapl_bytes_is_slow(mdapl_bytes_copier *by, mdapl_bytes_copier *than,
                         const struct mdapl_clock *clock)
{
    uint8_t pages[2 * PAGE] = { 0 };
    mdapl_bytes_copier *const copier[] = { by, than };
    uint64_t least[] = { UINT64_MAX, UINT64_MAX };

    for (int i = 0; i < 2 * SAMPLES; i++) {
        uint64_t begin = mdapl_clock_now(clock);

        copier[i % 2](pages + PAGE + AHEAD, pages, PAGE - AHEAD);
        least[i % 2] = mdapl_min(least[i % 2], mdapl_clock_now(clock) - begin);
    }
    return least[0] > least[1];
}

/* Is memcpy() the slower one where the destination is a little ahead? It is a property of the
 * processor, so it is measured once in a process, by the first copy of this kind: some us. */
static bool memcpy_is_slow(void)
{
    enum { NOT_KNOWN, NO, YES };
    static atomic_int known = NOT_KNOWN;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);

    if (answer == NOT_KNOWN) {
        const struct mdapl_clock clock = mdapl_clock_system();

        answer = mdapl_bytes_is_slow(by_memcpy, mdapl_bytes_copy_lines, &clock) ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}

void mdapl_bytes_copy_long(void *to, const void *from, size_t n)
{
    size_t ahead = ((uintptr_t)to - (uintptr_t)from) % PAGE;

    if (ahead > 0 && ahead < LINE && memcpy_is_slow())
        mdapl_bytes_copy_lines(to, from, n);
    else
        memcpy(to, from, n);
}

#ifdef __SSE2__
static inline void stream_line(char *to, const char *from)
{
    const __m128i *q = (const __m128i *)(const void *)from;
    __m128i *p = (__m128i *)(void *)to, a = _mm_loadu_si128(q), b = _mm_loadu_si128(q + 1),
            c = _mm_loadu_si128(q + 2), d = _mm_loadu_si128(q + 3);

    _mm_stream_si128(p, a);
    _mm_stream_si128(p + 1, b);
    _mm_stream_si128(p + 2, c);
    _mm_stream_si128(p + 3, d);
}

/* No byte twice: an ordinary store into a line that such a store has written fetches it. */
void mdapl_bytes_copy_stream(void *to, const void *from, size_t n)
{
    size_t first = mdapl_min(-(uintptr_t)to % LINE, n);
    const char *q = from;
    char *p = to;

    mdapl_bytes_copy(p, q, first);
    for (p += first, q += first, n -= first; n >= LINE; n -= LINE, p += LINE, q += LINE)
        stream_line(p, q);
    mdapl_bytes_copy(p, q, n);
    _mm_sfence();                /* these stores are not ordered before later ones */
}
#else
void mdapl_bytes_copy_stream(void *to, const void *from, size_t n)
{
    mdapl_bytes_copy_long(to, from, n);
}
#endif
