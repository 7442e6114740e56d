/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_CUTS_H
#define SOFTDAT_TEST_CUTS_H
/*
 * Links that take a given number of bytes and no more: the program has functions named as those of
 * the C library by which the provider connects, accepts and transmits, which libdaplsoft.so calls
 * in their place. The n-th stream socket that is connected is link n at the active end, the n-th
 * that is accepted is link n at the passive end.
 */
#include <stdbool.h>

enum cuts_end { CUTS_ACTIVE, CUTS_PASSIVE };

enum { CUTS_LINKS = 16, CUTS_NEVER = -1 };

/* Numbers the links that are made from now on from 0, without cuts. */
void cuts_reset(void);
/* That end of a link transmits `bytes` bytes more, and nothing after them. closes: the socket then
 * ends for both ends; else it is like one whose buffer is full. */
void cuts_set(int link, enum cuts_end end, long bytes, bool closes);
/* Returns how many bytes that end has transmitted since cuts_set(). */
long cuts_sent(int link, enum cuts_end end);

#endif
