/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_CHANNELS_H
#define MDAPL_TEST_CHANNELS_H
/*
 * What the suite is built with: all channels (channels_all.c), or those that need no uDAPL
 * (channels_shm.c).
 */
#include "transport.h"

#include <stdbool.h>

/* In their order of preference, and NULL. */
extern const struct mdapl_channel *const test_channels[];
/* Can registrations be kept here? Only if the memory is watched. */
bool test_registrations_kept(void);

#endif
