/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_QUICK_H
#define SOFTDAT_QUICK_H
/*
 * The short steps of every request and every frame, inline because a function call would cost more
 * than the step. Each rare case is one comparison here and a function in the file it belongs to.
 */
#include "ep.h"
#include "ia.h"

/* -- the adapter (ia.c) ----------------------------------------------------------------------- */

/* Makes the next round of progress a complete one. */
static inline void softdat_round_complete(struct softdat_ia *ia)
{
    ia->next_complete = atomic_load_explicit(&ia->calls, memory_order_relaxed);
}

/* Called with the lock by whatever may change what makes the usual case of a connection (short.c),
 * before it does. */
static inline void softdat_changing(struct softdat_ia *ia)
{
    ia->changes++;
}

/* Locks the adapter for a call that may change what is to be polled. */
static inline void softdat_lock(struct softdat_ia *ia)
{
    datlock_take(&ia->lock);
    softdat_changing(ia);
    softdat_round_complete(ia);
}

/* Unlocks it, after the agents of triggered CNOs have been called. */
static inline void softdat_unlock(struct softdat_ia *ia)
{
    if (ia->n_agents_due > 0)
        softdat_run_agents(ia);
    datlock_release(&ia->lock);
}

/* Counts a call that polls. The helper thread checks only whether the number changes, so a lost
 * increment is harmless. Needs no lock. */
static inline uint32_t softdat_count_call(struct softdat_ia *ia)
{
    uint32_t n = atomic_load_explicit(&ia->calls, memory_order_relaxed) + 1;

    atomic_store_explicit(&ia->calls, n, memory_order_relaxed);
    return n;
}

/* True if only rings are to be polled in the round of call number n. */
static inline bool softdat_round_quiet(const struct softdat_ia *ia, uint32_t n)
{
    return (int32_t)(n - ia->next_complete) < 0;
}

/* Returns a connection whose ring has input; NULL: none. */
static inline struct softdat_conn *softdat_ring_pending(struct softdat_ia *ia)
{
    for (struct softdat_list *l = ia->rings.next; l != &ia->rings; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, polled);

        if (softdat_shared_pending(c))
            return c;
    }
    return NULL;
}

/* -- registered memory (mem.c) ---------------------------------------------------------------- */

/* Returns the region of a key (lmr_context or rmr_context); NULL: the key is not valid. */
static inline struct softdat_region *softdat_region_find(const struct softdat_ia *ia, uint32_t key)
{
    uint32_t i = key & (SOFTDAT_INDEX_MAX - 1);
    struct softdat_region *region = i < ia->n_mem ? ia->mem[i].region : NULL;

    return region && region->key == key ? region : NULL;
}

/* Returns the local address of len bytes at DAT address addr of region r. NULL: r is NULL, of
 * another protection zone, lacks one of the rights priv, or does not contain the bytes. */
static inline uint8_t *softdat_region_at(const struct softdat_region *r,
                                         const struct softdat_pz *pz, uint64_t addr, uint64_t len,
                                         DAT_MEM_PRIV_FLAGS priv)
{
    if (!r || r->pz != pz || (r->priv & priv) != priv || addr < r->va || len > r->len
        || addr - r->va > r->len - len)
        return NULL;
    return r->at + (addr - r->va);
}

/* True if the registrations of d's segments are still valid. */
static inline bool softdat_segs_registered(struct softdat_ia *ia, struct softdat_dto *d)
{
    return d->regions_freed == ia->regions_freed || softdat_segs_recheck(ia, d);
}

/* -- paths, link emulation, fault injection (path.c, fault.c) --------------------------------- */

/* True if c's port is cut: c must neither write nor read. */
static inline bool softdat_path_cut(const struct softdat_conn *c)
{
    return c->ia->cfg.port[c->port].cut;
}

/* Returns the earliest transmit time, ns, of a frame that is posted now for that port (its index);
 * 0: at once. */
static inline uint64_t softdat_delay_due(struct softdat_ia *ia, uint8_t port)
{
    return ia->cfg.delays ? softdat_delay_draw_due(ia, port) : 0;
}

/* Returns how many bytes of the current frame may be transmitted now. 0: c is delayed. */
static inline size_t softdat_rate_allow(struct softdat_conn *c)
{
    return c->cur_due || c->ia->cfg.limits ? softdat_rate_limit(c) : SIZE_MAX;
}

/* Charges n transmitted bytes to the rate limits. */
static inline void softdat_rate_charge(struct softdat_conn *c, size_t n)
{
    if (c->ia->cfg.limits)
        softdat_rate_charge_limits(c, n);
}

/* True if a fault of this kind is injected now. */
static inline bool softdat_fault_injected(struct softdat_ia *ia, enum softdat_fault what)
{
    return ia->cfg.often[what].n > 0 && softdat_fault_draw(ia, what);
}

/* -- rings (shared.c) ------------------------------------------------------------------------- */

/* Returns the peer's `armed`, which is odd, if it sleeps and has had no doorbell since it armed; 0:
 * none is due. */
static inline uint32_t softdat_doorbell_due(const struct softdat_conn *c)
{
    uint32_t armed;

    atomic_thread_fence(memory_order_seq_cst);
    armed = atomic_load_explicit(&c->shared.theirs->armed, memory_order_relaxed);
    return armed & 1 && armed != c->shared.doorbell_sent ? armed : 0;
}

/* Wakes the peer if it sleeps, once for each time that it has armed. */
static inline void softdat_doorbell(struct softdat_conn *c)
{
    uint32_t armed = softdat_doorbell_due(c);

    if (armed)
        softdat_shared_wake_peer(c, armed);
}

/* True if the peer has read everything, so that the in-line frame may be overwritten. It is beside
 * the counters, where the peer gets it with the cache lines that it polls. */
static inline bool softdat_all_read(struct softdat_shared *s)
{
    if (s->their_head != s->tail)
        s->their_head = atomic_load_explicit(&s->theirs->head, memory_order_acquire);
    return s->their_head == s->tail;
}

/* Publishes how many bytes have been written and read and how many requests executed: the counters
 * share a cache line. A doorbell may be due. */
static inline void softdat_shared_publish(struct softdat_conn *c)
{
    struct softdat_shared *s = &c->shared;
    struct softdat_half *mine = s->mine;
    uint32_t head = s->head, executed = c->executed;

    s->head_published = head;
    c->acked = executed;
    atomic_store_explicit(&mine->head, head, memory_order_release);
    atomic_store_explicit(&mine->counters, softdat_both(s->tail, executed), memory_order_release);
}

/* Makes the len bytes in s->mine->inline_data the in-line frame, which is not published yet. */
static inline void softdat_inline_note(struct softdat_shared *s, uint32_t len)
{
    uint32_t at = s->tail;

    atomic_store_explicit(&s->mine->in_line, softdat_both(at, len), memory_order_relaxed);
    s->inline_at = at;
    s->inline_live = true;
    s->tail = at + len;
}

/* Returns the length of the in-line frame if that is the next to be read; 0: it is not. tail: the
 * bytes that the peer has written. */
static inline uint32_t softdat_inline_length(const struct softdat_shared *s, uint32_t tail)
{
    uint64_t in_line = atomic_load_explicit(&s->theirs->in_line, memory_order_relaxed);
    uint32_t len = (uint32_t)(in_line >> 32);

    return (uint32_t)in_line == s->head && len <= SOFTDAT_INLINE && len <= tail - s->head ? len : 0;
}

/* Consumes the in-line frame of len bytes, whose request has been executed, and reports both. A
 * doorbell may be due. */
static inline void softdat_inline_executed(struct softdat_conn *c, uint32_t len)
{
    c->executed++;
    c->shared.head += len;
    softdat_shared_publish(c);
}

/* -- received payload (sink.c, held.c) -------------------------------------------------------- */

/* Empties the sink for a frame with len bytes of payload; softdat_sink_add() follows. */
static inline void softdat_sink_start(struct softdat_sink *s, size_t len)
{
    s->n = s->at = 0;
    s->left = len;
    s->discard = false;
}

/* Appends len bytes at base to the sink. */
static inline void softdat_sink_add(struct softdat_sink *s, void *base, size_t len)
{
    if (len > 0)
        s->iov[s->n++] = (struct iovec){ base, len };
}

/* Makes the first len bytes of d's segments the sink. */
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

/* Checks a send of len bytes against its receive d: returns DAT_DTO_SUCCESS, or the status with
 * which d completes because it is too short or its registration has been freed. */
static inline DAT_DTO_COMPLETION_STATUS softdat_recv_check(struct softdat_ia *ia,
                                                           struct softdat_dto *d, size_t len)
{
    return len > d->len ? DAT_DTO_ERR_LOCAL_LENGTH
           : !softdat_segs_registered(ia, d) ? DAT_DTO_ERR_LOCAL_PROTECTION : DAT_DTO_SUCCESS;
}

/* True if buffering the frame of c->hdr would exceed SOFTDAT_HELD_MAX. */
static inline bool softdat_held_full(const struct softdat_conn *c)
{
    return c->held_bytes + c->hdr.len > SOFTDAT_HELD_MAX;
}

#endif
