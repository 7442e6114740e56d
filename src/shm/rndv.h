/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_RNDV_H
#define MDAPL_SHM_RNDV_H
/*
 * Rendezvous, for long bodies and for synchronous messages. The sender announces the body (RTS)
 * and leaves it in place; when the owner reads, the receiver copies it in one of three ways. When
 * all has been read or dropped the receiver sends a FIN, unless the sender knows: it has sent
 * every byte.
 *
 *      once    The receiver reads the body out of the sender's memory, if the kernel permits
 *              (cross-memory attach). The sender's core does nothing; the kernel pins each page.
 *              One system call reads several bodies that have been announced together.
 *      both    The same, but the sender copies parts of the body, too, in the same way (SPLIT): two
 *              cores, and one copy.
 *      twice   The receiver requests bytes (CTS); the sender copies them into cells of its segment
 *              while the receiver copies them out (one DATA for each cell): two cores, no system
 *              call.
 *
 * RTS and FIN are messages of a ring, so their memory order (ring.h) covers the body: the receiver
 * and its kernel see all bytes after the RTS, and the sender may change them after the FIN. So is
 * SPLIT_END, after which the receiver sees the sender's parts.
 *
 * Which one is faster depends on the machine and on the length: way.c decides for each body.
 */
#include <stdint.h>

enum {
    MDAPL_SHM_RTS_PIECES = 64,   /* of a body, named in an RTS, at most */
    MDAPL_SHM_RNDV_CHUNK = 16,   /* bodies whose state is allocated together, at either end */
    MDAPL_SHM_RNDV_TOGETHER = 8, /* bodies that one system call copies, at most */
};

/* The body of an RTS; so many pieces follow, of the body in the sender's memory. */
struct mdapl_shm_rts {
    uint64_t len;
    uint32_t tx_id, n_pieces;    /* 0: the body has more than can be named */
};

struct mdapl_shm_rts_piece {
    uint64_t addr, len;
};

/* The records, each the header of its message. */
struct mdapl_shm_cts {
    uint32_t tx_id, rx_id;
    uint64_t off, len;
    uint64_t way;                /* as in a FIN */
};

struct mdapl_shm_data {
    uint32_t tx_id, rx_id;
    uint64_t off;
    uint32_t cell, len;
};

struct mdapl_shm_split_at {
    uint32_t tx_id, rx_id;
    uint32_t number;             /* of the split: a later one that uses the word has another */
    uint32_t word;               /* which of the inring's words counts the parts */
    uint64_t off, len;           /* of the body */
    uint64_t addr;               /* where that belongs, in the receiver's memory */
};

struct mdapl_shm_split_end {
    uint32_t tx_id, rx_id;
    uint32_t parts;              /* that are there */
};

struct mdapl_shm_fin {
    uint32_t tx_id[MDAPL_SHM_RNDV_TOGETHER];
    uint32_t n;                  /* of these: bodies that are over */
    int32_t status;              /* as op->done's */
    uint32_t way;                /* wanted for such bodies (way.c); MDAPL_SHM_WAYS: not decided */
};

#endif
