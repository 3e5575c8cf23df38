/* kept.h - the records of regions in tiers that keep them (tier.h): their content, and what a start learns from them.
 *
 * A record is a header and the region's record as in the catalogue (catalogue_format.h). So a successor without the
 * catalogue finds the region under its old id, and its frames by their old keys. thread: loop. */
#ifndef SW_SPILL_KEPT_H
#define SW_SPILL_KEPT_H

#include "spill/journal/catalogue_format.h"
#include "spill/tier/tiers.h"

/* The ids in the records of all tiers. */
struct sw_kept_ids {
    uint64_t epoch;                 /* in the keys of their frames (frame_key.h) */
    uint32_t generation, n_entries; /* as in the catalogue */
    unsigned n;                     /* records; 0: the rest is 0 */
};

/* Reads the ids. errors: -SW_EVERSION (a later version has written a record), -SW_EFRAME (a record makes no sense),
 * -SW_ECONFIG (two epochs), those of the tiers. */
int sw_kept_ids(const struct sw_tiers *tiers, struct sw_kept_ids *ret, struct sw_err *err);

/* Encodes a record. errors: -SW_ENOMEM. */
int sw_kept_encode(struct sw_catalogue_content *ret, const struct sw_kept_ids *ids,
                   const struct sw_catalogue_region *region);
/* Decodes a record. ret->frames: as `found` gets them (catalogue.h). errors: as above, -SW_ENOMEM. */
int sw_kept_decode(const struct sw_tier_record *record, struct sw_catalogue_region *ret,
                   char ret_name[SW_REGION_NAME_BYTES], struct sw_err *err);

#endif
