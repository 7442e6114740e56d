/* SPDX-License-Identifier: MIT */
/*
 * Cells carry pieces of bodies. A process has MDAPL_CELLS in its segment, for all its peers
 * together. The sender fills a cell and sends a message that names it (DATA); the cell is free
 * again when the receiver has taken that message. The memory orders are those of the message
 * (ring.h). The cell that was freed first is used first: its lines have left the caches of the two
 * cores meanwhile (ring.h).
 *
 * Peers that make no progress may hold all cells for as long as they compute. No other pair of
 * ranks waits for these cells (MPI 4.0, 3.5: of a matching send and receive at least one completes,
 * whatever other processes do): a pair with a cell in flight gets room from its own receiver, and a
 * pair without one sends its pieces in its ring, which no other pair uses.
 */
#include "peer.h"

#include "iov.h"
#include "min.h"
#include "rndv.h"
#include "stats.h"

#include <assert.h>

enum {
    LEAST = 8192,                /* bytes in a cell, at least, if the body has so many */
    SHARE = 8,                   /* ... and at most this fraction, 1/SHARE, of the body */
    RING = 16384,                /* bytes of a piece that is sent in the ring, at most */
};

static void give(struct mdapl_shm_chan *s, uint8_t cell)
{
    s->free_cell[(s->first_cell + s->n_free_cells++) % MDAPL_CELLS] = cell;
}

void mdapl_shm_cells_init(struct mdapl_shm_chan *s)
{
    mdapl_list_init(&s->inflight_peers);
    s->first_cell = s->n_free_cells = 0;
    for (int i = 0; i < MDAPL_CELLS; i++)
        give(s, (uint8_t)i);
}

size_t mdapl_shm_cell_share(size_t body)
{
    size_t n = body / SHARE;

    n = n < LEAST ? LEAST : n;
    return mdapl_min(n, MDAPL_CELL_BYTES);
}

void mdapl_shm_cells_reclaim(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_chan *s = peer->s;

    while (peer->inflight_n > 0
           && (int32_t)(peer->tx.acked
                        - peer->inflight[peer->inflight_first % MDAPL_SHM_INFLIGHT].number)
                  >= 0) {
        give(s, peer->inflight[peer->inflight_first % MDAPL_SHM_INFLIGHT].cell);
        peer->inflight_first++;
        peer->inflight_n--;
    }
    if (peer->inflight_n == 0)
        mdapl_list_remove(&peer->inflight_peers);
}

static void reclaim_taken(struct mdapl_shm_peer *peer)
{
    mdapl_shm_spsc_ack_in(&peer->tx, mdapl_shm_spsc_taken(&peer->tx));
    mdapl_shm_cells_reclaim(peer);
}

/* Frees taken cells of all peers: no round of progress serves a peer with empty queues. */
static void reclaim_all(struct mdapl_shm_chan *s)
{
    MDAPL_LIST_EACH_SAFE(pos, &s->inflight_peers)
        reclaim_taken(MDAPL_OF(pos, struct mdapl_shm_peer, inflight_peers));
}

/* A cell is free, and a slot for its message. */
static bool has_cell(const struct mdapl_shm_peer *peer)
{
    return peer->inflight_n < MDAPL_SHM_INFLIGHT && peer->s->n_free_cells > 0
           && peer->tx.next - peer->tx.acked < MDAPL_SLOTS;
}

static bool find_cell(struct mdapl_shm_peer *peer)
{
    if (!mdapl_shm_tx_open(peer))
        return false;
    mdapl_shm_cells_reclaim(peer);
    if (has_cell(peer))
        return true;
    reclaim_taken(peer);
    if (peer->s->n_free_cells == 0)
        reclaim_all(peer->s);
    return has_cell(peer);
}

/* Sends DATA with len bytes of the cursor in a cell, which find_cell() has found. */
static void send_cell(struct mdapl_shm_peer *peer, struct mdapl_iov *from, size_t len,
                      struct mdapl_shm_data *data)
{
    struct mdapl_shm_chan *s = peer->s;
    unsigned last = (peer->inflight_first + peer->inflight_n++) % MDAPL_SHM_INFLIGHT;
    uint8_t cell;
    bool sent;

    assert(s->n_free_cells > 0 && peer->inflight_n <= MDAPL_SHM_INFLIGHT);
    cell = s->free_cell[s->first_cell++ % MDAPL_CELLS];
    s->n_free_cells--;
    mdapl_shm_store(peer, from, mdapl_shm_seg_cells(&s->seg) + (size_t)cell * MDAPL_CELL_BYTES,
                    len);
    data->cell = cell;
    data->len = (uint32_t)len;
    sent = mdapl_shm_tx_put(peer, MDAPL_SHM_DATA, data, sizeof(*data), NULL, 0);
    assert(sent);                /* find_cell() has found a slot */
    (void)sent;
    peer->inflight[last].number = peer->tx.next;
    peer->inflight[last].cell = cell;
    if (mdapl_list_empty(&peer->inflight_peers))
        mdapl_list_append(&s->inflight_peers, &peer->inflight_peers);
    s->stats->shm_cells++;
}

bool mdapl_shm_cell_or_ring(struct mdapl_shm_peer *peer, struct mdapl_iov *from, size_t len,
                            struct mdapl_shm_data *data)
{
    if (find_cell(peer)) {
        send_cell(peer, from, len, data);
        return true;
    }
    if (peer->inflight_n > 0 || peer->s->n_free_cells > 0)
        return false;
    data->cell = MDAPL_CELLS;
    data->len = (uint32_t)mdapl_min(len, RING);
    return mdapl_shm_tx_put_from(peer, MDAPL_SHM_DATA, data, sizeof(*data), from, data->len);
}

const uint8_t *mdapl_shm_cell_of(const struct mdapl_shm_peer *peer,
                                 const struct mdapl_shm_data *data)
{
    if (data->cell >= MDAPL_CELLS || data->len > MDAPL_CELL_BYTES)
        return NULL;
    return mdapl_shm_seg_cells(&peer->far) + (size_t)data->cell * MDAPL_CELL_BYTES;
}
