/* tier_nvme.h - frames in large files on a disk, which outlive the process.
 *
 * Invariant: a frame whose write was reported done, and whose release has not begun, is found with the same bytes by
 * whoever opens the directory next, whenever and however this process ends: kill -9 at any moment included. A frame
 * that is found was written completely. Not covered is the end of the machine: frames are not synced to the disk, so
 * after a power cut the directory may hold anything, and nothing in it can be wanted. MANIFEST.md describes the files
 * and why this holds.
 *
 * Writing and reading go by submit() only and copy around the page cache where the file system allows it (O_DIRECT).
 * A failing disk or a full file system is the error of that one transfer. Released space is reusable at once: release a
 * frame only when no read of it is under way. Nothing of reserve, submit, release and stats waits for the disk. */
#ifndef SW_SPILL_TIER_NVME_H
#define SW_SPILL_TIER_NVME_H

#include "spill/tier/nvme/manifest.h"
#include "spill/tier/nvme/nvme_file_ops.h"
#include "spill/tier/nvme/nvme_key.h"
#include "spill/tier/tier.h"

extern const struct sw_tier_kind sw_tier_nvme_kind;

enum sw_tier_nvme_method {
    SW_TIER_NVME_AUTO,    /* io_uring, or threads where it is not allowed */
    SW_TIER_NVME_URING,   /* for tests */
    SW_TIER_NVME_THREADS, /* for tests */
};

struct sw_tier_nvme_config {
    const char *directory; /* its last part is made if missing; the process's own, writable by nobody else */
    uint64_t capacity_bytes;
    uint64_t file_bytes;  /* length of a data file: multiple of 4096; at most 4096 files */
    unsigned queue_depth; /* requests of up to 1 MiB at the disk at once, 1 ... 1024 */
    enum sw_tier_nvme_method method;
    const struct sw_nvme_key *key; /* blocks are encrypted with it; NULL: they are not; borrowed for the call */
    /* Nobody knows the frames that are there: a directory that is damaged, or cannot be taken as it is (of another
     * version, of another key, of other sizes), is emptied, which the info says, instead of being salvaged or refused.
     */
    bool unwanted;
    bool keep_plain; /* with a new key: frames that are not encrypted stay, and stay so until they are released */
    /* Writing end of a pipe, borrowed for the call; NULL: none. The tier's copy of it is closed when the last request
     * has ended: those that the kernel is at work on when the process is killed go on. */
    const int *witness;
    const struct sw_nvme_file_ops *files; /* tests inject faults; NULL: the system's; borrowed for the tier's life */
};

struct sw_tier_nvme_info {
    enum sw_tier_nvme_method method;  /* URING or THREADS */
    bool direct;                      /* false: the file system refused O_DIRECT, transfers go through the page cache */
    bool reserved;                    /* false: the file system cannot, its space is taken as it is written */
    struct sw_err emptied;            /* code 0; else why all that was there has been removed */
    struct sw_manifest_damage damage; /* of the manifest as it was found; n_places 0: none */
};

/* Takes all of its space from the file system, if that can; waits for it, and for transfers of a killed predecessor to
 * end. errors: -SW_EINVAL; -SW_EBUSY (another process has the directory); -SW_EACCES; -SW_ENOSPACE (the file system has
 * no room); -SW_ECONFIG (capacity_bytes or file_bytes do not go with the frames that are there); -SW_ECHECKSUM (frames
 * of another key), -SW_EVERSION (a manifest of another version): nothing was changed; these and -SW_ECONFIG not with
 * `unwanted`; -SW_ENOTSUP (URING is not allowed here); -SW_EIO, -SW_ENOMEM. A damaged manifest is none: the frames that
 * it still vouches for are found, and the info says so. thread: any. */
int sw_tier_nvme_open(struct sw_tier **ret, const struct sw_tier_nvme_config *config, struct sw_err *err);

void sw_tier_nvme_info(struct sw_tier *tier, struct sw_tier_nvme_info *ret);

/* recover(): each frame that the directory held when it was opened is handed over, newest first. Until then such frames
 * take up space, and a damaged manifest stays as it is; it is written anew before the first write that comes later.
 *
 * close(): no transfer may be under way and what was reserved without being committed must have been released.
 * Committed frames stay in the directory; their struct sw_stored become invalid. */

#endif
