/* SPDX-License-Identifier: MIT */
#include "ep_fsm.h"

#include "softdat.h"

#define TO(s) (DAT_EP_STATE_##s + 1)

/* Row: state; column: event; entry: next state plus one, 0 if the event is not permitted. */
static const unsigned char table[][SOFTDAT_EP_EVENTS] = {
    [DAT_EP_STATE_UNCONNECTED] = {
        [SOFTDAT_EP_CONNECT] = TO(ACTIVE_CONNECTION_PENDING),
        [SOFTDAT_EP_ACCEPT] = TO(COMPLETION_PENDING),
        [SOFTDAT_EP_RESERVE] = TO(RESERVED),
        [SOFTDAT_EP_RESET] = TO(UNCONNECTED),
    },
    [DAT_EP_STATE_RESERVED] = {
        [SOFTDAT_EP_ACCEPT] = TO(COMPLETION_PENDING),
        [SOFTDAT_EP_RELEASE] = TO(UNCONNECTED),
    },
    [DAT_EP_STATE_ACTIVE_CONNECTION_PENDING] = {
        [SOFTDAT_EP_UP] = TO(CONNECTED),
        [SOFTDAT_EP_FAIL] = TO(DISCONNECTED),
        [SOFTDAT_EP_DOWN] = TO(DISCONNECTED),
    },
    [DAT_EP_STATE_COMPLETION_PENDING] = {
        [SOFTDAT_EP_UP] = TO(CONNECTED),
        [SOFTDAT_EP_FAIL] = TO(DISCONNECTED),
        [SOFTDAT_EP_DOWN] = TO(DISCONNECTED),
    },
    [DAT_EP_STATE_CONNECTED] = {
        [SOFTDAT_EP_DISCONNECT] = TO(DISCONNECT_PENDING),
        [SOFTDAT_EP_DOWN] = TO(DISCONNECTED),
    },
    [DAT_EP_STATE_DISCONNECT_PENDING] = {
        [SOFTDAT_EP_DISCONNECT] = TO(DISCONNECT_PENDING),
        [SOFTDAT_EP_DOWN] = TO(DISCONNECTED),
    },
    [DAT_EP_STATE_DISCONNECTED] = {
        [SOFTDAT_EP_RESET] = TO(UNCONNECTED),
    },
};

static int next_of(const struct softdat_ep *ep, enum softdat_ep_event event)
{
    if ((size_t)ep->state >= sizeof(table) / sizeof(table[0]))
        return -1;
    return table[ep->state][event] - 1;
}

bool softdat_ep_can(const struct softdat_ep *ep, enum softdat_ep_event event)
{
    return next_of(ep, event) >= 0;
}

bool softdat_ep_step(struct softdat_ep *ep, enum softdat_ep_event event)
{
    int next = next_of(ep, event);

    if (next >= 0)
        ep->state = (DAT_EP_STATE)next;
    return next >= 0;
}
