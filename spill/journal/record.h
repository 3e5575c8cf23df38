/* record.h - what the catalogue has of each region, and how a region goes: its record before its space. A NULL
 * catalogue keeps nothing. thread: loop. */
#ifndef SW_SPILL_RECORD_H
#define SW_SPILL_RECORD_H

#include "spill/journal/catalogue.h"
#include "spill/store/region.h"

/* Records a region as it is now, in place of what was recorded before; nothing if its owner has no name. errors:
 * -SW_ENOMEM, -SW_ELIMIT: the old record stands. */
int sw_region_record(struct sw_catalogue *catalogue, struct sw_region *region, struct sw_err *err);
/* Records n regions that were not recorded, all or none: a successor finds all of them from one moment on, and none
 * before. errors: the same; those that were recorded are to be forgotten, all of them. */
int sw_region_record_batch(struct sw_catalogue *catalogue, struct sw_region *const *regions, unsigned n,
                           struct sw_err *err);
/* Records what is known about its future, and whether its bytes are whole. */
void sw_region_record_hints(struct sw_catalogue *catalogue, const struct sw_region *region);

/* Frees the region's record and its frames, and ends its id. */
void sw_region_forget(struct sw_catalogue *catalogue, struct sw_region *region);
/* The same of one whose bytes are back: until its client has been told, a successor finds it IN. */
void sw_region_consume(struct sw_catalogue *catalogue, struct sw_region *region);
/* Its owner is closed: to the heir, if it is durable, else it is forgotten. */
void sw_region_let_go(struct sw_catalogue *catalogue, struct sw_region *region);

#endif
