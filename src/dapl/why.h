/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WHY_H
#define MDAPL_WHY_H
/*
 * Causes, for the lines that users get when an adapter does not open. DAT has one status for all
 * that a system can refuse (DAT_INSUFFICIENT_RESOURCES), so errno, where the provider has left one,
 * is the part of the answer that a user can do something about.
 */
#include "ia.h"

enum { MDAPL_WHY = 256 };

/* The status and, of a refusal by the system, errno: "DAT_... (Too many open files)". The caller
 * has set errno to 0 before the call that returned ret. Returns buf. */
const char *mdapl_why(const struct mdapl_ia *ia, DAT_RETURN ret, char buf[MDAPL_WHY]);
/* What the user can do about errno `cause`: a sentence without its full stop. */
const char *mdapl_why_remedy(int cause);

#endif
