#include "spill/store/store.h"

int sw_store_init(struct sw_store *ret, const struct sw_store_config *config) {
    ret->observer = config->observer;
    ret->owner_settled = config->owner_settled;
    sw_placement_init(&ret->place, &config->tiers, config->staging_bytes);
    ret->place.epoch = config->epoch;
    sw_list_init(&ret->owners);
    sw_list_init(&ret->settled);
    sw_list_init(&ret->left);
    return sw_region_table_init(&ret->regions, config->max_regions, config->n_entries, config->first_gen);
}

void sw_store_fini(struct sw_store *store) {
    sw_region_table_fini(&store->regions);
}
