/* row.h - a kind of tier in the service: its configured size, and how it is opened.
 *
 * To add a kind: a file that defines its row, and a line in tiers.def. thread: loop. */
#ifndef SW_DAEMON_TIERS_ROW_H
#define SW_DAEMON_TIERS_ROW_H

#include "daemon/service.h"
#include <stdio.h>

struct sw_tier_row {
    const struct sw_tier_kind *kind;
    const char *title;  /* its name in texts, as in "the NVMe tier" */
    const char *option; /* the option that is "none" without it; NULL: the tier always exists */
    uint64_t (*bytes)(const struct sw_config *config);         /* its configured size; 0: it does not exist */
    uint64_t (*buffer_bytes)(const struct sw_config *config);  /* host memory beside the tier's own; NULL: little */
    uint64_t (*n_descriptors)(const struct sw_config *config); /* descriptors that it keeps open; NULL: few */
    /* Opens the tier with what was kept of a predecessor's; also called if bytes() is 0. *ret stays NULL if there is no
     * tier, or if the service works without it. *ret_own: own data, for closed(), also after an error. errors: the
     * tier's. */
    int (*open)(struct sw_service *service, struct sw_tier **ret, void **ret_own, struct sw_err *err);
    /* Frees own data, after the tier's close(). Not called if open() has left *ret_own NULL. */
    void (*closed)(void *own);
    /* Checks the tier's content without a service, and prints the result. NULL: not possible. errors: -SW_ECONFIG
     * (there is no such tier) and others; damage is no error. */
    int (*check)(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err);
};

extern const struct sw_tier_row *const sw_tier_rows[];
extern const unsigned sw_tier_n_rows;

#endif
