/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_NODE_H
#define MDAPL_SHM_NODE_H
/*
 * The channel's part of the business card, "shm:NODE.TOKEN.REF": a digest of the text that decides
 * whether two processes may share memory (mdapl_shm_os_node()), the token in the segment's head,
 * and the reference by which the segment is opened. Both ends of a pair compare the same two
 * digests, so they agree; the token then proves that they share memory.
 */
#include "os.h"

#include <stdbool.h>
#include <stdint.h>

enum { MDAPL_SHM_CARD_BYTES = 40 + MDAPL_SHM_REF_MAX };  /* with its terminating zero */

struct mdapl_shm_card {
    uint64_t node, token;
    char ref[MDAPL_SHM_REF_MAX];
};

/* The digest of this process. 0, or -errno as mdapl_shm_os_node(). */
int mdapl_shm_node_here(uint64_t *node_p);
/* Writes the card into buf (len bytes). Returns its length without the zero, or -ENOSPC. */
int mdapl_shm_card_write(const struct mdapl_shm_card *card, char *buf, size_t len);
/* Reads the card out of a business card. False: text has no such part. */
bool mdapl_shm_card_read(struct mdapl_shm_card *card, const char *text);

#endif
