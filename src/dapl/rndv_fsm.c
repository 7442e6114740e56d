/* SPDX-License-Identifier: MIT */
#include "rndv_fsm.h"

/* Entries are the next state plus one, so that what is not named is 0: impossible. */
#define TO(s) (MDAPL_##s + 1)

static const unsigned char rtx[MDAPL_RTX_STATES][MDAPL_RTX_EVENTS] = {
    [MDAPL_RTX_ANNOUNCED] = {
        [MDAPL_RTX_CTS] = TO(RTX_SENDING),
        [MDAPL_RTX_FIN] = TO(RTX_OVER),
        [MDAPL_RTX_FIN_BUSY] = TO(RTX_ENDING),
        [MDAPL_RTX_LOST] = TO(RTX_OVER),
        [MDAPL_RTX_LOST_BUSY] = TO(RTX_ENDING),
    },
    [MDAPL_RTX_SENDING] = {
        [MDAPL_RTX_CTS] = TO(RTX_SENDING),
        [MDAPL_RTX_SENT] = TO(RTX_ANNOUNCED),
        [MDAPL_RTX_LOST] = TO(RTX_OVER),
        [MDAPL_RTX_LOST_BUSY] = TO(RTX_ENDING),
    },
    [MDAPL_RTX_ENDING] = {
        [MDAPL_RTX_FLUSHED] = TO(RTX_OVER),
    },
};

static const unsigned char rrx[MDAPL_RRX_STATES][MDAPL_RRX_EVENTS] = {
    [MDAPL_RRX_IDLE] = {
        [MDAPL_RRX_READ] = TO(RRX_READING),
        [MDAPL_RRX_ASK] = TO(RRX_ASKED),
        [MDAPL_RRX_DROP] = TO(RRX_OVER),
        [MDAPL_RRX_LOST] = TO(RRX_IDLE),
    },
    [MDAPL_RRX_READING] = {
        [MDAPL_RRX_MORE] = TO(RRX_IDLE),
        [MDAPL_RRX_LAST] = TO(RRX_OVER),
        [MDAPL_RRX_LOST] = TO(RRX_IDLE),
        [MDAPL_RRX_STRANDED] = TO(RRX_ASKED),
        [MDAPL_RRX_LOST_BUSY] = TO(RRX_FAILING),
    },
    [MDAPL_RRX_ASKED] = {
        [MDAPL_RRX_DATA] = TO(RRX_ASKED),
        [MDAPL_RRX_DRAINED] = TO(RRX_ASKED),
        [MDAPL_RRX_MORE] = TO(RRX_IDLE),
        [MDAPL_RRX_LAST] = TO(RRX_OVER),
        [MDAPL_RRX_LOST] = TO(RRX_IDLE),
    },
    [MDAPL_RRX_FAILING] = {
        [MDAPL_RRX_FLUSHED] = TO(RRX_IDLE),
    },
};

int mdapl_dapl_rtx_step(enum mdapl_dapl_rtx_state state, enum mdapl_dapl_rtx_event event)
{
    return rtx[state][event] - 1;
}

int mdapl_dapl_rrx_step(enum mdapl_dapl_rrx_state state, enum mdapl_dapl_rrx_event event)
{
    return rrx[state][event] - 1;
}
