#include "spill/plan_cache.h"

#include <stddef.h>

static struct sw_plan_cache_entry *find(struct sw_plan_cache *cache, uint64_t key) {
    for (int i = 0; i < SW_PLAN_CACHE_ENTRIES; i++)
        if (cache->entries[i].key == key)
            return &cache->entries[i];
    return NULL;
}

uint64_t sw_plan_key(uint64_t session, enum sw_value_type type, unsigned buffer) {
    return session << 16 | (uint64_t)type << 8 | buffer;
}

bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t key, struct sw_plan *ret) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    if (!entry || !entry->is_usable || entry->n_uses >= SW_PLAN_MAX_USES)
        return false;
    entry->n_uses++;
    entry->age = ++cache->clock;
    *ret = entry->plan;
    return true;
}

bool sw_plan_cache_is_used_up(struct sw_plan_cache *cache, uint64_t key) {
    const struct sw_plan_cache_entry *entry = find(cache, key);
    return entry && entry->is_usable && entry->n_uses >= SW_PLAN_MAX_USES;
}

double sw_plan_cache_promise(struct sw_plan_cache *cache, uint64_t key) {
    const struct sw_plan_cache_entry *entry = find(cache, key);
    double best = 0;
    if (!entry || entry->n_promises < SW_PLAN_PROMISES)
        return 0;
    for (int i = 0; i < SW_PLAN_PROMISES; i++)
        best = best > entry->promises[i] ? best : entry->promises[i];
    return best;
}

static struct sw_plan_cache_entry *oldest(struct sw_plan_cache *cache) {
    struct sw_plan_cache_entry *entry = &cache->entries[0];
    for (int i = 1; i < SW_PLAN_CACHE_ENTRIES; i++)
        if (cache->entries[i].age < entry->age)
            entry = &cache->entries[i];
    return entry;
}

void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan *plan) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    if (!entry) {
        entry = oldest(cache);
        entry->key = key;
        entry->n_promises = 0;
    }
    entry->n_uses = 0;
    entry->age = ++cache->clock;
    entry->promises[entry->n_promises++ % SW_PLAN_PROMISES] = plan->expected_ratio;
    entry->is_usable = plan->codec != SW_CODEC_RAW && plan->expected_ratio >= SW_PLAN_MIN_RATIO;
    if (entry->is_usable)
        entry->plan = *plan;
}

void sw_plan_cache_forget(struct sw_plan_cache *cache, uint64_t key) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    if (entry) {
        entry->key = 0;
        entry->age = 0;
    }
}
