/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_ARMED_H
#define SOFTDAT_TEST_ARMED_H
/* What the tests of alternate paths do and expect (dat_path_extensions.h). */
#include "mixed.h"

#include <dat_path_extensions.h>

DAT_PATH_PARAM path_query(const struct side *s);
void expect_state(const struct side *s, DAT_PATH_STATE state);
void expect_path(DAT_PATH path, DAT_UINT32 local, DAT_UINT32 remote);
/* The counts of both sides. */
void expect_counts(struct world *w, DAT_UINT32 armed, DAT_UINT32 migrated, DAT_UINT32 failed);
/* Waits for the next event of the asynchronous EVD, which is of this side's EP, or of its port. */
DAT_PATH_EVENT_DATA expect_event(struct side *s, DAT_PATH_EVENT_NUMBER number);
void expect_port(struct side *s, DAT_PATH_EVENT_NUMBER number, DAT_UINT32 port);
/* Sets and loads the alternate that the provider chooses. */
void load(struct side *s);
/* Waits until both sides report that they are armed. */
void expect_armed(struct world *w);
/* Loads at both sides and waits for that. */
void arm(struct world *w);
/* Waits for the report of a migration from both sides, which then use this port. */
void expect_migrated(struct world *w, DAT_UINT32 cause_a, DAT_UINT32 cause_b, DAT_UINT32 port);
/* Waits until a side has this state; its asynchronous events are dropped. */
void await_state(struct world *w, bool b, DAT_PATH_STATE state);
/* No asynchronous event at either side. */
void expect_no_event(struct world *w);

#endif
