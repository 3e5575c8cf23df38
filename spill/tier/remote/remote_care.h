/* remote_care.h - what an operator has done to the objects of a remote tier, on a thread of its own.
 *
 *   gc       objects of this host that are needed no more: orphans. They are found, or deleted.
 *   rewrap   data keys that another master key than the first has wrapped. They are found, or wrapped again.
 *
 * One at a time. While the store is out it ends with an error. */
#ifndef SW_SPILL_REMOTE_CARE_H
#define SW_SPILL_REMOTE_CARE_H

#include "spill/tier/remote/object_client.h"
#include "spill/tier/remote/object_crypt.h"
#include "spill/tier/remote/remote_record.h"
#include "spill/tier/tier.h"

struct sw_remote_care;

struct sw_remote_care_config {
    struct sw_object_client *client;         /* borrowed */
    const struct sw_object_keyring *keyring; /* borrowed */
    const char *folders[6];                  /* of the names, up to NULL; borrowed */
    /* Copies the names of all objects that are needed, sorted; *ret: an array of SW_OBJECT_NAME_BYTES each. errors:
     * -SW_ENOMEM. thread: any. */
    int (*list_names)(void *arg, char (**ret)[SW_OBJECT_NAME_BYTES], size_t *ret_n);
    /* Returns whether an object is needed at the moment. thread: any. */
    bool (*has_name)(void *arg, const char *name);
    enum sw_remote_record_of (*whose)(void *arg, const char *name); /* judged by the name. thread: any */
    bool (*is_ours)(void *arg, const char *name); /* reads a SHARED one. thread: any but the client's */
    void *arg;
};

/* Prepares the tasks. errors: -SW_ENOMEM. */
int sw_remote_care_open(struct sw_remote_care **ret, const struct sw_remote_care_config *config, struct sw_err *err);
/* Begins a task. changes: false: only finds what there is to do. errors: -SW_EBUSY, -SW_ENOMEM. thread: one at a time,
 * for this and close. */
int sw_remote_care_begin(struct sw_remote_care *care, enum sw_tier_care what, bool changes, struct sw_err *err);
void sw_remote_care_state(struct sw_remote_care *care, struct sw_tier_care_state *ret);
/* Ends it early, and waits for a request that is under way. NULL: a no-op. */
void sw_remote_care_close(struct sw_remote_care *care);

#endif
