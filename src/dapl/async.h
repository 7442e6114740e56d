/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_ASYNC_H
#define MDAPL_ASYNC_H
/*
 * An adapter's asynchronous errors. One about an endpoint ends that endpoint's connection; one that
 * leaves the adapter unfit is raised as a fault of every stream that it carries; the rest is a line
 * in the log.
 */
#include "ia.h"

/* The hook (struct mdapl_dapl_ia_hooks). arg: the channel; what: the handle in the event; ep: the
 * endpoint of that handle, or NULL when it is none. */
void mdapl_dapl_async_event(void *arg, struct mdapl_dapl_ia *ia, DAT_HANDLE what,
                            struct mdapl_dapl_ep *ep, DAT_EVENT_NUMBER number);

#endif
