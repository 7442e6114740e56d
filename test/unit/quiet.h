/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_QUIET_H
#define MDAPL_TEST_QUIET_H
/* A channel that reaches no rank, for contexts in which the one that is tested is not alone. */
#include "channel.h"

extern const struct mdapl_channel quiet_channel;

#endif
