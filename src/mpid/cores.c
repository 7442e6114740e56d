/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include <sched.h>
#include <unistd.h>

/*
 * The cores that this process may run on. Two ranks of a node with the same set share its cores.
 * The calls are the operating system's, which is why they are in a file of their own.
 */
int mdapl_ch3_cores(uint32_t *set_p, int *online_p)
{
    cpu_set_t set;
    uint32_t hash = 2166136261u;                 /* FNV-1a */
    int online = (int)sysconf(_SC_NPROCESSORS_ONLN);

    *online_p = online;
    *set_p = 0;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return online;
    for (size_t i = 0; i < sizeof(set); i++)
        hash = (hash ^ ((const unsigned char *)&set)[i]) * 16777619u;
    *set_p = (hash >> 16 ^ hash) & 0xffff;       /* it is published with each card */
    return CPU_COUNT(&set);
}
