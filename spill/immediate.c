/* immediate.c - operations on a region that end at once, without a worker: drop, consume, advise, adopt. */
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
    if (!rc && !region->name)
        sw_region_consume(sw_engine_of(owner)->config.catalogue, region);
    return rc;
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
