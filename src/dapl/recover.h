/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RECOVER_H
#define MDAPL_RECOVER_H
/*
 * What becomes of a fault: it is judged here, and the verdict is carried out. Today a
 * connection attempt is repeated until its time is over, and every other fault is the loss of the
 * peer.
 */
#include "fault.h"

struct mdapl_cfg;
struct mdapl_dapl_chan;
struct mdapl_dapl_peer;

enum mdapl_dapl_verdict {
    MDAPL_DAPL_RETRY,            /* connect again after the backoff that cm.c has begun */
    MDAPL_DAPL_FAIL_PEER,        /* the peer is lost: all its operations fail */
};

/* The verdict, from the fault and the knobs alone. */
enum mdapl_dapl_verdict mdapl_dapl_judge(const struct mdapl_dapl_fault *f,
                                         const struct mdapl_cfg *cfg);
/* Judges what has been raised on the streams of a peer and carries it out: operations end with an
 * error and the owner gets the line. Only inside progress. Returns how many faults there were. */
int mdapl_dapl_recover(struct mdapl_dapl_peer *peer);
/* The same for all peers; for a thread that connects without progress (wire_thread.c). */
void mdapl_dapl_recover_all(struct mdapl_dapl_chan *d);

#endif
