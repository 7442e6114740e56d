/* SPDX-License-Identifier: MIT */
#include "vbuf.h"

#include "min.h"
#include "regcache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 1 << 20,   /* of the first chunk; each is twice the one before it */
    CHUNK_DOUBLINGS = 4,
    LINE = 64,
    LEAST = 16,              /* buffers of a chunk, where the adapter takes as much in one piece */
};

struct chunk {
    struct mdapl_dapl_block block;
    size_t n;
    struct mdapl_dapl_vbuf buf[];
};

void mdapl_dapl_vbufs_init(struct mdapl_dapl_vbufs *v, struct mdapl_dapl_ia *ia,
                           struct mdapl_dapl_regcache *regs, uint32_t size)
{
    v->ia = ia;
    ia->vbufs = v;
    v->regs = regs;
    v->size = size;
    v->n_chunks = 0;
    v->refused = false;
    v->n_free = v->n_promised = 0;
    v->n_unsignaled = 0;
    mdapl_list_init(&v->free);
    mdapl_list_init(&v->chunks);
}

void mdapl_dapl_vbufs_fini(struct mdapl_dapl_vbufs *v)
{
    struct mdapl_list *item;

    while ((item = mdapl_list_take(&v->chunks))) {
        struct chunk *c = MDAPL_OF(item, struct chunk, block.link);

        c->block.kept = v->ia->abandoned;
        mdapl_dapl_block_free(&c->block);
        free(c);
    }
    mdapl_list_init(&v->free);
}

/* Bytes of the small part of each buffer; an adapter whose registrations are short has no room for
 * one. */
static size_t small_bytes(const struct mdapl_dapl_vbufs *v)
{
    return v->ia->max.lmr < CHUNK_BYTES / 2 ? 0 : MDAPL_VBUF_SMALL;
}

static struct chunk *chunk_make(struct mdapl_dapl_vbufs *v, size_t stride, size_t n)
{
    struct chunk *c = calloc(1, sizeof(*c) + n * sizeof(c->buf[0]));

    if (c
        && !mdapl_dapl_block_make(v->regs, n * (stride + small_bytes(v)), MDAPL_LMR_LOCAL,
                                  1u << v->ia->rail, &c->block)) {
        free(c);
        c = NULL;
    }
    if (c)
        c->n = n;
    return c;
}

/* Its buffers get the key of its registration. */
static void take_key(const struct mdapl_dapl_vbufs *v, struct chunk *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->buf[i].key = c->block.lmr.on[v->ia->rail].local;
}

bool mdapl_dapl_vbufs_register_again(struct mdapl_dapl_vbufs *v)
{
    MDAPL_LIST_EACH(pos, &v->chunks) {
        struct chunk *c = MDAPL_OF(pos, struct chunk, block.link);

        if (!mdapl_dapl_block_need(v->regs, &c->block, 1u << v->ia->rail))
            return false;
        take_key(v, c);
    }
    return true;
}

/* Buffers of the next chunk: few registrations for much memory, as far as the adapter takes it in
 * one piece. */
static size_t chunk_bufs(const struct mdapl_dapl_vbufs *v, size_t stride)
{
    int doublings = v->n_chunks < CHUNK_DOUBLINGS ? v->n_chunks : CHUNK_DOUBLINGS;
    uint64_t bytes = (uint64_t)CHUNK_BYTES << doublings, each = stride + small_bytes(v);

    if (bytes < each * LEAST)
        bytes = each * LEAST;
    return (size_t)(mdapl_min(bytes, v->ia->max.lmr) / each);
}

static bool grow(struct mdapl_dapl_vbufs *v)
{
    size_t stride = ((size_t)v->size + MDAPL_VBUF_BEHIND + LINE - 1) / LINE * LINE;
    size_t n = chunk_bufs(v, stride);
    struct chunk *c = n > 0 ? chunk_make(v, stride, n) : NULL;

    v->refused = !c;
    if (!c)
        return false;
    v->n_chunks++;
    v->n_free += (uint32_t)n;
    mdapl_list_append(&v->chunks, &c->block.link);
    for (size_t i = 0; i < n; i++) {
        c->buf[i].whole = c->block.data + i * stride;
        c->buf[i].small = c->buf[i].whole;
        if (small_bytes(v))
            c->buf[i].small = c->block.data + n * stride + i * MDAPL_VBUF_SMALL;
        c->buf[i].pool = v;
        mdapl_list_append(&v->free, &c->buf[i].link);
    }
    take_key(v, c);
    return true;
}

bool mdapl_dapl_vbufs_grow_slow(struct mdapl_dapl_vbufs *v, enum mdapl_dapl_vbuf_use use,
                                uint32_t n)
{
    /* An adapter with small registrations takes several chunks. */
    while (mdapl_dapl_vbufs_for(v, use) <= n)
        if (!grow(v))
            return false;
    return true;
}

int mdapl_dapl_vbuf_recv_segs(struct mdapl_dapl_vbuf *b, DAT_LMR_TRIPLET seg[MDAPL_VBUF_SEGS])
{
    const struct mdapl_dapl_vbufs *v = b->pool;
    bool two = b->small != b->whole && v->ia->max.recv_segs > 1;

    b->data = two ? b->small : b->whole;
    seg[0] = mdapl_dapl_vbuf_seg(b, two ? MDAPL_VBUF_SMALL : v->size);
    if (!two)
        return 1;
    seg[1] = (DAT_LMR_TRIPLET){
        .virtual_address = (DAT_VADDR)(uintptr_t)b->whole + MDAPL_VBUF_SMALL,
        .segment_length = v->size - MDAPL_VBUF_SMALL,
        .lmr_context = b->key,
    };
    return 2;
}

void mdapl_dapl_vbuf_put(struct mdapl_dapl_vbufs *v, struct mdapl_dapl_vbuf *b)
{
    assert(b->holds > 0);
    if (--b->holds > 0)
        return;
    v->n_free++;
    mdapl_list_before(v->free.next, &b->link);   /* to the front: it is in the caches */
}
