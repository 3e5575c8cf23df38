/* top.h - what the service does, on one screen.
 *
 * thread: any. */
#ifndef SW_CTL_TOP_H
#define SW_CTL_TOP_H

#include "ctl/connection.h"
#include <stdio.h>

/* What is looked at; the look before gives rates. */
struct sw_top {
    struct json_t *status, *stats, *tiers, *sessions; /* owned */
    double at_s;
};
/* errors: those of sw_ctl_call(); *ret is then empty. */
int sw_top_look(struct sw_top *ret, struct sw_ctl *ctl, struct sw_err *err);
void sw_top_fini(struct sw_top *top);
/* before: NULL, or the look before; without it rates are those since the service started. */
void sw_top_print(FILE *out, const struct sw_top *now, const struct sw_top *before);

#endif
