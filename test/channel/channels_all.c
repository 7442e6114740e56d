/* SPDX-License-Identifier: MIT */
#include "channels.h"

#include "dapl.h"
#include "memwatch.h"
#include "shm.h"

const struct mdapl_channel *const test_channels[] = { &mdapl_shm_channel, &mdapl_dapl_channel,
                                                      NULL };

bool test_registrations_kept(void)
{
    struct mdapl_dapl_memwatch *watch;

    if (mdapl_dapl_memwatch_open(&watch))
        return false;
    mdapl_dapl_memwatch_close(watch);
    return true;
}
