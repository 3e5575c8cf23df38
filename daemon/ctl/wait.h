/* wait.h - waits for the end of what a command has begun. On a terminal, a bar on standard error shows how far it has
 * got. thread: any; one wait at a time. */
#ifndef SW_CTL_WAIT_H
#define SW_CTL_WAIT_H

#include "daemon/control/control_methods.h"
#include "daemon/ctl/connection.h"

/* Returns whether a method begins something that can be waited for: drain, spill, demote, promote. */
bool sw_ctl_can_wait(const struct sw_control_row *row);
/* Waits until the command has ended. *result: the command's answer; replaced by the latest one, if a command without
 * parameters shows the state. errors: -SW_ECANCELED (the service was asked to stop draining, or the move has failed),
 * -SW_ENOENT (the region was dropped or restored), those of sw_ctl_call(). */
int sw_ctl_wait(struct sw_ctl *ctl, const struct sw_control_row *row, struct json_t **result, struct sw_err *err);

/* Collects all pages of `snapshot` into one answer, as spillwayd --dry-run reads it. *result: the first page, then all.
 * errors: those of sw_ctl_call(). */
int sw_ctl_collect(struct sw_ctl *ctl, struct json_t *result, struct sw_err *err);

#endif
