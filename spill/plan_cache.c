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
