/* rows.c - the table of tiers.def. A test may define another one. */
#include "daemon/tiers/row.h"

#ifndef SW_TIERS_DEF
#define SW_TIERS_DEF "daemon/tiers/tiers.def"
#endif

#define SW_TIER_ROW(name) extern const struct sw_tier_row sw_tier_row_##name;
#include SW_TIERS_DEF
#undef SW_TIER_ROW

#define SW_TIER_ROW(name) &sw_tier_row_##name,
const struct sw_tier_row *const sw_tier_rows[] = {
#include SW_TIERS_DEF
};
#undef SW_TIER_ROW

const unsigned sw_tier_n_rows = sizeof sw_tier_rows / sizeof sw_tier_rows[0];
_Static_assert(sizeof sw_tier_rows / sizeof sw_tier_rows[0] <= SW_TIERS_MAX, "an engine takes so many");
