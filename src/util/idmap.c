/* SPDX-License-Identifier: MIT */
#include "idmap.h"

#include <errno.h>
#include <stdlib.h>

/* An id is (generation << INDEX_BITS) | index, generation from 1 on, so an id is never 0. */
enum { INDEX_BITS = 20, INDEX_MAX = 1 << INDEX_BITS, GEN_MASK = (1 << (32 - INDEX_BITS)) - 1,
       FIRST_SLOTS = 64 };

struct mdapl_idmap_slot {
    void *obj;               /* NULL while free */
    uint32_t gen;
    uint32_t next_free;      /* index + 1 */
};

void mdapl_idmap_init(struct mdapl_idmap *m)
{
    *m = (struct mdapl_idmap){ 0 };
}

void mdapl_idmap_fini(struct mdapl_idmap *m)
{
    free(m->slots);
    mdapl_idmap_init(m);
}

static int grow(struct mdapl_idmap *m)
{
    uint32_t n = m->n_slots ? m->n_slots * 2 : FIRST_SLOTS;
    struct mdapl_idmap_slot *slots;

    if (n > INDEX_MAX)
        return -ENOMEM;
    slots = realloc(m->slots, n * sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    m->slots = slots;
    for (uint32_t i = n; i-- > m->n_slots;) {
        slots[i] = (struct mdapl_idmap_slot){ NULL, 1, m->free_head };
        m->free_head = i + 1;
    }
    m->n_slots = n;
    return 0;
}

int mdapl_idmap_add(struct mdapl_idmap *m, void *obj, uint32_t *id_p)
{
    struct mdapl_idmap_slot *s;

    if (!m->free_head && grow(m))
        return -ENOMEM;
    s = &m->slots[m->free_head - 1];
    *id_p = s->gen << INDEX_BITS | (m->free_head - 1);
    m->free_head = s->next_free;
    s->obj = obj;
    m->used++;
    return 0;
}

static struct mdapl_idmap_slot *slot_of(const struct mdapl_idmap *m, uint32_t id)
{
    uint32_t i = id & (INDEX_MAX - 1);

    if (i >= m->n_slots || !m->slots[i].obj || m->slots[i].gen != id >> INDEX_BITS)
        return NULL;
    return &m->slots[i];
}

void *mdapl_idmap_find(const struct mdapl_idmap *m, uint32_t id)
{
    struct mdapl_idmap_slot *s = slot_of(m, id);

    return s ? s->obj : NULL;
}

void mdapl_idmap_remove(struct mdapl_idmap *m, uint32_t id)
{
    struct mdapl_idmap_slot *s = slot_of(m, id);

    if (!s)
        return;
    s->obj = NULL;
    s->gen = s->gen % GEN_MASK + 1;
    s->next_free = m->free_head;
    m->free_head = (uint32_t)(s - m->slots) + 1;
    m->used--;
}
