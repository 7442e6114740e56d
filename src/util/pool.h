/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_POOL_H
#define MDAPL_POOL_H
/*
 * A slab of objects of one size: taken and given back in constant time, grown by chunks, never
 * shrunk before mdapl_pool_fini(). Objects are not cleared.
 */
#include <stddef.h>

struct mdapl_pool_chunk;

struct mdapl_pool {
    size_t size;             /* of one object, rounded up to the alignment */
    size_t align;
    size_t per_chunk;
    size_t made;             /* objects in all chunks */
    size_t taken;            /* of them, not on the free list */
    size_t max;              /* limit of made; 0: none */
    void *free_list;
    struct mdapl_pool_chunk *chunks;
};

/* size and align in bytes; align a power of two, at least sizeof(void *). */
void mdapl_pool_init(struct mdapl_pool *p, size_t size, size_t align, size_t per_chunk, size_t max);
/* Frees all chunks; objects still taken become invalid. */
void mdapl_pool_fini(struct mdapl_pool *p);
/* Makes a chunk of objects, if the limit and memory allow. */
void mdapl_pool_grow(struct mdapl_pool *p);

/* Takes an object. NULL: the limit is reached, or memory is out. */
static inline void *mdapl_pool_take(struct mdapl_pool *p)
{
    void *obj;

    if (!p->free_list)
        mdapl_pool_grow(p);
    obj = p->free_list;
    if (!obj)
        return NULL;
    p->free_list = *(void **)obj;
    p->taken++;
    return obj;
}

static inline void mdapl_pool_give(struct mdapl_pool *p, void *obj)
{
    *(void **)obj = p->free_list;
    p->free_list = obj;
    p->taken--;
}

#endif
