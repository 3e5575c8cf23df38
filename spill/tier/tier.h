/* tier.h - a place where frames are parked.
 *
 * A stored frame is a list of extents. Its life: reserve -> (write into the extents) -> commit -> (read) -> release; a
 * reservation that is not committed is released the same way. Space that was released is reusable at once. A tier has
 * its own lock and may be used by every worker and the loop; this is the second of the two locks of spill/README.md and
 * is never held while waiting for a device or a disk.
 *
 * There are two kinds. The extents of an addressable tier (host) are memory: whoever reserved them copies, then calls
 * commit. Those of a tier of files are reached by `submit` only, which copies to or from host memory, and commits. */
#ifndef SW_SPILL_TIER_H
#define SW_SPILL_TIER_H

#include "base/err.h"
#include "base/list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_device;
struct sw_tier;

/* A run of bytes in the tier; `memory` is set by tiers that can be addressed (host). */
struct sw_extent {
    void *memory;
    uint64_t offset, bytes;
};

/* A reserved or committed frame. owns: whoever reserved it, until release. */
struct sw_stored {
    struct sw_extent *extents; /* in frame order; all but the last are multiples of the tier's block */
    unsigned n_extents;
    uint64_t bytes; /* length of the frame */
    bool committed;
    bool awaits_disk;     /* a catalogue says that it is in the NVMe tier, which has not been asked for it yet */
    struct sw_tier *tier; /* whose it is; NULL: empty */
};

struct sw_tier_stats {
    uint64_t capacity_bytes;     /* configured bound */
    uint64_t backed_bytes;       /* taken from the system so far */
    uint64_t used_bytes;         /* reserved and committed, rounded to blocks, and held */
    uint64_t held_bytes;         /* host: free, but of a predecessor for which the kernel may still write there */
    uint64_t largest_free_bytes; /* longest free run: a longer frame lies in several pieces */
    uint64_t huge_bytes;         /* of backed_bytes: in pages of the system's hugetlb pool */
    uint64_t committed_frames;
    unsigned n_slabs, n_waiting; /* waiting: reservations, for the tier to grow */
    bool growing;                /* a slab is being made */
    /* NVMe: what has lately been written and read a second while anything was to be; 0: not known. */
    uint64_t write_bytes_per_s, read_bytes_per_s;
};

enum { SW_TIER_FILE_BYTES = 32 };
enum { SW_TIER_KEY_BYTES = 32, SW_TIER_IO_ALIGN = 4096 };
enum sw_tier_io_kind { SW_TIER_WRITE, SW_TIER_READ };

/* One transfer between host memory and a frame of a tier that has `submit`. owns: the caller, memory and *stored
 * included; borrowed from submit to `done`. */
struct sw_tier_io {
    enum sw_tier_io_kind kind;
    struct sw_stored *stored; /* WRITE: reserved, committed when `done` says so; READ: committed */
    /* Runs in frame order, aligned to SW_TIER_IO_ALIGN and, but for the last, multiples of it in length; together at
     * least the frame's bytes: a host tier's extents will do. A transfer covers whole blocks: the last run must be
     * memory up to the end of its block, what lies there behind the frame's end is stored with it, and overwritten when
     * it is read. */
    const struct sw_extent *memory;
    unsigned n_memory;
    /* WRITE: the caller's name for the frame, kept with it; opaque to the tier. READ: the tier puts it there. */
    uint8_t key[SW_TIER_KEY_BYTES];
    /* On the tier's own thread, which must not be kept waiting, once; it may call anything of the tier but close. */
    void (*done)(struct sw_tier_io *io, void *arg);
    void *arg;
    /* Result, code 0: all bytes are where they should be. -SW_EIO, -SW_ENOSPACE (the file system is full), ...: a frame
     * that was to be written is not committed, memory that was to be filled is undefined. */
    struct sw_err err;
    struct { /* the tier's, between submit and done */
        struct sw_list node;
        uint64_t left_bytes;  /* not started yet */
        unsigned extent, run; /* where the next piece begins in the tier and in memory ... */
        uint64_t extent_at, run_at;
        unsigned in_flight;
        bool is_plain; /* on the disk, though others are encrypted */
    } tier;
};

struct sw_tier_ops {
    /* Room for a frame of `bytes`; the first extent holds at least min(bytes, 4096) bytes. What the room held before is
     * undefined: the whole frame must be written before commit.
     * Waits while the tier grows, if there is too little yet. errors: -SW_ENOSPACE (bound reached; nothing is
     * reserved), -SW_ENOMEM, those of pin() (making or pinning more memory failed). thread: any. */
    int (*reserve)(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err);
    /* The frame is complete in its extents and from now on counts as stored; what its last block has beyond it is
     * zero. thread: any. NULL: `submit` does it. */
    int (*commit)(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err);
    /* Gives the space back and empties *stored; an empty one is a no-op. thread: any. */
    void (*release)(struct sw_tier *tier, struct sw_stored *stored);
    void (*stats)(struct sw_tier *tier, struct sw_tier_stats *ret);
    /* Where a frame begins, for whoever looks for a fault: the name of the file, or of the memory, and the offset in
     * it. thread: any. NULL: nobody needs it. */
    void (*locate)(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                   uint64_t *ret_offset);
    /* Queues a transfer and returns; NULL where extents are memory. thread: any. */
    void (*submit)(struct sw_tier *tier, struct sw_tier_io *io);
    /* All frames must have been released, except that a tier that outlives its process keeps committed ones; waits for
     * the end of a growth that is under way. */
    void (*close)(struct sw_tier *tier);
};

struct sw_tier {
    const struct sw_tier_ops *ops;
    const char *name; /* "host", "nvme" */
};

/* Whether the frame is reached by `submit` only; an empty one is nowhere. thread: any. */
static inline bool sw_stored_is_on_disk(const struct sw_stored *stored) {
    return stored->tier && stored->tier->ops->submit;
}

/* Of any tier; an empty one is a no-op. thread: any. */
static inline void sw_stored_release(struct sw_stored *stored) {
    if (stored->tier)
        stored->tier->ops->release(stored->tier, stored);
}

/* Memory of the host tier that outlives its process. */
struct sw_tier_host_slab {
    int fd;
    uint64_t offset; /* of its first byte in the tier: extents count from the tier's start */
};

struct sw_tier_host_config {
    uint64_t capacity_bytes; /* bound */
    uint64_t initial_bytes;  /* made in any case, and at once */
    uint64_t ahead_bytes;    /* free, backed bytes below which the next slab is made, before anybody waits for it */
    uint64_t slab_bytes;     /* multiple of 2 MiB */
    struct sw_device *const *devices; /* each slab is pinned with these; borrowed for the tier's life */
    unsigned n_devices;
    /* Optional: tells of a change for whoever looks after the machine. failure NULL: there is as much memory as was
     * asked for, for the first time or again; else the first growth that failed. thread: the tier's own. */
    void (*report)(const struct sw_err *failure, uint64_t backed_bytes, void *arg);
    void *report_arg;
    /* Optional: sees to it that a new slab outlives the process, before any of it is used. fd: borrowed for the call.
     * thread: the tier's own. */
    void (*keep)(int fd, uint64_t offset, void *arg);
    /* Optional: the slab there is needed no more, or could not be used. thread: that of sw_tier_host_trim(), or the
     * tier's own. */
    void (*forget)(uint64_t offset, void *arg);
    void *keep_arg;
    /* What a predecessor kept, with what is in it; it counts as made, also beyond the bound. The descriptors are moved,
     * also on error. What cannot be used is left out. */
    const struct sw_tier_host_slab *kept;
    unsigned n_kept;
    /* Reading ends of pipes, moved, also on error. While one of them has a writer, the kernel may be about to write
     * into what was kept, where no frame lies: that is not reserved before all have none. */
    const int *witnesses;
    unsigned n_witnesses;
};
/* Whether a pipe has no writer any more. thread: any. */
bool sw_tier_has_ended(int witness);

/* Host memory: memfd slabs, mapped, touched and pinned by a thread of the tier's own, so that this returns at once,
 * with nothing backed yet. errors: -SW_ENOMEM, -SW_EINVAL. */
int sw_tier_host_open(struct sw_tier **ret, const struct sw_tier_host_config *config, struct sw_err *err);

/* Takes the places of a predecessor's frames, once, before anything is reserved, also if there are none: what is free
 * of its memory is known, and may have to be held, from then on. A frame comes with extents of offset
 * and length alone, allocated by sw_alloc(); one that is found becomes a committed frame of the tier with extents of
 * its own. One that lies outside of what was kept, or overlaps another, stays as it was (tier NULL), and its extents
 * the caller's. errors: -SW_ENOMEM: some may have been found all the same. */
int sw_tier_host_claim(struct sw_tier *tier, struct sw_stored *const *frames, size_t n, struct sw_err *err);
/* Then: gives back empty slabs of a predecessor that had a larger bound. Returns by how many bytes the capacity has
 * fallen. */
uint64_t sw_tier_host_trim(struct sw_tier *tier);

#endif
