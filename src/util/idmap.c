/* SPDX-License-Identifier: MIT */
#include "idmap.h"

#include <errno.h>
#include <stdlib.h>

/*
 * An id is (generation << INDEX_BITS) | index; generations start at 1, so an id is never 0. The
 * slot that has been free longest is taken first: an id is reused only after GEN_MASK rounds
 * through all free slots, which are all slots (at least FIRST_SLOTS) but those in use.
 */
enum { INDEX_BITS = 20, INDEX_MAX = 1 << INDEX_BITS, GEN_MASK = (1 << (32 - INDEX_BITS)) - 1,
       FIRST_SLOTS = 64 };

struct mdapl_idmap_slot {
    void *obj;               /* NULL while free */
    uint32_t gen : 31;
    uint32_t again : 1;      /* every generation has been used */
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

static void append_free(struct mdapl_idmap *m, uint32_t i)
{
    m->slots[i].next_free = 0;
    if (m->free_head)
        m->slots[m->free_tail - 1].next_free = i + 1;
    else
        m->free_head = i + 1;
    m->free_tail = i + 1;
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
    for (uint32_t i = m->n_slots; i < n; i++) {
        slots[i] = (struct mdapl_idmap_slot){ .gen = 1 };
        append_free(m, i);
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
    *id_p = (uint32_t)s->gen << INDEX_BITS | (m->free_head - 1);
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

bool mdapl_idmap_given(const struct mdapl_idmap *m, uint32_t id)
{
    uint32_t i = id & (INDEX_MAX - 1), gen = id >> INDEX_BITS;
    const struct mdapl_idmap_slot *s = i < m->n_slots ? &m->slots[i] : NULL;

    return s && gen > 0 && (s->again || gen < s->gen || (s->obj && gen == s->gen));
}

void mdapl_idmap_remove(struct mdapl_idmap *m, uint32_t id)
{
    struct mdapl_idmap_slot *s = slot_of(m, id);

    if (!s)
        return;
    s->obj = NULL;
    s->again |= s->gen == GEN_MASK;
    s->gen = s->gen % GEN_MASK + 1;
    append_free(m, (uint32_t)(s - m->slots));
    m->used--;
}
