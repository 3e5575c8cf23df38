/* tier.h - a place where frames are parked.
 *
 * A stored frame is a list of extents. Its life: reserve -> (write into the extents) -> commit -> (read) -> release; a
 * reservation that is not committed is released the same way. Space that was released is reusable at once. A tier has
 * its own lock and may be used by every worker and the loop; this is the second of the two locks of spill/README.md and
 * is never held while waiting for a device or a disk.
 *
 * What a tier can do is in its kind. The extents of an addressable tier are memory: whoever reserved them copies, then
 * calls commit. Those of an asynchronous one are reached by `submit` only, which copies to or from memory of an
 * addressable tier, and commits. */
#ifndef SW_SPILL_TIER_H
#define SW_SPILL_TIER_H

#include "base/err.h"
#include "base/list.h"
#include "spill/device/stored.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_device;
struct sw_tier;

enum sw_tier_capability {
    SW_TIER_ADDRESSABLE = 1,  /* extents have `memory` */
    SW_TIER_ASYNCHRONOUS = 2, /* frames are reached by `submit` */
    SW_TIER_DURABLE = 4, /* keeps its own record of its frames: what is not released is there again in a later process,
                            also if one without this tier comes between */
    SW_TIER_SHARED = 8,  /* other hosts reach it, too */
    SW_TIER_VIA = 16     /* frames come and go by way of the addressable tier before it */
};

struct sw_tier_kind {
    const char *name;      /* "host": in replies, metrics and logs */
    uint8_t id;            /* recorded in catalogues, so it never changes; 0 is none */
    unsigned capabilities; /* of enum sw_tier_capability */
};

struct sw_tier_stats {
    uint64_t capacity_bytes;     /* configured bound */
    uint64_t backed_bytes;       /* taken from the system so far */
    uint64_t used_bytes;         /* reserved and committed, rounded to blocks, and held */
    uint64_t held_bytes;         /* free, but of a predecessor for which the kernel may still write there */
    uint64_t largest_free_bytes; /* longest free run: a longer frame lies in several pieces */
    uint64_t huge_bytes;         /* of backed_bytes: in pages of the system's hugetlb pool */
    uint64_t committed_frames;
    unsigned n_slabs, n_waiting; /* waiting: reservations, for the tier to grow */
    bool growing;                /* a slab is being made */
    /* Asynchronous: what has lately been written and read a second while anything was to be; 0: not known. */
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

/* Whether a frame that the tier has found is wanted: then *stored is copied, and from there on is like any committed
 * frame. doubtful: what says so is damaged, and the frame may have been released: take it only if what is read can be
 * told from any other frame. */
typedef bool sw_tier_take(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored,
                          bool doubtful);

/* What a catalogue knows of a predecessor's frames in a tier. */
struct sw_tier_recovery {
    /* Their places: extents of offset and length alone, allocated by sw_alloc(). For tiers that keep no record. */
    struct sw_stored *const *frames;
    size_t n;
    sw_tier_take *take; /* for those that do */
    void *arg;
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
    /* Once, before anything is reserved, also if there is nothing to be found. A tier without a record makes committed
     * frames of those that lie in what was kept of it; the others stay as they were (tier NULL), and their extents the
     * caller's. A durable one calls take(), and releases what is not taken. errors: -SW_ENOMEM: some may have been
     * found all the same. thread: any. */
    int (*recover)(struct sw_tier *tier, const struct sw_tier_recovery *what, struct sw_err *err);
    /* Then: gives back what a predecessor with a larger bound had more, where it is empty. Returns by how many bytes
     * the capacity has fallen. NULL: it never does. thread: any. */
    uint64_t (*trim)(struct sw_tier *tier);
    /* All frames must have been released, except that a tier that outlives its process keeps committed ones; waits for
     * the end of a growth that is under way. */
    void (*close)(struct sw_tier *tier);
};

struct sw_tier {
    const struct sw_tier_ops *ops;
    const struct sw_tier_kind *kind;
    unsigned rank; /* its place in the array of tiers (tiers.h), which sets it */
};

static inline bool sw_tier_can(const struct sw_tier *tier, enum sw_tier_capability capability) {
    return (tier->kind->capabilities & capability) != 0;
}

/* Whether the frame has to be read by `submit` before it can be loaded; an empty one is nowhere. thread: any. */
static inline bool sw_stored_is_away(const struct sw_stored *stored) {
    return stored->tier && !sw_tier_can(stored->tier, SW_TIER_ADDRESSABLE);
}

/* Of any tier; an empty one is a no-op. thread: any. */
static inline void sw_stored_release(struct sw_stored *stored) {
    if (stored->tier)
        stored->tier->ops->release(stored->tier, stored);
}

#endif
