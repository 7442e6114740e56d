/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_CELL_H
#define MDAPL_SHM_CELL_H
/*
 * Cells: pieces of long bodies on their way. A process has a few in its segment, for all its peers
 * together. It fills one and tells the receiver in a message (DATA); with the news that this
 * message has been taken the cell is free again. The message publishes the bytes of the cell and
 * the news gives it back (ring.h). The one given back last is used first: it is still in the
 * caches, and few are ever touched where few are needed.
 *
 * Peers that make no progress may hold all cells, for as long as they compute. No other pair of
 * ranks waits for them (MPI 4.0, 3.5: of a matching send and receive at least one completes
 * whatever else happens): a pair with a cell in flight gets room from its own receiver, and a pair
 * without one sends its pieces in its ring, which no other pair uses.
 */
#include "iov.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_shm;
struct mdapl_shm_data;
struct mdapl_speer;

void mdapl_cells_init(struct mdapl_shm *s);
/* Are there so many cells for this peer, and slots to tell of them and of `more` messages? */
bool mdapl_cells_free(struct mdapl_speer *peer, int cells, int more);
/* How many bytes of a body go into one cell: both sides copy at the same time. */
size_t mdapl_cell_share(size_t body);
/* Fills a free cell with len bytes from the cursor, sends DATA. data: off and the ids are set. */
void mdapl_cell_send(struct mdapl_speer *peer, struct mdapl_iov *from, size_t len,
                     struct mdapl_shm_data *data);
/* The same in a cell, or, if other peers hold them all, in the ring: at most len bytes; data->len
 * says how many. False: the peer has to take what is in flight to it first. */
bool mdapl_cell_or_ring(struct mdapl_speer *peer, struct mdapl_iov *from, size_t len,
                        struct mdapl_shm_data *data);
/* Cells come back as the peer takes the messages that tell of them. */
void mdapl_cells_reclaim(struct mdapl_speer *peer);
/* The bytes of a cell of the peer's; NULL: it is none. */
const uint8_t *mdapl_cell_of(const struct mdapl_speer *peer, const struct mdapl_shm_data *data);

#endif
