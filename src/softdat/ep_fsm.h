/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_EP_FSM_H
#define SOFTDAT_EP_FSM_H
/*
 * The states of an endpoint as DAT 2.0 has them (spec chapter 6, endpoint state diagram), and the
 * events that move it. softdat_ep_step() is the only place that changes ep->state.
 */
#include <dat2/udat.h>
#include <stdbool.h>

enum softdat_ep_event {
    SOFTDAT_EP_CONNECT,      /* dat_ep_connect */
    SOFTDAT_EP_ACCEPT,       /* dat_cr_accept on this EP */
    SOFTDAT_EP_RESERVE,      /* dat_rsp_create on this EP */
    SOFTDAT_EP_RELEASE,      /* that RSP is gone */
    SOFTDAT_EP_UP,           /* the connection stands */
    SOFTDAT_EP_FAIL,         /* rejected, unreachable, timed out */
    SOFTDAT_EP_DISCONNECT,   /* dat_ep_disconnect, graceful */
    SOFTDAT_EP_DOWN,         /* the connection has ended, for whatever reason */
    SOFTDAT_EP_RESET,        /* dat_ep_reset */
    SOFTDAT_EP_EVENTS
};

struct softdat_ep;

/* Makes the step, or returns false when the event is not possible in the EP's state. */
bool softdat_ep_step(struct softdat_ep *ep, enum softdat_ep_event event);
/* Would it be possible? */
bool softdat_ep_can(const struct softdat_ep *ep, enum softdat_ep_event event);

#endif
