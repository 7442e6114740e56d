/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_QUICK_H
#define SOFTDAT_QUICK_H
/*
 * The short steps that every request and every frame takes, inline: a call of each would cost more
 * than what it does. What is rare is behind one comparison, in the file that it belongs to.
 */
#include "ep.h"
#include "ia.h"

/* -- the adapter (ia.c) ----------------------------------------------------------------------- */

static inline void softdat_lock(struct softdat_ia *ia)
{
    pthread_mutex_lock(&ia->lock);
}

static inline void softdat_unlock(struct softdat_ia *ia)
{
    if (ia->n_agents_due > 0)
        softdat_run_agents(ia);
    pthread_mutex_unlock(&ia->lock);
}

/* -- registered memory (mem.c) ---------------------------------------------------------------- */

static inline struct softdat_region *softdat_region_find(const struct softdat_ia *ia, uint32_t key)
{
    uint32_t i = key & (SOFTDAT_INDEX_MAX - 1);
    struct softdat_region *region = i < ia->n_mem ? ia->mem[i].region : NULL;

    return region && region->key == key ? region : NULL;
}

/* Where these bytes are, NULL when there is no such region, or it does not allow it. */
static inline uint8_t *softdat_region_at(const struct softdat_region *r,
                                         const struct softdat_pz *pz, uint64_t addr, uint64_t len,
                                         DAT_MEM_PRIV_FLAGS priv)
{
    if (!r || r->pz != pz || (r->priv & priv) != priv || addr < r->va || len > r->len
        || addr - r->va > r->len - len)
        return NULL;
    return r->at + (addr - r->va);
}

/* Are the registrations still there in which the segments of d lie? */
static inline bool softdat_segs_registered(struct softdat_ia *ia, struct softdat_dto *d)
{
    return d->regions_freed == ia->regions_freed || softdat_segs_recheck(ia, d);
}

/* -- paths and the laboratory (path.c, fault.c) ----------------------------------------------- */

/* Is nothing to be written to it or read from it? */
static inline bool softdat_path_cut(const struct softdat_conn *c)
{
    return c->ia->cfg.port[c->port].cut;
}

/* When a frame that is posted now may leave, ns; 0: at once. */
static inline uint64_t softdat_delay_due(struct softdat_ia *ia)
{
    return ia->cfg.latency_us || ia->cfg.jitter_us ? softdat_delay_draw_due(ia) : 0;
}

/* How many bytes of the current frame may be written now; 0: none, it will be resumed. */
static inline size_t softdat_rate_allow(struct softdat_conn *c)
{
    return c->cur_due || c->ia->cfg.rate ? softdat_rate_limit(c) : SIZE_MAX;
}

static inline void softdat_rate_charge(struct softdat_conn *c, size_t n)
{
    if (c->ia->cfg.rate)
        c->rate_free_at += n * UINT64_C(1000000000) / c->ia->cfg.rate;
}

/* Does such a fault strike now? */
static inline bool softdat_fault_injected(struct softdat_ia *ia, enum softdat_fault what)
{
    return ia->cfg.one_in[what] && softdat_fault_draw(ia, what);
}

/* -- what arrives (sink.c, held.c) ------------------------------------------------------------ */

/* The sink of a frame with len bytes of payload; its pieces are added next. */
static inline void softdat_sink_start(struct softdat_sink *s, size_t len)
{
    s->n = s->at = 0;
    s->left = len;
    s->discard = false;
}

static inline void softdat_sink_add(struct softdat_sink *s, void *base, size_t len)
{
    if (len > 0)
        s->iov[s->n++] = (struct iovec){ base, len };
}

/* A sink of len bytes that are the DTO's. */
static inline void softdat_sink_into(struct softdat_sink *s, const struct softdat_dto *d,
                                     size_t len)
{
    softdat_sink_start(s, len);
    for (int i = 0; i < d->n_seg && len > 0; i++) {
        size_t n = d->seg[i].len < len ? d->seg[i].len : len;

        softdat_sink_add(s, d->seg[i].at, n);
        len -= n;
    }
}

/* Does what arrives fit the receive d, and is the memory of that still registered? */
static inline DAT_DTO_COMPLETION_STATUS softdat_recv_check(struct softdat_ia *ia,
                                                           struct softdat_dto *d, size_t len)
{
    return len > d->len ? DAT_DTO_ERR_LOCAL_LENGTH
           : !softdat_segs_registered(ia, d) ? DAT_DTO_ERR_LOCAL_PROTECTION : DAT_DTO_SUCCESS;
}

/* Would too much be held with the frame whose header has come, if it had no receive? */
static inline bool softdat_held_full(const struct softdat_conn *c)
{
    return c->held_bytes + c->hdr.len > SOFTDAT_HELD_MAX;
}

#endif
