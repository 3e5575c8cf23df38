/* names.h - what the control socket's methods call the tiers. */
#ifndef SW_DAEMON_TIERS_NAMES_H
#define SW_DAEMON_TIERS_NAMES_H

extern const char sw_tier_names[]; /* "host, nvme, device": the tiers and where packed regions are */

#endif
