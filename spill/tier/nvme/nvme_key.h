/* nvme_key.h - the key that the NVMe tier's blocks are encrypted with: made at random, never written to a file.
 *
 * It lies in a memfd, one locked page that is left out of core dumps, and is gone with the last descriptor of it. Who
 * wants the tier's frames to outlive the process keeps that descriptor and hands it to the next one. thread: any, but
 * not while it is freed. */
#ifndef SW_SPILL_NVME_KEY_H
#define SW_SPILL_NVME_KEY_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* Of AES-256-XTS, which has two keys. */
enum { SW_NVME_KEY_BYTES = 64, SW_NVME_MARK_BYTES = 32 };

struct sw_nvme_key {
    int fd; /* for whoever keeps it; closed by free: duplicate it */
    const uint8_t *bytes;
    bool is_new; /* made by this process: what others encrypted, nobody can read */
};

/* errors: -SW_ENOMEM (memory that can be locked is short: RLIMIT_MEMLOCK), -SW_EIO; *ret is then empty. */
int sw_nvme_key_make(struct sw_nvme_key *ret, struct sw_err *err);
/* The key of a predecessor. fd: moved, also on error. errors: -SW_EINVAL (it is no key's), -SW_ENOMEM, -SW_EIO. */
int sw_nvme_key_adopt(struct sw_nvme_key *ret, int fd, struct sw_err *err);
/* An empty one (all zero) is a no-op. */
void sw_nvme_key_fini(struct sw_nvme_key *key);

/* Where the mark of the folder's key is (MANIFEST.md). */
#define SW_NVME_MARK_FILE "key-check"

/* Whose the frames in a folder are that the manifest does not call plain. */
enum sw_nvme_frames {
    SW_NVME_FRAMES_OURS,  /* encrypted with our key; without one not encrypted */
    SW_NVME_FRAMES_PLAIN, /* not encrypted, though we have a key now */
    SW_NVME_FRAMES_LOST,  /* of a key that is gone, whether we have one or not */
};
/* Settles whose encryption the folder is in, key NULL: nobody's; the file `key-check` says so by a mark from which the
 * key cannot be had. What a key that is gone has encrypted, or what lies there as plain text although it must not, is
 * removed, frames and all; but with keep_plain nothing is yet: *ret says what is there, and once the manifest says so,
 * too, sw_nvme_key_mark() makes the folder ours: a start that failed, or was undone, must not cost what lay there
 * before. With a key of a predecessor nothing is removed: its frames may be wanted. errors: -SW_ECHECKSUM (frames there
 * are not of the predecessor's key), -SW_EIO. */
int sw_nvme_key_settle(const struct sw_nvme_key *key, bool keep_plain, int directory, enum sw_nvme_frames *ret,
                       struct sw_err *err);
int sw_nvme_key_mark(const struct sw_nvme_key *key, int directory, struct sw_err *err);

#endif
