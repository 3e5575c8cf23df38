/* names.h - the names of the tiers, for the control socket's methods. */
#ifndef SW_DAEMON_TIERS_NAMES_H
#define SW_DAEMON_TIERS_NAMES_H

extern const char sw_tier_names[]; /* "host, nvme, device": the tiers and the place of packed regions */

#endif
