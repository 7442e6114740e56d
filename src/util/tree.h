/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TREE_H
#define MDAPL_TREE_H
/*
 * Intrusive ordered set: the object contains the node, and each node in a tree has a different key
 * of 64 bits. A treap: ordered by key, and no node is heavier than its parent. The weight is a hash
 * of the key, so the shape is that of a random tree, depends on the keys only, and each call takes
 * expected logarithmic time.
 */
#include <stdint.h>

struct mdapl_tree_node {
    struct mdapl_tree_node *low, *high;
    uint64_t key;            /* set before the node is added, constant while it is in a tree */
};

struct mdapl_tree {
    struct mdapl_tree_node *root;    /* NULL: empty */
};

void mdapl_tree_add(struct mdapl_tree *t, struct mdapl_tree_node *node);
/* The node must be in the tree. */
void mdapl_tree_remove(struct mdapl_tree *t, struct mdapl_tree_node *node);
/* The node with the greatest key that is not above this one; NULL when there is none. */
struct mdapl_tree_node *mdapl_tree_upto(const struct mdapl_tree *t, uint64_t key);
/* The node with the least key above this one; NULL when there is none. */
struct mdapl_tree_node *mdapl_tree_above(const struct mdapl_tree *t, uint64_t key);

#endif
