/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_LIST_H
#define MDAPL_LIST_H
/*
 * Intrusive doubly linked ring: the object contains the link, so adding it cannot fail and removing
 * it needs no search. A link that is on no list points to itself.
 */
#include <stdbool.h>
#include <stddef.h>

struct mdapl_list {
    struct mdapl_list *next, *prev;
};

/* The object that holds this link. */
#define MDAPL_OF(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

static inline void mdapl_list_init(struct mdapl_list *l)
{
    l->next = l->prev = l;
}

static inline bool mdapl_list_empty(const struct mdapl_list *l)
{
    return l->next == l;
}

static inline void mdapl_list_append(struct mdapl_list *head, struct mdapl_list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

/* Puts item before `at` (a list's head appends, its first item prepends). */
static inline void mdapl_list_before(struct mdapl_list *at, struct mdapl_list *item)
{
    mdapl_list_append(at, item);
}

static inline void mdapl_list_remove(struct mdapl_list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    mdapl_list_init(item);
}

/* The first item, which stays on the list; NULL: the list is empty. */
static inline struct mdapl_list *mdapl_list_first(const struct mdapl_list *head)
{
    return mdapl_list_empty(head) ? NULL : head->next;
}

/* Removes and returns the first item; NULL: the list is empty. */
static inline struct mdapl_list *mdapl_list_take(struct mdapl_list *head)
{
    struct mdapl_list *item = mdapl_list_first(head);

    if (item)
        mdapl_list_remove(item);
    return item;
}

#define MDAPL_LIST_EACH(pos, head) \
    for (struct mdapl_list *pos = (head)->next; pos != (head); pos = pos->next)
/* The same, where the body may remove pos from the list. */
#define MDAPL_LIST_EACH_SAFE(pos, head)                                     \
    for (struct mdapl_list *pos = (head)->next, *pos##_next_ = pos->next;   \
         pos != (head); pos = pos##_next_, pos##_next_ = pos->next)

#endif
