/* fair.h - fair queueing: nodes that wait get about as many bytes each, however long their steps are.
 *
 * Each node has a place on a scale of bytes: where it entered, plus the bytes that it has been served since. The node
 * with the lowest place is next. Deficit round robin gives the same shares. Unlike it, this queue needs no length
 * before a node is served, and a node that returns after a pause is next, and does not wait for a round of all others.
 *
 * The queue is a pairing heap (M. L. Fredman and others, 1986): entering takes constant time, leaving and serving take
 * logarithmic time on average. All zero is an empty queue, or a node that waits in none. Pure: no clock, no lock, no
 * allocation. */
#ifndef SW_SPILL_FAIR_H
#define SW_SPILL_FAIR_H

#include <stdbool.h>
#include <stdint.h>

struct sw_fair_node {
    struct sw_fair_node *child, *next, *prev; /* prev: a first child's parent */
    uint64_t at, order;                       /* place; equal places go by order */
    bool is_in;
};

/* The queue's own position. A node that was not served recently enters here. */
enum sw_fair_clock {
    SW_FAIR_BY_FIRST, /* the place of the node served last, so a new node is next. For nodes that are remembered when
                         they leave */
    SW_FAIR_BY_SHARE  /* what each node would have got by now. For nodes that come once: otherwise a stream of new nodes
                         would starve the waiting ones */
};

struct sw_fair {
    enum sw_fair_clock clock;
    struct sw_fair_node *first; /* the next node; NULL: none waits */
    uint64_t now, last_order;
    unsigned n;
};

/* A node that was not served for long enters this far before the others, so it goes before nodes that have just had
 * their turn. */
#define SW_FAIR_CREDIT_BYTES ((uint64_t)32 << 20)
/* Returns the place of a node that enters again at `now` after leaving at `at`. It keeps its surplus of served bytes,
 * and of its unused share at most the credit. */
uint64_t sw_fair_place(uint64_t at, uint64_t now);

/* Adds a node that waits. It keeps the `at` that it had when it left. */
void sw_fair_enter(struct sw_fair *fair, struct sw_fair_node *node);
void sw_fair_leave(struct sw_fair *fair, struct sw_fair_node *node);
/* Records that the node, waiting or not, was served `bytes`. */
void sw_fair_charge(struct sw_fair *fair, struct sw_fair_node *node, uint64_t bytes);

#endif
