/* top.h - the service's activity on one screen.
 *
 * thread: any. */
#ifndef SW_CTL_TOP_H
#define SW_CTL_TOP_H

#include "daemon/ctl/connection.h"
#include <stdio.h>

/* One state of the service; two of them give rates. */
struct sw_top {
    struct json_t *status, *stats, *tiers, *sessions; /* owned */
    double at_s;
};
/* Asks the service for its state. errors: sw_ctl_call()'s; *ret is then empty. */
int sw_top_look(struct sw_top *ret, struct sw_ctl *ctl, struct sw_err *err);
void sw_top_fini(struct sw_top *top);
/* Prints a state. before: the previous state, or NULL; then rates are since the service's start. */
void sw_top_print(FILE *out, const struct sw_top *now, const struct sw_top *before);

#endif
