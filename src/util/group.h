/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_GROUP_H
#define MDAPL_GROUP_H
/*
 * The groups of a context (contract.h) and the peers of each, by rank. The context has a table of
 * them; an index is that of no other group until its group has been removed.
 */
#include "contract.h"

struct mdapl_groups {
    struct mdapl_group **at; /* by index; NULL: none */
    int n;
};

/* Adds a copy of *args with an empty table of peers, under the lowest free index. 0; -EINVAL (no
 * ranks), -EEXIST (a group has this id) or -ENOMEM. */
int mdapl_groups_add(struct mdapl_groups *groups, const struct mdapl_group *args,
                     struct mdapl_group **group_p);
/* The group with this id, or NULL. */
struct mdapl_group *mdapl_groups_find(const struct mdapl_groups *groups, uint32_t id);
/* Frees a group, whose peers have been freed. */
void mdapl_groups_remove(struct mdapl_groups *groups, struct mdapl_group *group);
/* Frees all groups. */
void mdapl_groups_fini(struct mdapl_groups *groups);
/* The peer that follows prev in the order of index and rank (prev NULL: the first); of this channel
 * only. NULL: there is none. */
struct mdapl_peer *mdapl_groups_next_peer(const struct mdapl_groups *groups,
                                          const struct mdapl_channel *channel,
                                          const struct mdapl_peer *prev);

#endif
