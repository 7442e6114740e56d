/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_SINGLE_H
#define MDAPL_SHM_SINGLE_H
/* Reading a body out of the sender's memory: whether it can be done, whether it pays, doing it. */
#include "iov.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_speer;

/* Is one copy the better way for so many bytes from this peer? Finds out at the first calls. */
bool mdapl_single_pays(struct mdapl_speer *peer, size_t len);
/* Reads len bytes from the cursor `there`, whose addresses are the peer's, to `here`. False: it did
 * not work; the peer is not asked again. */
bool mdapl_single_read(struct mdapl_speer *peer, struct mdapl_iov *here, struct mdapl_iov *there,
                       size_t len);

#endif
