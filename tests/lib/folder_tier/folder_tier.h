/* folder_tier.h - a tier for tests: each frame is a plain file of a folder, which later processes find again.
 *
 * It shows that a kind of tier is added by a folder, this one, and a row (tiers.def): nothing else knows of it. */
#ifndef SW_TEST_FOLDER_TIER_H
#define SW_TEST_FOLDER_TIER_H

#include "spill/tier/tier.h"

extern const struct sw_tier_kind sw_folder_tier_kind;

/* directory: is there; borrowed for the call. Each frame counts in whole blocks. errors: -SW_ENOMEM, -SW_EIO. */
int sw_folder_tier_open(struct sw_tier **ret, const char *directory, uint64_t capacity_bytes, struct sw_err *err);

/* Where the table's row opens it; empty: there is none. The test sets it before the daemon's parts are opened. */
extern char sw_folder_tier_directory[256];
/* What the row's check finds. */
extern bool sw_folder_tier_is_good;
enum { SW_FOLDER_TIER_BYTES = 64 << 20 };

#endif
