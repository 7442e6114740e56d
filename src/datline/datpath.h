/* SPDX-License-Identifier: MIT */
#ifndef DATPATH_H
#define DATPATH_H
/* What the DAT providers of this project share of alternate paths (dat_path_extensions.h): which
 * path the alternate is, and the event that reports of one. */
#include <dat2/udat.h>
#include "dat_path_extensions.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool datpath_same(DAT_PATH a, DAT_PATH b)
{
    return a.local_port == b.local_port && a.remote_port == b.remote_port;
}

/* The port of one side for the alternate: the one that a side wants, 0: any; else another than the
 * one in use, of n, 0: not known. Returns 0 if the two sides want different ones. */
static inline uint32_t datpath_port(uint32_t wanted, uint32_t wanted_by_peer, uint32_t used,
                                    uint32_t n)
{
    if (wanted && wanted_by_peer && wanted != wanted_by_peer)
        return 0;
    if (wanted || wanted_by_peer)
        return wanted ? wanted : wanted_by_peer;
    return n > 1 ? used % n + 1 : used;
}

/* The event of the IA's queue for errors, to be posted there. */
static inline DAT_EVENT datpath_event(DAT_PATH_EVENT_NUMBER number,
                                      const DAT_PATH_EVENT_DATA *data)
{
    DAT_EVENT event;

    memset(&event, 0, sizeof(event));
    event.event_number = (DAT_EVENT_NUMBER)(int)number;
    memcpy(event.event_extension_data, data, sizeof(*data));
    return event;
}

#endif
