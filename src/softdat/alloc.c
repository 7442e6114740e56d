/* SPDX-License-Identifier: MIT */
#include "alloc.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(addr, size) ((void)(addr), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(addr, size) ((void)(addr), (void)(size))
#endif

/*
 * Blocks of up to 64 KiB, in multiples of a cache line, are carved from chunks. Each size class has
 * a free list, because the provider's objects have few sizes. A longer block is a mapping of its
 * own. Each block begins with its size. When the last block is freed all chunks are unmapped.
 */
enum { LINE = 64, CLASSES = 1024, CHUNK = 1 << 18 };

struct block {
    size_t size;                 /* bytes, with this header */
    struct block *next;          /* while it is free */
};

_Static_assert(sizeof(struct block) == 16, "the memory behind it is aligned for any type");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct block *free[CLASSES];
    struct block *chunks;
    size_t used, live;           /* bytes used of the newest chunk; blocks allocated */
} heap = { .used = CHUNK };

/* Calls the kernel directly because programs interpose mmap() and munmap() too. */
static void *map(size_t n)
{
    long at = syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0L);

    return at == -1 ? NULL : (void *)(uintptr_t)at;
}

static void unmap(void *p, size_t n)
{
    ASAN_UNPOISON_MEMORY_REGION(p, n);
    syscall(SYS_munmap, p, n);
}

/* Carves a block of `size` bytes from the newest chunk, or from a new one. NULL: out of memory. */
static struct block *carve(size_t size)
{
    struct block *chunk;

    if (heap.used + size > CHUNK) {
        chunk = map(CHUNK);
        if (!chunk)
            return NULL;
        chunk->next = heap.chunks;
        heap.chunks = chunk;
        heap.used = LINE;
    }
    heap.used += size;
    return (struct block *)(void *)((char *)heap.chunks + heap.used - size);
}

/* Returns the size class of a block of n bytes; CLASSES: it is a mapping of its own. */
static size_t class_of(size_t n)
{
    size_t k = (n - 1) / LINE;

    return k < CLASSES ? k : CLASSES;
}

/* Takes a block of class k off its free list and zeroes n bytes behind its header. NULL: none. */
static struct block *reuse(size_t k, size_t n)
{
    struct block *p = k < CLASSES ? heap.free[k] : NULL;

    if (!p)
        return NULL;
    ASAN_UNPOISON_MEMORY_REGION(p, (k + 1) * LINE);
    heap.free[k] = p->next;
    memset(p + 1, 0, n);
    return p;
}

void *softdat_alloc(size_t n)
{
    size_t k = class_of(n + sizeof(struct block)), size;
    struct block *p;

    if (n > PTRDIFF_MAX)
        return NULL;
    size = k < CLASSES ? (k + 1) * LINE : n + sizeof(*p);
    pthread_mutex_lock(&lock);
    p = reuse(k, n);
    /* Fresh memory of the kernel is zero; zeroing it again would only make its pages resident. */
    if (!p)
        p = k < CLASSES ? carve(size) : map(size);
    if (p)
        p->size = size;
    heap.live += p != NULL;
    pthread_mutex_unlock(&lock);
    return p ? p + 1 : NULL;
}

void *softdat_alloc_n(size_t n, size_t each)
{
    return each && n > PTRDIFF_MAX / each ? NULL : softdat_alloc(n * each);
}

static void release_chunks(void)
{
    while (heap.chunks) {
        struct block *chunk = heap.chunks;

        ASAN_UNPOISON_MEMORY_REGION(chunk, CHUNK);
        heap.chunks = chunk->next;
        unmap(chunk, CHUNK);
    }
    memset(heap.free, 0, sizeof(heap.free));
    heap.used = CHUNK;
}

void softdat_free(void *memory)
{
    struct block *p = memory ? (struct block *)memory - 1 : NULL;
    size_t k;

    if (!p)
        return;
    pthread_mutex_lock(&lock);
    k = class_of(p->size);
    if (k == CLASSES) {
        unmap(p, p->size);
    } else {
        p->next = heap.free[k];
        heap.free[k] = p;
        ASAN_POISON_MEMORY_REGION(p, (k + 1) * LINE);
    }
    if (--heap.live == 0)
        release_chunks();
    pthread_mutex_unlock(&lock);
}
