/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_GROUP_H
#define MDAPL_GROUP_H
/*
 * The groups of a context (contract.h) and the peers of each, by rank. The context has a table of
 * them; an index is that of no other group until its group has been removed.
 */
#include "contract.h"

/* An open port: what its visitors have in common. */
struct mdapl_port {
    struct mdapl_group visitors;
    struct mdapl_port *next;
};

struct mdapl_groups {
    struct mdapl_group **at; /* by index; NULL: none */
    int n;
    struct mdapl_port *ports; /* the open ones */
};

/* Adds a copy of *args with an empty table of peers, under the lowest free index. 0; -EINVAL (no
 * ranks), -EEXIST (a group has this id) or -ENOMEM. */
int mdapl_groups_add(struct mdapl_groups *groups, const struct mdapl_group *args,
                     struct mdapl_group **group_p);
/* The group with this id, or NULL. */
struct mdapl_group *mdapl_groups_find(const struct mdapl_groups *groups, uint32_t id);
/* Frees a group, whose peers have been freed. */
void mdapl_groups_remove(struct mdapl_groups *groups, struct mdapl_group *group);
/* As mdapl_port_open() and mdapl_port_close(). */
int mdapl_groups_open_port(struct mdapl_groups *groups, const struct mdapl_group *visitors);
void mdapl_groups_close_port(struct mdapl_groups *groups, uint32_t id);
/* Frees all groups and ports. */
void mdapl_groups_fini(struct mdapl_groups *groups);
/* The peer that follows prev in the order of index and rank (prev NULL: the first); of this channel
 * only. NULL: there is none. */
struct mdapl_peer *mdapl_groups_next_peer(const struct mdapl_groups *groups,
                                          const struct mdapl_channel *channel,
                                          const struct mdapl_peer *prev);

#endif
