/* SPDX-License-Identifier: MIT */
#include "vbuf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Room behind a frame for what the ring lane puts there. */
enum { CHUNK_BYTES = 1 << 19, LINE = 64, BEHIND = 16 };

struct chunk {
    struct mdapl_list link;
    struct mdapl_lmr lmr;
    uint8_t *data;           /* mapped, so that no other object shares a registered page */
    size_t bytes;
    struct mdapl_vbuf buf[];
};

void mdapl_vbufs_init(struct mdapl_vbufs *v, const struct mdapl_rails *rails, uint32_t size)
{
    v->rails = rails;
    for (int i = 0; i < rails->n; i++)
        rails->ia[i]->vbufs = v;
    v->size = size;
    mdapl_list_init(&v->free);
    mdapl_list_init(&v->chunks);
}

static void chunk_free(struct chunk *c)
{
    mdapl_lmr_release(&c->lmr);
    munmap(c->data, c->bytes);
    free(c);
}

void mdapl_vbufs_fini(struct mdapl_vbufs *v)
{
    struct mdapl_list *item;

    while ((item = mdapl_list_take(&v->chunks)))
        chunk_free(MDAPL_OF(item, struct chunk, link));
    mdapl_list_init(&v->free);
}

static struct chunk *chunk_make(struct mdapl_vbufs *v, size_t stride, size_t n)
{
    struct chunk *c = calloc(1, sizeof(*c) + n * sizeof(c->buf[0]));

    if (!c)
        return NULL;
    c->bytes = n * stride;
    c->data = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c->data == MAP_FAILED) {
        free(c);
        return NULL;
    }
    if (mdapl_lmr_register(v->rails, c->data, c->bytes, MDAPL_LMR_LOCAL, &c->lmr)) {
        munmap(c->data, c->bytes);
        free(c);
        return NULL;
    }
    return c;
}

static void grow(struct mdapl_vbufs *v)
{
    size_t stride = ((size_t)v->size + BEHIND + LINE - 1) / LINE * LINE;
    size_t n = CHUNK_BYTES / stride > 0 ? CHUNK_BYTES / stride : 1;
    struct chunk *c = chunk_make(v, stride, n);

    if (!c)
        return;
    mdapl_list_append(&v->chunks, &c->link);
    for (size_t i = 0; i < n; i++) {
        c->buf[i].data = c->data + i * stride;
        c->buf[i].lmr = &c->lmr;
        mdapl_list_append(&v->free, &c->buf[i].link);
    }
}

struct mdapl_vbuf *mdapl_vbuf_get(struct mdapl_vbufs *v)
{
    struct mdapl_list *item;

    if (mdapl_list_empty(&v->free))
        grow(v);
    item = mdapl_list_take(&v->free);
    if (!item)
        return NULL;
    MDAPL_OF(item, struct mdapl_vbuf, link)->holds = 1;
    return MDAPL_OF(item, struct mdapl_vbuf, link);
}

void mdapl_vbuf_put(struct mdapl_vbufs *v, struct mdapl_vbuf *b)
{
    if (--b->holds == 0)     /* to the front: it is the warmest */
        mdapl_list_before(v->free.next, &b->link);
}
