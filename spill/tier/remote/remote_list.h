/* remote_list.h - the records of the regions that the remote tier keeps, as a list, and what a start finds of them.
 *
 * An entry is in the list from before its object is created until it is deleted, so that `gc` spares it. thread: any,
 * unless it says otherwise; the lock guards entries and numbers. */
#ifndef SW_SPILL_REMOTE_LIST_H
#define SW_SPILL_REMOTE_LIST_H

#include "spill/tier/remote/object_client.h"
#include "spill/tier/remote/object_crypt.h"
#include "spill/tier/remote/remote_record.h"
#include "spill/tier/tier.h"

#include <pthread.h>
#include <stdatomic.h>

struct sw_remote_entry {
    struct sw_list node;
    uint64_t number, batch;
    char object[SW_OBJECT_NAME_BYTES]; /* "": it has no name yet */
    struct sw_remote_record *record;   /* and what follows; only of an earlier process, until the first change */
    size_t bytes;
};

struct sw_remote_list_config {
    struct sw_object_client *client;         /* borrowed */
    const struct sw_object_keyring *keyring; /* borrowed */
    const char *host;                        /* borrowed */
    atomic_ullong *n_orphans;                /* borrowed; counts objects that could not be deleted */
};

struct sw_remote_list {
    struct sw_remote_list_config config;
    pthread_mutex_t lock;
    struct sw_list entries; /* of an earlier process: in the order in which they were kept */
    uint64_t last_epoch, last_number;
};

/* Reads the records of an earlier process. Those that do not count are deleted later. errors: of sw_remote_load().
 * thread: any but the client's. */
int sw_remote_list_open(struct sw_remote_list *ret, const struct sw_remote_list_config *config, struct sw_err *err);
/* Frees the list, also after an error. The client must be closed. */
void sw_remote_list_fini(struct sw_remote_list *list);

/* Returns a number for a record or a batch that was never used and never will be. */
uint64_t sw_remote_list_number(struct sw_remote_list *list);
/* Adds an entry. NULL: out of memory. */
struct sw_remote_entry *sw_remote_list_add(struct sw_remote_list *list, uint64_t batch);
/* Names its object, below the folder. */
void sw_remote_list_name(struct sw_remote_list *list, struct sw_remote_entry *entry, const char *folder);
/* Returns the entry of a number; NULL: there is none. */
struct sw_remote_entry *sw_remote_list_find(struct sw_remote_list *list, uint64_t number);
/* Removes and frees an entry. deletes: its object as well, later. The last one of a batch takes the batch's object
 * along. */
void sw_remote_list_remove(struct sw_remote_list *list, struct sw_remote_entry *entry, bool deletes);
/* Frees what was read at the start. */
void sw_remote_list_forget_contents(struct sw_remote_list *list);
/* Writes the name of a batch's object. */
void sw_remote_list_name_batch(const struct sw_remote_list *list, uint64_t batch, char ret[SW_OBJECT_NAME_BYTES]);

/* Visits the kept records, as `visit_kept` of the tier. Call it before sw_remote_list_forget_contents(). */
int sw_remote_list_visit(struct sw_remote_list *list,
                         int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err), void *arg,
                         struct sw_err *err);
/* Copies the names of the objects that are needed to ret[0 ...], unless ret is NULL. Returns their number, which may
 * change between two calls: at most `max` are copied. */
size_t sw_remote_list_copy(struct sw_remote_list *list, char (*ret)[SW_OBJECT_NAME_BYTES], size_t max);
/* Returns whether an object is needed at the moment. */
bool sw_remote_list_has(struct sw_remote_list *list, const char *name);

#endif
