/* durable.c - takes a durable region over by its name. */
#include "spill/engine_state.h"

int sw_engine_adopt(struct sw_owner *owner, const char *name, struct sw_region_id *ret, struct sw_err *err) {
    struct sw_owner *tenant_owner = owner->tenant_owner;
    struct sw_region *region = tenant_owner ? sw_name_find(tenant_owner, name) : NULL;
    int rc = 0;
    if (!region)
        return sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "there is no durable region of this name");
    if (region->owner != owner && (region->owner != tenant_owner || region->move))
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST,
                          region->move ? "the region is on its way between tiers"
                                       : "another session has the region, or may come back for it");
    if (sw_region_is_busy(region) && !region->frames) /* that may fail */
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "the region is being spilled");
    if (region->owner == tenant_owner) {
        if (owner->n_regions >= sw_engine_of(owner)->config.max_owner_regions)
            return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "the session has %u regions, the most allowed",
                              owner->n_regions);
        sw_region_give(region, owner);
        /* One that is lost may be on a disk that is not there: its record, which is its tenant's, still has its chunks.
         */
        rc = region->state == SW_REGION_LOST ? 0 : sw_region_record(sw_engine_of(owner)->config.catalogue, region, err);
        if (rc)
            sw_region_give(region, tenant_owner);
    }
    if (!rc)
        *ret = region->id;
    return rc;
}
