/* SPDX-License-Identifier: MIT */
#include "rndv.h"

void mdapl_dapl_rndv_ended(struct mdapl_dapl_stream *st)
{
    (void)st;
}

void mdapl_dapl_rndv_drained(struct mdapl_dapl_stream *st)
{
    (void)st;
}

void mdapl_dapl_rndv_up(struct mdapl_dapl_stream *st)
{
    (void)st;
}
