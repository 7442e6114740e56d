/* SPDX-License-Identifier: MIT */
/*
 * Bodies above MDAPL_SHM_WHOLE, in parts (util/part.h). Such a body lies as a whole in the ring's
 * data or in the pair buffer, but several messages say how much of it is there: a HEAD, with the
 * header and the body's length, and MOREs, with none of another kind between them. If all have
 * been written when the receiver takes the first one, they are one message (join).
 */
#include "peer.h"

#include "channel.h"

#include <errno.h>
#include <string.h>

bool mdapl_shm_part_join(struct mdapl_shm_peer *peer, struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_head head;
    unsigned n;

    if (m->hdr_len < sizeof(head) || peer->parts.left > 0)
        return false;
    memcpy(&head, m->hdr, sizeof(head));
    if (head.len <= MDAPL_SHM_WHOLE
        || head.len > (m->in_pair ? MDAPL_PAIR_BYTES : MDAPL_SHM_EAGER)
        || m->len != mdapl_shm_part_len(head.len) || head.len > m->room)
        return false;
    n = mdapl_shm_parts(head.len);
    if (!mdapl_shm_spsc_join(&peer->rx, n, m))
        return true;
    m->type = MDAPL_SHM_MSG;
    m->hdr += sizeof(head);
    m->hdr_len -= sizeof(head);
    m->len = m->outside = (uint32_t)head.len;
    return true;
}

bool mdapl_shm_part_on_head(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_head head;
    uint64_t start;

    memcpy(&head, m->hdr, sizeof(head));
    start = mdapl_shm_way_comes(peer, head.len);
    if (mdapl_parts_first(&peer->parts, m->hdr + sizeof(head), m->hdr_len - sizeof(head), head.len,
                          m->body, m->len))
        return mdapl_shm_peer_no_memory(peer);
    mdapl_shm_way_ring(peer, head.len, m->body, m->len, m->in_pair,
                       mdapl_parts_up_to_date(&peer->parts) ? start : 0);
    return true;
}

bool mdapl_shm_part_on_more(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    int rc = m->hdr_len > 0 ? -EPROTO : mdapl_parts_next(&peer->parts, m->body, m->len);

    return rc == -ENOMEM ? mdapl_shm_peer_no_memory(peer) : rc == 0;
}
