#include "spill/balance/policy.h"

uint64_t sw_policy_mark_bytes(uint64_t limit_bytes, unsigned pct) {
    return limit_bytes / 100 * pct;
}

uint64_t sw_policy_excess_bytes(const struct sw_policy_level *level) {
    const uint64_t low_bytes = sw_policy_mark_bytes(level->limit_bytes, level->low_pct);
    const uint64_t high_bytes = sw_policy_mark_bytes(level->limit_bytes, level->high_pct);
    if (level->used_bytes <= (level->moving ? low_bytes : high_bytes))
        return 0;
    return level->used_bytes - low_bytes;
}

/* Of two equal ones the first in the array. */
static bool leaves_before(const struct sw_policy_candidate *a, const struct sw_policy_candidate *b) {
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->used_us != b->used_us ? a->used_us < b->used_us : a < b;
}

/* Moves heap[at] down to its place. The root is the one that leaves last. */
static void sift_down(const struct sw_policy_candidate *all, size_t *heap, size_t n, size_t at) {
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && leaves_before(&all[heap[child]], &all[heap[child + 1]]);
        if (!leaves_before(&all[heap[at]], &all[heap[child]]))
            return;
        const size_t index = heap[at];
        heap[at] = heap[child];
        heap[child] = index;
    }
}

static void sift_up(const struct sw_policy_candidate *all, size_t *heap, size_t at) {
    for (size_t parent; at > 0 && leaves_before(&all[heap[parent = (at - 1) / 2]], &all[heap[at]]); at = parent) {
        const size_t index = heap[at];
        heap[at] = heap[parent];
        heap[parent] = index;
    }
}

/* Gets the `max` that leave first, in order. Returns how many there are. */
static size_t first_ones(const struct sw_policy_candidate *all, size_t n, size_t *ret, size_t max) {
    size_t n_first = 0;
    for (size_t i = 0; i < n; i++) {
        if (!all[i].rests || all[i].pinned)
            continue;
        if (n_first < max) {
            ret[n_first] = i;
            sift_up(all, ret, n_first++);
        } else if (leaves_before(&all[i], &all[ret[0]])) {
            ret[0] = i;
            sift_down(all, ret, n_first, 0);
        }
    }
    for (size_t left = n_first; left > 1; left--) {
        const size_t last = ret[0];
        ret[0] = ret[left - 1];
        ret[left - 1] = last;
        sift_down(all, ret, left - 1, 0);
    }
    return n_first;
}

size_t sw_policy_victims(const struct sw_policy_level *level, const struct sw_policy_candidate *all, size_t n,
                         size_t *ret, size_t max) {
    const uint64_t excess_bytes = sw_policy_excess_bytes(level);
    const size_t n_first = excess_bytes ? first_ones(all, n, ret, max) : 0;
    uint64_t bytes = 0;
    size_t n_chosen = 0;
    while (n_chosen < n_first && bytes < excess_bytes)
        bytes += all[ret[n_chosen++]].stored_bytes;
    return n_chosen;
}
