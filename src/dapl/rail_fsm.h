/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RAIL_FSM_H
#define MDAPL_RAIL_FSM_H
/*
 * The life of a rail, as a table; ia.c acts on it.
 *
 *      OPEN <--QUIET-- SUSPECT          OPEN, SUSPECT --FATAL--> DOWN
 *      OPEN --DOUBT--> SUSPECT          DOWN --REOPEN--> REOPENING --OPENED--> OPEN
 *                                                        REOPENING --REFUSED, FATAL--> DOWN
 *
 * What is not in the table changes nothing: a provider may report a failure twice, or late.
 */
enum mdapl_dapl_rail_state {
    MDAPL_DAPL_RAIL_OPEN,
    MDAPL_DAPL_RAIL_SUSPECT,     /* usable; bodies take other rails where there are any */
    MDAPL_DAPL_RAIL_DOWN,        /* nothing is registered, posted or waited for on it */
    MDAPL_DAPL_RAIL_REOPENING,   /* its DAT objects are closed and made again */
    MDAPL_DAPL_RAIL_STATES
};

enum mdapl_dapl_rail_event {
    MDAPL_DAPL_RAIL_DOUBT,       /* an operation of the adapter has timed out */
    MDAPL_DAPL_RAIL_QUIET,       /* none has for a while */
    MDAPL_DAPL_RAIL_FATAL,       /* the provider reports that the adapter is unusable */
    MDAPL_DAPL_RAIL_REOPEN,      /* no EP is left on it, and it is to be opened again */
    MDAPL_DAPL_RAIL_OPENED,
    MDAPL_DAPL_RAIL_REFUSED,     /* it does not open */
    MDAPL_DAPL_RAIL_EVENTS
};

/* The state after this event. */
enum mdapl_dapl_rail_state mdapl_dapl_rail_next(enum mdapl_dapl_rail_state state,
                                                enum mdapl_dapl_rail_event event);
/* "SUSPECT", for logs. */
const char *mdapl_dapl_rail_state_name(enum mdapl_dapl_rail_state state);

#endif
