/* extents.h - which blocks of an arena are free: best fit, coalescing, no allocation when space is released.
 *
 * Space is added slab by slab and cut into runs of blocks. Each slab keeps its runs, free and taken, in address order;
 * free neighbours merge. Free runs of all slabs are also in one treap ordered by length. A request gets the smallest
 * run that holds it whole, else several runs, longest first: fragmentation never fails a request that fits in total.
 * Invariant: no two neighbouring runs of a slab are both free.
 *
 * Not thread safe: the tier's lock guards it. units: blocks. Must not be used for addressing: it only counts. */
#ifndef SW_SPILL_EXTENTS_H
#define SW_SPILL_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run of blocks of one slab. The allocator owns the fields; the run's taker may read them. */
struct sw_run {
    uint64_t first, count;
    void *slab;                   /* as given to sw_extents_add() */
    struct sw_run *next;          /* taken: the next run of the same request */
    struct sw_run *below, *above; /* neighbours in the slab; NULL at its ends */
    struct sw_run *left, *right;  /* free: treap */
    uint32_t priority;
    bool free;
};

struct sw_extents {
    struct sw_run *root; /* free runs by (count, first) */
    uint64_t total_blocks, free_blocks;
    unsigned n_free_runs;
    uint32_t random;
};

void sw_extents_init(struct sw_extents *ret);
/* Frees everything. All blocks must have been given back. */
void sw_extents_fini(struct sw_extents *extents);

/* Adds a slab of blocks [first, first + count), which no other slab has. ret_run: NULL, or gets its one free run, which
 * remains the slab's lowest run as long as the slab exists. errors: -SW_ENOMEM, nothing changed. */
int sw_extents_add(struct sw_extents *extents, uint64_t first, uint64_t count, void *slab, struct sw_run **ret_run);

/* Removes a slab of which nothing is taken: `run` is all of it. */
void sw_extents_remove(struct sw_extents *extents, struct sw_run *run);

/* Takes `count` blocks (at least 1) as a chain of runs. owns: caller, until sw_extents_give(). errors: -SW_ENOSPACE
 * (fewer are free), -SW_ENOMEM; nothing changed. */
int sw_extents_take(struct sw_extents *extents, uint64_t count, struct sw_run **ret_runs, unsigned *ret_n_runs);
/* Returns the length of the longest free run, 0 if there is none. */
uint64_t sw_extents_longest(const struct sw_extents *extents);
/* A place that was in use in an earlier process. */
struct sw_place {
    uint64_t first, count;
    size_t order;       /* the caller's */
    struct sw_run *run; /* taken for it; NULL: not taken */
};
/* Sorts places by address, or by `order`. */
void sw_places_sort(struct sw_place *places, size_t n, bool by_order);
/* Takes the places among places[0 .. n), sorted by address, that lie in the slab. Nothing of the slab may be taken yet:
 * `slab_run` is its one run. Gets how many places were examined: those before the slab's end. A place that overlaps an
 * earlier one, or begins before the slab, is skipped: its run is NULL. errors: -SW_ENOMEM: taken places stay taken. */
int sw_extents_take_places(struct sw_extents *extents, struct sw_run *slab_run, struct sw_place *places, size_t n,
                           size_t *ret_n_looked_at);
/* Takes all free runs of a slab as a chain; `slab_run` is its lowest run. NULL: nothing is free. */
struct sw_run *sw_extents_take_free(struct sw_extents *extents, struct sw_run *slab_run);
/* Takes blocks [first, first + count) out of the free run `from`, which holds them. The free rest after them is
 * (*ret)->above. errors: -SW_ENOMEM, nothing changed. */
int sw_extents_take_at(struct sw_extents *extents, struct sw_run *from, uint64_t first, uint64_t count,
                       struct sw_run **ret);
/* Gives a chain back; never fails. NULL is a no-op. */
void sw_extents_give(struct sw_extents *extents, struct sw_run *runs);

#endif
