/* lifecycle.c - how a region begins, becomes OUT with its frames and its record, and comes back or stays OUT. */
#include "spill/engine_state.h"

#include "base/assert.h"

/* Takes an id. A region to be packed here is recorded, as broken, before its first byte moves: if the process dies, its
 * bytes are lost. Without the record the next process would report them as untouched. */
static int acquire(struct sw_owner *owner, const struct sw_region_start *start, struct sw_region **ret,
                   struct sw_err *err) {
    struct sw_engine *engine = sw_engine_of(owner);
    struct sw_region *region = sw_region_acquire(&engine->store.regions, owner);
    int rc = 0;
    SW_ASSERT(region); /* admitted */
    sw_catalogue_note_id(engine->config.catalogue, region->id.slot, region->id.gen);
    region->raw_bytes = start->raw_bytes;
    region->request = start->request;
    region->batch_index = start->batch_index;
    region->in_place = start->in_place;
    region->durability = start->durability;
    region->prefer = start->prefer;
    if (start->name && sw_region_set_name(region, start->name))
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region's name");
    if (!rc && start->in_place && !start->is_packed)
        rc = sw_region_record(engine->config.catalogue, region, err);
    if (rc)
        sw_region_release(&engine->store.regions, region);
    else
        *ret = region;
    return rc;
}

int sw_region_begin(struct sw_owner *owner, const struct sw_region_start *start, struct sw_region **ret,
                    struct sw_err *err) {
    struct sw_budget *kept = sw_quota_kept(owner->quota);
    struct sw_region *region = NULL;
    int rc = sw_budget_take(kept, SW_REGION_KEPT_BYTES, "a region", err);
    if (rc)
        return rc;
    rc = acquire(owner, start, &region, err);
    if (rc) {
        sw_budget_give(kept, SW_REGION_KEPT_BYTES);
        return rc;
    }
    region->kept_bytes = kept ? SW_REGION_KEPT_BYTES : 0;
    sw_list_append(&owner->regions, &region->node);
    owner->n_regions++;
    if (owner->quota)
        owner->quota->n_regions++;
    sw_region_move(region, SW_REGION_STAGING);
    *ret = region;
    return 0;
}

void sw_region_give_up(struct sw_region *region) {
    sw_region_move(region, SW_REGION_IN);
    sw_region_forget(sw_engine_of(region->owner)->config.catalogue, region);
}

/* Records a region before the reply is sent. A packed region is never given up for want of a record: it ends with this
 * process. */
static int record(struct sw_region *region, struct sw_err *err) {
    if (region->owner->state == SW_OWNER_CLOSING && !region->name)
        return 0; /* it is about to be dropped */
    const int rc =
        sw_region_record(sw_engine_of(region->owner)->config.catalogue, region, region->in_place ? NULL : err);
    return region->in_place ? 0 : rc;
}

static void count(struct sw_engine *engine, const struct sw_region *region) {
    engine->counters.spills++;
    engine->counters.reasons[region->reason]++;
    engine->counters.packs += region->in_place;
    engine->counters.spilled_raw_bytes += region->raw_bytes;
    engine->counters.spilled_stored_bytes += region->stored_bytes;
}

static void take_frames(struct sw_region *region, struct sw_frames *frames, const struct sw_run_outcome *sum) {
    struct sw_owner *owner = region->owner;
    region->frames = frames;
    region->tier = sw_frames_tier(frames, region->tier_bytes);
    region->used_us = sw_engine_now_us(sw_engine_of(owner));
    region->stored_bytes = sum->stored_bytes;
    region->codec = sw_frames_most_used(sum->codec_raw_bytes);
    region->reason = sum->reason;
    owner->raw_bytes += region->raw_bytes;
    owner->stored_bytes += region->stored_bytes;
    sw_region_move(region, SW_REGION_OUT);
}

int sw_regions_complete(const struct sw_completion *all, unsigned n, struct sw_err *err) {
    struct sw_region *regions[SW_SERIES_MAX_BATCH];
    SW_ASSERT(n >= 1 && n <= SW_SERIES_MAX_BATCH);
    struct sw_engine *engine = sw_engine_of(all[0].region->owner);
    for (unsigned i = 0; i < n; i++) {
        regions[i] = all[i].region;
        take_frames(all[i].region, all[i].frames, all[i].sum);
    }
    const int rc = n == 1 ? record(regions[0], err) : sw_region_record_batch(engine->config.catalogue, regions, n, err);
    for (unsigned i = 0; i < n; i++)
        if (rc)
            sw_region_forget(engine->config.catalogue, regions[i]);
        else
            count(engine, regions[i]);
    return rc;
}

/* ---- restores ---- */

bool sw_restore_proves_loss(int code) {
    /* A frame that this service stored has no unknown version: its header is damaged. */
    return code == -SW_EFRAME || code == -SW_ECHECKSUM || code == -SW_EVERSION || code == -SW_ELOST;
}

void sw_restore_widen(struct sw_err *err) {
    if (sw_restore_proves_loss(err->code) && err->scope < SW_SCOPE_REGION)
        err->scope = SW_SCOPE_REGION;
}

void sw_region_stay_out(struct sw_region *region, bool is_lost) {
    struct sw_catalogue *catalogue = sw_engine_of(region->owner)->config.catalogue;
    sw_region_move(region, is_lost ? SW_REGION_LOST : SW_REGION_OUT);
    if (!region->in_place || is_lost)
        sw_region_record_hints(catalogue, region);
    else /* which chunks are packed; without the record the region counts as broken */
        (void)sw_region_record(catalogue, region, NULL);
}

void sw_region_come_back(struct sw_region *region, bool keep) {
    struct sw_engine *engine = sw_engine_of(region->owner);
    engine->counters.restores++;
    engine->counters.restored_raw_bytes += region->raw_bytes;
    region->used_us = sw_engine_now_us(engine);
    if (keep) {
        sw_region_move(region, SW_REGION_OUT);
        sw_region_record_hints(engine->config.catalogue, region);
    } else {
        sw_region_move(region, SW_REGION_IN);
        sw_region_consume(engine->config.catalogue, region);
    }
}
