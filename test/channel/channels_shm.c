/* SPDX-License-Identifier: MIT */
#include "channels.h"

#include "shm.h"

const struct mdapl_channel *const test_channels[] = { &mdapl_shm_channel, NULL };

bool test_registrations_kept(void)
{
    return false;
}
