/* check_tier.h - says what is wrong in the folder of the NVMe tier; starts nothing, and changes nothing there.
 * thread: any, no state. */
#ifndef SW_DAEMON_CHECK_TIER_H
#define SW_DAEMON_CHECK_TIER_H

#include "config/config.h"

#include <stdbool.h>
#include <stdio.h>

/* Checks the folder that the configuration names (spill/tier_check.h) and writes what it has found, a line for each
 * fault. errors: -SW_ECONFIG (there is no such tier), those of sw_tier_check(). */
int sw_check_tier(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err);

#endif
