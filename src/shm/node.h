/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_NODE_H
#define MDAPL_SHM_NODE_H
/*
 * Who is on my node. My part of the business card is "shm:NODE.TOKEN.REF": a digest of all that
 * decides whether two processes may share memory (os.h), the token in my segment's head, and how
 * the segment is reached. The digest is equal on both sides or on neither, so the two ends of a
 * pair come to the same answer; that it is the right one is then proven by touching the segment.
 */
#include "os.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_card {
    uint64_t node, token;
    char ref[MDAPL_SHM_REF_MAX];
};

/* The digest of this process. 0, or -errno when the system does not tell. */
int mdapl_node_here(uint64_t *node_p);
/* Writes and reads a card. put: bytes or -ENOSPC; get: false when this text has no such part. */
int mdapl_card_write(const struct mdapl_card *card, char *buf, size_t len);
bool mdapl_card_read(struct mdapl_card *card, const char *text);

#endif
