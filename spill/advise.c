/* advise.c - what clients and operators say about the future of a region. */
#include "spill/engine_state.h"

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
