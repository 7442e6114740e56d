/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>

/*
 * What is transmitted again when the link of a connection is replaced. Requests stay in the queue
 * of the EP until they complete, and the consumer leaves their memory alone: those that the peer
 * has not taken are queued again. Answers are retained here: responses, which name registered
 * memory that is read again, or have a copy (of atomic operations), NAK and BYE.
 */

/* -- answers ---------------------------------------------------------------------------------- */

/* The peer has at most SOFTDAT_MAX_READS requests without a response, so it has taken all responses
 * before the last so many. */
void softdat_retransmit_keep(struct softdat_conn *c, struct softdat_out *out)
{
    c->answers++;
    softdat_list_append(&c->answered, &out->link);
    if (c->n_answered < SOFTDAT_MAX_READS) {
        c->n_answered++;
        return;
    }
    out = SOFTDAT_OF(c->answered.next, struct softdat_out, link);
    softdat_list_remove(&out->link);
    softdat_free(out);
}

void softdat_retransmit_forget(struct softdat_conn *c)
{
    while (!softdat_list_empty(&c->answered)) {
        struct softdat_out *out = SOFTDAT_OF(c->answered.next, struct softdat_out, link);

        softdat_list_remove(&out->link);
        softdat_free(out);
    }
    c->n_answered = 0;
}

/* Queues the retained answers after the first n again. False: that many are not retained. */
static bool answers_after(struct softdat_conn *c, uint32_t n)
{
    uint32_t again = c->answers - n;

    if (again > c->n_answered)
        return false;
    for (; again > 0; again--) {
        struct softdat_out *out = SOFTDAT_OF(c->answered.prev, struct softdat_out, link);

        softdat_list_remove(&out->link);
        softdat_list_prepend(&c->out_queue, &out->link);
        c->responses += softdat_is_response(&out->f);
        c->n_answered--;
        c->answers--;
    }
    return true;
}

/* -- requests --------------------------------------------------------------------------------- */

/* short.c stores the bytes of a request in the ring only, not where they come from: that would cost
 * each short request more than the frame does. It posts one only if the peer has read everything,
 * so at most the newest has not been taken, and is still the in-line frame. Gives that request its
 * bytes back, from a copy. */
static void keep_short(struct softdat_conn *c)
{
    struct softdat_ring *req = c->ep ? &c->ep->req : NULL;
    struct softdat_frame f;

    if (!req || !c->shared.seg)
        return;
    for (uint32_t i = req->sent; i > 0; i--) {
        struct softdat_dto *d = softdat_ring_at(req, i - 1);

        if (d->n_seg > 0 || d->len == 0 || d->state != SOFTDAT_DTO_SENT)
            continue;
        memcpy(c->former_inline, c->shared.mine->inline_data, sizeof(c->former_inline));
        memcpy(&f, c->former_inline, sizeof(f));
        d->raddr = f.addr;
        d->rkey = f.key;
        d->seg[0] = (struct softdat_seg){ c->former_inline + sizeof(f), d->len, 0 };
        d->n_seg = 1;
        d->due = 0;
        return;
    }
}

/* Makes the requests after the first `writes` SENDs and WRITEs and the first `reads` others queued
 * ones, as before their transmission. False: these have not been transmitted. */
static bool requests_after(struct softdat_conn *c, uint32_t writes, uint32_t reads)
{
    struct softdat_ep *ep = c->ep;

    while (ep->last_seq != writes || c->reads_sent != reads) {
        struct softdat_dto *d;

        if (ep->req.sent == 0)
            return false;
        d = softdat_ring_at(&ep->req, --ep->req.sent);
        if (d->op == SOFTDAT_DTO_BIND)
            continue;            /* has been applied, without a frame */
        if (d->state != SOFTDAT_DTO_SENT
            || (softdat_is_read(d) ? c->reads_sent-- == reads : ep->last_seq-- == writes))
            return false;
        ep->reads -= softdat_is_read(d);
        d->state = SOFTDAT_DTO_QUEUED;
    }
    c->ack_requested = ep->last_seq;
    c->ack_bytes = 0;
    return true;
}

bool softdat_retransmit_after(struct softdat_conn *c, const struct softdat_taken *theirs)
{
    return requests_after(c, theirs->writes, theirs->reads) && answers_after(c, theirs->responses);
}

/* -- the frame on the link -------------------------------------------------------------------- */

void softdat_retransmit_begin(struct softdat_conn *c)
{
    struct softdat_list *l;

    keep_short(c);
    if (c->cur_out)
        softdat_list_prepend(&c->out_queue, &c->cur_out->link);
    c->cur_out = NULL;
    c->cur_n = c->cur_at = c->cur_frames = 0;
    c->blocked = false;
    for (l = c->out_queue.next; l != &c->out_queue;) {
        struct softdat_out *out = SOFTDAT_OF(l, struct softdat_out, link);

        l = l->next;
        if (softdat_is_answer(&out->f))
            continue;
        softdat_list_remove(&out->link);
        softdat_free(out);
    }
}
