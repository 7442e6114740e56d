/* SPDX-License-Identifier: MIT */
#include "tree.h"

#include <assert.h>
#include <stddef.h>

/* A hash that is different for all keys (splitmix64). */
static uint64_t weight(const struct mdapl_tree_node *node)
{
    uint64_t x = node->key + 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The link to follow from `at` towards a key. */
static struct mdapl_tree_node **towards(struct mdapl_tree_node *at, uint64_t key)
{
    return key < at->key ? &at->low : &at->high;
}

void mdapl_tree_add(struct mdapl_tree *t, struct mdapl_tree_node *node)
{
    struct mdapl_tree_node **at = &t->root, *rest, **low = &node->low, **high = &node->high;

    while (*at && weight(*at) > weight(node))
        at = towards(*at, node->key);
    /* The subtree of lighter nodes here is split by key into the node's two subtrees. */
    rest = *at;
    *at = node;
    while (rest)
        if (rest->key < node->key) {
            *low = rest;
            low = &rest->high;
            rest = *low;
        } else {
            *high = rest;
            high = &rest->low;
            rest = *high;
        }
    *low = *high = NULL;
}

void mdapl_tree_remove(struct mdapl_tree *t, struct mdapl_tree_node *node)
{
    struct mdapl_tree_node **at = &t->root, *low = node->low, *high = node->high;

    while (*at != node) {
        assert(*at);
        at = towards(*at, node->key);
    }
    /* Its two subtrees are joined, the heavier root on top each time. */
    while (low && high)
        if (weight(low) > weight(high)) {
            *at = low;
            at = &low->high;
            low = low->high;
        } else {
            *at = high;
            at = &high->low;
            high = high->low;
        }
    *at = low ? low : high;
}

struct mdapl_tree_node *mdapl_tree_upto(const struct mdapl_tree *t, uint64_t key)
{
    struct mdapl_tree_node *best = NULL;

    for (struct mdapl_tree_node *at = t->root; at; at = *towards(at, key))
        if (at->key <= key)
            best = at;
    return best;
}

struct mdapl_tree_node *mdapl_tree_above(const struct mdapl_tree *t, uint64_t key)
{
    struct mdapl_tree_node *best = NULL;

    for (struct mdapl_tree_node *at = t->root; at; at = *towards(at, key))
        if (at->key > key)
            best = at;
    return best;
}
