/* SPDX-License-Identifier: MIT */
#include "rx.h"

#include "cell.h"
#include "copy.h"
#include "peer.h"
#include "push.h"
#include "stats.h"

#include <errno.h>
#include <string.h>

enum { BURST = 32 };             /* messages of one peer in one round, so that others get a turn */

/* -- one function per type; false: the content is impossible, or the peer has failed ----------- */

static bool on_msg(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
    return mdapl_inbox_take(&peer->inbox, m->hdr, m->hdr_len, m->body, m->len) == 0
           || mdapl_speer_no_memory(peer);
}

static bool on_push(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
    return mdapl_push_on_push(peer, m->hdr, m->hdr_len, m->body, m->len);
}

static bool on_rts(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
    return mdapl_long_on_rts(peer, m->hdr, m->hdr_len, m->body, m->len);
}

static bool on_cts(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
    struct mdapl_shm_cts cts;

    memcpy(&cts, m->hdr, sizeof(cts));
    return m->hdr_len == sizeof(cts) && mdapl_long_on_cts(peer, &cts);
}

static bool on_data(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
    struct mdapl_shm_data data;
    const uint8_t *bytes;

    memcpy(&data, m->hdr, sizeof(data));
    bytes = m->len > 0 ? m->body : mdapl_cell_of(peer, &data);
    if (m->hdr_len != sizeof(data) || (m->len > 0 && m->len != data.len) || !bytes)
        return false;
    return data.rx_id ? mdapl_long_on_data(peer, &data, bytes)
                      : mdapl_push_on_data(peer, &data, bytes);
}

static bool on_fin(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
    struct mdapl_shm_fin fin;

    memcpy(&fin, m->hdr, sizeof(fin));
    return m->hdr_len == sizeof(fin) && mdapl_long_on_fin(peer, &fin);
}

static bool (*const on_type[MDAPL_SHM_TYPES])(struct mdapl_speer *,
                                              const struct mdapl_spsc_msg *) = {
    [MDAPL_SHM_MSG] = on_msg,
    [MDAPL_SHM_PUSH] = on_push,
    [MDAPL_SHM_RTS] = on_rts,
    [MDAPL_SHM_CTS] = on_cts,
    [MDAPL_SHM_DATA] = on_data,
    [MDAPL_SHM_FIN] = on_fin,
};

/* -- the ring --------------------------------------------------------------------------------- */

static void bad(struct mdapl_speer *peer)
{
    if (peer->dead)
        return;
    mdapl_ctx_stats(peer->s->ctx)->bad_frames++;
    mdapl_speer_fail(peer, -EPROTO, "what it wrote is none of this protocol. The two ranks may run "
                     "different builds: use the same installation everywhere");
}

/* The header is copied once, and every look at it is at the copy: what lies in the ring the peer
 * may change at any time. */
static bool take(struct mdapl_speer *peer, struct mdapl_spsc_msg *m)
{
    uint8_t *hdr = peer->s->hdr;

    if (m->hdr_len <= MDAPL_LINE_ROOM)
        memcpy(hdr, m->hdr, MDAPL_LINE_ROOM);    /* a known length: a few moves and no loop */
    else
        memcpy(hdr, m->hdr, m->hdr_len);
    m->hdr = hdr;
    mdapl_spsc_hear(&peer->tx, m->ack);
    if (m->type == MDAPL_SHM_MSG)
        return on_msg(peer, m);      /* nearly all are: a jump that is guessed right */
    return m->type < MDAPL_SHM_TYPES && on_type[m->type](peer, m);
}

int mdapl_shm_rx_poll(struct mdapl_speer *peer)
{
    struct mdapl_spsc_msg m;
    enum mdapl_spsc_news news;
    int n = 0;

    while (n < BURST && (news = mdapl_spsc_peek(&peer->rx, &m)) != MDAPL_SPSC_NONE) {
        if (news == MDAPL_SPSC_BAD || !take(peer, &m)) {
            bad(peer);
            break;
        }
        mdapl_spsc_took(&peer->rx, &m);
        /* Cells are few: the writer hears at once that it has one back. */
        if (mdapl_spsc_owes(&peer->rx) || m.type == MDAPL_SHM_DATA || peer->s->draining)
            mdapl_spsc_tell(&peer->rx);
        n++;
    }
    if (n > 0)
        peer->active = true;
    return n;
}
