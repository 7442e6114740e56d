/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_LOG_H
#define MDAPL_LOG_H
/*
 * Lines for the user on stderr: "[rank 3 node07 pid 812] ch3:dapl: ...". Each has a level, and the
 * knob VERBOSE is the highest level that is printed: 0 errors and warnings, 1 what was chosen
 * (adapter, wiring), 2 connections, 3 each frame.
 */
#include <stdio.h>

/* The device, as MPICH's configure names it. */
#ifndef MDAPL_DEVICE
#define MDAPL_DEVICE "ch3:dapl"
#endif

enum mdapl_level { MDAPL_WARN = 0, MDAPL_INFO = 1, MDAPL_CONN = 2, MDAPL_FRAME = 3 };

struct mdapl_log {
    int level;               /* show up to this one */
    int rank;
    char host[64];
    FILE *out;               /* NULL: stderr */
};

void mdapl_log_write(const struct mdapl_log *log, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Arguments are not evaluated when the level is off. */
#define mdapl_log(log, lvl, ...)                       \
    do {                                               \
        if ((int)(lvl) <= (log)->level)                \
            mdapl_log_write((log), __VA_ARGS__);       \
    } while (0)

#endif
