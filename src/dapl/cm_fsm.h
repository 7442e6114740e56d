/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_FSM_H
#define MDAPL_CM_FSM_H
/*
 * The life of one stream's connection, as a table. cm.c turns DAT's events into these and carries
 * out the actions; mdapl_dapl_cm_step() is the only decision. Both ends may send a connection
 * request at the same time: the one of the lower rank wins (between two groups, that of the lower
 * group id), whatever the timing, because each end compares the same numbers. The table does not
 * depend on DAT: a unit test checks each entry, and the simulation makes thousands of crossing
 * requests.
 *
 * A connection that was up drains before another one is requested or accepted, because an adapter
 * may still carry out what was posted on it, into memory that is in use for something else by then
 * (NVMe TP4129 describes that hazard). A request that arrives meanwhile is held. An attempt that is
 * given up drains aside: at most receives were posted on it. But an acceptance may be established
 * at the other end before this end knows, and a peer that has been connected before may have posted
 * RDMA on it: it is treated as a connection (REACCEPTING).
 */
#include <stdbool.h>

enum mdapl_dapl_cm_state {
    MDAPL_CM_IDLE,           /* not wanted yet */
    MDAPL_CM_CONNECTING,     /* a request of this rank is in flight */
    MDAPL_CM_BACKOFF,        /* our next request is sent when the timer has fired */
    MDAPL_CM_ACCEPTING,      /* we have accepted theirs and wait for ESTABLISHED */
    MDAPL_CM_REACCEPTING,    /* the same, and the peer has been connected before */
    MDAPL_CM_UP,
    MDAPL_CM_DRAINING,       /* ended; its DTOs, or the event of its end, are still to come */
    MDAPL_CM_CLOSING,        /* the same, and nothing follows */
    MDAPL_CM_DEAD,           /* nothing is posted any more, and nothing follows */
    MDAPL_CM_STATES
};

enum mdapl_dapl_cm_event {
    MDAPL_CM_CONNECT_REQ,    /* there is something to send, or the wiring says so */
    MDAPL_CM_CR_WINS,        /* a verified request whose sender has the lower rank */
    MDAPL_CM_CR_LOSES,       /* a verified request whose sender has the higher rank */
    MDAPL_CM_ESTABLISHED,
    MDAPL_CM_REJECTED,       /* the attempt is over: rejected, unreachable, timed out */
    MDAPL_CM_LOST,           /* disconnected or broken */
    MDAPL_CM_TIMER,          /* the pause is over, or the time for an answer */
    MDAPL_CM_CLOSE,
    MDAPL_CM_DRAINED,        /* that is over, and its EP is freed (conn.h) */
    MDAPL_CM_AGAIN,          /* what has been accepted replaces a connection */
    MDAPL_CM_NOT_NEEDED,     /* nothing is left to be transmitted */
    MDAPL_CM_EVENTS
};

enum mdapl_dapl_cm_action {
    MDAPL_CM_NOTHING,
    MDAPL_CM_DO_CONNECT_SOON, /* start the timer: in the next round, behind its events */
    MDAPL_CM_DO_CONNECT,     /* new connection, send a request */
    MDAPL_CM_DO_ACCEPT,      /* close this rank's own attempt, if any; new connection, accept */
    MDAPL_CM_DO_AWAIT,       /* start the timer of the acceptance */
    MDAPL_CM_DO_REJECT,      /* reject the request */
    MDAPL_CM_DO_HOLD,        /* answer the request after the drain */
    MDAPL_CM_DO_HOLD_LOSE,   /* the same, and DO_LOSE: the peer has lost the connection */
    MDAPL_CM_DO_HOLD_CLOSE,  /* the same, and DO_CLOSE */
    MDAPL_CM_DO_UP,          /* frames may be transmitted */
    MDAPL_CM_DO_BACKOFF,     /* close the attempt, start the timer of the next, raise a fault */
    MDAPL_CM_DO_RELEASE,     /* close the attempt; request, if this rank is to connect itself */
    MDAPL_CM_DO_LOSE,        /* disconnect, wait for the drain, raise a fault */
    MDAPL_CM_DO_CLOSE,       /* disconnect, wait for the drain */
    MDAPL_CM_DO_END,         /* there was nothing to drain */
    MDAPL_CM_DO_FORGET,      /* the connection has been freed */
    MDAPL_CM_DO_REPLACE,     /* it has: accept the held request, or start the timer of a request */
    MDAPL_CM_DO_OVERDUE,     /* raise a fault: the drain has taken too long */
    MDAPL_CM_DO_REST,        /* wait until there is something to send */
    MDAPL_CM_DO_NO_MORE,     /* what drains is not replaced */
};

/* Is the stream to be connected, and not yet? */
static inline bool mdapl_dapl_cm_connecting(enum mdapl_dapl_cm_state s)
{
    return s == MDAPL_CM_CONNECTING || s == MDAPL_CM_BACKOFF || s == MDAPL_CM_ACCEPTING
           || s == MDAPL_CM_REACCEPTING || s == MDAPL_CM_DRAINING;
}

struct mdapl_dapl_cm_move {
    enum mdapl_dapl_cm_action action;
    enum mdapl_dapl_cm_state next;
};

/* What an event does in a state, and the state that follows. */
struct mdapl_dapl_cm_move mdapl_dapl_cm_step(enum mdapl_dapl_cm_state state,
                                             enum mdapl_dapl_cm_event event);
/* Names for the log. */
const char *mdapl_dapl_cm_state_name(enum mdapl_dapl_cm_state state);
const char *mdapl_dapl_cm_event_name(enum mdapl_dapl_cm_event event);

#endif
