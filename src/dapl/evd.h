/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_EVD_H
#define MDAPL_EVD_H
/*
 * Taking events. One DTO EVD serves all EPs of an adapter, so that a poll costs the same for any
 * number of peers; the other three EVDs are looked at less often, or each time while connections
 * are being made.
 */
#include <stdbool.h>
#include <stdint.h>

struct mdapl_ia;

/* Handles what is there: DTO completions always, connection events, CRs and asynchronous errors
 * when `all`, else every now and then. Returns how many events were handled. */
int mdapl_evd_poll(struct mdapl_ia *ia, bool all);
/* Sleeps until a DTO completes, at most ns nanoseconds. The event is handled by the next poll. */
void mdapl_evd_wait(struct mdapl_ia *ia, uint64_t ns);

#endif
