/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_IDMAP_H
#define MDAPL_IDMAP_H
/*
 * Names for objects that travel on the wire: 32-bit ids that a peer sends back. An id holds a slot
 * and the slot's generation, so that an id of a finished object is recognised and not followed.
 */
#include <stddef.h>
#include <stdint.h>

struct mdapl_idmap {
    struct mdapl_idmap_slot *slots;
    uint32_t n_slots;
    uint32_t free_head, free_tail;   /* index + 1; 0: none */
    uint32_t used;
};

void mdapl_idmap_init(struct mdapl_idmap *m);
void mdapl_idmap_fini(struct mdapl_idmap *m);
/* A new id for obj (never 0). 0 or -ENOMEM. */
int mdapl_idmap_add(struct mdapl_idmap *m, void *obj, uint32_t *id_p);
/* The object of an id, NULL when it is none of ours or gone. */
void *mdapl_idmap_find(const struct mdapl_idmap *m, uint32_t id);
void mdapl_idmap_remove(struct mdapl_idmap *m, uint32_t id);

#endif
