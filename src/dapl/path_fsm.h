/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_PATH_FSM_H
#define MDAPL_PATH_FSM_H
/*
 * The second path of one connection, as the channel sees it, as a table; path.c acts on it. The
 * provider changes the state by itself at any time, so events of the kind IS_ report what a query
 * has just returned (dat_path_extensions.h has the provider's states), and the others what the
 * channel has done.
 *
 *      UNLOADED --LOADED--> LOADING --IS_ARMED--> ARMED --ASKED--> MOVING
 *         ^                    ^                    |                |
 *         |                    +-----IS_REARM-------+----------------+
 *         +-----MIGRATED, IS_MIGRATED (from all three)
 */
enum mdapl_dapl_path_state {
    MDAPL_DAPL_PATH_UNLOADED,    /* it has none: one is to be loaded */
    MDAPL_DAPL_PATH_LOADING,     /* this side has loaded one; the other has not, or it is down */
    MDAPL_DAPL_PATH_ARMED,       /* the connection can migrate */
    MDAPL_DAPL_PATH_MOVING,      /* this side has asked it to */
    MDAPL_DAPL_PATH_NONE,        /* there is no other path */
    MDAPL_DAPL_PATH_STATES
};

enum mdapl_dapl_path_event {
    MDAPL_DAPL_PATH_LOADED,
    MDAPL_DAPL_PATH_REFUSED,     /* the provider has no other path */
    MDAPL_DAPL_PATH_ASKED,       /* for a migration */
    MDAPL_DAPL_PATH_LATE,        /* and it has not happened */
    MDAPL_DAPL_PATH_MIGRATED,    /* it has migrated since the last query */
    MDAPL_DAPL_PATH_IS_MIGRATED,
    MDAPL_DAPL_PATH_IS_REARM,
    MDAPL_DAPL_PATH_IS_ARMED,
    MDAPL_DAPL_PATH_EVENTS
};

/* The state after this event. */
enum mdapl_dapl_path_state mdapl_dapl_path_next(enum mdapl_dapl_path_state state,
                                                enum mdapl_dapl_path_event event);
/* "ARMED", for logs. */
const char *mdapl_dapl_path_state_name(enum mdapl_dapl_path_state state);

#endif
