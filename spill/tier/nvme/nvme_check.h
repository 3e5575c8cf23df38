/* nvme_check.h - checks the folder of an NVMe tier without a service, and changes nothing in it.
 *
 * The manifest is read as at a start (tier/manifest_scan.h), and every frame that it names is read and decoded.
 * Encrypted frames cannot be read: the key is only in the service's memory. Only the service knows whether a frame is
 * still wanted. thread: any; it waits for the disk. */
#ifndef SW_SPILL_NVME_CHECK_H
#define SW_SPILL_NVME_CHECK_H

#include "spill/tier/nvme/manifest_scan.h"
#include "spill/tier/tier.h"

/* A frame, with its region as in its key. */
struct sw_checked_frame {
    uint32_t slot, gen;
    uint64_t chunk; /* sw_frames_key() */
    char file[SW_TIER_FILE_BYTES];
    uint64_t offset, bytes;
    bool doubtful;
    struct sw_err err; /* code 0: whole */
};

struct sw_nvme_check {
    uint64_t manifest_bytes, file_bytes;
    bool in_use;       /* a running process uses it: frames come and go, so none was read */
    bool is_encrypted; /* frames are, except for some */
    uint64_t tail_bytes;
    size_t n_places;
    struct sw_manifest_place places[SW_MANIFEST_MAX_PLACES]; /* the first ones */
    uint64_t n_frames, frame_bytes, n_doubtful, n_dropped;
    uint64_t n_read, n_bad;
};

/* Checks a folder. file_bytes: length of the data files, if the manifest does not say. bad: called for each frame that
 * is not whole. Damage is no error. errors: -SW_ENOENT, -SW_EACCES, -SW_EIO, -SW_EVERSION, -SW_ENOMEM. */
int sw_nvme_check(struct sw_nvme_check *ret, const char *directory, uint64_t file_bytes,
                  void (*bad)(const struct sw_checked_frame *frame, void *arg), void *arg, struct sw_err *err);
/* Returns whether no damage was found. */
bool sw_nvme_check_is_good(const struct sw_nvme_check *check);

#endif
