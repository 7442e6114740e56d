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
 * Pieces of up to 64 KiB, in multiples of a line, are cut from chunks, with a list of free ones for
 * each length: the provider's objects have few lengths. Longer ones are mapped by themselves. Each
 * has its length in front. When the last piece has been given back so are the chunks.
 */
enum { LINE = 64, CLASSES = 1024, CHUNK = 1 << 18 };

struct block {
    size_t size;                 /* with this header */
    struct block *next;          /* while it is free */
};

_Static_assert(sizeof(struct block) == 16, "what follows is aligned for anything");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct block *free[CLASSES];
    struct block *chunks;
    size_t used, live;           /* bytes of the newest chunk, pieces that are given out */
} heap = { .used = CHUNK };

/* The system calls themselves: programs interpose the functions as well. */
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

/* The list of pieces of n bytes; CLASSES: they are mapped. */
static size_t class_of(size_t n)
{
    size_t k = (n - 1) / LINE;

    return k < CLASSES ? k : CLASSES;
}

/* One that was free before, with n bytes behind its header zeroed; else NULL. */
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
    /* What the kernel maps is zero: pages that nobody has written yet take no memory. */
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
