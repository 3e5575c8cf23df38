/* device.h - what the engine asks of a device: a CUDA GPU, or the host with threads in place of streams.
 *
 * A *slot* is one in-order queue with its own frame buffer and scratch, all taken when the device is opened. Work is
 * queued on a slot and runs in order; different slots run side by side. Memory that a client handed over is reached
 * through a *mapping*. The engine overlaps encode, copy and decode of successive chunks by using several slots.
 *
 * Invariants: no call after open allocates device memory; no call but slot_wait, canary, open, close, map, unmap, pin
 * and unpin waits, if nothing fails; a failed step leaves the slot usable (unless -SW_EGPULOST) once slot_wait has
 * returned, and the steps queued behind the failed one up to that wait are skipped. thread: gpu (this device's worker)
 * for everything but open and close, which run before and after the worker, and pin and unpin, which a tier calls from
 * any thread. */
#ifndef SW_SPILL_DEVICE_H
#define SW_SPILL_DEVICE_H

#include "base/err.h"
#include "base/mem_kind.h"
#include "codec/plan/planning.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

const char *sw_mem_kind_name(enum sw_mem_kind kind);

/* Memory as described by a client; checked for shape by the session, for truth by map(). */
struct sw_mem_desc {
    enum sw_mem_kind kind;
    uint8_t device_uuid[SW_DEVICE_UUID_BYTES]; /* CUDA kinds: which GPU it is on */
    uint8_t handle[SW_MEM_HANDLE_BYTES];       /* CUDA_IPC: cudaIpcMemHandle_t; CUDA_POOL: cudaMemPoolPtrExportData */
    uint64_t bytes;                            /* length of the allocation, all parts together */
    uint32_t n_parts;                          /* MEMFD, CUDA_POOL: 1; CUDA_VMM: 1 … SW_MEM_MAX_PARTS; CUDA_IPC: 0 */
    uint32_t uid;                              /* who has sent the descriptors, for base/closer.h */
    int *fds;                                  /* [n_parts], owned by the description; -1: taken */
    uint64_t *part_bytes;                      /* [n_parts] */
};
/* Has the descriptors closed (base/closer.h) and frees the arrays; an empty or half-built description is fine. */
void sw_mem_desc_fini(struct sw_mem_desc *desc);

struct CUctx_st; /* CUDA's */
struct sw_device;
struct sw_mapping;
struct sw_stored;

struct sw_slot_result {
    struct sw_frame_layout frame; /* after encode: of the frame made */
};

/* One short chunk of a group: steps over many chunks at once, each with a frame of its own. The array belongs to the
 * caller and stays where it is until the slot has reported. */
struct sw_group_item {
    struct sw_mapping *mapping;
    uint64_t offset, bytes;       /* raw bytes in the mapping, at least 1 */
    struct sw_frame_layout frame; /* after encode_group: of the frame made; for restore_group: of the stored frame */
    /* store_group, restore_group: where the frame goes to or comes from, host memory. store_group reaches for no
     * mapping any more, and leaves out an item whose `stored` has no extents. */
    const struct sw_stored *stored;
    uint64_t identity;   /* after store_group: of the frame, if it has extents */
    bool is_damaged;     /* after restore_group: the stored frame is bad */
    bool may_fill_holes; /* restore_group: host device: a page that the memory lacks is made */
};

/* What an item's frame takes of a slot's frame buffer, for info.group_bytes. */
uint64_t sw_group_item_bytes(uint64_t raw_bytes);

#define SW_DECODE_MAX 4u
/* A frame in a slot's buffer or in a mapping, and where in the mapping its raw bytes go. */
struct sw_decode_item {
    const struct sw_frame_layout *layout;
    uint64_t frame_at, offset;
    uint64_t identity;   /* unpack: of the frame; 0: not known */
    bool may_fill_holes; /* host device: a page that the memory lacks is made */
};

#define SW_HEAD_MAX 64u
/* The beginning of a frame in a slot's buffer or in a mapping: all that comes before its counts. The array belongs to
 * the caller and stays where it is until the slot has reported. */
struct sw_head_item {
    uint64_t at, bytes;
    uint64_t identity; /* after the report, if that is a success */
};

/* For who implements a device: info.head_bytes of one with chunks of that length. */
uint64_t sw_device_head_bytes(uint64_t chunk_bytes);

#define SW_RAW_MAX 16u
/* A raw chunk on its way without its bytes being moved by kernels. The array belongs to the caller and stays where it
 * is until the slot has reported. */
struct sw_raw_item {
    struct sw_frame_layout frame;   /* of sw_frame_layout_init() for the raw codec, or that of the stored frame */
    uint64_t offset;                /* of the raw bytes in the mapping */
    const struct sw_stored *stored; /* the frame, or room for exactly that one, host memory */
    bool may_fill_holes;            /* restore_raw: host device: a page that the memory lacks is made */
};

struct sw_device_info {
    char name[64];                      /* "NVIDIA H200" or "host" */
    uint8_t uuid[SW_DEVICE_UUID_BYTES]; /* zero for the host device */
    unsigned n_slots;
    uint64_t chunk_bytes;   /* most raw bytes of one chunk; a multiple of 32 KiB */
    uint64_t scratch_bytes; /* device memory taken at open, everything counted; never grows */
    uint32_t full_segments; /* segments of a frame that keep all of the device busy; 0: any number does */
    uint64_t buffer_bytes;  /* length of a slot's frame buffer; at least the bound of a chunk's frame */
    uint64_t head_bytes; /* most bytes of all items of identify(); at least the longest beginning of a chunk's frame */
    /* Most items of a group, and the most that sw_group_item_bytes() of all of them may add up to. */
    unsigned group_items;
    uint64_t group_bytes;
    bool is_unguarded; /* host device: a page that a client's memory lacks is made at our expense (guard.h) */
    bool has_link;     /* frames cross a link to host memory, which compressing relieves; else it saves room only */
    /* How long after the last progress to look for more again and again, before a sleep, which wakes up late; while
     * steps run, longer (worker/worker.c). 0: not at all. */
    unsigned poll_us;
};

struct sw_device_ops {
    const struct sw_device_info *(*info)(const struct sw_device *device);

    /* Maps a client's memory and checks desc->bytes against the real allocation. The descriptors stay desc's.
     * errors: -SW_EIMPORT, -SW_ERANGE (shorter than claimed), -SW_EUNSEALED, -SW_EFDS, -SW_ENOTSUP (kind), -SW_EGPU,
     * -SW_ENOMEM, -SW_ELIMIT (no descriptor is left); nothing stays mapped after an error. */
    int (*map)(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret, struct sw_err *err);
    /* May wait for the driver, but for no slot: the caller has waited for every one that used the mapping. NULL
     * mapping: no-op. */
    void (*unmap)(struct sw_device *device, struct sw_mapping *mapping);
    /* Makes a mapping of memory of this process: device memory of the context; host device: any. The memory stays its
     * owner's, and stays until unmap(). errors: -SW_ENOMEM. */
    int (*adopt)(struct sw_device *device, void *data, uint64_t bytes, struct sw_mapping **ret, struct sw_err *err);

    /* Makes page-locked, copyable memory of an arena slab, and undoes it; both may wait. thread: any, also while the
     * worker is at work, and of several devices one after the other for the same slab. Host device: no-ops. */
    int (*pin)(struct sw_device *device, void *slab, size_t bytes, struct sw_err *err);
    void (*unpin)(struct sw_device *device, void *slab, size_t bytes);

    /* Each of these queues a step on slot `s` (0 … n_slots - 1). Offsets are into the mapping; the caller has checked
     * offset + bytes <= desc->bytes and bytes <= chunk_bytes, and queues at most one make_plan, encode, decode,
     * unpack, spill_raw, restore_raw, encode_group, store_group or restore_group between two reports of a slot. Return
     * 0 or an error of the queueing itself; what goes wrong later is reported by slot_poll / slot_wait. */
    /* Samples mapping[offset, offset + bytes), where bytes may exceed chunk_bytes, and makes a plan for it: of bytes
     * (SW_VALUE_NONE) trains a symbol table; of either chooses the codec. */
    int (*make_plan)(struct sw_device *device, unsigned s, enum sw_value_type type, const struct sw_mapping *mapping,
                     uint64_t offset, uint64_t bytes, struct sw_err *err);
    /* The plan of slot s's last make_plan(), once slot_poll or slot_wait has reported success; valid until the next
     * step is queued on the slot. */
    const struct sw_plan *(*plan)(struct sw_device *device, unsigned s);
    /* Encodes into slot s's frame buffer; the plan is copied before the call returns. */
    int (*encode)(struct sw_device *device, unsigned s, const struct sw_plan *plan, const struct sw_mapping *mapping,
                  uint64_t offset, uint64_t bytes, struct sw_err *err);
    /* Copies frame buffer [frame_offset, + bytes) to pinned memory, and pinned memory to the frame buffer. */
    int (*store)(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                 struct sw_err *err);
    int (*load)(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                struct sw_err *err);
    /* Copies frame buffer [frame_offset, + bytes) to mapping[offset, offset + bytes), and back: frames that stay in the
     * client's own memory. */
    int (*place)(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                 uint64_t frame_offset, uint64_t bytes, struct sw_err *err);
    int (*fetch)(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                 uint64_t frame_offset, uint64_t bytes, struct sw_err *err);
    /* Decodes `n` frames (1 … SW_DECODE_MAX) in slot s's frame buffer, at multiples of SW_FRAME_ALIGN, into
     * mapping[offset, offset + layout->raw_bytes) each, no two to the same bytes, and verifies them: a bad tile in any
     * makes the slot report -SW_ECHECKSUM. layout: of the same frame, from sw_frame_parse() on a host copy or from its
     * encode. The frame buffer keeps the frames, whatever comes of it. The items are copied before the call returns. */
    int (*decode)(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                  unsigned n, struct sw_err *err);

    /* The same for frames that lie in the mapping, which it leaves as they are; none of them may overlap any
     * destination. A device that decodes a copy of the frame compares that copy's identity; one that reads the frame
     * where it lies does not, and the caller has asked identify() before. */
    int (*unpack)(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                  unsigned n, struct sw_err *err);

    /* Finds out which frames they are (codec/identity.h): `n` beginnings (1 … SW_HEAD_MAX) that lie in the mapping, or
     * without one in slot s's frame buffer as the steps queued before leave it. Once between two reports, beside any
     * other step. */
    int (*identify)(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, struct sw_head_item *items,
                    unsigned n, struct sw_err *err);

    /* Work is about to come: has the device turn to this process now, which takes a GPU that was another one's 130 us.
     * Steps do not wait for it. Waits for nothing, and fails silently. Host device: a no-op. */
    void (*wake)(struct sw_device *device);

    /* Groups: what encode, store, and load with decode do, for `n` items (1 … group_items) in one go, so that what a
     * step costs in itself is paid once. Items may lie in any mappings, no two in the same bytes. For restore_group
     * item->frame is that of the frame when it was made; store_group follows the report of
     * encode_group, with the same items. A damaged frame is told by the item alone: the slot reports success. */
    int (*encode_group)(struct sw_device *device, unsigned s, const struct sw_plan *plan, struct sw_group_item *items,
                        unsigned n, struct sw_err *err);
    int (*store_group)(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                       struct sw_err *err);
    int (*restore_group)(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                         struct sw_err *err);

    /* Raw frames of `n` chunks (1 … SW_RAW_MAX) by the copy engines, which go on at full speed while others keep the
     * device's computing units busy. spill_raw brings the bytes to their places in the frames, and makes the frames,
     * which nobody else touches until the report. restore_raw brings the bytes back and verifies them:
     * -SW_ECHECKSUM if they are not what was stored, in whichever chunk. Hashes are made by one kernel for all, where
     * the bytes are on the device, but those of the last n_by_cpu (0 … n) chunks, which are the CPU's work; the host
     * device has nothing else. They use neither the slot's frame buffer nor a plan. */
    int (*spill_raw)(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                     const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err);
    int (*restore_raw)(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                       const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err);

    /* State of all steps queued on slot s since the last poll or wait that did not say -SW_EAGAIN: 0 all done,
     * -SW_EAGAIN still running, else the first error. -SW_EGPULOST: the context is dead, close the device. */
    int (*slot_poll)(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err);
    /* The same, but waits; never returns -SW_EAGAIN. */
    int (*slot_wait)(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err);

    /* Does something small on the device, beside all slots, and waits for it: says whether it still works. NULL: there
     * is nothing to ask. errors: -SW_EGPU, -SW_EGPULOST. */
    int (*canary)(struct sw_device *device, struct sw_err *err);

    void (*close)(struct sw_device *device);
};

/* Every implementation embeds this first. */
struct sw_device {
    const struct sw_device_ops *ops;
};

#define SW_CHUNK_ALIGN_BYTES ((uint64_t)32 << 10)

struct sw_device_config {
    uint64_t scratch_bytes; /* bound for all device memory taken, 64 MiB … */
    unsigned n_slots;       /* 0: the implementation's choice */
    uint64_t chunk_bytes;   /* 0: as large as scratch_bytes allows */
    /* Chunks that are stored already: room is made for them by longer chunks and fewer slots, if scratch_bytes allows.
     */
    uint64_t stored_chunk_bytes;
    /* CUDA: where all is done, a context of that GPU that outlives the device; NULL: the primary one. */
    struct CUctx_st *cuda_context;
    /* The slots' frame buffers, memory of this process that outlives the device, and that others may read and write,
     * too. Slot s's begins at frames + s * sw_device_frame_stride(chunk_bytes), and is as long as that. They do not
     * count in scratch_bytes. n_slots and chunk_bytes are not 0 then, and stand. NULL: the device takes its own. */
    void *frames;
    uint64_t frames_bytes;
    /* The device works in the process whose memory it reads and writes, and only adopts it. CUDA: the slots' streams
     * have the highest priority, since a guest's kernels are short, and others' long. */
    bool is_guest;
};

/* Returns the distance between two frame buffers in memory that is handed over: room for any frame of a chunk; a
 * multiple of 2 MiB, the length of a GPU's pages. */
uint64_t sw_device_frame_stride(uint64_t chunk_bytes);

/* For whoever implements a device: *n_slots and *chunk_bytes, which fit, are changed if longer ones are stored, and
 * fit. */
void sw_device_make_room(const struct sw_device_config *config,
                         bool (*fit)(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots),
                         unsigned *n_slots, uint64_t *chunk_bytes);
/* For the same: whether the configuration's frame buffers, if it has any, are long enough. */
bool sw_device_frames_fit(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots);

/* The host device: a thread per slot. n_slots 0: one per online processor, 2 … 16. */
int sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);

/* Number of CUDA devices that can be used; 0 without a driver, without a GPU, or in a build without CUDA. */
int sw_device_cuda_count(void);
/* CUDA device by ordinal. errors: -SW_EDEVICE, -SW_ENOTSUP (built without CUDA, or device too old), -SW_ENOMEM,
 * -SW_EGPU; takes at most config->scratch_bytes of device memory beside the context itself. The context is current on
 * the calling thread afterwards, and on each thread that calls an operation. Kernels take their memory in the context
 * when they are loaded: where that is to be at once, CUDA_MODULE_LOADING=EAGER has to be set before the first call of
 * CUDA. */
int sw_device_cuda_open(struct sw_device **ret, int ordinal, const struct sw_device_config *config, struct sw_err *err);

#endif
