/* SPDX-License-Identifier: MIT */
#include "path_fsm.h"

/* Entries are the next state plus one, so that what is not named is 0: no change. */
#define TO(s) (MDAPL_DAPL_PATH_##s + 1)

static const unsigned char table[MDAPL_DAPL_PATH_STATES][MDAPL_DAPL_PATH_EVENTS] = {
    [MDAPL_DAPL_PATH_UNLOADED] = {
        [MDAPL_DAPL_PATH_LOADED] = TO(LOADING),
        [MDAPL_DAPL_PATH_REFUSED] = TO(NONE),
        [MDAPL_DAPL_PATH_IS_REARM] = TO(LOADING),
        [MDAPL_DAPL_PATH_IS_ARMED] = TO(ARMED),
    },
    [MDAPL_DAPL_PATH_LOADING] = {
        [MDAPL_DAPL_PATH_MIGRATED] = TO(UNLOADED),
        [MDAPL_DAPL_PATH_IS_MIGRATED] = TO(UNLOADED),
        [MDAPL_DAPL_PATH_IS_ARMED] = TO(ARMED),
    },
    [MDAPL_DAPL_PATH_ARMED] = {
        [MDAPL_DAPL_PATH_ASKED] = TO(MOVING),
        [MDAPL_DAPL_PATH_MIGRATED] = TO(UNLOADED),
        [MDAPL_DAPL_PATH_IS_MIGRATED] = TO(UNLOADED),
        [MDAPL_DAPL_PATH_IS_REARM] = TO(LOADING),
    },
    [MDAPL_DAPL_PATH_MOVING] = {
        [MDAPL_DAPL_PATH_LATE] = TO(ARMED),
        [MDAPL_DAPL_PATH_MIGRATED] = TO(UNLOADED),
        [MDAPL_DAPL_PATH_IS_MIGRATED] = TO(UNLOADED),
        [MDAPL_DAPL_PATH_IS_REARM] = TO(LOADING),
    },
};

enum mdapl_dapl_path_state mdapl_dapl_path_next(enum mdapl_dapl_path_state state,
                                                enum mdapl_dapl_path_event event)
{
    unsigned char to = table[state][event];

    return to ? (enum mdapl_dapl_path_state)(to - 1) : state;
}

const char *mdapl_dapl_path_state_name(enum mdapl_dapl_path_state state)
{
    static const char *const name[] = {
        [MDAPL_DAPL_PATH_UNLOADED] = "UNLOADED",
        [MDAPL_DAPL_PATH_LOADING] = "LOADING",
        [MDAPL_DAPL_PATH_ARMED] = "ARMED",
        [MDAPL_DAPL_PATH_MOVING] = "MOVING",
        [MDAPL_DAPL_PATH_NONE] = "NONE",
    };

    return name[state];
}
