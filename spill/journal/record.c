#include "spill/journal/record.h"

#include "spill/journal/keeper.h"

#include "spill/store/names.h"
#include "spill/store/owner.h"

static struct sw_catalogue_hints hints_of(const struct sw_region *region) {
    const bool in_place = region->op && region->in_place; /* packing or unpacking is under way */
    return (struct sw_catalogue_hints){.used_us = region->used_us,
                                       .priority = region->priority,
                                       .pinned = region->pinned,
                                       .broken = region->state == SW_REGION_LOST || in_place || !region->frames};
}

/* batch: the region counts only with this batch; 0: it counts alone. */
static int record(struct sw_catalogue *catalogue, struct sw_region *region, uint64_t batch, struct sw_err *err) {
    const struct sw_owner *owner = region->owner;
    if (!owner->record && !owner->is_tenant_owner && !region->record)
        return 0;
    const struct sw_catalogue_region what = {.session = owner->number,
                                             .slot = region->id.slot,
                                             .gen = region->id.gen,
                                             .request = region->request,
                                             .batch_index = region->batch_index,
                                             .batch = batch,
                                             .raw_bytes = region->raw_bytes,
                                             .stored_bytes = region->stored_bytes,
                                             .codec = (uint8_t)region->codec,
                                             .reason = (uint8_t)region->reason,
                                             .hints = hints_of(region),
                                             .name = region->name,
                                             .uid = owner->uid,
                                             .frames = region->frames};
    uint32_t record;
    const int rc = sw_catalogue_put_region(catalogue, &what, region->record, &record, err);
    if (!rc)
        region->record = record;
    return rc;
}

int sw_region_record(struct sw_catalogue *catalogue, struct sw_region *region, struct sw_err *err) {
    return record(catalogue, region, 0, err);
}

int sw_region_record_batch(struct sw_catalogue *catalogue, struct sw_region *const *regions, unsigned n,
                           struct sw_err *err) {
    const uint64_t batch = sw_catalogue_new_batch(catalogue);
    uint32_t whole = 0;
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++)
        rc = record(catalogue, regions[i], batch, err);
    if (!rc)
        rc = sw_catalogue_put_batch(catalogue, batch, &whole, err); /* from here on all are there */
    for (unsigned i = 0; !rc && i < n; i++)
        sw_catalogue_settle(catalogue, regions[i]->record);
    sw_catalogue_free(catalogue, &whole);
    return rc;
}

void sw_region_record_hints(struct sw_catalogue *catalogue, const struct sw_region *region) {
    const struct sw_catalogue_hints hints = hints_of(region);
    sw_catalogue_hint(catalogue, region->record, &hints);
}

void sw_region_forget(struct sw_catalogue *catalogue, struct sw_region *region) {
    if (region->kept) {
        struct sw_keeper *keeper = region->owner->store->keeper;
        struct sw_tier *tier = region->keeper;
        const uint64_t kept = region->kept;
        const uint32_t record = region->record;
        sw_keeper_forget(keeper, tier, kept, sw_region_end_without_frames(region), record);
        return;
    }
    sw_catalogue_free(catalogue, &region->record); /* before its space is free */
    sw_region_end(region);
}

void sw_region_consume(struct sw_catalogue *catalogue, struct sw_region *region) {
    sw_catalogue_retire(catalogue, &region->record, &region->owner->consumed);
    sw_region_end(region);
}

/* The record stays unchanged: a successor does not find its session, so the region belongs to the tenant then. */
void sw_region_let_go(struct sw_catalogue *catalogue, struct sw_region *region) {
    if (region->name && region->owner->tenant_owner)
        sw_region_give(region, region->owner->tenant_owner);
    else
        sw_region_forget(catalogue, region);
}
