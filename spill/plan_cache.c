#include "spill/plan_cache.h"

#include <stddef.h>

static struct sw_plan_cache_entry *find(struct sw_plan_cache *cache, uint64_t session) {
    for (int i = 0; i < SW_PLAN_CACHE_ENTRIES; i++)
        if (cache->entries[i].session == session)
            return &cache->entries[i];
    return NULL;
}

bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t session, struct sw_plan *ret) {
    struct sw_plan_cache_entry *entry = find(cache, session);
    if (!entry || entry->n_uses >= SW_PLAN_MAX_USES)
        return false;
    entry->n_uses++;
    entry->age = ++cache->clock;
    *ret = entry->plan;
    return true;
}

void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t session, const struct sw_plan *plan) {
    struct sw_plan_cache_entry *entry = find(cache, session);
    if (plan->codec == SW_CODEC_RAW || plan->expected_ratio < SW_PLAN_MIN_RATIO) {
        sw_plan_cache_forget(cache, session);
        return;
    }
    for (int i = 0; i < SW_PLAN_CACHE_ENTRIES && !(entry && entry->session == session); i++)
        if (!entry || cache->entries[i].age < entry->age)
            entry = &cache->entries[i];
    entry->session = session;
    entry->n_uses = 0;
    entry->age = ++cache->clock;
    entry->plan = *plan;
}

void sw_plan_cache_forget(struct sw_plan_cache *cache, uint64_t session) {
    struct sw_plan_cache_entry *entry = find(cache, session);
    if (entry) {
        entry->session = 0;
        entry->age = 0;
    }
}

/* ---- skips ---- */

#define MIN_IN_A_ROW 4
#define FIRST_SKIP_BYTES ((uint64_t)64 << 20)
#define MAX_DOUBLINGS 5

static struct sw_plan_skip *find_skip(struct sw_plan_skips *skips, uint64_t session) {
    for (int i = 0; i < SW_PLAN_CACHE_ENTRIES; i++)
        if (skips->entries[i].session == session)
            return &skips->entries[i];
    return NULL;
}

static struct sw_plan_skip *oldest_skip(struct sw_plan_skips *skips) {
    struct sw_plan_skip *oldest = &skips->entries[0];
    for (int i = 1; i < SW_PLAN_CACHE_ENTRIES; i++)
        if (skips->entries[i].age < oldest->age)
            oldest = &skips->entries[i];
    return oldest;
}

bool sw_plan_skips_take(struct sw_plan_skips *skips, uint64_t session, uint64_t bytes) {
    struct sw_plan_skip *skip = find_skip(skips, session);
    if (!skip || skip->left_bytes < bytes)
        return false;
    skip->left_bytes -= bytes;
    return true;
}

void sw_plan_skips_note(struct sw_plan_skips *skips, uint64_t session, bool raw) {
    struct sw_plan_skip *skip = find_skip(skips, session);
    if (!raw) {
        if (skip)
            *skip = (struct sw_plan_skip){0};
        return;
    }
    if (!skip) {
        skip = oldest_skip(skips);
        *skip = (struct sw_plan_skip){.session = session};
    }
    skip->age = ++skips->clock;
    if (++skip->n_raw < MIN_IN_A_ROW)
        return;
    const unsigned doublings = skip->n_raw - MIN_IN_A_ROW;
    skip->left_bytes = FIRST_SKIP_BYTES << (doublings < MAX_DOUBLINGS ? doublings : MAX_DOUBLINGS);
}
