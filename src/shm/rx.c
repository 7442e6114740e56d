/* SPDX-License-Identifier: MIT */
/* Takes messages out of a ring and calls the handler of their type. */
#include "peer.h"

#include "bytes.h"
#include "rndv.h"
#include "stats.h"

#include <errno.h>
#include <string.h>

enum {
    BURST = 32,                  /* messages of one peer in one round, at most */
    BURST_BYTES = 4096,          /* ... and a round ends with a body by which they have so many, or
                                  * with the last of those that are read together, or with the
                                  * message that the owner has waited for: it may be about to say
                                  * where the next one belongs, and then it is copied once, or to
                                  * send some, which the peer copies meanwhile */
};

/* -- types ------------------------------------------------------------------------------------ */

/* One copy might have brought a body above MDAPL_SHM_SHORT faster: its owner copies it in the
 * upcall. Not inline, and not given the struct, so that a short message stays in registers. */
__attribute__((noinline)) static bool judged_to_owner(struct mdapl_shm_peer *peer, const void *hdr,
                                                      size_t hdr_len, const uint8_t *body,
                                                      size_t len, bool in_pair)
{
    uint64_t start = mdapl_shm_way_comes(peer, len);
    bool ok = mdapl_inbox_take(&peer->inbox, hdr, hdr_len, body, len) >= 0;

    mdapl_shm_way_ring(peer, len, body, len, in_pair, start);
    return ok || mdapl_shm_peer_no_memory(peer);
}

/* Adds to *bytes what the message counts for. */
static inline bool to_owner(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m,
                            size_t *bytes)
{
    int rc;

    *bytes += m->len;
    if (m->len > MDAPL_SHM_SHORT)
        return judged_to_owner(peer, m->hdr, m->hdr_len, m->body, m->len, m->in_pair);
    rc = mdapl_inbox_take(&peer->inbox, m->hdr, m->hdr_len, m->body, m->len);
    if (rc > 0)
        *bytes = BURST_BYTES;
    return rc >= 0 || mdapl_shm_peer_no_memory(peer);
}

static bool on_msg(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    size_t bytes = 0;

    return to_owner(peer, m, &bytes);
}

/* A piece of a body, in a cell or behind its record. */
static bool on_data(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_data data;
    const uint8_t *bytes;

    memcpy(&data, m->hdr, sizeof(data));
    bytes = m->len > 0 ? m->body : mdapl_shm_cell_of(peer, &data);
    return bytes && (m->len == 0 || m->len == data.len)
           && mdapl_shm_rndv_on_data(peer, &data, bytes);
}

/* record: length of the header in bytes, where it is a record; 0: it is a header of the owner's. */
static const struct {
    size_t record;
    mdapl_shm_on *on;
} row[MDAPL_SHM_TYPES] = {
    [MDAPL_SHM_MSG] = { 0, on_msg },
    [MDAPL_SHM_HEAD] = { 0, mdapl_shm_part_on_head },
    [MDAPL_SHM_MORE] = { 0, mdapl_shm_part_on_more },
    [MDAPL_SHM_RTS] = { 0, mdapl_shm_rndv_on_rts },
    [MDAPL_SHM_CTS] = { sizeof(struct mdapl_shm_cts), mdapl_shm_rndv_on_cts },
    [MDAPL_SHM_DATA] = { sizeof(struct mdapl_shm_data), on_data },
    [MDAPL_SHM_SPLIT] = { sizeof(struct mdapl_shm_split_at), mdapl_shm_rndv_on_split },
    [MDAPL_SHM_SPLIT_END] = { sizeof(struct mdapl_shm_split_end), mdapl_shm_rndv_on_split_end },
    [MDAPL_SHM_FIN] = { sizeof(struct mdapl_shm_fin), mdapl_shm_rndv_on_fin },
};

/* -- the ring --------------------------------------------------------------------------------- */

void mdapl_shm_rx_bad(struct mdapl_shm_peer *peer)
{
    if (peer->dead)
        return;
    peer->s->stats->bad_frames++;
    mdapl_shm_peer_fail(peer, -EPROTO,
                        "what it wrote is none of this protocol. The two ranks may run "
                        "different builds: use the same installation everywhere");
}

/* Is it the owner's, its header in the slot's first line? */
static inline bool is_usual(const struct mdapl_shm_spsc_msg *m)
{
    return m->type == MDAPL_SHM_MSG && m->hdr_len <= MDAPL_LINE_ROOM;
}

/* The message is taken: of the pair buffer that gives the turn, when the whole body is. */
static inline void took(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    mdapl_shm_spsc_took(&peer->rx, m);
    if (m->in_pair)
        peer->pair.turn = peer->parts.left == 0;
}

/* Takes such a message, as most are, or any, and adds to *bytes what it counts for. The header
 * is copied once and read from the copy: the peer may change the ring at any time. False: the
 * message is impossible, or memory is out. */
static inline bool take_usual(struct mdapl_shm_peer *peer, struct mdapl_shm_spsc_msg *m,
                              size_t *bytes)
{
    /* a constant length: a few moves and no loop */
    m->hdr = memcpy(peer->s->hdr, m->hdr, MDAPL_LINE_ROOM);
    mdapl_shm_spsc_ack_in(&peer->tx, m->ack);
    if (!to_owner(peer, m, bytes))
        return false;
    took(peer, m);
    return true;
}

/* The bytes that an announced body counts for. */
static size_t announced_counts(const struct mdapl_shm_peer *peer)
{
    return peer->alone > 0 ? BURST_BYTES : BURST_BYTES / MDAPL_SHM_RNDV_TOGETHER;
}

/* Not inline, and it finds the message once more: so a short one stays in registers. Its header by
 * no memcpy(), which gcc makes a slow `rep movsq` for few bytes. */
__attribute__((noinline)) static bool take(struct mdapl_shm_peer *peer, size_t *bytes)
{
    struct mdapl_shm_spsc_msg m;

    if (mdapl_shm_spsc_peek(&peer->rx, &m) != MDAPL_SPSC_MSG)
        return false;
    mdapl_bytes_copy(peer->s->hdr, m.hdr, m.hdr_len);
    m.hdr = peer->s->hdr;
    mdapl_shm_spsc_ack_in(&peer->tx, m.ack);
    if (m.type == MDAPL_SHM_HEAD && !mdapl_shm_part_join(peer, &m))
        return false;
    if (m.type >= MDAPL_SHM_TYPES || (row[m.type].record > 0 && row[m.type].record != m.hdr_len)
        || !row[m.type].on(peer, &m))
        return false;
    took(peer, &m);
    /* Cells are few, so each one is published as free at once. */
    if (m.type == MDAPL_SHM_DATA)
        mdapl_shm_spsc_ack_flush(&peer->rx);
    *bytes += m.type == MDAPL_SHM_RTS ? announced_counts(peer) : m.len;
    return true;
}

int mdapl_shm_rx_poll(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_spsc_msg m;
    enum mdapl_shm_spsc_status status;
    size_t bytes = 0;
    int n = 0;

    while (n < BURST && (bytes < BURST_BYTES || peer->parts.left > 0)
           && (status = mdapl_shm_spsc_peek(&peer->rx, &m)) != MDAPL_SPSC_NONE) {
        if (status == MDAPL_SPSC_BAD
            || !(is_usual(&m) ? take_usual(peer, &m, &bytes) : take(peer, &bytes))) {
            mdapl_shm_rx_bad(peer);
            break;
        }
        if (mdapl_shm_spsc_ack_due(&peer->rx) || peer->s->draining)
            mdapl_shm_spsc_ack_flush(&peer->rx);
        n++;
    }
    if (n > 0)
        peer->active = true;
    return n;
}
