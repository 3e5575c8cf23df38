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

static bool leaves_before(const struct sw_policy_candidate *a, const struct sw_policy_candidate *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->used_us < b->used_us;
}

size_t sw_policy_victims(const struct sw_policy_level *level, const struct sw_policy_candidate *all, size_t n,
                         size_t *ret, size_t max) {
    const uint64_t excess_bytes = sw_policy_excess_bytes(level);
    uint64_t bytes = 0;
    size_t n_first = 0, n_chosen = 0; /* n_first: in ret, the first ones of those looked at, in order */
    for (size_t i = 0; i < n && excess_bytes > 0; i++) {
        if (!all[i].rests || all[i].pinned || (n_first == max && !leaves_before(&all[i], &all[ret[max - 1]])))
            continue;
        size_t at = n_first < max ? n_first++ : max - 1;
        for (; at > 0 && leaves_before(&all[i], &all[ret[at - 1]]); at--)
            ret[at] = ret[at - 1];
        ret[at] = i;
    }
    while (n_chosen < n_first && bytes < excess_bytes)
        bytes += all[ret[n_chosen++]].stored_bytes;
    return n_chosen;
}
