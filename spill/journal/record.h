/* record.h - records regions in the catalogue, and ends regions: the record first, then the space. A NULL catalogue
 * keeps nothing. thread: loop. */
#ifndef SW_SPILL_RECORD_H
#define SW_SPILL_RECORD_H

#include "spill/journal/catalogue.h"
#include "spill/store/region.h"

/* Records a region as it is now, in place of its earlier record; no-op if its owner has no name. errors: -SW_ENOMEM,
 * -SW_ELIMIT: the old record stands. */
int sw_region_record(struct sw_catalogue *catalogue, struct sw_region *region, struct sw_err *err);
/* Records n regions that have no record yet, all or none: a successor finds all of them from one moment on, and none
 * before. errors: the same. The caller must then forget all n regions. */
int sw_region_record_batch(struct sw_catalogue *catalogue, struct sw_region *const *regions, unsigned n,
                           struct sw_err *err);
/* Records the region's priority, pin and last use, and whether its bytes are whole. */
void sw_region_record_hints(struct sw_catalogue *catalogue, const struct sw_region *region);

/* Frees the region's record and its frames, and ends its id. If a tier keeps the region, the id ends at once, and
 * record and frames when the tier has forgotten it. */
void sw_region_forget(struct sw_catalogue *catalogue, struct sw_region *region);
/* Ends a region whose bytes were restored. Until its client has acknowledged this, a successor finds it IN. */
void sw_region_consume(struct sw_catalogue *catalogue, struct sw_region *region);
/* Ends a region whose owner is closed: a durable region goes to the tenant owner, any other is forgotten. */
void sw_region_let_go(struct sw_catalogue *catalogue, struct sw_region *region);

#endif
