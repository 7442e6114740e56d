/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_FSM_H
#define MDAPL_CM_FSM_H
/*
 * The life of the connection to one peer, as a table. cm.c turns DAT's events into these and
 * carries out the actions; mdapl_cm_step() below is the only decision. Both ends may call at the
 * same time: the call of the lower rank wins, whatever the timing, because each end compares the
 * same two numbers. No DAT here: a unit test walks the whole table, and the simulation crosses
 * connects by the thousand.
 */
enum mdapl_cm_state {
    MDAPL_CM_IDLE,           /* nobody has wanted it yet */
    MDAPL_CM_CALLING,        /* our request is under way */
    MDAPL_CM_PAUSING,        /* our next request leaves when the timer fires */
    MDAPL_CM_ANSWERING,      /* we have accepted theirs; ESTABLISHED is to come */
    MDAPL_CM_UP,
    MDAPL_CM_DEAD,           /* lost for good, or closed */
    MDAPL_CM_STATES
};

enum mdapl_cm_event {
    MDAPL_CM_WANT,           /* there is something to send, or the wiring says so */
    MDAPL_CM_CR_WINS,        /* a verified request whose caller has the lower rank */
    MDAPL_CM_CR_LOSES,       /* a verified request whose caller has the higher rank */
    MDAPL_CM_ESTABLISHED,
    MDAPL_CM_REFUSED,        /* the attempt is over: rejected, unreachable, timed out */
    MDAPL_CM_LOST,           /* disconnected or broken */
    MDAPL_CM_TIMER,          /* the pause is over, or the time for an answer */
    MDAPL_CM_GIVE_UP,        /* the time allowed for connecting is over */
    MDAPL_CM_CLOSE,
    MDAPL_CM_EVENTS
};

enum mdapl_cm_action {
    MDAPL_CM_NOTHING,
    MDAPL_CM_DO_CALL_SOON,   /* start the timer: in the next round, behind its events */
    MDAPL_CM_DO_CALL,        /* new EP, connect */
    MDAPL_CM_DO_ANSWER,      /* give our own attempt up if there is one; new EP, accept */
    MDAPL_CM_DO_REFUSE,      /* reject the request */
    MDAPL_CM_DO_UP,          /* let frames leave */
    MDAPL_CM_DO_PAUSE,       /* give the EP up, start the timer of the next request */
    MDAPL_CM_DO_RELEASE,     /* give the EP up; call, if this rank wants the connection itself */
    MDAPL_CM_DO_FAIL,        /* give the EP up, fail the peer */
    MDAPL_CM_DO_CLOSE,       /* give the EP up */
};

struct mdapl_cm_move {
    enum mdapl_cm_action action;
    enum mdapl_cm_state next;
};

/* What an event does in a state. */
struct mdapl_cm_move mdapl_cm_step(enum mdapl_cm_state state, enum mdapl_cm_event event);
const char *mdapl_cm_state_name(enum mdapl_cm_state state);
const char *mdapl_cm_event_name(enum mdapl_cm_event event);

#endif
