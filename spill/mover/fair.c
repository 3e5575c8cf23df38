#include "spill/mover/fair.h"

#include "base/assert.h"

#include <stddef.h>

static bool goes_before(const struct sw_fair_node *a, const struct sw_fair_node *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

/* Joins two heaps, given as roots without siblings. */
static struct sw_fair_node *meld(struct sw_fair_node *a, struct sw_fair_node *b) {
    if (!a || !b)
        return a ? a : b;
    struct sw_fair_node *root = goes_before(b, a) ? b : a, *child = root == a ? b : a;
    child->next = root->child;
    child->prev = root;
    if (root->child)
        root->child->prev = child;
    root->child = child;
    return root;
}

static struct sw_fair_node *detach(struct sw_fair_node *root) {
    root->next = root->prev = NULL;
    return root;
}

/* Joins a row of siblings into one heap: first in pairs from the left, then all pairs from the right. */
static struct sw_fair_node *meld_row(struct sw_fair_node *row) {
    struct sw_fair_node *pairs = NULL, *all = NULL;
    while (row) {
        struct sw_fair_node *a = row, *b = row->next;
        row = b ? b->next : NULL;
        struct sw_fair_node *pair = meld(detach(a), b ? detach(b) : NULL);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct sw_fair_node *pair = pairs;
        pairs = pairs->next;
        all = meld(all, detach(pair));
    }
    return all;
}

static void insert(struct sw_fair *fair, struct sw_fair_node *node) {
    node->child = node->next = node->prev = NULL;
    node->order = ++fair->last_order;
    node->is_in = true;
    fair->first = meld(fair->first, node);
    fair->n++;
}

uint64_t sw_fair_place(uint64_t at, uint64_t now) {
    const uint64_t least = now > SW_FAIR_CREDIT_BYTES ? now - SW_FAIR_CREDIT_BYTES : 0;
    return at > least ? at : least;
}

void sw_fair_enter(struct sw_fair *fair, struct sw_fair_node *node) {
    SW_ASSERT(!node->is_in);
    if (fair->clock == SW_FAIR_BY_FIRST)
        node->at = sw_fair_place(node->at, fair->now);
    else if (node->at == 0) /* it enters for the first time */
        node->at = fair->now;
    insert(fair, node);
}

void sw_fair_leave(struct sw_fair *fair, struct sw_fair_node *node) {
    SW_ASSERT(node->is_in);
    if (node == fair->first) {
        fair->first = meld_row(node->child);
    } else {
        if (node->prev->child == node)
            node->prev->child = node->next;
        else
            node->prev->next = node->next;
        if (node->next)
            node->next->prev = node->prev;
        fair->first = meld(fair->first, meld_row(node->child));
    }
    node->child = node->next = node->prev = NULL;
    node->is_in = false;
    fair->n--;
}

void sw_fair_charge(struct sw_fair *fair, struct sw_fair_node *node, uint64_t bytes) {
    const bool was_in = node->is_in;
    if (was_in)
        sw_fair_leave(fair, node);
    if (fair->clock == SW_FAIR_BY_SHARE)
        fair->now += bytes / (fair->n + 1);
    else if (node->at > fair->now)
        fair->now = node->at;
    node->at += bytes;
    if (was_in)
        insert(fair, node);
}
