/* device.h - the contract of a device: a CUDA GPU, or the host with threads in place of streams.
 *
 * A *slot* is one in-order queue with its own frame buffer. All memory is taken when the device is opened.
 * Steps are queued on a slot and run in order; different slots run side by side. So several slots overlap encode, copy
 * and decode of successive chunks. A client's memory is reached through a *mapping*.
 *
 * Invariants:
 *   - No call after open allocates device memory.
 *   - Only slot_wait, canary, open, close, map, unmap, pin and unpin wait, unless something fails.
 *   - After a failed step, the steps queued behind it are skipped. The slot is usable again once slot_wait has
 *     returned, unless it returned -SW_EGPULOST.
 *
 * thread: gpu (this device's worker). Exceptions: open and close run before and after the worker; a tier calls pin and
 * unpin from any thread. */
#ifndef SW_SPILL_DEVICE_H
#define SW_SPILL_DEVICE_H

#include "base/err.h"
#include "base/mem_kind.h"
#include "codec/plan/planning.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

const char *sw_mem_kind_name(enum sw_mem_kind kind);

/* A client's description of its memory. The session checks its form, and map() checks that it is true. */
struct sw_mem_desc {
    enum sw_mem_kind kind;
    uint8_t device_uuid[SW_DEVICE_UUID_BYTES]; /* CUDA kinds: which GPU it is on */
    uint8_t handle[SW_MEM_HANDLE_BYTES];       /* CUDA_IPC: cudaIpcMemHandle_t; CUDA_POOL: cudaMemPoolPtrExportData */
    uint64_t bytes;                            /* length of the allocation, all parts together */
    uint32_t n_parts;                          /* MEMFD, CUDA_POOL: 1; CUDA_VMM: 1 … SW_MEM_MAX_PARTS; CUDA_IPC: 0 */
    uint32_t uid;                              /* the user whose client sent the descriptors, for base/closer.h */
    bool once;                                 /* it is unmapped at the end of the first run that uses it */
    int *fds;                                  /* [n_parts], owned by the description; -1: taken */
    uint64_t *part_bytes;                      /* [n_parts] */
};
/* Closes the descriptors in another thread (base/closer.h), and frees the arrays. The description may be empty or
 * half-built. */
void sw_mem_desc_fini(struct sw_mem_desc *desc);

struct CUctx_st; /* CUDA's */
struct sw_device;
struct sw_mapping;
struct sw_stored;

struct sw_slot_result {
    struct sw_frame_layout frame; /* after encode: layout of the new frame */
};

/* One short chunk of a group, with a frame of its own. The caller owns the array, and must not move it until the slot
 * has reported. */
struct sw_group_item {
    struct sw_mapping *mapping;
    uint64_t offset, bytes;       /* raw bytes in the mapping, at least 1 */
    struct sw_frame_layout frame; /* after encode_group: of the new frame; for restore_group: of the stored frame */
    /* store_group, restore_group: the frame's place in host memory. store_group does not use the mapping, and skips an
     * item whose `stored` has no extents. */
    const struct sw_stored *stored;
    uint64_t identity;   /* after store_group: of the frame, if it has extents */
    uint64_t frame_at;   /* of the frame in the slot's buffer: after gather_group; for decode_group */
    bool is_left_out;    /* gather_group: this frame stays where it is */
    bool is_damaged;     /* after restore_group and decode_group: the frame is bad */
    bool may_fill_holes; /* the same, host device: missing pages of the client's memory are allocated */
};

/* Returns the room that an item's frame takes in a slot's frame buffer, for info.group_bytes. */
uint64_t sw_group_item_bytes(uint64_t raw_bytes);

#define SW_DECODE_MAX 8u
/* A frame in a slot's buffer or in a mapping, and the place in the mapping where its raw bytes go. */
struct sw_decode_item {
    const struct sw_frame_layout *layout;
    uint64_t frame_at, offset;
    uint64_t identity;   /* unpack: of the frame; 0: not known */
    bool may_fill_holes; /* host device: missing pages of the client's memory are allocated */
};

#define SW_HEAD_MAX 64u
/* The beginning of a frame in a slot's buffer or in a mapping: all bytes before its counts. The caller owns the array,
 * and must not move it until the slot has reported. */
struct sw_head_item {
    uint64_t at, bytes;
    uint64_t identity; /* after the slot has reported success */
};

#define SW_RAW_MAX 16u
/* A raw chunk whose bytes copy engines move. The caller owns the array, and must not move it until the slot has
 * reported. */
struct sw_raw_item {
    struct sw_frame_layout
        frame;       /* spill: from sw_frame_layout_init() for the raw codec; restore: the stored frame's */
    uint64_t offset; /* of the raw bytes in the mapping */
    const struct sw_stored *stored; /* the frame, or room for exactly this frame, in host memory */
    bool may_fill_holes;            /* restore_raw, host device: missing pages of the client's memory are allocated */
};

/* A client's frame in a mapping, or room for one, and its place in host memory. The caller owns the array, and must not
 * move it until the slot has reported. */
struct sw_frame_item {
    uint64_t offset;
    const struct sw_stored *stored;
};

/* Frames that follow each other begin at multiples of this, as in the host tier: then one copy moves them all. */
#define SW_FRAME_STEP_BYTES ((uint64_t)4096)
static inline uint64_t sw_frame_step_bytes(uint64_t frame_bytes) {
    return (frame_bytes + SW_FRAME_STEP_BYTES - 1) / SW_FRAME_STEP_BYTES * SW_FRAME_STEP_BYTES;
}

/* A run of bytes in a mapping and in host memory. */
struct sw_device_copy {
    uint64_t offset, bytes;
    uint8_t *memory;
};
/* Goes through the frames of take_frames() or give_frames() by as few copies as possible. For implementations of
 * devices. */
struct sw_device_copies {
    const struct sw_frame_item *items; /* [n] */
    unsigned n, item, extent;
    uint64_t at; /* of the extent in its frame */
};
/* Gets the next copy: runs that follow each other on both sides, at most with the rest of a step between them. In host
 * memory such a rest is the frame's own, and zero once the frame is committed. Returns false at the end. */
bool sw_device_next_copy(struct sw_device_copies *copies, struct sw_device_copy *ret);
/* Sets frame_at of the items that gather_group() copies. For implementations of devices. */
void sw_device_place_group(struct sw_group_item *items, unsigned n, uint64_t at);

struct sw_device_info {
    char name[64];                      /* "NVIDIA H200" or "host" */
    uint8_t uuid[SW_DEVICE_UUID_BYTES]; /* zero for the host device */
    unsigned n_slots;
    uint64_t chunk_bytes;   /* most raw bytes of one chunk; a multiple of 32 KiB */
    uint64_t scratch_bytes; /* all device memory that was taken at open; it never grows */
    uint32_t full_segments; /* segments of a frame that keep the whole device busy; 0: any number does */
    uint64_t buffer_bytes;  /* length of a slot's frame buffer; at least the bound of a chunk's frame */
    /* Most items of a group, and the limit for the sum of their sw_group_item_bytes(). */
    unsigned group_items;
    uint64_t group_bytes;
    bool is_unguarded; /* host device: missing pages of clients' memory are allocated at our expense (guard.h) */
    /* make_plan() tries codecs with a dictionary, and encode() takes their plans. */
    bool takes_dictionaries;
    bool learns_dictionaries; /* it learns them itself: that costs a CPU a millisecond */
    bool has_link;            /* frames cross a link to host memory, so compressing saves time; otherwise only room */
    /* How long the worker polls after the last progress before it sleeps, since a sleeping thread wakes up late; while
     * steps run, it polls longer (worker/worker.c). 0: it does not poll. */
    unsigned poll_us;
};

struct sw_device_ops {
    const struct sw_device_info *(*info)(const struct sw_device *device);

    /* Maps a client's memory, and checks desc->bytes against the real allocation. May take descriptors of desc. errors:
     * -SW_EIMPORT, -SW_ERANGE (shorter than claimed), -SW_EUNSEALED, -SW_EFDS, -SW_ENOTSUP (kind), -SW_EGPU,
     * -SW_ENOMEM, -SW_ELIMIT (no descriptor is left). After an error nothing stays mapped. */
    int (*map)(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret, struct sw_err *err);
    /* Unmaps memory that no slot uses any more. It may wait for the driver. NULL mapping: no-op. */
    void (*unmap)(struct sw_device *device, struct sw_mapping *mapping);
    /* Maps memory of this process: device memory of the context; host device: any memory. owns: the caller; it must
     * stay until unmap(). errors: -SW_ENOMEM. */
    int (*adopt)(struct sw_device *device, void *data, uint64_t bytes, struct sw_mapping **ret, struct sw_err *err);

    /* Page-lock an arena slab so that the device can copy to and from it, and undo this. Both may wait. If a slab has
     * several devices, call one after the other. thread: any, also while the worker runs. Host device: no-ops. */
    int (*pin)(struct sw_device *device, void *slab, size_t bytes, struct sw_err *err);
    void (*unpin)(struct sw_device *device, void *slab, size_t bytes);

    /* Each of the following functions queues a step on slot `s` (0 … n_slots - 1). Offsets are in the mapping. The
     * caller has checked that offset + bytes <= desc->bytes and bytes <= chunk_bytes. Between two reports of a slot it
     * queues at most one make_plan, encode, decode, unpack, spill_raw, restore_raw, or step on a group. They return 0,
     * or an error of the queueing; slot_poll and slot_wait report later errors. */
    /* Samples mapping[offset, offset + bytes), and makes a plan: trains a symbol table (type SW_VALUE_NONE), and
     * chooses the codec. Here bytes may exceed chunk_bytes. The content of the slot's frame buffer is lost. is_dense:
     * tries codecs with a dictionary, too, if the device takes them. */
    int (*make_plan)(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                     const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err);
    /* Returns the plan of slot s's last make_plan(), after the slot has reported success. It and its dictionary are
     * valid until the next step is queued on the slot. */
    const struct sw_plan *(*plan)(struct sw_device *device, unsigned s);
    /* Encodes into slot s's frame buffer. The plan is copied before the call returns; its dictionary must stay until
     * the slot has reported. Content that is too short for the dictionary is stored raw. */
    int (*encode)(struct sw_device *device, unsigned s, const struct sw_plan *plan, const struct sw_mapping *mapping,
                  uint64_t offset, uint64_t bytes, struct sw_err *err);
    /* Copy frame buffer [frame_offset, + bytes) to pinned memory, and back. */
    int (*store)(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                 struct sw_err *err);
    int (*load)(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                struct sw_err *err);
    /* Copy frame buffer [frame_offset, + bytes) to mapping[offset, offset + bytes), and back, for packed frames. */
    int (*place)(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                 uint64_t frame_offset, uint64_t bytes, struct sw_err *err);
    int (*fetch)(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                 uint64_t frame_offset, uint64_t bytes, struct sw_err *err);
    /* Decodes `n` frames (1 … SW_DECODE_MAX) in slot s's frame buffer, each into mapping[offset, offset +
     * layout->raw_bytes), and verifies them. Frames lie at multiples of SW_FRAME_ALIGN; destinations must not overlap.
     * If any tile is bad, the slot reports -SW_ECHECKSUM. layout: of the same frame, from sw_frame_parse() on a host
     * copy or from its encode. The frames stay in the buffer, also after an error. The items are copied before the call
     * returns. */
    int (*decode)(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                  unsigned n, struct sw_err *err);

    /* Decodes frames that lie in the mapping, and leaves them there. No frame may overlap a destination. A device that
     * decodes copies of the frames compares their identities. A device that decodes in place does not, so the caller
     * must use identify() before. */
    int (*unpack)(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                  unsigned n, struct sw_err *err);

    /* Computes the identities (codec/identity.h) of `n` frames (1 … SW_HEAD_MAX) from their beginnings in the mapping,
     * as a step of its own. mapping NULL: of one frame in slot s's frame buffer, after the steps queued before; at most
     * once between two reports, in addition to any other step. */
    int (*identify)(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, struct sw_head_item *items,
                    unsigned n, struct sw_err *err);

    /* Makes a GPU switch to this process now, because work is about to come: a switch from another process takes 130
     * us. No step waits for it. It waits for nothing, and fails silently. Host device: a no-op. */
    void (*wake)(struct sw_device *device);

    /* Encode, store, or load and decode `n` items (1 … group_items) in one step, whose fixed cost is paid once. Items
     * may lie in any mappings; their bytes must not overlap. The plan's dictionary is as for encode(). store_group must
     * follow the report of encode_group, with the same items. For restore_group item->frame is the stored frame's
     * layout. A damaged frame is reported by item->is_damaged only: the slot reports success. */
    int (*encode_group)(struct sw_device *device, unsigned s, const struct sw_plan *plan, struct sw_group_item *items,
                        unsigned n, struct sw_err *err);
    int (*store_group)(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                       struct sw_err *err);
    int (*restore_group)(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                         struct sw_err *err);

    /* For a frame buffer that another process reads and writes. gather_group follows the report of encode_group, with
     * the same items: it copies their frames to the buffer from `at` on, behind the items' own room, each to the next
     * multiple of SW_FRAME_STEP_BYTES. decode_group decodes frames that lie at multiples of SW_FRAME_ALIGN. */
    int (*gather_group)(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n, uint64_t at,
                        struct sw_err *err);
    int (*decode_group)(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                        struct sw_err *err);

    /* Move `n` raw chunks (1 … SW_RAW_MAX) by copy engines, which keep their speed while other processes keep the
     * device's computing units busy. spill_raw copies the bytes to their places in the frames, and completes the
     * frames; no other code may touch them until the report. restore_raw copies the bytes back and verifies them; the
     * slot reports -SW_ECHECKSUM if any chunk differs from the stored bytes. The CPU hashes the last n_by_cpu (0 … n)
     * chunks; one kernel hashes all others on the device. On the host device the CPU hashes all. These steps use
     * neither the slot's frame buffer nor a plan. */
    int (*spill_raw)(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                     const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err);
    int (*restore_raw)(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                       const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err);

    /* Copy `n` frames (1 … group_items) that the client has made, or will decode, between mapping[offset, +
     * stored->bytes) and their places in host memory. Copy engines do it, without a kernel and without the slot's
     * buffers. The bytes are not checked. Between two frames that follow each other on both sides the rest of a step
     * is copied, too. Until the slot has reported no other step is queued on it. may_fill_holes: host device: a page
     * that the memory lacks is made. */
    int (*take_frames)(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                       const struct sw_frame_item *items, unsigned n, struct sw_err *err);
    int (*give_frames)(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                       const struct sw_frame_item *items, unsigned n, bool may_fill_holes, struct sw_err *err);

    /* Decodes a frame in host memory on a CPU, apart from the worker, and verifies it. It uses neither the slot's
     * buffers nor the device, and is the slot's only step. The slot reports -SW_ECHECKSUM or -SW_EFRAME if the frame is
     * bad, -SW_ENOMEM if there was no memory for a copy of it. */
    int (*verify_frame)(struct sw_device *device, unsigned s, const struct sw_stored *stored, struct sw_err *err);

    /* Reports on all steps queued on slot s since the last report. Returns 0 if all are done, -SW_EAGAIN if they still
     * run (no report), else the first error. -SW_EGPULOST: the context is dead, close the device. */
    int (*slot_poll)(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err);
    /* Waits for the steps, and reports. Never returns -SW_EAGAIN. */
    int (*slot_wait)(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err);

    /* Checks whether the device still works: runs a small operation apart from all slots, and waits for it. NULL: no
     * check is needed. errors: -SW_EGPU, -SW_EGPULOST. */
    int (*canary)(struct sw_device *device, struct sw_err *err);

    /* The device's context is gone, and with it all handles and memory in it. From now on the device calls nothing of
     * the driver: steps end with -SW_EGPULOST, and close() frees only what the host has. NULL: it has no context. */
    void (*forget)(struct sw_device *device);

    /* A guest's steps fail with -SW_EGPU if their kernels have not begun after 20 ms, since the engine's own may fill
     * the GPU until its call has ended. The slot sleeps then: its next steps fail at once, until those kernels are
     * gone. They touch no memory of the client any more. NULL: steps always go on. Returns whether slots sleep: then
     * close() would wait for the engine's kernels. */
    bool (*is_asleep)(struct sw_device *device);
    /* Steps wait as long as it takes, from now on, or no longer. NULL: they always do. */
    void (*be_patient)(struct sw_device *device, bool is_patient);

    void (*close)(struct sw_device *device);
};

/* A device. Each implementation has this as its first member. */
struct sw_device {
    const struct sw_device_ops *ops;
};

#define SW_CHUNK_ALIGN_BYTES ((uint64_t)32 << 10)

struct sw_device_config {
    uint64_t scratch_bytes; /* limit for all device memory, at least 64 MiB */
    unsigned n_slots;       /* 0: the implementation chooses */
    uint64_t chunk_bytes;   /* 0: as large as scratch_bytes allows */
    /* Length of the longest stored chunk. If scratch_bytes allows, the device takes longer chunks and fewer slots, so
     * that it can restore them. */
    uint64_t stored_chunk_bytes;
    /* CUDA: the context to use, of the same GPU; it must outlive the device. NULL: the primary context. */
    struct CUctx_st *cuda_context;
    /* The slots' frame buffers: memory of this process that outlives the device. Other code may read and write it, too.
     * Slot s's buffer begins at frames + s * sw_device_frame_stride(chunk_bytes), and has this length. The buffers do
     * not count in scratch_bytes. n_slots and chunk_bytes must be given, and are not changed. NULL: the device
     * allocates its own. */
    void *frames;
    uint64_t frames_bytes;
    /* The device works in the engine's process, and only adopts memory. CUDA: the slots' streams have the highest
     * priority, since a guest's kernels are short, and the engine's are long. */
    bool is_guest;
};

/* Returns the distance between two frame buffers in `frames`: room for any frame of a chunk, in multiples of 2 MiB, the
 * length of a GPU's pages. */
uint64_t sw_device_frame_stride(uint64_t chunk_bytes);

/* Adapts *n_slots and *chunk_bytes, which fit, to longer stored chunks, if these fit, too. For implementations of
 * devices. */
void sw_device_make_room(const struct sw_device_config *config,
                         bool (*fit)(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots),
                         unsigned *n_slots, uint64_t *chunk_bytes);
/* Returns true if the configuration has no frame buffers, or if they are long enough. For implementations of devices.
 */
bool sw_device_frames_fit(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots);

/* Verifies a frame on the calling thread, as verify_frame() does. For implementations of devices. */
int sw_device_verify(const struct sw_stored *stored, struct sw_err *err);
/* Returns the identity (codec/identity.h) of a frame in host memory, from its first head_bytes, those before its
 * counts. */
uint64_t sw_device_identify(const struct sw_stored *stored, uint64_t head_bytes);

/* Opens the host device, which has a thread for each slot. n_slots 0: one for each online processor, 2 … 16. */
int sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);

/* Returns the number of usable CUDA devices. 0: there is no driver or no GPU, or the build has no CUDA. */
int sw_device_cuda_count(void);
/* Checks the version of the NVIDIA driver. Without a driver there is nothing wrong with it. A build without CUDA fails
 * if there is a driver. errors: -SW_ENOTSUP (older
 * than the oldest that was tried; it cannot run this build's CUDA, and sw_device_cuda_count() is 0). */
int sw_device_cuda_check_driver(struct sw_err *err);
/* Opens a CUDA device by its ordinal. It takes at most config->scratch_bytes of device memory, apart from the context.
 * The context becomes current on the calling thread, and on each thread that calls an operation. Kernels take device
 * memory when they are loaded. To load them all at once, set CUDA_MODULE_LOADING=EAGER before the first call of CUDA.
 * errors: -SW_EDEVICE, -SW_ENOTSUP (built without CUDA, or device too old), -SW_ENOMEM, -SW_EGPU. */
int sw_device_cuda_open(struct sw_device **ret, int ordinal, const struct sw_device_config *config, struct sw_err *err);

/* Checks whether kernels begin in the current context. While a guest's device is opened, it waits for kernels. If the
 * engine's kernels fill the GPU until the device is open, it would wait for ever. Waits at most 20 ms. errors:
 * -SW_EBUSY: other kernels fill the GPU; -SW_ENOTSUP: no kernels; -SW_EGPU. */
int sw_device_cuda_check_free(struct sw_err *err);

#endif
