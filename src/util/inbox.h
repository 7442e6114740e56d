/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_INBOX_H
#define MDAPL_INBOX_H
/*
 * Announces a peer's messages to the owner, in the order they were sent. While the owner holds or
 * has paused the peer (MDAPL_NEXT_HOLD, _LATER), later messages are queued here with a copy of
 * header and body, so that no frame or slot waits for the owner.
 */
#include "channel.h"
#include "contract.h"
#include "list.h"

struct mdapl_inbox {
    struct mdapl_peer *peer;
    /* Queued messages may be announced: the channel calls mdapl_inbox_announce_held() in its next
     * round of progress. */
    void (*ready)(struct mdapl_inbox *in);
    struct mdapl_rx *hold;       /* messages are queued until this rx ends; NULL: none */
    struct mdapl_list parked;    /* the queue */
    uint64_t n_parked;           /* its length */
    struct mdapl_list link;      /* among the paused ones of the context, if it is one */
};

/* mdapl_inbox_over() calls ready. */
void mdapl_inbox_init(struct mdapl_inbox *in, struct mdapl_peer *peer,
                      void (*ready)(struct mdapl_inbox *in));

/* Must messages be queued? */
static inline bool mdapl_inbox_must_park(const struct mdapl_inbox *in)
{
    return in->hold || in->peer->paused || !mdapl_list_empty(&in->parked);
}

/* The owner has paused the peer, and resumes it. */
void mdapl_inbox_pause(struct mdapl_inbox *in);
void mdapl_inbox_resume(struct mdapl_inbox *in);

/* Queues a copy. 0 or -ENOMEM. */
int mdapl_inbox_park(struct mdapl_inbox *in, const struct mdapl_rx_msg *m);

/* A message whose body (len bytes, 0: none) lies at `body` during the call: announced now, or
 * copied and queued. 0; 1: the owner has enough for this round (MDAPL_NEXT_ENOUGH); -ENOMEM. */
static inline int mdapl_inbox_take(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                                   const void *body, size_t len)
{
    const struct mdapl_rx_msg m = { hdr, hdr_len, len > 0 ? body : NULL, len, NULL };
    enum mdapl_next next;

    if (mdapl_inbox_must_park(in))
        return mdapl_inbox_park(in, &m);
    next = mdapl_up_msg(in->peer, &m);
    if (next == MDAPL_NEXT_LATER)
        mdapl_inbox_pause(in);
    return next == MDAPL_NEXT_ENOUGH;
}

/* A message whose body has to be fetched: rx is the channel's. 0 or -ENOMEM. */
int mdapl_inbox_announce(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                         struct mdapl_rx *rx);
/* The channel's rx has been read or dropped to its end. */
void mdapl_inbox_over(struct mdapl_inbox *in, const struct mdapl_rx *rx);
/* Announces queued messages until the owner holds or pauses. Returns how many. */
int mdapl_inbox_announce_held(struct mdapl_inbox *in);
/* The peer is about to be lost: announces what has been queued because it was paused. */
void mdapl_inbox_announce_last(struct mdapl_inbox *in);
/* The peer is lost: frees the queue and drops the rx of each queued message. */
void mdapl_inbox_fail(struct mdapl_inbox *in);

#endif
