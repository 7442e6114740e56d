/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_NODE_H
#define MDAPL_SHM_NODE_H
/*
 * The channel's part of the business card, "shm:NODE.TOKEN.REF": a digest of all that decides
 * whether two processes may share memory (os.h), the token in the segment's head, and the reference
 * by which the segment is opened. Both ends of a pair compare the same two digests, so they agree;
 * that they share memory is then proven by the token.
 */
#include "os.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_shm_card {
    uint64_t node, token;
    char ref[MDAPL_SHM_REF_MAX];
};

/* The digest of this process. 0, or the -errno of the system. */
int mdapl_shm_node_here(uint64_t *node_p);
/* Writes and reads a card. put: bytes or -ENOSPC; get: false when this text has no such part. */
int mdapl_shm_card_write(const struct mdapl_shm_card *card, char *buf, size_t len);
bool mdapl_shm_card_read(struct mdapl_shm_card *card, const char *text);

#endif
