/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_INBOX_H
#define MDAPL_INBOX_H
/*
 * A peer's messages on their way to the owner. They are announced in their order; while the owner
 * holds (MDAPL_NEXT_HOLD) they wait here, with bodies that have arrived copied out of wherever
 * they lie, so that what carries them never waits for the owner. A body that the owner has not
 * taken when up->msg returns is copied too.
 *
 * Called by the channels: one mdapl_inboxes for a channel, one mdapl_inbox for a peer.
 */
#include "list.h"
#include "pool.h"
#include "transport.h"

struct mdapl_inbox;

/* What the inboxes of a channel share. */
struct mdapl_inboxes {
    /* Messages that waited may be announced: the channel does so in its next round. */
    void (*ready)(struct mdapl_inbox *in);
    struct mdapl_pool bodies, held;
    struct mdapl_list outlived;  /* bodies with memory of their own, for the end of the channel */
};

struct mdapl_inbox {
    struct mdapl_inboxes *all;
    struct mdapl_peer *peer;
    struct mdapl_rx *hold;       /* announcements wait for the end of this one */
    struct mdapl_list held;      /* announcements that wait */
    uint64_t n_held;             /* how many */
};

void mdapl_inboxes_init(struct mdapl_inboxes *all, void (*ready)(struct mdapl_inbox *in));
/* Frees all, with the bodies that the owner never finished. */
void mdapl_inboxes_fini(struct mdapl_inboxes *all);
void mdapl_inbox_init(struct mdapl_inbox *in, struct mdapl_inboxes *all, struct mdapl_peer *peer);

/* A message whose body (len bytes, perhaps none) lies at `body` during the call. 0 or -ENOMEM. */
int mdapl_inbox_take(struct mdapl_inbox *in, const void *hdr, size_t hdr_len, const void *body,
                     size_t len);
/* A message whose body has to be fetched: rx is the channel's. 0 or -ENOMEM. */
int mdapl_inbox_announce(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                         struct mdapl_rx *rx);
/* This rx of the channel's has come to its end. */
void mdapl_inbox_over(struct mdapl_inbox *in, const struct mdapl_rx *rx);
/* Announces what waits, as long as the owner does not hold. Returns how many, or -ENOMEM. */
int mdapl_inbox_announce_held(struct mdapl_inbox *in);
/* The peer is lost: what waits will not be announced. */
void mdapl_inbox_fail(struct mdapl_inbox *in);

#endif
