/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_RX_H
#define MDAPL_SHM_RX_H
/* Messages out of a ring, each handed to the one that its type concerns. */
struct mdapl_speer;

/* Takes what has come from this peer, a bounded number. Returns how many. */
int mdapl_shm_rx_poll(struct mdapl_speer *peer);

#endif
