/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_PART_H
#define MDAPL_PART_H
/*
 * Bodies that arrive in parts, one after the other, each in memory that is the channel's again at
 * once: the receiver copies one part while the sender copies the next one, without the round trip
 * of a rendezvous. The owner gets an rx with the first part; the parts are copied to where it reads
 * them as they arrive, and what arrives before it reads is kept.
 */
#include "inbox.h"
#include "list.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_part;

/* The bodies in parts of a peer. Between the parts of one there are none of another one. */
struct mdapl_parts {
    struct mdapl_inbox *inbox;
    struct mdapl_list *reading;  /* the peer's reads in progress (rx_op.h) */
    const int *dead;             /* the peer's: its negative errno once it is lost */
    struct mdapl_list bodies;    /* that the owner has not finished */
    struct mdapl_part *last;     /* the one whose parts arrive; NULL: it is finished, or dropped */
    size_t left;                 /* bytes of it that have not arrived */
};

void mdapl_parts_init(struct mdapl_parts *s, struct mdapl_inbox *inbox, struct mdapl_list *reading,
                      const int *dead);
/* The first n bytes, at `bytes`, of a body of len have arrived, n less than len: announces it, with
 * its header. 0; -EPROTO: another body is not complete; -ENOMEM. */
int mdapl_parts_first(struct mdapl_parts *s, const void *hdr, size_t hdr_len, size_t len,
                      const void *bytes, size_t n);
/* Its next n bytes. 0; -EPROTO: it has not as many; -ENOMEM. */
int mdapl_parts_next(struct mdapl_parts *s, const void *bytes, size_t n);
/* Has the owner read all that has arrived of the last body, and not the body? */
bool mdapl_parts_up_to_date(const struct mdapl_parts *s);
/* Frees the bodies that the owner never finished; no read is in progress. */
void mdapl_parts_free(struct mdapl_parts *s);

#endif
