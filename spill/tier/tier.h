/* tier.h - a place where frames are stored.
 *
 * A stored frame is a list of extents. Its life: reserve -> (write into the extents) -> commit -> (read) -> release. A
 * reservation that is not committed is released the same way. Released space can be reused at once. A tier has its own
 * lock and may be used by every worker and the loop. This is the second of the two locks of spill/README.md; it is
 * never held while waiting for a device or a disk.
 *
 * The tier's kind says what it can do. The extents of an addressable tier are memory: the caller reserves them, copies
 * the frame, then calls commit. The extents of an asynchronous tier are reached by `submit` only, which copies to or
 * from memory of an addressable tier, and commits. */
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
    SW_TIER_DURABLE = 4,      /* keeps its own record of its frames: a frame that is not released is found by a later
                                 process, even if a process without this tier ran in between */
    SW_TIER_SHARED = 8,       /* other hosts reach it, too */
    SW_TIER_VIA = 16          /* frames are moved through the addressable tier before it */
};

/* The events that regions survive. The values are on the wire: enum spillway_durability. */
enum sw_durability {
    SW_DURABILITY_SERVICE, /* a restart of the service under a manager that keeps its memory */
    SW_DURABILITY_HOST,    /* the end of the unit, a reboot and power loss */
    SW_DURABILITY_REMOTE,  /* the loss of the host */
    SW_DURABILITY_NR
};
/* Returns its name: "service", "host", "remote". thread: any. */
const char *sw_durability_name(enum sw_durability durability);

struct sw_tier_kind {
    const char *name;              /* such as "host"; in replies, metrics and logs */
    uint8_t id;                    /* recorded in catalogues, so it never changes; 0: none */
    unsigned capabilities;         /* a set of enum sw_tier_capability */
    enum sw_durability durability; /* of regions that the tier keeps (`change`) */
    uint64_t frame_bytes;          /* chunks are so short that no frame is longer; 0: any length will do */
};

struct sw_tier_stats {
    uint64_t capacity_bytes;     /* configured bound */
    uint64_t backed_bytes;       /* taken from the system so far */
    uint64_t used_bytes;         /* reserved, committed or held, rounded to blocks */
    uint64_t held_bytes;         /* free, but the kernel may still write there for a predecessor */
    uint64_t largest_free_bytes; /* length of the longest free run; a longer frame lies in several extents */
    uint64_t huge_bytes;         /* part of backed_bytes in pages of the system's hugetlb pool */
    uint64_t wasted_bytes;       /* part of used_bytes: of released frames, as long as others are stored with them */
    uint64_t wasteful_bytes;     /* part of used_bytes: of frames for which is_wasteful() is true */
    uint64_t committed_frames;
    unsigned n_slabs, n_waiting; /* waiting: reservations that wait for the tier to grow */
    bool growing;                /* a slab is being made */
    /* Asynchronous: recent rates, measured while there was something to write or read; 0: not known. */
    uint64_t write_bytes_per_s, read_bytes_per_s;
};

/* Counts of requests to a store behind a network, since the tier was opened. */
struct sw_tier_store_stats {
    uint64_t puts, gets, lists, deletes; /* requests, as stores charge for them; repeated ones, too */
    uint64_t failed_requests, repeated_requests;
    uint64_t sent_bytes, received_bytes;                         /* of bodies */
    uint64_t backlog_frames, backlog_bytes;                      /* submitted, and not ended */
    uint64_t buffer_bytes, buffer_used_bytes, buffer_peak_bytes; /* memory for what is on its way: bound, now, most */
    uint64_t orphans;                                            /* objects that could not be deleted */
    uint64_t foreign;                                            /* objects among the tier's that it did not make */
    uint64_t is_out;       /* 1: the store does not answer, or refuses everything; nothing new is stored there */
    uint64_t is_exclusive; /* 1: of several that create one object at once, exactly one wins; else the bucket is for a
                              single writer */
    struct sw_err last;    /* the last failed request's error */
};

/* The tasks that an operator may start on the objects of a shared tier. */
enum sw_tier_care {
    SW_TIER_CARE_GC,     /* objects that no frame has are deleted */
    SW_TIER_CARE_REWRAP, /* keys of objects are wrapped by the newest master key */
};
struct sw_tier_care_state {
    enum sw_tier_care what;
    bool has_begun, is_running;                    /* has_begun: ever; then the rest is of the last one */
    bool changes;                                  /* false: it only finds */
    uint64_t objects, found, found_bytes, changed; /* looked at; to be changed; changed */
    struct sw_err err;                             /* it ended early; code 0: it did not */
};

enum { SW_TIER_FILE_BYTES = 32 };
enum { SW_TIER_KEY_BYTES = 32, SW_TIER_IO_ALIGN = 4096 };
enum sw_tier_io_kind { SW_TIER_WRITE, SW_TIER_READ };

/* One transfer between host memory and a frame of a tier that has `submit`. owns: the caller, also memory and *stored;
 * borrowed from submit to `done`. */
struct sw_tier_io {
    enum sw_tier_io_kind kind;
    struct sw_stored *stored; /* WRITE: reserved; committed when `done` reports success. READ: committed */
    /* Runs in frame order, aligned to SW_TIER_IO_ALIGN and, except for the last, multiples of it in length; together at
     * least the frame's bytes. A host tier's extents qualify. A transfer covers whole blocks: the last run must be
     * memory up to the end of its block. Bytes there after the frame's end are stored with it, and overwritten by a
     * read. */
    const struct sw_extent *memory;
    unsigned n_memory;
    bool is_alone; /* WRITE: is_wasteful() has to stay false, so the frame is not stored together with others */
    /* WRITE: the caller's name for the frame, stored with it; opaque to the tier. READ: the tier fills it in. */
    uint8_t key[SW_TIER_KEY_BYTES];
    /* Called once, on the tier's own thread, which must not be blocked. It may call anything of the tier but close. */
    void (*done)(struct sw_tier_io *io, void *arg);
    void *arg;
    /* Result, code 0: success. -SW_EIO, -SW_ENOSPACE (the file system is full), ...: a written frame is not committed;
     * memory to be read into is undefined. */
    struct sw_err err;
    struct { /* the tier's, between submit and done */
        struct sw_list node;
        uint64_t left_bytes;  /* not started yet */
        unsigned extent, run; /* where the next request begins in the tier and in memory ... */
        uint64_t extent_at, run_at;
        unsigned in_flight;
        bool is_plain; /* not encrypted on the disk, though others are */
    } tier;
};

/* Returns whether a frame that the tier has found is wanted. If so, *stored is copied and is like any committed frame
 * from then on. doubtful: the record is damaged, and the frame may have been released. Take it only if a reader can
 * recognise its content. */
typedef bool sw_tier_take(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored,
                          bool doubtful);

/* A predecessor's frames in a tier, according to the catalogue. */
struct sw_tier_recovery {
    /* The frames' places: extents of offset and length alone, allocated by sw_alloc(). For tiers that keep no record.
     */
    struct sw_stored *const *frames;
    size_t n;
    sw_tier_take *take; /* for tiers that keep a record */
    void *arg;
};

/* A region's record in a tier that keeps regions. The content is opaque to the tier (journal/kept.h). */
struct sw_tier_record {
    uint64_t number; /* KEEP: set before `done`, never 0 and never used again; FORGET: the record to remove */
    const void *content;
    size_t bytes;
    uint32_t uid; /* the tenant's user; it and the name are unique together, for tiers whose records have names */
    const char *name;
};

/* A change of a tier's records. owns: the caller, until `done`. */
struct sw_tier_change {
    enum sw_tier_change_kind { SW_TIER_KEEP, SW_TIER_FORGET } kind;
    struct sw_tier_record *records;
    unsigned n; /* KEEP: a later process finds all of them or none */
    /* Called once, on any thread, perhaps from change(). It must not block. */
    void (*done)(struct sw_tier_change *change, void *arg);
    void *arg;
    struct sw_err err;   /* code 0: success; else the records are as before, or not known to be */
    struct sw_list node; /* the tier's */
};

struct sw_tier_ops {
    /* Reserves room for a frame of `bytes`; the first extent holds at least min(bytes, 4096) bytes. The room's content
     * is undefined: the whole frame must be written before commit. Waits while the tier grows, if there is too little
     * room yet. errors: -SW_ENOSPACE (bound reached; nothing is reserved), -SW_ENOMEM, those of pin() (making or
     * pinning more memory failed). thread: any. */
    int (*reserve)(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err);
    /* Commits a frame that is complete in its extents. The rest of its last block is zeroed. thread: any. NULL:
     * `submit` commits. */
    int (*commit)(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err);
    /* Releases the space and empties *stored; an empty one is a no-op. thread: any. */
    void (*release)(struct sw_tier *tier, struct sw_stored *stored);
    void (*stats)(struct sw_tier *tier, struct sw_tier_stats *ret);
    /* Returns whether the frame should move, because most of what was stored together with it has been released, and
     * its room is free only when it has gone, too. thread: any. NULL: never. */
    bool (*is_wasteful)(struct sw_tier *tier, const struct sw_stored *stored);
    /* Statistics of the store of a shared tier. thread: any. NULL: it has none. */
    void (*store_stats)(struct sw_tier *tier, struct sw_tier_store_stats *ret);
    /* Begins a task of care. changes: false: only finds what there is to do. thread: loop. errors: -SW_EBUSY (the last
     * one has not ended), -SW_ENOMEM. NULL: there is none. */
    int (*care)(struct sw_tier *tier, enum sw_tier_care what, bool changes, struct sw_err *err);
    /* thread: any. */
    void (*care_state)(struct sw_tier *tier, struct sw_tier_care_state *ret);
    /* Gets where a frame begins, for diagnosis: the name of the file, or of the memory, and the offset in it. thread:
     * any. NULL: not available. */
    void (*locate)(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                   uint64_t *ret_offset);
    /* Queues a transfer and returns. NULL where extents are memory. thread: any. */
    void (*submit)(struct sw_tier *tier, struct sw_tier_io *io);
    /* Finds the frames of a predecessor. Called once, before anything is reserved, even if there is nothing to find. A
     * tier without a record makes committed frames of the places in `frames` that lie in kept memory; the others stay
     * unchanged (tier NULL), and their extents remain the caller's. A durable tier calls take(), and releases the
     * frames that are not taken. errors: -SW_ENOMEM: some frames may have been found. thread: any. */
    int (*recover)(struct sw_tier *tier, const struct sw_tier_recovery *what, struct sw_err *err);
    /* Then: releases empty memory beyond the bound, left by a predecessor with a larger one. Returns by how many bytes
     * the capacity has fallen. NULL: it never does. thread: any. */
    uint64_t (*trim)(struct sw_tier *tier);
    /* Tiers that keep regions (kind->durability above SERVICE; NULL elsewhere). */
    /* Checks whether the tier could keep a region of this user now. errors: -SW_EDURABILITY; the text says why, and
     * what to do. thread: any. */
    int (*may_keep)(struct sw_tier *tier, uint32_t uid, struct sw_err *err);
    /* Queues a change and returns. KEEP: `done` reports success when all frames that were committed in this tier before
     * the call, and the records, survive what kind->durability says. FORGET: when the records are gone for good; only
     * then their frames may be released. Changes that wait share their flushes. thread: any. */
    void (*change)(struct sw_tier *tier, struct sw_tier_change *change);
    /* Visits the records that were there when the tier was opened, in the order in which they were kept. Ends early if
     * visit() returns an error, and returns it. May be called again. thread: loop, before the first change. */
    int (*visit_kept)(struct sw_tier *tier,
                      int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err), void *arg,
                      struct sw_err *err);
    /* Closes the tier. All frames must have been released; a durable tier keeps its committed frames. Waits for the end
     * of a growth that is under way. */
    void (*close)(struct sw_tier *tier);
};

struct sw_tier {
    const struct sw_tier_ops *ops;
    const struct sw_tier_kind *kind;
    unsigned rank; /* its index in the array of tiers (tiers.h), which sets it */
};

static inline bool sw_tier_can(const struct sw_tier *tier, enum sw_tier_capability capability) {
    return (tier->kind->capabilities & capability) != 0;
}

/* Returns whether the frame has to be read by `submit` before it can be loaded; false for an empty one. thread: any. */
static inline bool sw_stored_is_away(const struct sw_stored *stored) {
    return stored->tier && !sw_tier_can(stored->tier, SW_TIER_ADDRESSABLE);
}

/* Releases a frame of any tier; an empty one is a no-op. thread: any. */
static inline void sw_stored_release(struct sw_stored *stored) {
    if (stored->tier)
        stored->tier->ops->release(stored->tier, stored);
}

#endif
