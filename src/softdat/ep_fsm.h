/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_EP_FSM_H
#define SOFTDAT_EP_FSM_H
/*
 * The state machine of an endpoint, as in DAT 2.0 (chapter 6, endpoint state diagram). Only
 * softdat_ep_step() changes ep->state.
 */
#include <dat2/udat.h>
#include <stdbool.h>

enum softdat_ep_event {
    SOFTDAT_EP_CONNECT,      /* dat_ep_connect */
    SOFTDAT_EP_ACCEPT,       /* dat_cr_accept on this EP */
    SOFTDAT_EP_RESERVE,      /* dat_rsp_create on this EP */
    SOFTDAT_EP_RELEASE,      /* that RSP is freed */
    SOFTDAT_EP_UP,           /* the connection is established */
    SOFTDAT_EP_FAIL,         /* connecting failed: rejected, unreachable, timed out */
    SOFTDAT_EP_DISCONNECT,   /* dat_ep_disconnect, graceful */
    SOFTDAT_EP_DOWN,         /* the connection has ended, for any reason */
    SOFTDAT_EP_RESET,        /* dat_ep_reset */
    SOFTDAT_EP_EVENTS
};

struct softdat_ep;

/* Moves ep to the next state. False: its state does not permit the event; nothing changes. */
bool softdat_ep_step(struct softdat_ep *ep, enum softdat_ep_event event);
/* True if ep's state permits the event. */
bool softdat_ep_can(const struct softdat_ep *ep, enum softdat_ep_event event);

#endif
