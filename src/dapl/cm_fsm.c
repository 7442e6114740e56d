/* SPDX-License-Identifier: MIT */
#include "cm_fsm.h"

#define STAY(s) { MDAPL_CM_NOTHING, MDAPL_CM_##s }
#define DO(action, next) { MDAPL_CM_DO_##action, MDAPL_CM_##next }

/*
 * Rows: states; columns: events in their order. A request that loses while ours is under way is
 * refused: its sender will find our request waiting. One that arrives while we answer an earlier
 * one replaces it: its sender has given the earlier one up. An acceptance in vain costs nothing: it
 * is for the sender of the request to repeat it, unless this rank wants the connection as well.
 */
static const struct mdapl_cm_move table[MDAPL_CM_STATES][MDAPL_CM_EVENTS] = {
    [MDAPL_CM_IDLE] = {
        [MDAPL_CM_WANT] = DO(CALL_SOON, PAUSING),
        [MDAPL_CM_CR_WINS] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_CR_LOSES] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_ESTABLISHED] = STAY(IDLE),
        [MDAPL_CM_REFUSED] = STAY(IDLE),
        [MDAPL_CM_LOST] = STAY(IDLE),
        [MDAPL_CM_TIMER] = STAY(IDLE),
        [MDAPL_CM_CLOSE] = DO(END, DEAD),
        [MDAPL_CM_DRAINED] = STAY(IDLE),
    },
    [MDAPL_CM_CALLING] = {
        [MDAPL_CM_WANT] = STAY(CALLING),
        [MDAPL_CM_CR_WINS] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_CR_LOSES] = DO(REFUSE, CALLING),
        [MDAPL_CM_ESTABLISHED] = DO(UP, UP),
        [MDAPL_CM_REFUSED] = DO(PAUSE, PAUSING),
        [MDAPL_CM_LOST] = DO(PAUSE, PAUSING),
        [MDAPL_CM_TIMER] = DO(PAUSE, PAUSING),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DRAINING),
        [MDAPL_CM_DRAINED] = STAY(CALLING),
    },
    [MDAPL_CM_PAUSING] = {
        [MDAPL_CM_WANT] = STAY(PAUSING),
        [MDAPL_CM_CR_WINS] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_CR_LOSES] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_ESTABLISHED] = STAY(PAUSING),
        [MDAPL_CM_REFUSED] = STAY(PAUSING),
        [MDAPL_CM_LOST] = STAY(PAUSING),
        [MDAPL_CM_TIMER] = DO(CALL, CALLING),
        [MDAPL_CM_CLOSE] = DO(END, DEAD),
        [MDAPL_CM_DRAINED] = STAY(PAUSING),
    },
    [MDAPL_CM_ANSWERING] = {
        [MDAPL_CM_WANT] = STAY(ANSWERING),
        [MDAPL_CM_CR_WINS] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_CR_LOSES] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_ESTABLISHED] = DO(UP, UP),
        [MDAPL_CM_REFUSED] = DO(RELEASE, IDLE),
        [MDAPL_CM_LOST] = DO(RELEASE, IDLE),
        [MDAPL_CM_TIMER] = DO(RELEASE, IDLE),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DRAINING),
        [MDAPL_CM_DRAINED] = STAY(ANSWERING),
    },
    [MDAPL_CM_UP] = {
        [MDAPL_CM_WANT] = STAY(UP),
        [MDAPL_CM_CR_WINS] = DO(REFUSE, UP),
        [MDAPL_CM_CR_LOSES] = DO(REFUSE, UP),
        [MDAPL_CM_ESTABLISHED] = STAY(UP),
        [MDAPL_CM_REFUSED] = STAY(UP),
        [MDAPL_CM_LOST] = DO(LOSE, DRAINING),
        [MDAPL_CM_TIMER] = STAY(UP),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DRAINING),
        [MDAPL_CM_DRAINED] = STAY(UP),
    },
    [MDAPL_CM_DRAINING] = {
        [MDAPL_CM_WANT] = STAY(DRAINING),
        [MDAPL_CM_CR_WINS] = DO(REFUSE, DRAINING),
        [MDAPL_CM_CR_LOSES] = DO(REFUSE, DRAINING),
        [MDAPL_CM_ESTABLISHED] = STAY(DRAINING),
        [MDAPL_CM_REFUSED] = STAY(DRAINING),
        [MDAPL_CM_LOST] = STAY(DRAINING),
        [MDAPL_CM_TIMER] = STAY(DRAINING),
        [MDAPL_CM_CLOSE] = STAY(DRAINING),
        [MDAPL_CM_DRAINED] = DO(FORGET, DEAD),
    },
    [MDAPL_CM_DEAD] = {
        [MDAPL_CM_WANT] = STAY(DEAD),
        [MDAPL_CM_CR_WINS] = DO(REFUSE, DEAD),
        [MDAPL_CM_CR_LOSES] = DO(REFUSE, DEAD),
        [MDAPL_CM_ESTABLISHED] = STAY(DEAD),
        [MDAPL_CM_REFUSED] = STAY(DEAD),
        [MDAPL_CM_LOST] = STAY(DEAD),
        [MDAPL_CM_TIMER] = STAY(DEAD),
        [MDAPL_CM_CLOSE] = STAY(DEAD),
        [MDAPL_CM_DRAINED] = STAY(DEAD),
    },
};

struct mdapl_cm_move mdapl_cm_step(enum mdapl_cm_state state, enum mdapl_cm_event event)
{
    return table[state][event];
}

const char *mdapl_cm_state_name(enum mdapl_cm_state state)
{
    static const char *const name[MDAPL_CM_STATES] = {
        "idle", "calling", "pausing", "answering", "up", "draining", "dead"
    };

    return name[state];
}

const char *mdapl_cm_event_name(enum mdapl_cm_event event)
{
    static const char *const name[MDAPL_CM_EVENTS] = {
        "want", "cr-wins", "cr-loses", "established", "refused", "lost", "timer", "close",
        "drained"
    };

    return name[event];
}
