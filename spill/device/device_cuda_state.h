/* device_cuda_state.h - the structures that the files of the CUDA device share. Not for other files. thread: gpu. */
#ifndef SW_SPILL_DEVICE_CUDA_STATE_H
#define SW_SPILL_DEVICE_CUDA_STATE_H

#include "base/assert.h"
#include "base/list.h"
#include "codec/plan/planning_gpu.h"
#include "spill/device/device_cuda_map.h"
#include "spill/device/sealer.h"
#include "spill/device/stored.h"
#include <stdbool.h>

/* If a group's frames have more than two runs each, the copies of the others are queued one by one. */
enum { MAX_SLOTS = 16, MAX_GROUP_ITEMS = 512, MAX_GROUP_RUNS = 2 * MAX_GROUP_ITEMS };
/* The beginnings of so few frames are hashed by the CPU when the slot's stream is empty: a kernel costs a launch, and
 * on a busy GPU it would wait for its turn, and so would the client. */
enum { SW_CUDA_FEW_HEADS = 4 };

/* Pinned memory through which the host and a slot's stream exchange data. */
struct exchange {
    struct sw_gpu_result result;          /* of the encode, written by the kernels themselves */
    struct sw_gpu_planning_host planning; /* of make_plan */
    struct sw_gpu_gate gate; /* a copy of the slot's, which was made after `closed` had been copied to it */
    uint64_t closed;
    struct sw_params params; /* of the plan in use; a copy of them is, or will be, on the device */
    /* The kernels' input and results, for a group or for the frames to decode. */
    struct sw_gpu_result results[MAX_GROUP_ITEMS];
    struct sw_gpu_item items[MAX_GROUP_ITEMS];
    struct sw_gpu_run runs[MAX_GROUP_RUNS];
    struct sw_gpu_source heads[MAX_GROUP_ITEMS]; /* store_group: the frames' beginnings */
    uint64_t identities[MAX_GROUP_ITEMS];
    uint32_t hashes[]; /* spill_raw, restore_raw: of the tiles that the kernel hashes; `h_heads` follows them */
};

/* Device memory of a slot. */
struct parts {
    uint8_t *d_frame;
    uint8_t *d_learning; /* training's scratch: d_frame, if that is long enough */
    uint8_t *d_scratch, *d_sample;
    struct sw_gpu_progress *d_progress;
    struct sw_gpu_gate *d_gate;
    struct sw_params *d_params;
    struct sw_gpu_training *d_training;
    struct sw_gpu_run *d_runs;
    uint8_t *d_dictionary, *d_index; /* NULL: the device takes no dictionaries */
};

enum work {
    WORK_NONE,
    WORK_PLAN,  /* make_plan */
    WORK_LEARN, /* the part of make_plan that one of the sealer's threads does */
    WORK_ENCODE,
    WORK_DECODE,
    WORK_ENCODE_GROUP,
    WORK_STORE_GROUP,
    WORK_RESTORE_GROUP, /* also decode_group */
    WORK_GATHER_GROUP,
    WORK_IDENTIFY,  /* of many items: by a kernel */
    WORK_SPILL_RAW, /* bytes are being copied; then their frames are sealed */
    WORK_SEAL,      /* frames are being sealed, the last ones by the sealer's threads */
    WORK_RESTORE_RAW,
    WORK_RECHECK, /* restored bytes have wrong hashes: the stored frames are being verified */
    WORK_VERIFY   /* verify_frame, by one of the sealer's threads */
};

/* Knowledge of the kernels that a guest has queued. SEEN: they have begun, or there are none. */
enum begin { BEGIN_UNKNOWN, BEGIN_CLOSING, BEGIN_SEEN };

struct slot {
    cudaStream_t stream;
    /* The stream of the last spill_raw, restore_raw, take_frames or give_frames; NULL: none since the last report. */
    cudaStream_t copies;
    cudaEvent_t queued;       /* recorded after copies for which the kernel on `stream` waits */
    bool is_marked;           /* `done` is recorded after all queued steps */
    cudaEvent_t done, copied; /* of `stream` and `copies`: slot_wait sleeps on them */
    struct exchange *h;
    uint8_t *h_heads;                /* [sw_cuda_heads_bytes()] identify: copies of its items, one after the other */
    struct sw_head_item *heads;      /* the caller's items; NULL: no identify by copies since the last report */
    struct sw_head_item *identified; /* WORK_IDENTIFY: the caller's items */
    unsigned n_heads;                /* of either */
    struct parts parts;
    bool has_params; /* the device's params are h->params */
    /* Pinned: of the plan in use; NULL: the device takes no dictionaries. The device has a copy if has_dictionary. */
    struct sw_frame_dictionary *h_dictionary;
    bool has_dictionary;
    uint8_t *h_samples;                  /* pinned: for make_plan */
    struct sw_frame_dictionary *learned; /* room for make_plan; NULL: not needed yet */
    enum work work;                      /* the step queued since the last report, apart from copies */
    uint64_t ticket;                     /* of the kernels that were queued last; guests only, like the next three */
    uint64_t queued_us;                  /* when that was */
    enum begin begin;                    /* whether they have begun */
    bool is_asleep;                      /* kernels of a step that was given up are in the stream */
    struct sw_gpu_planning planning;     /* of the last plan */
    const uint8_t *d_in;                 /* WORK_ENCODE: the source, in case it must be encoded again as a raw frame */
    uint64_t in_bytes;
    struct sw_frame_layout frame; /* WORK_ENCODE: layout of the new frame; the kernel reports its length */
    struct sw_sealer *sealer;
    const struct sw_stored *stored; /* WORK_VERIFY: the frame, and what is wrong with it */
    struct sw_err verified;
    /* Groups: the caller's items. While a group is encoded, frame_bytes 0 means that the item has no frame yet. */
    struct sw_group_item *items;
    unsigned n_items;                  /* of a group; frames to decode; raw frames whose tiles a kernel hashes */
    uint16_t encoded[MAX_GROUP_ITEMS]; /* WORK_ENCODE_GROUP: the items that the kernels encode, in their order */
    unsigned n_encoded;
};

struct device_cuda {
    struct sw_device device;
    struct sw_device_info info;
    int ordinal;
    bool is_gone;  /* the context, with all handles and memory in it: they are forgotten */
    bool is_guest; /* its slots are polled, and no thread sleeps on them; steps may be given up */
    bool is_patient;
    struct sw_cuda_driver driver;
    uint64_t scratch_bytes;               /* per slot */
    struct sw_gpu_pool pool;              /* of all slots */
    unsigned group_runs;                  /* most runs of one copy kernel; 0: kernels cannot reach host memory */
    void *d_memory;                       /* all slots' parts, and the pool */
    cudaStream_t canary;                  /* waits for no other stream */
    cudaStream_t waking;                  /* no other stream waits for it */
    cudaStream_t gates;                   /* copies to gates and from them: never behind a kernel */
    cudaStream_t copies_out, copies_back; /* copies of all slots, in the order in which they are queued */
    /* Every other copy of a client's frame: between two copies of one stream the link rests for 2 to 4 us (H200). */
    cudaStream_t frames_out, frames_back;
    unsigned n_frames;              /* that were moved */
    struct sw_sealer_pool *sealers; /* of all slots */
    struct slot slots[MAX_SLOTS];
};

static inline struct device_cuda *cuda_of(struct sw_device *device) {
    return SW_CONTAINER_OF(device, struct device_cuda, device);
}

static inline int check(cudaError_t e, struct sw_err *err, const char *call) {
    return e == cudaSuccess ? 0 : sw_cuda_fail(err, e, call);
}

static inline int enter(const struct device_cuda *d, struct sw_err *err) {
    if (d->is_gone)
        return sw_err_set(err, -SW_EGPULOST, SW_SCOPE_DEVICE, "the CUDA context was destroyed");
    return sw_cuda_enter(&d->driver, err);
}

/* Notes the step whose outcome the host examines; there is at most one between two reports. */
static inline void set_work(struct slot *slot, enum work work) {
    SW_ASSERT(slot->work == WORK_NONE);
    slot->work = work;
    slot->is_marked = false;
}

static inline struct sw_gpu_plan raw_plan(void) {
    return (struct sw_gpu_plan){.codec = SW_CODEC_RAW, .segment_log2 = SW_RAW_SEGMENT_LOG2};
}

static inline struct sw_frame_layout raw_layout(uint64_t raw_bytes) {
    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, raw_bytes, 0);
    return layout;
}

static inline uint64_t raw_frame_bytes(uint64_t raw_bytes) {
    return raw_layout(raw_bytes).frame_bytes;
}

/* device_cuda_gate.c: steps of a guest that are given up, since other kernels fill the GPU. */
/* Returns what kernels that are queued now show, and starts the time after which they are given up. */
struct sw_gpu_pass sw_cuda_pass(const struct device_cuda *d, struct slot *slot);
/* Enters the context for a step with kernels. errors: those of enter(), and -SW_EGPU: the slot still has kernels of a
 * step that was given up. */
int sw_cuda_enter_slot(const struct device_cuda *d, struct slot *slot, struct sw_err *err);
/* device_cuda_steps.c: the length of slot.h_heads. */
uint64_t sw_cuda_heads_bytes(uint64_t chunk_bytes);
/* Polls a step that has not ended. errors: -SW_EAGAIN: it goes on; -SW_EGPU: it was given up. */
int sw_cuda_poll_begin(struct device_cuda *d, struct slot *slot, struct sw_err *err);
bool sw_cuda_is_asleep(struct sw_device *device);
void sw_cuda_be_patient(struct sw_device *device, bool is_patient);

/* device_cuda_steps.c: the operations of device.h. */
int sw_cuda_make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                      const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err);
const struct sw_plan *sw_cuda_plan(struct sw_device *device, unsigned s);
int sw_cuda_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan, const struct sw_mapping *mapping,
                   uint64_t offset, uint64_t bytes, struct sw_err *err);
int sw_cuda_store(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                  struct sw_err *err);
int sw_cuda_load(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                 struct sw_err *err);
int sw_cuda_place(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                  uint64_t frame_offset, uint64_t bytes, struct sw_err *err);
int sw_cuda_fetch(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                  uint64_t frame_offset, uint64_t bytes, struct sw_err *err);
int sw_cuda_decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                   unsigned n, struct sw_err *err);
int sw_cuda_unpack(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                   unsigned n, struct sw_err *err);
int sw_cuda_identify(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, struct sw_head_item *items,
                     unsigned n, struct sw_err *err);
void sw_cuda_wake(struct sw_device *device);
/* Decodes the frames of the first n of h->items, each to its d_raw, with results in h->results. A single one is an
 * argument of its kernel: nothing has to be copied to the GPU before it. */
int sw_cuda_queue_decode(struct device_cuda *d, struct slot *slot, unsigned n, struct sw_err *err);
/* Returns the layout of a frame by this plan; the kernels report its length. */
struct sw_frame_layout sw_cuda_new_layout(const struct sw_gpu_plan *plan, uint64_t bytes);
/* Encodes slot->d_in by a plan whose table, if any, is on the device. */
int sw_cuda_queue_encode(struct device_cuda *d, struct slot *slot, const struct sw_gpu_plan *plan, struct sw_err *err);
/* Gets the plan in the kernels' form, and copies its params, or its dictionary, to the device, unless they are there.
 */
int sw_cuda_queue_plan(struct slot *slot, const struct sw_plan *plan, struct sw_gpu_plan *ret, struct sw_err *err);
/* Returns false if a frame with the plan's dictionary would be longer than the raw frame, whatever the content is. */
bool sw_cuda_has_room(const struct sw_gpu_plan *plan, uint64_t bytes);

/* device_cuda_report.c: the operations of device.h. */
int sw_cuda_slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err);
int sw_cuda_slot_wait(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err);

/* device_cuda_warm_up.c: runs every step on slot 0, which must be idle, to load and test the kernels. errors: those of
 * the steps, -SW_EGPU (a frame came back damaged). */
int sw_cuda_warm_up(struct device_cuda *d, struct sw_err *err);

/* device_cuda_group.c: the operations of device.h. The finish functions do the rest of a step when the stream is empty;
 * the first one returns -SW_EAGAIN if it has queued more work. */
int sw_cuda_encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan, struct sw_group_item *items,
                         unsigned n, struct sw_err *err);
int sw_cuda_store_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                        struct sw_err *err);
int sw_cuda_restore_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                          struct sw_err *err);
int sw_cuda_gather_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n, uint64_t at,
                         struct sw_err *err);
int sw_cuda_decode_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                         struct sw_err *err);
int sw_cuda_finish_encode_group(struct device_cuda *d, struct slot *slot, struct sw_err *err);
void sw_cuda_finish_store_group(struct slot *slot);
void sw_cuda_finish_restore_group(struct slot *slot);

/* device_cuda_raw.c: the same for WORK_SPILL_RAW, WORK_SEAL, WORK_RESTORE_RAW, WORK_RECHECK and WORK_VERIFY;
 * -SW_EAGAIN: more work is queued. */
int sw_cuda_spill_raw(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                      const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err);
int sw_cuda_restore_raw(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                        const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err);
int sw_cuda_finish_raw(struct slot *slot, struct sw_err *err);
int sw_cuda_take_frames(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                        const struct sw_frame_item *items, unsigned n, struct sw_err *err);
int sw_cuda_give_frames(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                        const struct sw_frame_item *items, unsigned n, bool may_fill_holes, struct sw_err *err);
int sw_cuda_verify_frame(struct sw_device *device, unsigned s, const struct sw_stored *stored, struct sw_err *err);
int sw_cuda_finish_verify(struct slot *slot, struct sw_err *err);

#endif
