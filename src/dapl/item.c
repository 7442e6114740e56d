/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "peer.h"

struct mdapl_dapl_item *mdapl_dapl_item_get(struct mdapl_dapl_peer *peer,
                                            enum mdapl_dapl_frame_type type)
{
    struct mdapl_dapl_item *it = mdapl_pool_take(&peer->d->items);

    if (!it)
        return NULL;
    mdapl_list_init(&it->link);
    it->type = type;
    it->stream = MDAPL_DAPL_ANY_STREAM;
    it->op = NULL;
    it->len = 0;
    it->hdr_len = 0;
    return it;
}

void mdapl_dapl_item_put(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *it)
{
    mdapl_list_remove(&it->link);
    if (it->type == MDAPL_FRAME_MSG)
        mdapl_pieces_free(&it->u.msg.body);
    mdapl_pool_give(&peer->d->items, it);
}

void mdapl_dapl_item_queue(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *it)
{
    bool message = it->type == MDAPL_FRAME_MSG || it->type == MDAPL_FRAME_RTS;

    mdapl_list_append(message ? &peer->queue : &peer->ctl, &it->link);
    mdapl_dapl_peer_wake(peer);
}

void mdapl_dapl_item_drop(struct mdapl_dapl_peer *peer, enum mdapl_dapl_frame_type type,
                          int stream)
{
    MDAPL_LIST_EACH_SAFE(pos, &peer->ctl) {
        struct mdapl_dapl_item *it = MDAPL_OF(pos, struct mdapl_dapl_item, link);

        if (it->type == type && it->stream == stream)
            mdapl_dapl_item_put(peer, it);
    }
}

void mdapl_dapl_items_fail(struct mdapl_dapl_peer *peer, struct mdapl_list *list, int status)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(list))) {
        struct mdapl_dapl_item *it = MDAPL_OF(l, struct mdapl_dapl_item, link);
        struct mdapl_op *op = it->op;

        mdapl_dapl_item_put(peer, it);
        if (op)
            op->done(op, status);
    }
}
