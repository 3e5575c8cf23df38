/* nvme_key.h - the key that encrypts the NVMe tier's blocks: made at random, written to no file, or only wrapped
 * (nvme_wrap.h).
 *
 * It lies in a memfd, one locked page that is left out of core dumps, and it is gone with the memfd's last descriptor.
 * To let the tier's frames outlive the process, keep the descriptor and hand it to the next process. thread: any, but
 * not while it is freed. */
#ifndef SW_SPILL_NVME_KEY_H
#define SW_SPILL_NVME_KEY_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* The lengths of the key, which is two keys for AES-256-XTS, and of its mark. */
enum { SW_NVME_KEY_BYTES = 64, SW_NVME_MARK_BYTES = 32 };

struct sw_nvme_key {
    int fd; /* closed by sw_nvme_key_fini(): duplicate it to keep it */
    const uint8_t *bytes;
    bool is_new; /* made by this process: nothing encrypted by others can be read */
};

/* Makes a key. errors: -SW_ENOMEM (too little lockable memory: RLIMIT_MEMLOCK), -SW_EIO; *ret is then empty. */
int sw_nvme_key_make(struct sw_nvme_key *ret, struct sw_err *err);
/* Makes a key of two halves of 32 bytes. errors: the same. */
int sw_nvme_key_set(struct sw_nvme_key *ret, const uint8_t first[SW_NVME_KEY_BYTES / 2],
                    const uint8_t second[SW_NVME_KEY_BYTES / 2], struct sw_err *err);
/* Adopts a predecessor's key. fd: moved, also on error. errors: -SW_EINVAL (it is no key's), -SW_ENOMEM, -SW_EIO. */
int sw_nvme_key_adopt(struct sw_nvme_key *ret, int fd, struct sw_err *err);
/* Frees a key. An empty one (all zero) is a no-op. */
void sw_nvme_key_fini(struct sw_nvme_key *key);

/* The file with the mark of the folder's key (MANIFEST.md). */
#define SW_NVME_MARK_FILE "key-check"

/* The encryption of a folder's frames, apart from those that the manifest calls plain. */
enum sw_nvme_frames {
    SW_NVME_FRAMES_OURS,  /* encrypted with our key; without a key, not encrypted */
    SW_NVME_FRAMES_PLAIN, /* not encrypted, though we have a key now */
    SW_NVME_FRAMES_LOST,  /* encrypted with a lost key, whether we have one or not */
};
/* Decides which encryption the folder has. key NULL: it is to have none. The file `key-check` holds a mark of the key,
 * from which the key cannot be derived. Frames of a lost key, or plain frames that must not be there, are removed. With
 * keep_plain nothing is removed yet: *ret reports what is there. Once the manifest says so, too, sw_nvme_key_mark()
 * makes the folder ours. So a start that fails, or is undone, does not cost frames. With a predecessor's key nothing is
 * removed: its frames may be wanted. errors: -SW_ECHECKSUM (the frames there are not of the predecessor's key),
 * -SW_EIO. */
int sw_nvme_key_settle(const struct sw_nvme_key *key, bool keep_plain, int directory, enum sw_nvme_frames *ret,
                       struct sw_err *err);
int sw_nvme_key_mark(const struct sw_nvme_key *key, int directory, struct sw_err *err);

#endif
