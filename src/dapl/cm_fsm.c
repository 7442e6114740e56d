/* SPDX-License-Identifier: MIT */
#include "cm_fsm.h"

#define STAY(s) { MDAPL_CM_NOTHING, MDAPL_CM_##s }
#define DO(action, next) { MDAPL_CM_DO_##action, MDAPL_CM_##next }

/*
 * Rows: states; columns: events in their order. A request that loses while ours is under way is
 * refused: its caller will find our request waiting. One that arrives while we answer an earlier
 * one replaces it: the caller has given the earlier one up. Who has accepted in vain has lost
 * nothing: it is the caller's part to call again, unless both want the connection.
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
        [MDAPL_CM_GIVE_UP] = STAY(IDLE),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DEAD),
    },
    [MDAPL_CM_CALLING] = {
        [MDAPL_CM_WANT] = STAY(CALLING),
        [MDAPL_CM_CR_WINS] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_CR_LOSES] = DO(REFUSE, CALLING),
        [MDAPL_CM_ESTABLISHED] = DO(UP, UP),
        [MDAPL_CM_REFUSED] = DO(PAUSE, PAUSING),
        [MDAPL_CM_LOST] = DO(PAUSE, PAUSING),
        [MDAPL_CM_TIMER] = DO(PAUSE, PAUSING),
        [MDAPL_CM_GIVE_UP] = STAY(CALLING),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DEAD),
    },
    [MDAPL_CM_PAUSING] = {
        [MDAPL_CM_WANT] = STAY(PAUSING),
        [MDAPL_CM_CR_WINS] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_CR_LOSES] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_ESTABLISHED] = STAY(PAUSING),
        [MDAPL_CM_REFUSED] = STAY(PAUSING),
        [MDAPL_CM_LOST] = STAY(PAUSING),
        [MDAPL_CM_TIMER] = DO(CALL, CALLING),
        [MDAPL_CM_GIVE_UP] = DO(FAIL, DEAD),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DEAD),
    },
    [MDAPL_CM_ANSWERING] = {
        [MDAPL_CM_WANT] = STAY(ANSWERING),
        [MDAPL_CM_CR_WINS] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_CR_LOSES] = DO(ANSWER, ANSWERING),
        [MDAPL_CM_ESTABLISHED] = DO(UP, UP),
        [MDAPL_CM_REFUSED] = DO(RELEASE, IDLE),
        [MDAPL_CM_LOST] = DO(RELEASE, IDLE),
        [MDAPL_CM_TIMER] = DO(RELEASE, IDLE),
        [MDAPL_CM_GIVE_UP] = STAY(ANSWERING),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DEAD),
    },
    [MDAPL_CM_UP] = {
        [MDAPL_CM_WANT] = STAY(UP),
        [MDAPL_CM_CR_WINS] = DO(REFUSE, UP),
        [MDAPL_CM_CR_LOSES] = DO(REFUSE, UP),
        [MDAPL_CM_ESTABLISHED] = STAY(UP),
        [MDAPL_CM_REFUSED] = STAY(UP),
        [MDAPL_CM_LOST] = DO(FAIL, DEAD),
        [MDAPL_CM_TIMER] = STAY(UP),
        [MDAPL_CM_GIVE_UP] = STAY(UP),
        [MDAPL_CM_CLOSE] = DO(CLOSE, DEAD),
    },
    [MDAPL_CM_DEAD] = {
        [MDAPL_CM_WANT] = STAY(DEAD),
        [MDAPL_CM_CR_WINS] = DO(REFUSE, DEAD),
        [MDAPL_CM_CR_LOSES] = DO(REFUSE, DEAD),
        [MDAPL_CM_ESTABLISHED] = STAY(DEAD),
        [MDAPL_CM_REFUSED] = STAY(DEAD),
        [MDAPL_CM_LOST] = STAY(DEAD),
        [MDAPL_CM_TIMER] = STAY(DEAD),
        [MDAPL_CM_GIVE_UP] = STAY(DEAD),
        [MDAPL_CM_CLOSE] = STAY(DEAD),
    },
};

struct mdapl_cm_move mdapl_cm_step(enum mdapl_cm_state state, enum mdapl_cm_event event)
{
    return table[state][event];
}

const char *mdapl_cm_state_name(enum mdapl_cm_state state)
{
    static const char *const name[MDAPL_CM_STATES] = {
        "idle", "calling", "pausing", "answering", "up", "dead"
    };

    return name[state];
}

const char *mdapl_cm_event_name(enum mdapl_cm_event event)
{
    static const char *const name[MDAPL_CM_EVENTS] = {
        "want", "cr-wins", "cr-loses", "established", "refused", "lost", "timer", "give-up",
        "close"
    };

    return name[event];
}
