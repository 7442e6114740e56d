/* SPDX-License-Identifier: MIT */
/* Messages of several frames, a HEAD and MOREs (PROTOCOL, section 2), as they arrive. */
#include "frames.h"

#include "conn.h"
#include "peer.h"

#include <errno.h>

/* rc: of mdapl_parts_first() or mdapl_parts_next(). False: the frame is impossible. */
static bool took(struct mdapl_dapl_peer *peer, int rc)
{
    if (rc == -ENOMEM) {         /* nothing that follows it may be delivered */
        mdapl_dapl_out_of_memory(peer, "a message that waits");
        mdapl_dapl_recover(peer);
    }
    return rc != -EPROTO;
}

bool mdapl_dapl_on_head(struct mdapl_dapl_stream *st, const struct mdapl_dapl_head *head,
                        const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    return took(st->peer, mdapl_parts_first(&st->peer->parts, p, f->hdr_len, head->body_len,
                                            p + f->hdr_len + MDAPL_HEAD_BYTES,
                                            f->len - MDAPL_HEAD_BYTES));
}

bool mdapl_dapl_on_more(struct mdapl_dapl_stream *st, const struct mdapl_dapl_more *more,
                        const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    return more->left == st->peer->parts.left
           && took(st->peer, mdapl_parts_next(&st->peer->parts, p + MDAPL_MORE_BYTES,
                                              f->len - MDAPL_MORE_BYTES));
}
