/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_IDMAP_H
#define MDAPL_IDMAP_H
/*
 * 32-bit ids that stand for objects in messages; the peer returns them. An id has a slot and the
 * slot's generation, so that the id of an object that was removed is recognised.
 */
#include <stdbool.h>
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
/* The object with this id; NULL: no object has it, or it was removed. */
void *mdapl_idmap_find(const struct mdapl_idmap *m, uint32_t id);
/* Has this id been given to an object, now or before? */
bool mdapl_idmap_given(const struct mdapl_idmap *m, uint32_t id);
void mdapl_idmap_remove(struct mdapl_idmap *m, uint32_t id);

#endif
