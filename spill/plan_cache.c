#include "spill/plan_cache.h"

#include <stddef.h>

static struct sw_plan_cache_entry *find(struct sw_plan_cache *cache, uint64_t session) {
    for (int i = 0; i < SW_PLAN_CACHE_ENTRIES; i++)
        if (cache->entries[i].session == session)
            return &cache->entries[i];
    return NULL;
}

double sw_plan_data_ratio(const struct sw_plan *plan, uint64_t raw_bytes) {
    struct sw_frame_layout layout;
    if (plan->codec == SW_CODEC_RAW)
        return 1;
    sw_frame_layout_init(&layout, plan->codec, plan->segment_log2, raw_bytes, plan->table.n_symbols);
    return 1 / (1 / plan->expected_ratio - (double)layout.data_offset / (double)raw_bytes);
}

bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t session, struct sw_plan *ret, double *ret_data_ratio) {
    struct sw_plan_cache_entry *entry = find(cache, session);
    if (!entry || entry->n_uses >= SW_PLAN_MAX_USES)
        return false;
    entry->n_uses++;
    entry->age = ++cache->clock;
    *ret = entry->plan;
    *ret_data_ratio = entry->data_ratio;
    return true;
}

void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t session, const struct sw_plan *plan, uint64_t raw_bytes) {
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
    entry->data_ratio = sw_plan_data_ratio(plan, raw_bytes);
}

void sw_plan_cache_forget(struct sw_plan_cache *cache, uint64_t session) {
    struct sw_plan_cache_entry *entry = find(cache, session);
    if (entry) {
        entry->session = 0;
        entry->age = 0;
    }
}
