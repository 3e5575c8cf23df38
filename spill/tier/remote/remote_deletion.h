/* remote_deletion.h - deletes an object when the store gets to it; no caller waits for it. */
#ifndef SW_SPILL_REMOTE_DELETION_H
#define SW_SPILL_REMOTE_DELETION_H

#include "spill/tier/remote/object_client.h"
#include <stdatomic.h>

/* Counts *n_failed if the object may be left: an orphan. It must live until the client is closed. thread: any. */
void sw_remote_delete_later(struct sw_object_client *client, const char *name, atomic_ullong *n_failed);

#endif
