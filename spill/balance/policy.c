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

static bool is_chosen(const size_t *chosen, size_t n, size_t i) {
    while (n > 0)
        if (chosen[--n] == i)
            return true;
    return false;
}

size_t sw_policy_victims(const struct sw_policy_level *level, const struct sw_policy_candidate *all, size_t n,
                         size_t *ret, size_t max) {
    const uint64_t excess_bytes = sw_policy_excess_bytes(level);
    uint64_t bytes = 0;
    size_t n_chosen = 0;
    while (n_chosen < max && bytes < excess_bytes) {
        size_t best = n;
        for (size_t i = 0; i < n; i++)
            if (all[i].rests && !all[i].pinned && (best == n || leaves_before(&all[i], &all[best])) &&
                !is_chosen(ret, n_chosen, i))
                best = i;
        if (best == n)
            break;
        bytes += all[best].stored_bytes;
        ret[n_chosen++] = best;
    }
    return n_chosen;
}
