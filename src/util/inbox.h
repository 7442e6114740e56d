/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_INBOX_H
#define MDAPL_INBOX_H
/*
 * A peer's messages on their way to the owner, announced in the order they were sent. While the
 * owner holds (MDAPL_NEXT_HOLD) later ones are queued here, with a copy of header and body, so that
 * the frame or slot that carried a message never waits for the owner.
 */
#include "list.h"
#include "contract.h"

struct mdapl_inbox {
    struct mdapl_peer *peer;
    /* Queued messages may be announced: the channel calls mdapl_inbox_announce_held() in its next
     * round of progress. */
    void (*ready)(struct mdapl_inbox *in);
    struct mdapl_rx *hold;       /* announcements wait for the end of this one */
    struct mdapl_list parked;    /* the queue */
    uint64_t n_parked;           /* its length */
};

/* Never fails. ready is called by mdapl_inbox_over(). */
void mdapl_inbox_init(struct mdapl_inbox *in, struct mdapl_peer *peer,
                      void (*ready)(struct mdapl_inbox *in));
/* A message whose body (len bytes, 0: none) lies at `body` during the call: announced now, or
 * copied and queued. 0 or -ENOMEM. */
int mdapl_inbox_take(struct mdapl_inbox *in, const void *hdr, size_t hdr_len, const void *body,
                     size_t len);
/* A message whose body has to be fetched: rx is the channel's. 0 or -ENOMEM. */
int mdapl_inbox_announce(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                         struct mdapl_rx *rx);
/* This rx of the channel's has been read or dropped to its end. */
void mdapl_inbox_over(struct mdapl_inbox *in, const struct mdapl_rx *rx);
/* Announces what is queued, as long as the owner does not hold. Returns how many messages. */
int mdapl_inbox_announce_held(struct mdapl_inbox *in);
/* The peer is lost: the queue is freed, its bodies that were to be fetched are dropped. */
void mdapl_inbox_fail(struct mdapl_inbox *in);

#endif
