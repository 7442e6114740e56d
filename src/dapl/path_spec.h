/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_PATH_SPEC_H
#define MDAPL_PATH_SPEC_H
/*
 * Which path is the alternate of a connection: the knob PATHS (paper apm-over-infiniband, 3.1.1,
 * path specification module). It depends on no provider: a unit test checks it.
 */
#include "dat_path_extensions.h"

#include <stdbool.h>
#include <stdint.h>

enum { MDAPL_DAPL_PATHS = 8 };   /* that the knob may list */

struct mdapl_dapl_path_spec {
    bool off;
    int n;                       /* listed; 0: the provider chooses */
    DAT_PATH path[MDAPL_DAPL_PATHS];
};

/* Reads "auto", "off" or a list of local ports, each perhaps with a remote port: "2,1:3". A remote
 * port that is not named is the provider's choice. False: it is none of these. */
bool mdapl_dapl_path_spec_read(const char *text, struct mdapl_dapl_path_spec *spec);

/* The alternate of a connection that uses *current and, if wanted is not 0, is to migrate to this
 * local port. Of a list it is the first entry of another local port. False: there is none. */
bool mdapl_dapl_path_alternate(const struct mdapl_dapl_path_spec *spec, const DAT_PATH *current,
                               uint32_t wanted, DAT_PATH *path);

/* The local port that the nth connection of an adapter with this many ports is to use for each
 * port to have the same number. 0: there is one port only. */
uint32_t mdapl_dapl_path_balanced(const struct mdapl_dapl_path_spec *spec, uint32_t ports,
                                  uint64_t nth);

#endif
