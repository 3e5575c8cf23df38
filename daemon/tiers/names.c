/* names.c - the names in tiers.def, for programs that do not link the tiers. */
#include "daemon/tiers/names.h"

#ifndef SW_TIERS_DEF
#define SW_TIERS_DEF "daemon/tiers/tiers.def"
#endif

#define SW_TIER_ROW(name) #name ", "
const char sw_tier_names[] =
#include SW_TIERS_DEF
    "device";
