/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_REPORT_H
#define MDAPL_CM_REPORT_H
/*
 * What can become of a connection or of an attempt at one: DAT's events and what the channel finds
 * by itself, one row each, with what it says about the other rank, in words, and what the user can
 * do. And the lines made of that.
 *
 * A rank answers connection requests only inside MPI calls, so DAT reports the same for a rank that
 * computes, one that is stopped and one whose host is down behind a router: nothing, until the time
 * of the request is over. Only an answer says something about the rank. UNREACHABLE is one when it
 * is reported soon (no route; neighbour discovery gives up after 3 s); later it is how providers
 * report that their own retransmissions are over (rdma_cm and the UD-based manager), which a
 * computing rank causes as well.
 */
#include "cm_fsm.h"
#include "dat.h"
#include "fault.h"

#include <stddef.h>
#include <stdint.h>

struct mdapl_dapl_stream;

#define MDAPL_CM_PATH_ADVICE                                                                       \
    "The path was down for longer than the provider repeats what it sends (retry= in dat.conf "    \
    "for the software provider; acknowledgement timer and retry count of an adapter), or the "     \
    "process or its host has gone"

enum mdapl_dapl_cm_reply {
    MDAPL_CM_REPLY_NO,           /* an answer: no such process, or it refuses */
    MDAPL_CM_REPLY_NEVER,        /* an answer: it has given this rank up */
    MDAPL_CM_REPLY_LATER,        /* it is alive, and may accept a later request */
    MDAPL_CM_REPLY_NONE,
};

enum mdapl_dapl_cm_cause_id {
    MDAPL_CAUSE_ESTABLISHED,
    MDAPL_CAUSE_PEER_REJECTED,
    MDAPL_CAUSE_NON_PEER_REJECTED,
    MDAPL_CAUSE_ACCEPT_ERROR,
    MDAPL_CAUSE_TIMED_OUT,
    MDAPL_CAUSE_UNREACHABLE,
    MDAPL_CAUSE_DISCONNECTED,
    MDAPL_CAUSE_BROKEN,
    MDAPL_CAUSE_EP_BROKEN,
    MDAPL_CAUSE_EP_TIMED_OUT,
    MDAPL_CAUSE_EP_PROVIDER,
    MDAPL_CAUSE_IA_CATASTROPHIC,
    MDAPL_CAUSE_EVD_OVERFLOW,
    /* no events of DAT: */
    MDAPL_CAUSE_UNREACHABLE_LATE,    /* UNREACHABLE, but not soon */
    MDAPL_CAUSE_BUSY,                /* PEER_REJECTED, for another request between the two */
    MDAPL_CAUSE_GONE,                /* PEER_REJECTED, as it has failed or left this rank */
    MDAPL_CAUSE_NEW_REQUEST,         /* a request of the peer's that is newer than the connection */
    MDAPL_CAUSE_SILENT,              /* nothing arrives on it, and no probe completes */
    MDAPL_CAUSE_NO_FLUSH,            /* the provider has not completed what it has to flush */
    MDAPL_CAUSE_NO_EVENT,            /* the provider has reported nothing in time */
    MDAPL_CAUSE_WRONG_ANSWER,        /* ESTABLISHED, but not by the rank of the request */
    MDAPL_CAUSE_IA_CALLS,            /* calls report that the adapter is unusable */
    MDAPL_CAUSE_LOCAL,               /* this side's adapter refused; mdapl_ctx_err() says why */
    MDAPL_CAUSE_OWN,                 /* the channel itself connects or disconnects */
    MDAPL_CAUSES
};

struct mdapl_dapl_cm_cause {
    DAT_EVENT_NUMBER number;     /* 0: no event of DAT */
    enum mdapl_dapl_cm_event event;
    enum mdapl_dapl_cm_reply says;
    const char *text;            /* what has happened, with DAT's name for it */
    const char *advice;          /* what the user can do */
};

const struct mdapl_dapl_cm_cause *mdapl_dapl_cm_cause(enum mdapl_dapl_cm_cause_id id);
/* The cause that an event of the connection queue, or of the asynchronous one, is; NULL: none. */
const struct mdapl_dapl_cm_cause *mdapl_dapl_cm_cause_of(DAT_EVENT_NUMBER number);

/*
 * The lines, into buf of len bytes. unconnected: the peer is given up before there was a
 * connection. lost: an established connection has ended. frame, memory, ia: the faults of these
 * kinds.
 */
void mdapl_dapl_cm_line_unconnected(const struct mdapl_dapl_stream *st,
                                    const struct mdapl_dapl_fault *f, char *buf, size_t len);
void mdapl_dapl_cm_line_lost(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                             char *buf, size_t len);
void mdapl_dapl_cm_line_frame(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                              char *buf, size_t len);
void mdapl_dapl_cm_line_bug(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                            char *buf, size_t len);
void mdapl_dapl_cm_line_memory(const struct mdapl_dapl_stream *st,
                               const struct mdapl_dapl_fault *f, char *buf, size_t len);
void mdapl_dapl_cm_line_ia(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                           char *buf, size_t len);
/* An attempt on this stream has ended with the fault *f and will be repeated. Prints the line about
 * a peer that does not answer, when the time since the last such line has doubled. */
void mdapl_dapl_cm_warn(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f);

#endif
