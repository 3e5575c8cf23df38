/* durable.c - takes a durable region over by its name. */
#include "spill/engine_state.h"

int sw_engine_adopt(struct sw_owner *owner, const char *name, struct sw_region_id *ret, struct sw_err *err) {
    struct sw_owner *before;
    struct sw_region *region = NULL;
    int rc = sw_admit_adopt(owner, name, &region, err);
    if (rc)
        return rc;
    before = region->owner;
    if (before != owner) {
        sw_region_give(region, owner);
        /* One that is lost may be on a disk that is not there: its record, which is its tenant's, still has its chunks.
         */
        rc = region->state == SW_REGION_LOST ? 0 : sw_region_record(sw_engine_of(owner)->config.catalogue, region, err);
        if (rc)
            sw_region_give(region, before);
    }
    if (!rc)
        *ret = region->id;
    return rc;
}
