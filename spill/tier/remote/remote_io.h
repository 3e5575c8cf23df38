/* remote_io.h - transfers between memory and the remote tier's objects, sent and received by the client. A bounded pool
 * has the memory for what is on its way.
 *
 *   write   waits for room for all of it -> encrypted and hashed, on threads of this -> waits until the store can use
 *           it -> PUT -> committed
 *           A short frame begins at once if no other one is on its way (of longer ones if few are); else those that
 *           wait go together, as a pack (remote_pack.h), when one has arrived, or when they fill half a pack. So packs
 *           cost no time while the store is idle.
 *   read    parts of 8 or 16 MiB, each: waits for room for libcurl's buffer -> GET; what comes is decrypted to its
 *           place at once, on the client's threads; a part that is not what was encrypted is read again, twice
 *           Frames that lie one behind the other in a pack, and wait so, are one part.
 *
 * Reads go first. Writes fill at most three quarters of the pool. A part that is longer than the pool has it alone. Of
 * long parts only so many are sent as the store can use (remote_window.h); as many writes as there are threads are
 * encrypted ahead. */
#ifndef SW_SPILL_REMOTE_IO_H
#define SW_SPILL_REMOTE_IO_H

#include "spill/tier/remote/object_client.h"
#include "spill/tier/remote/object_crypt.h"
#include "spill/tier/remote/remote_pack.h"
#include "spill/tier/tier.h"

/* A frame's place: its object, or its part of a pack. owns: what sw_stored.extents points to. */
struct sw_remote_place {
    struct sw_list node;
    struct sw_extent extent; /* offset: the frame's number */
    uint8_t key[SW_TIER_KEY_BYTES];
    bool is_committed, may_exist;    /* may_exist: the object has to be deleted */
    char name[SW_OBJECT_NAME_BYTES]; /* of the object; "" in a pack */
    struct sw_remote_pack *pack;     /* NULL: it has an object of its own */
    uint64_t body_at, before;        /* in the pack: where its body begins, and how many segments are before it */
};

struct sw_remote_io;

struct sw_remote_io_config {
    struct sw_object_client *client;         /* borrowed */
    const struct sw_object_keyring *keyring; /* borrowed */
    uint64_t pool_bytes;
    void (*committed)(void *arg, struct sw_tier_io *io); /* a frame was written; called before `done` */
    /* Makes a pack that holds these places, in this order. NULL: out of memory. */
    struct sw_remote_pack *(*pack)(void *arg, struct sw_remote_place *const *places, unsigned n, uint64_t body_bytes);
    void *arg;
};

/* Starts the threads. errors: -SW_ENOMEM. */
int sw_remote_io_open(struct sw_remote_io **ret, const struct sw_remote_io_config *config, struct sw_err *err);
/* Submits a transfer; one with an error ends at once with it. `done` is called on a thread of this or of the client.
 * thread: any. */
void sw_remote_io_submit(struct sw_remote_io *io, struct sw_tier_io *transfer, struct sw_remote_place *place);
/* Returns bytes per second, 0: not known. thread: any. */
uint64_t sw_remote_io_rate(const struct sw_remote_io *io, enum sw_tier_io_kind kind);
/* Fills in backlog and buffers. */
void sw_remote_io_add_stats(struct sw_remote_io *io, struct sw_tier_store_stats *ret);
/* Ends the threads. No transfer may be under way. NULL: a no-op. */
void sw_remote_io_stop(struct sw_remote_io *io);
/* Frees the transfers, which must have been stopped, and their client closed. NULL: a no-op. */
void sw_remote_io_free(struct sw_remote_io *io);

#endif
