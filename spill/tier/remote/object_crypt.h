/* object_crypt.h - encryption of objects on this side of the network.
 *
 * Each object has a random data key. The data key is wrapped by a master key and kept as the object's metadata, so a
 * new master key rewraps metadata and leaves bodies alone. A body consists of pieces, mostly of one. A piece consists
 * of segments of 1 MiB (the last one may be shorter), each encrypted by AES-256-GCM and followed by its tag, so that
 * ranges can be read alone.
 *
 * What is authenticated: the object's name (additional data), the segment's index in the object and whether it is the
 * last one of its piece (both in its nonce). So neither the store nor anything else that can write to the bucket can
 * alter, exchange, reorder or truncate objects unnoticed. They can remove objects, and bring back an earlier state of
 * the bucket. Names are not used twice, so only metadata that was rewrapped, and objects that were deleted, have an
 * earlier state.
 *
 * thread: any. */
#ifndef SW_SPILL_OBJECT_CRYPT_H
#define SW_SPILL_OBJECT_CRYPT_H

#include "spill/device/stored.h"
#include "spill/tier/remote/object.h"

enum { SW_OBJECT_SEGMENT_BYTES = 1 << 20, SW_OBJECT_TAG_BYTES = 16, SW_OBJECT_KEY_BYTES = 32 };

/* The systemd credential's name (LoadCredential=). */
#define SW_OBJECT_KEY_CREDENTIAL_NAME "spillway-remote-key"

/* The master keys, in a locked page that is left out of core dumps. */
struct sw_object_keyring;

/* The credential, and what the keys are of, for errors. */
struct sw_object_keyring_use {
    const char *credential, *tier;
};
/* Reads the master keys: lines of 64 hexadecimal digits (head -c 32 /dev/urandom | xxd -p -c 64). The first one wraps;
 * the others, at most 15, only open what they have wrapped. path NULL: the systemd credential. errors: -SW_ECONFIG
 * (none, or a malformed line), -SW_EACCES, -SW_EIO, -SW_ENOMEM (RLIMIT_MEMLOCK). */
int sw_object_keyring_open_for(struct sw_object_keyring **ret, const char *path,
                               const struct sw_object_keyring_use *use, struct sw_err *err);
/* Opens the keyring of the remote tier. */
int sw_object_keyring_open(struct sw_object_keyring **ret, const char *path, struct sw_err *err);
void sw_object_keyring_close(struct sw_object_keyring *keyring);

/* A data key. Wipe it with sw_object_key_fini(). */
struct sw_object_key {
    uint8_t bytes[SW_OBJECT_KEY_BYTES];
};
/* Makes a key at random. errors: -SW_EIO. */
int sw_object_key_make(struct sw_object_key *ret, struct sw_err *err);
/* Wraps a key for the object of this name, with the first master key. errors: -SW_EIO. */
int sw_object_key_wrap(const struct sw_object_keyring *keyring, const struct sw_object_key *key, const char *name,
                       char ret_meta[SW_OBJECT_META_BYTES], struct sw_err *err);
/* Opens the key of an object. *ret_is_old: another master key than the first has wrapped it; may be NULL. errors:
 * -SW_EACCES (no master key of ours has wrapped it), -SW_ECHECKSUM (it was altered, or is of another object),
 * -SW_EVERSION. */
int sw_object_key_open(const struct sw_object_keyring *keyring, const char *name, const char *meta,
                       struct sw_object_key *ret, bool *ret_is_old, struct sw_err *err);
void sw_object_key_fini(struct sw_object_key *key);

/* Return the number of segments and the length of the body of a piece with so many bytes, > 0. */
uint64_t sw_object_segments(uint64_t bytes);
uint64_t sw_object_body_bytes(uint64_t bytes);

/* A part of an object that is read alone: `bytes` in runs of memory. */
struct sw_object_piece {
    const struct sw_extent *memory;
    uint64_t bytes;
};
/* Encrypts n pieces, one after the other. body: as long as the sum of their sw_object_body_bytes(). errors: -SW_EIO. */
int sw_object_seal(const struct sw_object_key *key, const char *name, const struct sw_object_piece *pieces, unsigned n,
                   uint8_t *ret_body, struct sw_err *err);
/* The n segments from the first-th on of a piece of `bytes`. before: segments of the pieces before it. */
struct sw_object_range {
    uint64_t bytes, before, first, n;
};
/* Decrypts segments as their bytes arrive, in any lengths. owns: nothing is copied; name and memory, which is the whole
 * piece's, are borrowed until the end. Between begin and end the fields are the functions' own. */
struct sw_object_unsealing {
    const char *name;
    const struct sw_extent *run;
    uint64_t bytes, before, index, end, at, run_at; /* at: in the segment or its tag; run_at: in memory */
    struct evp_cipher_ctx_st *context;
    bool good;
    uint8_t tag[SW_OBJECT_TAG_BYTES];
};
void sw_object_unsealing_begin(struct sw_object_unsealing *ret, const struct sw_object_key *key, const char *name,
                               const struct sw_object_range *range, const struct sw_extent *memory);
void sw_object_unsealing_take(struct sw_object_unsealing *unsealing, const void *body, size_t bytes);
/* errors: -SW_ECHECKSUM: what has come is not what was encrypted, or not all of it; the memory of these segments is
 * undefined then. */
int sw_object_unsealing_end(struct sw_object_unsealing *unsealing, struct sw_err *err);

/* Encrypts a whole object with a new data key to request->body, and sets the metadata and the hash of its PUT.
 * request->name is set, and so are body and body_bytes. errors: -SW_EIO. */
int sw_object_seal_request(const struct sw_object_keyring *keyring, const struct sw_object_piece *pieces, unsigned n,
                           struct sw_object_request *request, struct sw_err *err);
/* Decrypts the first piece of an object, of at least one byte, all of which was read. *ret: allocated by sw_alloc().
 * errors: those of sw_object_key_open() and sw_object_unsealing_end(), -SW_ENOMEM. */
int sw_object_unseal_request(const struct sw_object_keyring *keyring, const struct sw_object_request *request,
                             void **ret, size_t *ret_bytes, struct sw_err *err);

#endif
