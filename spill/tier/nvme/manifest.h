/* manifest.h - the file that lists the frames in a tier of files, so that they outlive the process: MANIFEST.md.
 *
 * A frame is in it if and only if its commit record is whole and no release record follows. Each record is appended by
 * one pwrite(). A process may be killed at any moment, and the next one reads a prefix of what was written. After a
 * power cut it reads everything that sw_manifest_flush() has flushed; of later records any may be missing.
 *
 * Not thread safe: the tier's thread owns it once it is open, but another one may flush it. All calls may wait for the
 * file system. */
#ifndef SW_SPILL_MANIFEST_H
#define SW_SPILL_MANIFEST_H

#include "spill/tier/nvme/nvme_file_ops.h"
#include "spill/tier/tier.h"

struct sw_manifest;

/* A frame, embedded in the tier's own record of it. owns: the tier; borrowed from commit, or `found`, to release. */
struct sw_manifest_entry {
    struct sw_list node; /* the manifest's */
    uint64_t id;         /* set by the manifest: never used twice in a directory */
    uint8_t key[SW_TIER_KEY_BYTES];
    uint64_t bytes; /* of the frame */
    bool encrypted; /* its blocks are encrypted */
    bool doubtful;  /* records after its commit are lost: its space may have been used again (manifest_scan.h) */
    const struct sw_extent *extents;
    unsigned n_extents;
};

struct sw_manifest_config {
    int directory;       /* borrowed while open */
    uint64_t file_bytes; /* length of the data files; stored in the manifest */
    const struct sw_nvme_file_ops *files;
    bool encrypted; /* frames are encrypted, except those from before encryption was turned on */
    bool flushes;   /* it was flushed by an earlier process: as after sw_manifest_flush() */
    bool lost; /* the encrypted frames cannot be read: they are not found, but may be in the file until it is rewritten
                */
    /* Called for each frame found, oldest first, while the manifest is opened. Returns an entry of the tier's own with
     * the same key, bytes, extents and encryption, or NULL without memory. *frame ends with the call. */
    struct sw_manifest_entry *(*found)(void *arg, const struct sw_manifest_entry *frame);
    void *arg;
};

/* The damage of the file. */
struct sw_manifest_damage {
    size_t n_places;
    uint64_t at;                    /* offset of the first damaged place */
    const char *what;               /* what is wrong there; static */
    uint64_t n_doubtful, n_dropped; /* frames that were found despite the damage; found frames that are overwritten or
                                     * beyond the files */
};

/* Opens or makes the manifest. A damaged one gives the frames that it still vouches for (manifest_scan.h), and stays
 * unchanged. The tier frees the frames that were found, also after an error. errors: -SW_EVERSION, -SW_ECONFIG
 * (file_bytes differs and there are frames), -SW_EIO, -SW_ENOSPACE, -SW_ENOMEM. */
int sw_manifest_open(struct sw_manifest **ret, const struct sw_manifest_config *config, struct sw_err *err);
/* Closes a manifest. Its entries stay in the file. NULL is a no-op. */
void sw_manifest_close(struct sw_manifest *manifest);

/* Returns the file's damage. NULL: the file is whole. Borrowed, until it is mended. */
const struct sw_manifest_damage *sw_manifest_damage(const struct sw_manifest *manifest);
/* Rewrites a damaged file with the frames that are still in it. They are no longer doubtful then. So every doubtful
 * frame must have been released before, or a reader must recognise it for certain. An undamaged file is left alone.
 * errors: -SW_EIO, -SW_ENOSPACE, -SW_ENOMEM: the damage stays. */
int sw_manifest_mend(struct sw_manifest *manifest, struct sw_err *err);
/* Removes a frame that cannot be where its record says: as damage, without a release. why: static. */
void sw_manifest_drop(struct sw_manifest *manifest, struct sw_manifest_entry *entry, const char *why);

/* Records that all frames in it are not encrypted, though new ones are: in one step, whatever the mark of the directory
 * says (nvme_key.h). errors: -SW_EIO, -SW_ENOSPACE, -SW_ENOMEM. */
int sw_manifest_encrypt(struct sw_manifest *manifest, struct sw_err *err);

/* Cuts off bytes that a killed process or a failed append may have left after the last record. Nothing may be written
 * into the space of a frame that is not in the manifest before this has succeeded. errors: -SW_EIO, ... */
int sw_manifest_settle(struct sw_manifest *manifest, struct sw_err *err);
/* Flushes all records that were appended before. Files that take its place from now on are flushed first. thread: any.
 * errors: -SW_EIO, -SW_ENOSPACE, -SW_ENOMEM. */
int sw_manifest_flush(struct sw_manifest *manifest, struct sw_err *err);
/* Append a record. errors: -SW_EIO, -SW_ENOSPACE, -SW_ENOMEM; the entry is unchanged, in or not in the manifest. */
int sw_manifest_commit(struct sw_manifest *manifest, struct sw_manifest_entry *entry, struct sw_err *err);
int sw_manifest_release(struct sw_manifest *manifest, struct sw_manifest_entry *entry, struct sw_err *err);

#endif
