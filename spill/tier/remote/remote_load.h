/* remote_load.h - reads the records of regions that an earlier process has left in the store (remote_record.h). */
#ifndef SW_SPILL_REMOTE_LOAD_H
#define SW_SPILL_REMOTE_LOAD_H

#include "spill/tier/remote/object_client.h"
#include "spill/tier/remote/object_crypt.h"
#include "spill/tier/remote/remote_record.h"

struct sw_remote_load {
    struct sw_object_client *client;
    const struct sw_object_keyring *keyring;
    const char *host;
    /* A record of this host. body: moved, allocated by sw_alloc(); it begins with the record. errors end the load. */
    int (*found)(void *arg, const char *object, struct sw_remote_record *body, size_t bytes, struct sw_err *err);
    void *arg;
};
/* Reads all records of the host, many at a time. One that cannot be read is an error: the frames that it names would be
 * taken for orphans. errors: those of the store and of sw_object_unseal_request(), sw_remote_record_read(), found().
 * thread: any but the client's. */
int sw_remote_load(const struct sw_remote_load *load, struct sw_err *err);
/* Reads one object whose record may be another host's. *ret: as above; NULL: it is gone, or not this host's. */
int sw_remote_load_one(const struct sw_remote_load *load, const char *object, struct sw_remote_record **ret,
                       struct sw_err *err);

#endif
