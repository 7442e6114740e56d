/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_LINES_H
#define MDAPL_TEST_LINES_H

#include <stdio.h>

/* After MPI_Init, which leaves stdout without a buffer: each line is written at once, so that lines
 * of several ranks, or of stdout and stderr, do not mix. The buffer is ours, since glibc gives a
 * stream that has none no other one. */
static inline void print_whole_lines(void)
{
    static char line[BUFSIZ];

    setvbuf(stdout, line, _IOLBF, sizeof(line));
}

#endif
