/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_LIST_H
#define SOFTDAT_LIST_H
/* An intrusive doubly linked list: the head and each item contain a struct softdat_list. */
#include <stdbool.h>
#include <stddef.h>

/* The item of this type whose member `member` is at ptr. */
#define SOFTDAT_OF(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

struct softdat_list {
    struct softdat_list *next, *prev;
};

static inline void softdat_list_init(struct softdat_list *l)
{
    l->next = l->prev = l;
}

static inline bool softdat_list_empty(const struct softdat_list *l)
{
    return l->next == l;
}

static inline void softdat_list_append(struct softdat_list *head, struct softdat_list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void softdat_list_prepend(struct softdat_list *head, struct softdat_list *item)
{
    softdat_list_append(head->next, item);
}

/* Removes an item; does nothing if the item is on no list. */
static inline void softdat_list_remove(struct softdat_list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    softdat_list_init(item);
}

#endif
