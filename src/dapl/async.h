/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_ASYNC_H
#define MDAPL_ASYNC_H
/* What an adapter reports of itself: the end of a connection, of the adapter, or a line in the
 * log. */
#include "ia.h"

/* The hook (struct mdapl_ia_hooks). what: the handle in the event; ep: the endpoint of that handle,
 * or NULL. */
void mdapl_async_event(void *arg, struct mdapl_ia *ia, DAT_HANDLE what, struct mdapl_ep *ep,
                       DAT_EVENT_NUMBER number);

#endif
