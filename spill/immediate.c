/* immediate.c - operations on a region that end at once, without a worker: drop, consume, advise, adopt, and what a
 * client has packed. */
#include "spill/engine_state.h"

int sw_engine_drop(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err) {
    struct sw_region *region;
    int rc = sw_engine_find_idle(owner, id, &region, err);
    if (!rc && region->kept && region->move) /* two tiers may have a record of it */
        rc = sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is being moved to another tier", id.slot,
                        id.gen);
    if (!rc)
        sw_region_forget(sw_engine_of(owner)->config.catalogue, region);
    return rc;
}

int sw_engine_consume(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err) {
    struct sw_region *region;
    const int rc = sw_engine_find_idle(owner, id, &region, err);
    if (rc || region->name)
        return rc;
    if (region->state == SW_REGION_OUT && sw_frames_are_held(region->frames)) { /* its client has unpacked it */
        sw_region_move(region, SW_REGION_RESTORING);
        sw_region_come_back(region, false);
    } else {
        sw_region_consume(sw_engine_of(owner)->config.catalogue, region);
    }
    return 0;
}

/* Makes the frames, and the region. */
static int begin_packed(struct sw_owner *owner, const struct sw_packed *packed, struct sw_frames **ret_frames,
                        struct sw_region **ret, struct sw_err *err) {
    struct sw_budget *kept = sw_quota_kept(owner->quota);
    const struct sw_region_start start = {.raw_bytes = packed->raw_bytes,
                                          .request = packed->request,
                                          .batch_index = packed->batch_index,
                                          .in_place = true,
                                          .is_packed = true};
    const uint64_t kept_bytes = sw_frames_kept_bytes(packed->raw_bytes, packed->raw_bytes, true);
    int rc = sw_budget_take(kept, kept_bytes, "the records of a region", err);
    if (rc)
        return rc;
    *ret_frames = sw_frames_new_held(packed->raw_bytes, packed->stored_bytes, packed->codec);
    rc = *ret_frames ? sw_region_begin(owner, &start, ret, err)
                     : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region");
    if (rc) {
        sw_frames_delete(*ret_frames);
        sw_budget_give(kept, kept_bytes);
        return rc;
    }
    (*ret)->kept_bytes += kept ? kept_bytes : 0;
    return 0;
}

int sw_engine_note_packed(struct sw_owner *owner, const struct sw_packed *packed, struct sw_outcome *ret,
                          struct sw_err *err) {
    struct sw_engine *engine = sw_engine_of(owner);
    struct sw_run_outcome sum = {.stored_bytes = packed->stored_bytes, .reason = SW_COST_CLIENT};
    struct sw_region *region = NULL;
    struct sw_frames *frames;
    int rc = sw_admit_packed(owner, packed, err);
    if (!rc)
        rc = begin_packed(owner, packed, &frames, &region, err);
    if (rc)
        return rc;
    sum.codec_raw_bytes[packed->codec] = packed->raw_bytes;
    (void)sw_regions_complete(&(struct sw_completion){region, frames, &sum}, 1, NULL); /* never given up: packed */
    const struct sw_ended ended = {.engine = engine,
                                   .operation = SW_OP_PACK,
                                   .what = "pack of",
                                   .region = region,
                                   .id = region->id,
                                   .sum = &sum,
                                   .submitted_us = sw_engine_now_us(engine)};
    sw_outcome_fill(&ended, ret);
    sw_outcome_note(&ended, ret);
    return 0;
}

void sw_engine_announce_consumed(struct sw_owner *owner, struct sw_region_id id) {
    const struct sw_catalogue_hints hints = {.is_in = true};
    struct sw_region *region;
    if (sw_engine_find_idle(owner, id, &region, NULL) == 0 && !region->name)
        sw_catalogue_hint(sw_engine_of(owner)->config.catalogue, region->record, &hints);
}

int sw_engine_advise(struct sw_owner *owner, struct sw_region_id id, enum sw_advice advice, uint32_t value,
                     struct sw_err *err) {
    static const uint32_t most[] = {
        [SW_ADVISE_PRIORITY] = UINT8_MAX, [SW_ADVISE_PIN] = 1, [SW_ADVISE_PREFETCH] = 0, [SW_ADVISE_DEMOTE] = 0};
    struct sw_engine *engine = sw_engine_of(owner);
    struct sw_region *region;
    int rc = sw_engine_find(owner, id, &region, err);
    if (rc)
        return rc;
    if (value > most[advice])
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "value %u of an advice, at most %u is known", value,
                          most[advice]);
    if (region->state == SW_REGION_LOST)
        return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION, "region %u:%u was found damaged", id.slot, id.gen);
    if (region->state != SW_REGION_OUT)
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is %s", id.slot, id.gen,
                          sw_region_state_name(region->state));
    if (advice == SW_ADVISE_PRIORITY)
        region->priority = (uint8_t)value;
    else if (advice == SW_ADVISE_PIN)
        region->pinned = value != 0;
    else
        rc = advice == SW_ADVISE_PREFETCH ? sw_balance_prefetch(&engine->balance, region, err)
                                          : sw_balance_demote(&engine->balance, region, err);
    sw_region_record_hints(engine->config.catalogue, region);
    return rc;
}

int sw_engine_adopt(struct sw_owner *owner, const char *name, struct sw_region_id *ret, struct sw_err *err) {
    struct sw_owner *before;
    struct sw_region *region = NULL;
    int rc = sw_admit_adopt(owner, name, &region, err);
    if (rc)
        return rc;
    before = region->owner;
    if (before != owner) {
        sw_region_give(region, owner);
        /* A lost region may be on a missing disk. It keeps its old record, which still names its chunks. */
        rc = region->state == SW_REGION_LOST ? 0 : sw_region_record(sw_engine_of(owner)->config.catalogue, region, err);
        if (rc)
            sw_region_give(region, before);
    }
    if (!rc)
        *ret = region->id;
    return rc;
}
