/* restored.c - what becomes of a region whose bytes were to come back. */
#include "spill/engine_state.h"

#include "base/clock.h"

bool sw_restore_proves_loss(int code) {
    /* A frame of our own in a version that we do not know is a damaged header. */
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
    else /* which chunks are packed; if that fails it counts as broken */
        (void)sw_region_record(catalogue, region, NULL);
}

void sw_region_come_back(struct sw_region *region, bool keep) {
    struct sw_engine *engine = sw_engine_of(region->owner);
    engine->counters.restores++;
    engine->counters.restored_raw_bytes += region->raw_bytes;
    region->used_us = sw_clock_us();
    if (keep) {
        sw_region_move(region, SW_REGION_OUT);
        sw_region_record_hints(engine->config.catalogue, region);
    } else {
        sw_region_move(region, SW_REGION_IN);
        sw_region_consume(engine->config.catalogue, region);
    }
}
