/* row.h - a kind of tier as the service knows it: how much of it is configured, and how it is opened.
 *
 * A kind is added by a file that defines its row, and a line in tiers.def. thread: loop. */
#ifndef SW_DAEMON_TIERS_ROW_H
#define SW_DAEMON_TIERS_ROW_H

#include "daemon/service.h"
#include <stdio.h>

struct sw_tier_row {
    const struct sw_tier_kind *kind;
    const char *title;                                         /* as in "the NVMe tier" */
    const char *option;                                        /* that is "none" without it; NULL: it is always there */
    uint64_t (*bytes)(const struct sw_config *config);         /* its bound; 0: there is none */
    uint64_t (*n_descriptors)(const struct sw_config *config); /* that it keeps open; NULL: few */
    /* With what was kept of a predecessor's; also called where bytes() is 0. *ret stays NULL if there is none, or if
     * the service goes on without it. *ret_own: what goes with it, for closed(), also after an error. errors: the
     * tier's. */
    int (*open)(struct sw_service *service, struct sw_tier **ret, void **ret_own, struct sw_err *err);
    /* After the tier's own close(); not called if open() has left *ret_own NULL. */
    void (*closed)(void *own);
    /* Looks at what lies there, without a service, and writes what it has found. NULL: that is not possible. errors:
     * -SW_ECONFIG (there is no such tier) and others; damage is none. */
    int (*check)(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err);
};

extern const struct sw_tier_row *const sw_tier_rows[];
extern const unsigned sw_tier_n_rows;

#endif
