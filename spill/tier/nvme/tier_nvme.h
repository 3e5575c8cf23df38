/* tier_nvme.h - frames in large files on a disk, which outlive the process.
 *
 * Invariant: a frame whose write was reported done, and whose release has not begun, is found with the same bytes by
 * the next process that opens the directory, whenever and however this process ends, kill -9 at any moment included. A
 * frame that is found was written completely. A region that is kept (sw_tier_ops.change) is found after a power cut,
 * too, with all of its frames. Other frames are not flushed: after a power cut no one knows them. MANIFEST.md describes
 * the files, what is promised, and why this holds.
 *
 * Writes and reads only go through submit(), and bypass the page cache where the file system allows it (O_DIRECT). A
 * failing disk or a full file system only fails the transfer. Released space can be reused at once, so release a frame
 * only when no read of it is under way. reserve, submit, release and stats never wait for the disk. */
#ifndef SW_SPILL_TIER_NVME_H
#define SW_SPILL_TIER_NVME_H

#include "spill/tier/nvme/manifest.h"
#include "spill/tier/nvme/nvme_file_ops.h"
#include "spill/tier/nvme/nvme_key.h"
#include "spill/tier/nvme/nvme_wrap.h"
#include "spill/tier/tier.h"

extern const struct sw_tier_kind sw_tier_nvme_kind;

enum sw_tier_nvme_method {
    SW_TIER_NVME_AUTO,    /* io_uring, or threads where it is not allowed */
    SW_TIER_NVME_URING,   /* for tests */
    SW_TIER_NVME_THREADS, /* for tests */
};

struct sw_tier_nvme_config {
    const char
        *directory; /* its last component is made if missing; owned by the process's user, writable by no one else */
    uint64_t capacity_bytes;
    uint64_t file_bytes;  /* length of a data file: multiple of 4096; at most 4096 files */
    unsigned queue_depth; /* requests of up to 1 MiB at the disk at once, 1 ... 1024 */
    enum sw_tier_nvme_method method;
    const struct sw_nvme_key *key; /* encrypts blocks; NULL: no encryption; borrowed for the call */
    /* Master keys, borrowed for the call; NULL: none. The tier's key is then kept in the folder, wrapped by the first
     * one: the folder's own if it has one, whatever `key` says, and else `key`. Without them a folder that has a
     * wrapped key is refused. */
    const struct sw_object_keyring *keyring;
    struct sw_nvme_key *unwrapped; /* with a keyring: gets the folder's own key; the caller's, also on error */
    /* No catalogue knows the frames in the directory. A directory that is damaged, or cannot be taken as it is (another
     * version, key or size), is emptied instead of being salvaged or refused; the info says so. */
    bool unwanted;
    bool keep_plain; /* with a new key: frames that are not encrypted stay, unencrypted until they are released */
    /* Writing end of an in-flight I/O pipe, borrowed for the call; NULL: none. The tier's copy of it is closed when the
     * last request has ended. If the process is killed, requests that the kernel is working on continue. */
    const int *io_pipe;
    const struct sw_nvme_file_ops *files; /* tests inject faults; NULL: the system's; borrowed for the tier's life */
};

struct sw_tier_nvme_info {
    bool is_encrypted;
    bool is_wrapped;                  /* its key is in the folder, wrapped: it does not end with the unit */
    bool is_rewrapped;                /* by a new master key: the old one is of no use any more */
    enum sw_tier_nvme_method method;  /* URING or THREADS */
    bool direct;                      /* false: the file system refused O_DIRECT, transfers go through the page cache */
    bool reserved;                    /* false: the file system cannot reserve space; it is taken by writes */
    struct sw_err emptied;            /* code 0, or why everything there was removed */
    struct sw_manifest_damage damage; /* of the manifest as it was found; n_places 0: none */
    size_t damaged_names;             /* places of the ledger that were no whole record */
};

/* Opens the tier and reserves all of its space in the file system, if possible. Waits for this, and for transfers of a
 * killed predecessor to end. thread: any. errors:
 * - -SW_EINVAL, -SW_EIO, -SW_ENOMEM
 * - -SW_EBUSY: another process uses the directory
 * - -SW_EACCES: others may write to the directory, or own it
 * - -SW_ENOSPACE: the file system has no room
 * - -SW_ENOTSUP: URING is not allowed here
 * - -SW_ECONFIG: capacity_bytes or file_bytes contradict the frames that are there
 * - -SW_ECHECKSUM: the frames are of another key
 * - -SW_ECONFIG, -SW_EACCES: the folder's key is wrapped, and the master key is missing
 * - -SW_EVERSION: the manifest is of another version
 *
 * The last three change nothing, and do not occur with `unwanted`. A damaged manifest is no error: the frames that it
 * still vouches for are found, and the info describes the damage. */
int sw_tier_nvme_open(struct sw_tier **ret, const struct sw_tier_nvme_config *config, struct sw_err *err);

void sw_tier_nvme_info(struct sw_tier *tier, struct sw_tier_nvme_info *ret);

/* recover(): hands over each frame that the directory held when it was opened, newest first. Until then these frames
 * take up space, and a damaged manifest stays as it is; it is rewritten before the first later write.
 *
 * close(): no transfer may be under way, and uncommitted reservations must have been released. Committed frames stay in
 * the directory; their struct sw_stored become invalid. */

#endif
