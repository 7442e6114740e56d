/* SPDX-License-Identifier: MIT */
#include "rail_fsm.h"

/* Entries are the next state plus one, so that what is not named is 0: no change. */
#define TO(s) (MDAPL_DAPL_RAIL_##s + 1)

static const unsigned char table[MDAPL_DAPL_RAIL_STATES][MDAPL_DAPL_RAIL_EVENTS] = {
    [MDAPL_DAPL_RAIL_OPEN] = {
        [MDAPL_DAPL_RAIL_DOUBT] = TO(SUSPECT),
        [MDAPL_DAPL_RAIL_FATAL] = TO(DOWN),
    },
    [MDAPL_DAPL_RAIL_SUSPECT] = {
        [MDAPL_DAPL_RAIL_QUIET] = TO(OPEN),
        [MDAPL_DAPL_RAIL_FATAL] = TO(DOWN),
    },
    [MDAPL_DAPL_RAIL_DOWN] = {
        [MDAPL_DAPL_RAIL_REOPEN] = TO(REOPENING),
    },
    [MDAPL_DAPL_RAIL_REOPENING] = {
        [MDAPL_DAPL_RAIL_OPENED] = TO(OPEN),
        [MDAPL_DAPL_RAIL_REFUSED] = TO(DOWN),
        [MDAPL_DAPL_RAIL_FATAL] = TO(DOWN),
    },
};

enum mdapl_dapl_rail_state mdapl_dapl_rail_next(enum mdapl_dapl_rail_state state,
                                                enum mdapl_dapl_rail_event event)
{
    unsigned char to = table[state][event];

    return to ? (enum mdapl_dapl_rail_state)(to - 1) : state;
}

const char *mdapl_dapl_rail_state_name(enum mdapl_dapl_rail_state state)
{
    static const char *const name[] = {
        [MDAPL_DAPL_RAIL_OPEN] = "OPEN",
        [MDAPL_DAPL_RAIL_SUSPECT] = "SUSPECT",
        [MDAPL_DAPL_RAIL_DOWN] = "DOWN",
        [MDAPL_DAPL_RAIL_REOPENING] = "REOPENING",
    };

    return name[state];
}
