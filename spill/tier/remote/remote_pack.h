/* remote_pack.h - an object of several short frames.
 *
 *   packs/HOST/FRAMES-LENGTH-NUMBER   FRAMES: how many; LENGTH: of the body; both in hexadecimal digits
 *
 * Its first piece (object_crypt.h) is its index: the key, number and length of each frame. Then each frame is a piece,
 * which is read alone. The pack is deleted when none of its frames is held any more. Until then it keeps its room.
 *
 * Pure, but for sw_remote_pack_load(). The tier's lock guards packs. */
#ifndef SW_SPILL_REMOTE_PACK_H
#define SW_SPILL_REMOTE_PACK_H

#include "base/list.h"
#include "spill/tier/remote/object_client.h"
#include "spill/tier/remote/object_crypt.h"
#include "spill/tier/tier.h"

enum { SW_REMOTE_PACK_FRAMES = 512, SW_REMOTE_PACK_FRAME_BYTES = 4 << 20 };

struct sw_remote_pack {
    struct sw_list node;
    unsigned n_frames, n_held;       /* held: that have a place */
    uint64_t used_bytes, held_bytes; /* of room in the tier, by all its frames; by those that are held */
    uint64_t body_bytes;
    bool may_exist; /* the object has to be deleted */
    char name[SW_OBJECT_NAME_BYTES];
};

/* A frame in the index. Content of objects: it does not change. */
struct sw_remote_pack_entry {
    uint8_t key[SW_TIER_KEY_BYTES];
    uint64_t number, bytes;
};

/* Returns the length of the body of an index of n frames, which is one segment. */
uint64_t sw_remote_pack_index_bytes(unsigned n);

/* Makes a pack of n frames, which it does not hold yet, and names it below the folder. NULL: out of memory. */
struct sw_remote_pack *sw_remote_pack_new(const char *folder, uint64_t number, unsigned n, uint64_t body_bytes);
/* Reads the part of a name after the folder. Returns false if it is none of ours. */
bool sw_remote_pack_read_name(const char *text, unsigned *ret_n, uint64_t *ret_body_bytes);

/* Encrypts a pack to request->body, as sw_object_seal_request(). frames: of each entry, in its order. errors: -SW_EIO,
 * -SW_ENOMEM. */
int sw_remote_pack_seal(const struct sw_object_keyring *keyring, const struct sw_remote_pack_entry *entries,
                        const struct sw_extent *const *frames, unsigned n, struct sw_object_request *request,
                        struct sw_err *err);

struct sw_remote_pack_load {
    struct sw_object_client *client;
    const struct sw_object_keyring *keyring;
    /* Gets the entries of a pack, borrowed. errors end the load. */
    int (*found)(void *arg, struct sw_remote_pack *pack, const struct sw_remote_pack_entry *entries,
                 struct sw_err *err);
    void *arg;
};
/* Reads the indices of packs, a list of struct sw_remote_pack.node, many at a time. A pack that is gone is left out.
 * One that cannot be read is an error: its frames would be missed. errors: those of the store, of
 * sw_object_unseal_request() and of found(). thread: any but the client's. */
int sw_remote_pack_load(const struct sw_remote_pack_load *load, const struct sw_list *packs, struct sw_err *err);

#endif
