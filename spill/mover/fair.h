/* fair.h - fair queueing: those that wait get about as many bytes each, whatever the lengths of their pieces.
 *
 * Each node has a place on a scale of bytes: where it came in, plus the bytes that it has been served since. The node
 * with the lowest place is next. Unlike deficit round robin, which gives the same shares, this needs no length before
 * something is served, and a node that comes back after a pause is next, and not behind a round of all others.
 *
 * A heap (pairing heap: M. L. Fredman and others, 1986): entering takes constant time, leaving and serving logarithmic
 * time on average. All zero is an empty queue, and a node that waits in none. Pure: no clock, no lock, no
 * allocation. */
#ifndef SW_SPILL_FAIR_H
#define SW_SPILL_FAIR_H

#include <stdbool.h>
#include <stdint.h>

struct sw_fair_node {
    struct sw_fair_node *child, *next, *prev; /* prev: the parent of a first child */
    uint64_t at, order;                       /* place; equal places go by order */
    bool is_in;
};

/* Where the queue stands, and so where a node comes in that has had nothing lately. */
enum sw_fair_clock {
    SW_FAIR_BY_FIRST, /* at the node served last: who comes in is next. For nodes that are remembered when they leave */
    SW_FAIR_BY_SHARE  /* at what each node would have got by now: for nodes that come once, or those that are in would
                         wait for ever behind a stream of new ones */
};

struct sw_fair {
    enum sw_fair_clock clock;
    struct sw_fair_node *first; /* the next one; NULL: none waits */
    uint64_t now, last_order;
    unsigned n;
};

/* Where a node comes in that has had nothing for long: so far before the others, so that it is served before those that
 * have just had their turn. */
#define SW_FAIR_CREDIT_BYTES ((uint64_t)32 << 20)
/* The place of a node that comes in again at `now`, having left at `at`: it keeps what it has had too much, and of what
 * it has not used at most the credit. */
uint64_t sw_fair_place(uint64_t at, uint64_t now);

/* The node waits; its `at` is kept from when it left. */
void sw_fair_enter(struct sw_fair *fair, struct sw_fair_node *node);
void sw_fair_leave(struct sw_fair *fair, struct sw_fair_node *node);
/* The node, which may wait or not, has been served `bytes`. */
void sw_fair_charge(struct sw_fair *fair, struct sw_fair_node *node, uint64_t bytes);

#endif
