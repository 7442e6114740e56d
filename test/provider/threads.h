/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_THREADS_H
#define SOFTDAT_TEST_THREADS_H
/* The other threads of this process, as /proc shows them, and what it holds. */
#include "unit.h"

#ifdef __SANITIZE_THREAD__
enum { OTHER_THREADS = 1 };      /* the thread of TSan, which wakes up periodically */
#else
enum { OTHER_THREADS = 0 };
#endif

#define NEEDS_NO_OTHER_THREAD() \
    if (OTHER_THREADS) SKIP_TEST("a sanitizer's own thread wakes up")

/* Returns the number of this field in a thread's status, in that base; tid: as in
 * /proc/self/task, NULL: of the process. */
unsigned long long thread_status(const char *tid, const char *field, int base);
/* Calls f for each thread of this process but the calling one. */
void each_other_thread(void (*f)(const char *tid, void *arg), void *arg);
/* Expects two seconds without a context switch of the other threads, within 20 s. */
void expect_no_switches(void);
/* Returns the number of open descriptors of this process. */
int open_descriptors(void);

#endif
