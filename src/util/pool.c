/* SPDX-License-Identifier: MIT */
#include "pool.h"

#include <stdlib.h>

/* A chunk of objects, listed so that mdapl_pool_fini() can free it. */
struct mdapl_pool_chunk {
    struct mdapl_pool_chunk *next;
    void *memory;
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

void mdapl_pool_init(struct mdapl_pool *p, size_t size, size_t align, size_t per_chunk, size_t max)
{
    if (align < sizeof(void *))
        align = sizeof(void *);
    *p = (struct mdapl_pool){ .size = round_up(size, align), .align = align,
                              .per_chunk = per_chunk, .max = max };
}

void mdapl_pool_fini(struct mdapl_pool *p)
{
    while (p->chunks) {
        struct mdapl_pool_chunk *c = p->chunks;

        p->chunks = c->next;
        free(c->memory);
        free(c);
    }
    p->free_list = NULL;
    p->made = p->taken = 0;
}

void mdapl_pool_grow(struct mdapl_pool *p)
{
    size_t n = p->per_chunk;
    struct mdapl_pool_chunk *c;

    if (p->max && n > p->max - p->made)
        n = p->max - p->made;
    c = n > 0 ? malloc(sizeof(*c)) : NULL;
    if (!c)
        return;
    c->memory = aligned_alloc(p->align, n * p->size);
    if (!c->memory) {
        free(c);
        return;
    }
    c->next = p->chunks;
    p->chunks = c;
    p->made += n;
    p->taken += n;
    for (size_t i = n; i-- > 0;)
        mdapl_pool_give(p, (char *)c->memory + i * p->size);
}
