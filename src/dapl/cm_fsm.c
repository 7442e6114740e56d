/* SPDX-License-Identifier: MIT */
#include "cm_fsm.h"

#define STAY(s) { MDAPL_CM_NOTHING, MDAPL_CM_##s }
#define DO(action, next) { MDAPL_CM_DO_##action, MDAPL_CM_##next }

/*
 * Rows: states; columns: events in their order. A request that loses while one of this rank is in
 * flight is rejected: its sender has the request of this rank in its queue. A request that arrives
 * during ACCEPTING replaces the accepted one, which its sender has given up; one in UP is newer
 * than the connection (older ones are stale), so its sender has lost that. An acceptance that
 * does not lead to a connection is not repeated here: the sender of the request repeats it, and
 * this rank sends a request of its own if it is to connect as well.
 */
static const struct mdapl_dapl_cm_move table[MDAPL_CM_STATES][MDAPL_CM_EVENTS] = {
    [MDAPL_CM_IDLE] = {
        [MDAPL_CM_CONNECT_REQ] = DO(CONNECT_SOON, BACKOFF),
        [MDAPL_CM_CR_WINS] = DO(ACCEPT, ACCEPTING),
        [MDAPL_CM_CR_LOSES] = DO(ACCEPT, ACCEPTING),
        [MDAPL_CM_ESTABLISHED] = STAY(IDLE),
        [MDAPL_CM_REJECTED] = STAY(IDLE),
        [MDAPL_CM_LOST] = STAY(IDLE),
        [MDAPL_CM_TIMER] = STAY(IDLE),
        [MDAPL_CM_CLOSE] = DO(END, DEAD),
        [MDAPL_CM_DRAINED] = STAY(IDLE),
        [MDAPL_CM_AGAIN] = STAY(IDLE),
        [MDAPL_CM_NOT_NEEDED] = STAY(IDLE),
    },
    [MDAPL_CM_CONNECTING] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(CONNECTING),
        [MDAPL_CM_CR_WINS] = DO(ACCEPT, ACCEPTING),
        [MDAPL_CM_CR_LOSES] = DO(REJECT, CONNECTING),
        [MDAPL_CM_ESTABLISHED] = DO(UP, UP),
        [MDAPL_CM_REJECTED] = DO(BACKOFF, BACKOFF),
        [MDAPL_CM_LOST] = DO(BACKOFF, BACKOFF),
        [MDAPL_CM_TIMER] = DO(BACKOFF, BACKOFF),
        [MDAPL_CM_CLOSE] = DO(CLOSE, CLOSING),
        [MDAPL_CM_DRAINED] = STAY(CONNECTING),
        [MDAPL_CM_AGAIN] = STAY(CONNECTING),
        [MDAPL_CM_NOT_NEEDED] = DO(REST, IDLE),
    },
    [MDAPL_CM_BACKOFF] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(BACKOFF),
        [MDAPL_CM_CR_WINS] = DO(ACCEPT, ACCEPTING),
        [MDAPL_CM_CR_LOSES] = DO(ACCEPT, ACCEPTING),
        [MDAPL_CM_ESTABLISHED] = STAY(BACKOFF),
        [MDAPL_CM_REJECTED] = STAY(BACKOFF),
        [MDAPL_CM_LOST] = STAY(BACKOFF),
        [MDAPL_CM_TIMER] = DO(CONNECT, CONNECTING),
        [MDAPL_CM_CLOSE] = DO(END, DEAD),
        [MDAPL_CM_DRAINED] = STAY(BACKOFF),
        [MDAPL_CM_AGAIN] = STAY(BACKOFF),
        [MDAPL_CM_NOT_NEEDED] = DO(REST, IDLE),
    },
    [MDAPL_CM_ACCEPTING] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(ACCEPTING),
        [MDAPL_CM_CR_WINS] = DO(ACCEPT, ACCEPTING),
        [MDAPL_CM_CR_LOSES] = DO(ACCEPT, ACCEPTING),
        [MDAPL_CM_ESTABLISHED] = DO(UP, UP),
        [MDAPL_CM_REJECTED] = DO(RELEASE, IDLE),
        [MDAPL_CM_LOST] = DO(RELEASE, IDLE),
        [MDAPL_CM_TIMER] = DO(RELEASE, IDLE),
        [MDAPL_CM_CLOSE] = DO(CLOSE, CLOSING),
        [MDAPL_CM_DRAINED] = STAY(ACCEPTING),
        [MDAPL_CM_AGAIN] = DO(AWAIT, REACCEPTING),
        [MDAPL_CM_NOT_NEEDED] = STAY(ACCEPTING),
    },
    [MDAPL_CM_REACCEPTING] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(REACCEPTING),
        [MDAPL_CM_CR_WINS] = DO(HOLD_CLOSE, DRAINING),
        [MDAPL_CM_CR_LOSES] = DO(HOLD_CLOSE, DRAINING),
        [MDAPL_CM_ESTABLISHED] = DO(UP, UP),
        [MDAPL_CM_REJECTED] = DO(CLOSE, DRAINING),
        [MDAPL_CM_LOST] = DO(CLOSE, DRAINING),
        [MDAPL_CM_TIMER] = DO(CLOSE, DRAINING),
        [MDAPL_CM_CLOSE] = DO(CLOSE, CLOSING),
        [MDAPL_CM_DRAINED] = STAY(REACCEPTING),
        [MDAPL_CM_AGAIN] = STAY(REACCEPTING),
        [MDAPL_CM_NOT_NEEDED] = STAY(REACCEPTING),
    },
    [MDAPL_CM_UP] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(UP),
        [MDAPL_CM_CR_WINS] = DO(HOLD_LOSE, DRAINING),
        [MDAPL_CM_CR_LOSES] = DO(HOLD_LOSE, DRAINING),
        [MDAPL_CM_ESTABLISHED] = STAY(UP),
        [MDAPL_CM_REJECTED] = STAY(UP),
        [MDAPL_CM_LOST] = DO(LOSE, DRAINING),
        [MDAPL_CM_TIMER] = STAY(UP),
        [MDAPL_CM_CLOSE] = DO(CLOSE, CLOSING),
        [MDAPL_CM_DRAINED] = STAY(UP),
        [MDAPL_CM_AGAIN] = STAY(UP),
        [MDAPL_CM_NOT_NEEDED] = STAY(UP),
    },
    [MDAPL_CM_DRAINING] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(DRAINING),
        [MDAPL_CM_CR_WINS] = DO(HOLD, DRAINING),
        [MDAPL_CM_CR_LOSES] = DO(HOLD, DRAINING),
        [MDAPL_CM_ESTABLISHED] = STAY(DRAINING),
        [MDAPL_CM_REJECTED] = STAY(DRAINING),
        [MDAPL_CM_LOST] = STAY(DRAINING),
        [MDAPL_CM_TIMER] = DO(OVERDUE, DRAINING),
        [MDAPL_CM_CLOSE] = DO(NO_MORE, CLOSING),
        [MDAPL_CM_DRAINED] = DO(REPLACE, BACKOFF),
        [MDAPL_CM_AGAIN] = STAY(DRAINING),
        [MDAPL_CM_NOT_NEEDED] = STAY(DRAINING),
    },
    [MDAPL_CM_CLOSING] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(CLOSING),
        [MDAPL_CM_CR_WINS] = DO(REJECT, CLOSING),
        [MDAPL_CM_CR_LOSES] = DO(REJECT, CLOSING),
        [MDAPL_CM_ESTABLISHED] = STAY(CLOSING),
        [MDAPL_CM_REJECTED] = STAY(CLOSING),
        [MDAPL_CM_LOST] = STAY(CLOSING),
        [MDAPL_CM_TIMER] = STAY(CLOSING),
        [MDAPL_CM_CLOSE] = STAY(CLOSING),
        [MDAPL_CM_DRAINED] = DO(FORGET, DEAD),
        [MDAPL_CM_AGAIN] = STAY(CLOSING),
        [MDAPL_CM_NOT_NEEDED] = STAY(CLOSING),
    },
    [MDAPL_CM_DEAD] = {
        [MDAPL_CM_CONNECT_REQ] = STAY(DEAD),
        [MDAPL_CM_CR_WINS] = DO(REJECT, DEAD),
        [MDAPL_CM_CR_LOSES] = DO(REJECT, DEAD),
        [MDAPL_CM_ESTABLISHED] = STAY(DEAD),
        [MDAPL_CM_REJECTED] = STAY(DEAD),
        [MDAPL_CM_LOST] = STAY(DEAD),
        [MDAPL_CM_TIMER] = STAY(DEAD),
        [MDAPL_CM_CLOSE] = STAY(DEAD),
        [MDAPL_CM_DRAINED] = STAY(DEAD),
        [MDAPL_CM_AGAIN] = STAY(DEAD),
        [MDAPL_CM_NOT_NEEDED] = STAY(DEAD),
    },
};

struct mdapl_dapl_cm_move mdapl_dapl_cm_step(enum mdapl_dapl_cm_state state,
                                             enum mdapl_dapl_cm_event event)
{
    return table[state][event];
}

const char *mdapl_dapl_cm_state_name(enum mdapl_dapl_cm_state state)
{
    static const char *const name[MDAPL_CM_STATES] = {
        "idle", "connecting", "backoff", "accepting", "reaccepting", "up", "draining", "closing",
        "dead"
    };

    return name[state];
}

const char *mdapl_dapl_cm_event_name(enum mdapl_dapl_cm_event event)
{
    static const char *const name[MDAPL_CM_EVENTS] = {
        "connect", "cr-wins", "cr-loses", "established", "rejected", "lost", "timer", "close",
        "drained", "again", "not-needed"
    };

    return name[event];
}
