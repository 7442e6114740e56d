/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAPL_H
#define MDAPL_DAPL_H
/* The dapl channel: peers reached through uDAPL. dapl.c is its table of calls: start there. */
#include "channel.h"

extern const struct mdapl_channel mdapl_dapl_channel;

#endif
