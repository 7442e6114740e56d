/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * Large blocks of memory that MPICH frees and asks for again: temporary values of reductions above
 * all, one or two for each call. The C library returns such blocks to the system, so that each call
 * costs a fault for each of their pages: of MPI_Reduce that is most of its time. Here the last few
 * are kept for the next request of about their length. The linker exchanges the calls of malloc()
 * and free() in MPICH's own code (--wrap), not those of the program.
 *
 * Whatever is kept is a block of the C library's, and may be freed by its free() anywhere. Any
 * thread may call these functions; a place is emptied and filled by one atomic operation. They are
 * weak, as a program that is linked statically may have its own with these names.
 */
enum { LARGE = 131072 };         /* bytes from which on glibc has the system map a block */

void *__real_malloc(size_t bytes) __attribute__((weak));
void *__wrap_malloc(size_t bytes) __attribute__((weak));
void __real_free(void *block) __attribute__((weak));
void __wrap_free(void *block) __attribute__((weak));
/* The length of a block, if the C library has this function: else none is kept. */
size_t malloc_usable_size(void *block) __attribute__((weak));

/* Puts a block into an empty place. */
static bool put(_Atomic(void *) *place, void *block)
{
    void *none = NULL;

    return atomic_compare_exchange_strong(place, &none, block);
}

static void *take(struct mdapl_ch3_heap *h, size_t bytes)
{
    for (int i = 0; i < MDAPL_CH3_KEPT; i++) {
        void *block = atomic_exchange(&h->kept[i], NULL);
        size_t has = block ? malloc_usable_size(block) : 0;

        if (has >= bytes && has / 2 <= bytes)
            return block;
        if (block && !put(&h->kept[i], block))
            __real_free(block);
    }
    return NULL;
}

/* Keeps a block. Returns another one that makes room for it, the places in turn; NULL: there was
 * room. */
static void *keep(struct mdapl_ch3_heap *h, void *block)
{
    for (int i = 0; i < MDAPL_CH3_KEPT; i++)
        if (put(&h->kept[i], block))
            return NULL;
    return atomic_exchange(&h->kept[atomic_fetch_add(&h->turn, 1) % MDAPL_CH3_KEPT], block);
}

void *__wrap_malloc(size_t bytes)
{
    struct mdapl_ch3_heap *h = &mdapl_ch3_glue.heap;
    void *block = bytes >= LARGE && bytes <= h->longest ? take(h, bytes) : NULL;

    return block ? block : __real_malloc(bytes);
}

void __wrap_free(void *block)
{
    struct mdapl_ch3_heap *h = &mdapl_ch3_glue.heap;
    size_t has;

    if (!block)
        return;                  /* as for most messages, for which MPICH has allocated nothing */
    has = h->longest > 0 ? malloc_usable_size(block) : 0;
    __real_free(has >= LARGE && has <= h->longest ? keep(h, block) : block);
}

void mdapl_ch3_heap_init(struct mdapl_ch3_heap *h, size_t longest)
{
    enum { ROUNDED = 8192 };     /* the C library maps whole pages, and needs some bytes itself */

    h->longest = longest > 0 && malloc_usable_size ? longest + ROUNDED : 0;
}

void mdapl_ch3_heap_fini(struct mdapl_ch3_heap *h)
{
    h->longest = 0;
    for (int i = 0; i < MDAPL_CH3_KEPT; i++)
        free(atomic_exchange(&h->kept[i], NULL));
}
