/* SPDX-License-Identifier: MIT */
#include "rx.h"

#include "copy.h"
#include "peer.h"
#include "push.h"
#include "stats.h"

#include <errno.h>
#include <string.h>

enum { BURST = 32 };             /* messages of one peer in one round, so that others get a turn */

/* -- one function per type; false: the content is impossible ---------------------------------- */

static bool on_msg(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
    if (mdapl_inbox_take(&peer->inbox, m->hdr, m->hdr_len, m->body, m->len))
        mdapl_speer_broken(peer, "out of memory for a message that waits");
    return true;
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

    memcpy(&data, m->hdr, sizeof(data));
    if (m->hdr_len != sizeof(data))
        return false;
    return data.rx_id ? mdapl_long_on_data(peer, &data) : mdapl_push_on_data(peer, &data);
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
    mdapl_ctx_stats(peer->s->ctx)->bad_frames++;
    mdapl_speer_fail(peer, -EPROTO, "what it wrote is none of this protocol. The two ranks may run "
                     "different builds: use the same installation everywhere");
}

static bool take(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m)
{
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
