/* SPDX-License-Identifier: MIT */
#ifndef BENCHMARKS_PAIR_H
#define BENCHMARKS_PAIR_H
/* What the programs of two processes that measure DAT by itself share. */
#include <dat2/udat.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ends the program with one line on stderr. ret: DAT's status; with DAT_SUCCESS errno is the
 * cause. */
static inline void die(const char *what, DAT_RETURN ret)
{
    const char *major = "", *minor = "";

    if (ret != DAT_SUCCESS)
        dat_strerror(ret, &major, &minor);
    fprintf(stderr, "%s: %s: %s %s\n", program_invocation_short_name, what,
            ret != DAT_SUCCESS ? major : strerror(errno), minor);
    exit(1);
}

#define TRY(call)                                \
    do {                                         \
        DAT_RETURN ret_ = (call);                \
        if (ret_ != DAT_SUCCESS)                 \
            die(#call, ret_);                    \
    } while (0)

static inline double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Binds this process to a core; less than 0: to none. */
static inline void pin(int core)
{
    cpu_set_t set;

    if (core < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set))
        die("core", DAT_SUCCESS);
}

#endif
