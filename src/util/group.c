/* SPDX-License-Identifier: MIT */
#include "group.h"

#include <errno.h>
#include <stdlib.h>

static int free_index(struct mdapl_groups *groups)
{
    struct mdapl_group **at;
    int i = 0;

    while (i < groups->n && groups->at[i])
        i++;
    if (i < groups->n)
        return i;
    at = realloc(groups->at, ((size_t)i + 1) * sizeof(struct mdapl_group *));
    if (!at)
        return -ENOMEM;
    at[i] = NULL;
    groups->at = at;
    groups->n++;
    return i;
}

int mdapl_groups_add(struct mdapl_groups *groups, const struct mdapl_group *args,
                     struct mdapl_group **group_p)
{
    struct mdapl_group *group;
    int i;

    if (args->size < 1)
        return -EINVAL;
    if (mdapl_groups_find(groups, args->id))
        return -EEXIST;
    i = free_index(groups);
    group = i < 0 ? NULL : malloc(sizeof(*group));
    if (!group)
        return -ENOMEM;
    *group = *args;
    group->index = i;
    group->peers = calloc((size_t)group->size, sizeof(*group->peers));
    if (!group->peers) {
        free(group);
        return -ENOMEM;
    }
    groups->at[i] = group;
    *group_p = group;
    return 0;
}

struct mdapl_group *mdapl_groups_find(const struct mdapl_groups *groups, uint32_t id)
{
    for (int i = 0; i < groups->n; i++)
        if (groups->at[i] && groups->at[i]->id == id)
            return groups->at[i];
    return NULL;
}

void mdapl_groups_remove(struct mdapl_groups *groups, struct mdapl_group *group)
{
    groups->at[group->index] = NULL;
    free(group->peers);
    free(group);
}

/* -- ports ------------------------------------------------------------------------------------ */

static struct mdapl_port **port_at(struct mdapl_groups *groups, uint32_t id)
{
    struct mdapl_port **at = &groups->ports;

    while (*at && (*at)->visitors.self.group != id)
        at = &(*at)->next;
    return at;
}

int mdapl_groups_open_port(struct mdapl_groups *groups, const struct mdapl_group *visitors)
{
    struct mdapl_port **at = port_at(groups, visitors->self.group);

    if (*at)
        return -EEXIST;
    *at = malloc(sizeof(**at));
    if (!*at)
        return -ENOMEM;
    **at = (struct mdapl_port){ *visitors, NULL };
    return 0;
}

void mdapl_groups_close_port(struct mdapl_groups *groups, uint32_t id)
{
    struct mdapl_port **at = port_at(groups, id), *port = *at;

    if (!port)
        return;
    *at = port->next;
    free(port);
}

/* -- all of them ------------------------------------------------------------------------------ */

void mdapl_groups_fini(struct mdapl_groups *groups)
{
    while (groups->ports)
        mdapl_groups_close_port(groups, groups->ports->visitors.self.group);
    for (int i = 0; i < groups->n; i++)
        if (groups->at[i])
            mdapl_groups_remove(groups, groups->at[i]);
    free(groups->at);
}

struct mdapl_peer *mdapl_groups_next_peer(const struct mdapl_groups *groups,
                                          const struct mdapl_channel *channel,
                                          const struct mdapl_peer *prev)
{
    int rank = prev ? prev->rank + 1 : 0;

    for (int i = prev ? prev->group : 0; i < groups->n; i++, rank = 0)
        for (; groups->at[i] && rank < groups->at[i]->size; rank++)
            if (groups->at[i]->peers[rank] && groups->at[i]->peers[rank]->channel == channel)
                return groups->at[i]->peers[rank];
    return NULL;
}
