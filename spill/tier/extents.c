#include "spill/tier/extents.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/err.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool run_less(const struct sw_run *a, const struct sw_run *b) {
    return a->count != b->count ? a->count < b->count : a->first < b->first;
}

static uint32_t next_random(struct sw_extents *x) {
    /* xorshift32 suffices for treap priorities. */
    x->random ^= x->random << 13;
    x->random ^= x->random >> 17;
    x->random ^= x->random << 5;
    return x->random;
}

/* Splits a treap into the runs below `pivot` and the rest. */
static void treap_split(struct sw_run *tree, const struct sw_run *pivot, struct sw_run **ret_low,
                        struct sw_run **ret_high) {
    while (tree) {
        if (run_less(tree, pivot)) {
            *ret_low = tree;
            ret_low = &tree->right;
            tree = tree->right;
        } else {
            *ret_high = tree;
            ret_high = &tree->left;
            tree = tree->left;
        }
    }
    *ret_low = *ret_high = NULL;
}

/* Joins two treaps at *ret; all runs of `low` are below those of `high`. */
static void treap_join(struct sw_run *low, struct sw_run *high, struct sw_run **ret) {
    while (low && high) {
        if (low->priority > high->priority) {
            *ret = low;
            ret = &low->right;
            low = low->right;
        } else {
            *ret = high;
            ret = &high->left;
            high = high->left;
        }
    }
    *ret = low ? low : high;
}

static void insert_free(struct sw_extents *x, struct sw_run *run) {
    struct sw_run **at = &x->root;
    run->priority = next_random(x);
    while (*at && (*at)->priority >= run->priority)
        at = run_less(run, *at) ? &(*at)->left : &(*at)->right;
    treap_split(*at, run, &run->left, &run->right);
    *at = run;
    run->free = true;
    run->next = NULL;
    x->free_blocks += run->count;
    x->n_free_runs++;
}

static void remove_free(struct sw_extents *x, struct sw_run *run) {
    struct sw_run **at = &x->root;
    while (*at != run) {
        SW_ASSERT(*at);
        at = run_less(run, *at) ? &(*at)->left : &(*at)->right;
    }
    treap_join(run->left, run->right, at);
    run->left = run->right = NULL;
    run->free = false;
    x->free_blocks -= run->count;
    x->n_free_runs--;
}

/* Returns the smallest free run of at least `count` blocks, or NULL. */
static struct sw_run *best_fit(const struct sw_extents *x, uint64_t count) {
    struct sw_run *best = NULL;
    for (struct sw_run *run = x->root; run;) {
        if (run->count >= count) {
            best = run;
            run = run->left;
        } else {
            run = run->right;
        }
    }
    return best;
}

static struct sw_run *longest(const struct sw_extents *x) {
    struct sw_run *run = x->root;
    while (run && run->right)
        run = run->right;
    return run;
}

uint64_t sw_extents_longest(const struct sw_extents *x) {
    const struct sw_run *run = longest(x);
    return run ? run->count : 0;
}

void sw_extents_init(struct sw_extents *ret) {
    memset(ret, 0, sizeof *ret);
    ret->random = 0x9E3779B9u;
}

void sw_extents_fini(struct sw_extents *x) {
    SW_ASSERT(x->free_blocks == x->total_blocks);
    while (x->root) {
        struct sw_run *run = x->root;
        remove_free(x, run);
        sw_free(run);
    }
    x->total_blocks = 0;
}

int sw_extents_add(struct sw_extents *x, uint64_t first, uint64_t count, void *slab, struct sw_run **ret_run) {
    struct sw_run *run = sw_alloc(sizeof *run);
    if (!run)
        return -SW_ENOMEM;
    run->first = first;
    run->count = count;
    run->slab = slab;
    x->total_blocks += count;
    insert_free(x, run);
    if (ret_run)
        *ret_run = run;
    return 0;
}

void sw_extents_remove(struct sw_extents *x, struct sw_run *run) {
    SW_ASSERT(run->free && !run->below && !run->above);
    remove_free(x, run);
    x->total_blocks -= run->count;
    sw_free(run);
}

/* Shortens a run that is in no treap to `count` blocks. `rest`, which is filled in, becomes the free run above it. */
static void cut(struct sw_extents *x, struct sw_run *run, uint64_t count, struct sw_run *rest) {
    rest->first = run->first + count;
    rest->count = run->count - count;
    rest->slab = run->slab;
    rest->below = run;
    rest->above = run->above;
    if (rest->above)
        rest->above->below = rest;
    run->above = rest;
    run->count = count;
    insert_free(x, rest);
}

int sw_extents_take(struct sw_extents *x, uint64_t count, struct sw_run **ret_runs, unsigned *ret_n_runs) {
    SW_ASSERT(count > 0);
    if (count > x->free_blocks)
        return -SW_ENOSPACE;
    struct sw_run *rest = sw_alloc(sizeof *rest); /* only the last run can be longer than needed */
    if (!rest)
        return -SW_ENOMEM;
    struct sw_run **tail = ret_runs;
    *ret_n_runs = 0;
    while (count > 0) {
        struct sw_run *run = best_fit(x, count);
        if (!run)
            run = longest(x);
        remove_free(x, run);
        if (run->count > count) {
            cut(x, run, count, rest);
            rest = NULL;
        }
        count -= run->count;
        *tail = run;
        tail = &run->next;
        ++*ret_n_runs;
    }
    *tail = NULL;
    sw_free(rest);
    return 0;
}

int sw_extents_take_at(struct sw_extents *x, struct sw_run *from, uint64_t first, uint64_t count, struct sw_run **ret) {
    SW_ASSERT(from->free && count > 0 && from->first <= first && first + count <= from->first + from->count);
    struct sw_run *upper = sw_alloc(sizeof *upper), *rest = sw_alloc(sizeof *rest);
    if (!upper || !rest) {
        sw_free(upper);
        sw_free(rest);
        return -SW_ENOMEM;
    }
    struct sw_run *run = from;
    remove_free(x, run);
    if (run->first < first) {
        cut(x, run, first - run->first, upper);
        insert_free(x, run);
        run = upper;
        remove_free(x, run);
        upper = NULL;
    }
    if (run->count > count) {
        cut(x, run, count, rest);
        rest = NULL;
    }
    sw_free(upper);
    sw_free(rest);
    *ret = run;
    return 0;
}

static int by_place(const void *a, const void *b) {
    const struct sw_place *p = a, *q = b;
    return (p->first > q->first) - (p->first < q->first);
}

static int by_order(const void *a, const void *b) {
    const struct sw_place *p = a, *q = b;
    return (p->order > q->order) - (p->order < q->order);
}

void sw_places_sort(struct sw_place *places, size_t n, bool order) {
    qsort(places, n, sizeof places[0], order ? by_order : by_place);
}

int sw_extents_take_places(struct sw_extents *x, struct sw_run *slab_run, struct sw_place *places, size_t n,
                           size_t *ret_n_looked_at) {
    const uint64_t end = slab_run->first + slab_run->count;
    struct sw_run *rest = slab_run; /* free, after all places taken so far; NULL: nothing is left */
    size_t i = 0;
    for (; i < n && places[i].first < end; i++) {
        struct sw_place *p = &places[i];
        p->run = NULL;
        if (!rest || p->count == 0 || p->first < rest->first || p->count > rest->count ||
            p->first - rest->first > rest->count - p->count)
            continue;
        if (sw_extents_take_at(x, rest, p->first, p->count, &p->run))
            return -SW_ENOMEM;
        p->run->next = NULL;
        rest = p->run->above;
    }
    *ret_n_looked_at = i;
    return 0;
}

struct sw_run *sw_extents_take_free(struct sw_extents *x, struct sw_run *slab_run) {
    struct sw_run *taken = NULL, **tail = &taken;
    for (struct sw_run *run = slab_run; run; run = run->above)
        if (run->free) {
            remove_free(x, run);
            *tail = run;
            tail = &run->next;
        }
    *tail = NULL;
    return taken;
}

/* Joins `run` and its upper neighbour, neither of which is in the treap. The neighbour is freed. */
static void merge_above(struct sw_run *run) {
    struct sw_run *above = run->above;
    run->count += above->count;
    run->above = above->above;
    if (run->above)
        run->above->below = run;
    sw_free(above);
}

void sw_extents_give(struct sw_extents *x, struct sw_run *runs) {
    while (runs) {
        struct sw_run *run = runs;
        runs = run->next;
        SW_ASSERT(!run->free);
        if (run->above && run->above->free) {
            remove_free(x, run->above);
            merge_above(run);
        }
        if (run->below && run->below->free) {
            run = run->below;
            remove_free(x, run);
            merge_above(run);
        }
        insert_free(x, run);
    }
}
