/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WHY_H
#define MDAPL_WHY_H
/*
 * Causes and remedies for the user's lines. DAT has one status for everything that the operating
 * system can refuse (DAT_INSUFFICIENT_RESOURCES), so the errno that a provider has set is the
 * part of its answer that a user can act on.
 */
#include "ia.h"

enum { MDAPL_WHY = 256 };

/* The name of the DAT status ret, with the text of errno when the system refused something:
 * "DAT_... (Too many open files)". The caller sets errno to 0 before the DAT call. Returns buf. */
const char *mdapl_dapl_why(const struct mdapl_dapl_ia *ia, DAT_RETURN ret, char buf[MDAPL_WHY]);
/* What the user can do about the errno value cause: a sentence without its full stop. Static. */
const char *mdapl_dapl_why_remedy(int cause);

#endif
