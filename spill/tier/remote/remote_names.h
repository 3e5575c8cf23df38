/* remote_names.h - the regions that the remote tier keeps: a record of each, as an object (remote_record.h).
 *
 * Invariant: a region whose record was reported kept is found, with its batch, by the next process of the same host;
 * one that was reported forgotten is not.
 *
 * keep     the object is created with If-None-Match, so that it replaces no other host's. If the store says that there
 *          is one (412), or has not replied, the object is read: ours counts as created; another one deposes us, and
 *          the change fails with -SW_EEXIST. Records of a batch count when the batch's own object was created.
 * forget   the object is deleted; then the change is reported, and the region's frames may go.
 * failed   what may have been created is deleted later. If the store does not get to it, or completes a creation after
 *          the deletion, the object is an orphan, which `gc` finds.
 *
 * For a user that is a tenant of several hosts, all objects of the name are listed before the creation, and once more
 * after it. A second one is a second host's, and both withdraw.
 *
 * All requests of all changes are under way at the same time. thread: any, unless it says otherwise. */
#ifndef SW_SPILL_REMOTE_NAMES_H
#define SW_SPILL_REMOTE_NAMES_H

#include "spill/tier/remote/remote_list.h"

struct sw_remote_names;

/* Reads the records of an earlier process. tenants: borrowed. *ret: also set after an error, but for -SW_ENOMEM. errors
 * as of sw_remote_list_open(). thread: any but the client's. */
int sw_remote_names_open(struct sw_remote_names **ret, const struct sw_remote_list_config *config,
                         const struct sw_remote_tenants *tenants, struct sw_err *err);
/* Frees the names. The client must be closed. NULL: a no-op. */
void sw_remote_names_free(struct sw_remote_names *names);
/* Queues a change, as `change` of the tier. */
void sw_remote_names_submit(struct sw_remote_names *names, struct sw_tier_change *change);
struct sw_remote_list *sw_remote_names_list(struct sw_remote_names *names);

#endif
