/* SPDX-License-Identifier: MIT */
#include "clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t system_now(void *arg)
{
    struct timespec t;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct mdapl_clock mdapl_clock_system(void)
{
    return (struct mdapl_clock){ system_now, NULL };
}

static uint64_t manual_now(void *arg)
{
    return *(uint64_t *)arg;
}

struct mdapl_clock mdapl_clock_manual(uint64_t *ns)
{
    return (struct mdapl_clock){ manual_now, ns };
}
