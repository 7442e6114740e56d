/* SPDX-License-Identifier: MIT */
#include "inbox.h"

#include "stats.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* A queued message; bytes has its header and then, at a multiple of 16, its body. */
struct parked {
    struct mdapl_list link;
    struct mdapl_rx_msg msg;
    alignas(16) char bytes[];
};

void mdapl_inbox_init(struct mdapl_inbox *in, struct mdapl_peer *peer,
                      void (*ready)(struct mdapl_inbox *in))
{
    *in = (struct mdapl_inbox){ .peer = peer, .ready = ready };
    mdapl_list_init(&in->parked);
    mdapl_list_init(&in->link);
}

void mdapl_inbox_pause(struct mdapl_inbox *in)
{
    if (in->peer->paused)
        return;
    in->peer->paused = in;
    mdapl_list_append(mdapl_ctx_paused(in->peer->ctx), &in->link);
    mdapl_ctx_stats(in->peer->ctx)->pauses++;
}

static void unpause(struct mdapl_inbox *in)
{
    in->peer->paused = NULL;
    mdapl_list_remove(&in->link);
}

void mdapl_inbox_resume(struct mdapl_inbox *in)
{
    unpause(in);
    if (!in->hold && !mdapl_list_empty(&in->parked))
        in->ready(in);
}

int mdapl_inbox_park(struct mdapl_inbox *in, const struct mdapl_rx_msg *m)
{
    size_t body_at = (m->hdr_len + 15) & ~(size_t)15;
    struct parked *h = malloc(sizeof(*h) + body_at + (m->data ? m->len : 0));

    if (!h)
        return -ENOMEM;
    h->msg = *m;
    h->msg.hdr = memcpy(h->bytes, m->hdr, m->hdr_len);
    if (m->data)
        h->msg.data = memcpy(h->bytes + body_at, m->data, m->len);
    mdapl_list_append(&in->parked, &h->link);
    mdapl_ctx_stats(in->peer->ctx)->parked++;
    mdapl_stats_max(&mdapl_ctx_stats(in->peer->ctx)->parked_max, ++in->n_parked);
    return 0;
}

static void announce(struct mdapl_inbox *in, const struct mdapl_rx_msg *m)
{
    enum mdapl_next next;

    /* Set before the call: the owner may read or drop the rx to its end inside it. */
    in->hold = m->rx;
    next = mdapl_up_msg(in->peer, m);
    if (next != MDAPL_NEXT_HOLD && in->hold == m->rx)
        in->hold = NULL;
    if (next == MDAPL_NEXT_LATER)
        mdapl_inbox_pause(in);
}

int mdapl_inbox_announce(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                         struct mdapl_rx *rx)
{
    const struct mdapl_rx_msg m = { hdr, hdr_len, NULL, rx->left, rx };

    if (mdapl_inbox_must_park(in))
        return mdapl_inbox_park(in, &m);
    announce(in, &m);
    return 0;
}

void mdapl_inbox_over(struct mdapl_inbox *in, const struct mdapl_rx *rx)
{
    if (in->hold != rx)
        return;
    in->hold = NULL;
    if (!in->peer->paused && !mdapl_list_empty(&in->parked))
        in->ready(in);
}

int mdapl_inbox_announce_held(struct mdapl_inbox *in)
{
    int n = 0;

    while (!in->hold && !in->peer->paused && !mdapl_list_empty(&in->parked)) {
        struct parked *h = MDAPL_OF(mdapl_list_take(&in->parked), struct parked, link);

        in->n_parked--;
        announce(in, &h->msg);
        free(h);
        n++;
    }
    return n;
}

void mdapl_inbox_announce_last(struct mdapl_inbox *in)
{
    while (in->peer->paused) {
        mdapl_inbox_resume(in);
        mdapl_inbox_announce_held(in);
    }
}

void mdapl_inbox_fail(struct mdapl_inbox *in)
{
    struct mdapl_list *l;

    in->hold = NULL;
    unpause(in);
    in->n_parked = 0;
    while ((l = mdapl_list_take(&in->parked))) {
        struct parked *h = MDAPL_OF(l, struct parked, link);

        if (h->msg.rx)
            h->msg.rx->ops->drop(h->msg.rx);
        free(h);
    }
}
