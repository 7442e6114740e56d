/* SPDX-License-Identifier: MIT */
/*
 * src/shm/seg.c for ranks that are threads of one process: a segment lies at one address for all
 * of them. Mapped twice, TSan would take it for two memories, and see no race in either.
 *
 * All of a segment is mapped as its owner makes it, which the test does before there are threads.
 * From then on nothing here is locked: a lock would make an order that the channel does not have.
 */
#include "seg.h"

#include <assert.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { SEGMENTS = 8 };

static struct segment {
    ino_t inode;
    uint8_t *base;               /* NULL: a free entry */
    size_t bytes;
    _Atomic int users;           /* parts of it that are mapped */
} segments[SEGMENTS];

static void *map_once(void *addr, size_t len, int prot, int flags, int fd, off_t at)
{
    struct segment *s;
    struct stat st;

    (void)len, (void)prot;       /* reader and writer share it */
    if (fstat(fd, &st))
        return MAP_FAILED;
    for (s = segments; s->base && s->inode != st.st_ino; s++)
        assert(s < segments + SEGMENTS - 1);
    if (!s->base) {
        s->inode = st.st_ino;
        s->bytes = (size_t)st.st_size;
        s->base = mmap(addr, s->bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
        assert(s->base != MAP_FAILED);
    }
    atomic_fetch_add_explicit(&s->users, 1, memory_order_relaxed);
    return s->base + at;
}

static int unmap_once(void *p, size_t len)
{
    struct segment *s = segments;

    (void)len;
    while (!s->base || (uint8_t *)p < s->base || (uint8_t *)p >= s->base + s->bytes)
        s++;
    if (atomic_fetch_sub_explicit(&s->users, 1, memory_order_relaxed) > 1)
        return 0;
    p = s->base;
    s->base = NULL;
    return munmap(p, s->bytes);
}

#define mmap map_once
#define munmap unmap_once
#include "seg.c"
