/* device_host.c - the host device: a slot is a thread instead of a stream, and clients' memory is a memfd.
 *
 * A chunk is copied from the memfd before it is encoded, and to the memfd after it was verified; memfd.h says why. */
#include "codec/codec.h"
#include "spill/device/device.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "base/thread.h"
#include "codec/identity.h"
#include "spill/device/device_host_group.h"
#include "spill/device/device_host_map.h"
#include "spill/device/device_host_raw.h"
#include "spill/device/guard.h"
#include "spill/device/stored.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_SLOTS = 16, FIRST_STEPS = 16, MAX_GROUP_ITEMS = 256 };
#define MAX_DEFAULT_CHUNK_BYTES (64u << 20)
/* One thread works on a group. It saves only a few microseconds of queueing for each item, so a longer group would keep
 * the other threads idle. */
#define MAX_GROUP_BYTES ((uint64_t)4 << 20)

enum step_kind {
    STEP_MAKE_PLAN,
    STEP_ENCODE,
    STEP_STORE,
    STEP_LOAD,
    STEP_PLACE,
    STEP_FETCH,
    STEP_DECODE,
    STEP_IDENTIFY,
    STEP_ENCODE_GROUP,
    STEP_STORE_GROUP,
    STEP_RESTORE_GROUP,
    STEP_GATHER_GROUP,
    STEP_DECODE_GROUP,
    STEP_SPILL_RAW,
    STEP_RESTORE_RAW,
    STEP_TAKE_FRAMES,
    STEP_GIVE_FRAMES,
    STEP_VERIFY_FRAME
};

struct step {
    enum step_kind kind;
    const struct sw_mapping *mapping;
    uint64_t offset, bytes;         /* in the mapping */
    uint64_t frame_offset;          /* store, load, place, fetch */
    uint64_t frame_bytes;           /* decode */
    uint64_t identity, head_bytes;  /* decode: of the frame, if it is known */
    bool may_fill_holes;            /* decode, give_frames */
    enum sw_value_type type;        /* make_plan */
    bool is_dense;                  /* make_plan */
    struct sw_plan *plan;           /* encode, also of a group: a copy */
    void *to;                       /* store */
    const void *from;               /* load */
    const struct sw_stored *stored; /* verify_frame */
    const struct sw_frame_item *frames;
    struct sw_group_item *items;
    const struct sw_raw_item *raw_items;
    struct sw_head_item *heads; /* identify; mapping NULL: of the frame buffer */
    unsigned n_items;           /* of any */
};

struct learning {
    struct sw_frame_dictionary dictionary; /* the plan's */
    uint8_t samples[SW_SAMPLE_MOST_PARTS * SW_SAMPLE_MAX_BYTES];
};

/* The lock guards everything down to `result`; the buffers belong to the thread while steps are queued. */
struct slot {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    pthread_t thread;
    bool started, stop;
    struct step *steps; /* ring */
    size_t n_steps, first_step, cap_steps;
    struct sw_err err; /* first failure since the last report */
    struct sw_slot_result result;
    uint8_t *raw, *frame, *sample;
    bool lends_frame; /* the frame buffer is the caller's */
    uint64_t raw_cap_bytes, frame_cap_bytes;
    struct sw_memfd_writer writer;
    const struct sw_mapping *written; /* to which the writer's window belongs; NULL: it has none. Under the lock */
    struct sw_plan plan;              /* the last one made */
    struct learning *learning;        /* for a plan with a dictionary; NULL: not needed yet */
};

struct device_host {
    struct sw_device device;
    struct sw_device_info info;
    struct slot slots[MAX_SLOTS];
};

static struct device_host *host_of(struct sw_device *device) {
    return SW_CONTAINER_OF(device, struct device_host, device);
}

/* ---- steps: run by the slot's thread ---- */

/* Reads the sample of a part of the region. */
static int read_part(uint8_t *ret, const struct step *step, const struct sw_sample_part *part, unsigned piece_bytes,
                     struct sw_err *err) {
    const unsigned n = sw_sample_pieces(part->bytes, piece_bytes);
    for (unsigned i = 0; i < n; i++) {
        const uint64_t at = sw_sample_offset(part->bytes, piece_bytes, i), left = part->bytes - at;
        const int rc = sw_host_read(step->mapping, ret + (size_t)i * piece_bytes,
                                    left < piece_bytes ? left : piece_bytes, step->offset + part->offset + at, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_samples(uint8_t *ret, const struct step *step, const struct sw_planning *p, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < p->n_parts; i++, ret += sw_sample_bytes(step->bytes)) {
        const struct sw_sample_part part = sw_sample_part(step->bytes, p->n_parts, i);
        rc = read_part(ret, step, &part, p->piece_bytes, err);
    }
    return rc;
}

/* Makes a plan as sw_plan_make() does, but reads the sample from the mapping. Without memory for a dictionary, the plan
 * has none. */
static int run_make_plan(struct slot *slot, const struct step *step, struct sw_err *err) {
    struct sw_planning p;
    if (step->is_dense && !slot->learning)
        slot->learning = sw_alloc(sizeof *slot->learning);
    struct learning *learning = step->is_dense ? slot->learning : NULL;
    uint8_t *samples = learning ? learning->samples : slot->sample;
    sw_planning_begin(&p, step->type, step->bytes, false, learning ? &learning->dictionary : NULL);
    while (p.step != SW_PLANNING_DONE) {
        const int rc = read_samples(samples, step, &p, err);
        if (rc)
            return rc;
        sw_planning_learn(&p, samples);
    }
    slot->plan = p.plan;
    return 0;
}

static int run_encode(struct slot *slot, const struct step *step, struct sw_slot_result *result, struct sw_err *err) {
    uint64_t frame_bytes = 0;
    int rc = sw_host_read(step->mapping, slot->raw, step->bytes, step->offset, err);
    if (!rc)
        rc = sw_codec_encode(step->plan, slot->raw, step->bytes, slot->frame, slot->frame_cap_bytes, &frame_bytes, err);
    return rc ? rc : sw_frame_parse(&result->frame, slot->frame, frame_bytes, frame_bytes, err);
}

static int run_decode(struct slot *slot, const struct step *step, struct sw_err *err) {
    uint64_t raw_bytes = 0;
    if (step->identity && sw_identity_of(slot->frame + step->frame_offset, step->head_bytes) != step->identity)
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "another frame lies in the place of the stored one");
    int rc =
        sw_codec_decode(slot->frame + step->frame_offset, step->frame_bytes, slot->raw, step->bytes, &raw_bytes, err);
    if (rc)
        return rc;
    if (raw_bytes != step->bytes)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REGION, "frame holds %llu bytes, %llu were stored",
                          (unsigned long long)raw_bytes, (unsigned long long)step->bytes);
    slot->writer.may_fill_holes = step->may_fill_holes;
    return sw_host_write(&slot->writer, step->mapping, slot->raw, raw_bytes, step->offset, err);
}

/* Reads the beginning into the raw buffer: the frame buffer may hold what the next step needs. */
static int identify_mapped(struct slot *slot, const struct sw_mapping *mapping, struct sw_head_item *item,
                           struct sw_err *err) {
    struct sw_identity identity;
    int rc = 0;
    sw_identity_init(&identity);
    for (uint64_t at = 0, bytes; !rc && at < item->bytes; at += bytes) {
        bytes = item->bytes - at < SW_SAMPLE_MAX_BYTES ? item->bytes - at : SW_SAMPLE_MAX_BYTES;
        rc = sw_host_read(mapping, slot->sample, bytes, item->at + at, err);
        if (!rc)
            sw_identity_add(&identity, slot->sample, (size_t)bytes);
    }
    item->identity = sw_identity_value(&identity);
    return rc;
}

static int run_identify(struct slot *slot, const struct step *step, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < step->n_items; i++) {
        struct sw_head_item *item = &step->heads[i];
        if (step->mapping)
            rc = identify_mapped(slot, step->mapping, item, err);
        else
            item->identity = sw_identity_of(slot->frame + item->at, (size_t)item->bytes);
    }
    return rc;
}

static int run_move_frames(struct slot *slot, const struct step *step, struct sw_err *err) {
    struct sw_device_copies copies = {.items = step->frames, .n = step->n_items};
    struct sw_device_copy copy;
    int rc = 0;
    slot->writer.may_fill_holes = step->may_fill_holes;
    while (!rc && sw_device_next_copy(&copies, &copy))
        rc = step->kind == STEP_TAKE_FRAMES
                 ? sw_host_read(step->mapping, copy.memory, copy.bytes, copy.offset, err)
                 : sw_host_write(&slot->writer, step->mapping, copy.memory, copy.bytes, copy.offset, err);
    return rc;
}

static int run_step(struct slot *slot, const struct step *step, struct sw_slot_result *result, struct sw_err *err) {
    switch (step->kind) {
    case STEP_MAKE_PLAN:
        return run_make_plan(slot, step, err);
    case STEP_ENCODE:
        return run_encode(slot, step, result, err);
    case STEP_STORE:
        memcpy(step->to, slot->frame + step->frame_offset, step->bytes);
        return 0;
    case STEP_LOAD:
        memcpy(slot->frame + step->frame_offset, step->from, step->bytes);
        return 0;
    case STEP_PLACE:
        slot->writer.may_fill_holes = false;
        return sw_host_write(&slot->writer, step->mapping, slot->frame + step->frame_offset, step->bytes, step->offset,
                             err);
    case STEP_FETCH:
        return sw_host_read(step->mapping, slot->frame + step->frame_offset, step->bytes, step->offset, err);
    case STEP_DECODE:
        return run_decode(slot, step, err);
    case STEP_IDENTIFY:
        return run_identify(slot, step, err);
    case STEP_ENCODE_GROUP:
        return sw_host_group_encode(step->plan, step->items, step->n_items, slot->raw, slot->frame, err);
    case STEP_STORE_GROUP:
        sw_host_group_store(step->items, step->n_items, slot->frame);
        return 0;
    case STEP_RESTORE_GROUP:
        return sw_host_group_restore(step->items, step->n_items, slot->frame, slot->raw, &slot->writer, err);
    case STEP_GATHER_GROUP:
        sw_host_group_gather(step->items, step->n_items, slot->frame);
        return 0;
    case STEP_DECODE_GROUP:
        return sw_host_group_decode(step->items, step->n_items, slot->frame, slot->raw, &slot->writer, err);
    case STEP_SPILL_RAW:
        return sw_host_raw_spill(step->mapping, step->raw_items, step->n_items, err);
    case STEP_RESTORE_RAW:
        return sw_host_raw_restore(&slot->writer, step->mapping, step->raw_items, step->n_items, err);
    case STEP_TAKE_FRAMES:
    case STEP_GIVE_FRAMES:
        return run_move_frames(slot, step, err);
    case STEP_VERIFY_FRAME:
        return sw_device_verify(step->stored, err);
    }
    return 0;
}

/* Returns whether the step writes to a client's memory. */
static bool is_write(const struct step *step) {
    switch (step->kind) {
    case STEP_PLACE:
    case STEP_DECODE:
    case STEP_RESTORE_GROUP:
    case STEP_DECODE_GROUP:
    case STEP_RESTORE_RAW:
    case STEP_GIVE_FRAMES:
        return true;
    default:
        return false;
    }
}

/* Lock held. */
static void end_window(struct slot *slot) {
    sw_memfd_writer_end(&slot->writer);
    slot->written = NULL;
}

/* The window stays from one step to the next with the same mapping, until that is unmapped. So while a step runs, the
 * window shows the step's own mapping, or the step does not use it. Lock held. */
static void prepare_window(struct slot *slot, const struct step *step) {
    if (is_write(step) && slot->written != step->mapping) {
        end_window(slot);
        slot->written = step->mapping;
    }
}

/* A group is for many mappings. What one run alone uses would be unmapped at its end, by the worker; here the slots do
 * it side by side. */
static bool ends_window(const struct step *step) {
    return step->kind == STEP_RESTORE_GROUP || step->kind == STEP_DECODE_GROUP ||
           (is_write(step) && sw_host_is_once(step->mapping));
}

static void *slot_main(void *arg) {
    struct slot *slot = arg;
    (void)pthread_mutex_lock(&slot->lock);
    for (;;) {
        while (slot->n_steps == 0 && !slot->stop)
            (void)pthread_cond_wait(&slot->work, &slot->lock);
        if (slot->n_steps == 0)
            break;
        struct step step = slot->steps[slot->first_step];
        struct sw_slot_result result = slot->result;
        struct sw_err err = {0};
        bool skip = slot->err.code != 0;
        prepare_window(slot, &step);
        (void)pthread_mutex_unlock(&slot->lock);
        if (!skip)
            (void)run_step(slot, &step, &result, &err);
        if (ends_window(&step))
            sw_memfd_writer_end(&slot->writer);
        sw_free(step.plan);
        (void)pthread_mutex_lock(&slot->lock);
        slot->result = result;
        if (err.code)
            slot->err = err;
        /* Removed only now: a running step counts as queued. */
        slot->first_step = (slot->first_step + 1) % slot->cap_steps;
        if (--slot->n_steps == 0)
            (void)pthread_cond_signal(&slot->idle);
    }
    (void)pthread_mutex_unlock(&slot->lock);
    return NULL;
}

/* ---- queueing ---- */

static int grow_ring(struct slot *slot) {
    struct step *grown = sw_alloc_array(slot->cap_steps * 2, sizeof *grown);
    if (!grown)
        return -SW_ENOMEM;
    for (size_t i = 0; i < slot->n_steps; i++)
        grown[i] = slot->steps[(slot->first_step + i) % slot->cap_steps];
    sw_free(slot->steps);
    slot->steps = grown;
    slot->first_step = 0;
    slot->cap_steps *= 2;
    return 0;
}

static int queue_step(struct sw_device *device, unsigned s, const struct step *step, struct sw_err *err) {
    struct slot *slot = &host_of(device)->slots[s];
    int rc = 0;
    (void)pthread_mutex_lock(&slot->lock);
    if (slot->n_steps == slot->cap_steps)
        rc = grow_ring(slot);
    if (!rc) {
        slot->steps[(slot->first_step + slot->n_steps++) % slot->cap_steps] = *step;
        (void)pthread_cond_signal(&slot->work);
    }
    (void)pthread_mutex_unlock(&slot->lock);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for a slot's queue") : 0;
}

static int host_make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                          const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    struct step step = {.kind = STEP_MAKE_PLAN,
                        .mapping = mapping,
                        .offset = offset,
                        .bytes = bytes,
                        .type = type,
                        .is_dense = is_dense};
    return queue_step(device, s, &step, err);
}

static const struct sw_plan *host_plan(struct sw_device *device, unsigned s) {
    return &host_of(device)->slots[s].plan;
}

/* Queues a step with a copy of the plan. */
static int queue_with_plan(struct sw_device *device, unsigned s, struct step *step, const struct sw_plan *plan,
                           struct sw_err *err) {
    step->plan = sw_alloc(sizeof *step->plan);
    if (!step->plan)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a plan");
    *step->plan = *plan;
    int rc = queue_step(device, s, step, err);
    if (rc)
        sw_free(step->plan);
    return rc;
}

static int host_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                       const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    struct step step = {.kind = STEP_ENCODE, .mapping = mapping, .offset = offset, .bytes = bytes};
    return queue_with_plan(device, s, &step, plan, err);
}

static int host_store(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                      struct sw_err *err) {
    struct step step = {.kind = STEP_STORE, .to = h_to, .frame_offset = frame_offset, .bytes = bytes};
    return queue_step(device, s, &step, err);
}

static int host_load(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                     struct sw_err *err) {
    struct step step = {.kind = STEP_LOAD, .from = h_from, .frame_offset = frame_offset, .bytes = bytes};
    SW_ASSERT(frame_offset + bytes <= host_of(device)->slots[s].frame_cap_bytes);
    return queue_step(device, s, &step, err);
}

static int host_place(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                      uint64_t frame_offset, uint64_t bytes, struct sw_err *err) {
    struct step step = {
        .kind = STEP_PLACE, .mapping = mapping, .offset = offset, .bytes = bytes, .frame_offset = frame_offset};
    return queue_step(device, s, &step, err);
}

static int host_fetch(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                      uint64_t frame_offset, uint64_t bytes, struct sw_err *err) {
    struct step step = {
        .kind = STEP_FETCH, .mapping = mapping, .offset = offset, .bytes = bytes, .frame_offset = frame_offset};
    SW_ASSERT(frame_offset + bytes <= host_of(device)->slots[s].frame_cap_bytes);
    return queue_step(device, s, &step, err);
}

/* Queues the decoding of the frame at frame_at in the frame buffer. */
static int queue_decode(struct sw_device *device, unsigned s, const struct sw_decode_item *item, uint64_t frame_at,
                        uint64_t identity, struct sw_mapping *mapping, struct sw_err *err) {
    const struct sw_frame_layout *layout = item->layout;
    const struct step step = {.kind = STEP_DECODE,
                              .mapping = mapping,
                              .offset = item->offset,
                              .bytes = layout->raw_bytes,
                              .frame_offset = frame_at,
                              .frame_bytes = layout->frame_bytes,
                              .identity = identity,
                              .head_bytes = layout->counts_offset,
                              .may_fill_holes = item->may_fill_holes};
    SW_ASSERT(layout->raw_bytes <= host_of(device)->slots[s].raw_cap_bytes);
    SW_ASSERT(frame_at + layout->frame_bytes <= host_of(device)->slots[s].frame_cap_bytes);
    return queue_step(device, s, &step, err);
}

static int host_decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                       const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    int rc = 0;
    SW_ASSERT(n > 0 && n <= SW_DECODE_MAX);
    for (unsigned i = 0; rc == 0 && i < n; i++)
        rc = queue_decode(device, s, &items[i], items[i].frame_at, 0, mapping, err);
    return rc;
}

static int host_unpack(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                       const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    int rc = 0;
    SW_ASSERT(n > 0 && n <= SW_DECODE_MAX);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = host_fetch(device, s, mapping, items[i].frame_at, 0, items[i].layout->frame_bytes, err);
        if (rc == 0)
            rc = queue_decode(device, s, &items[i], 0, items[i].identity, mapping, err);
    }
    return rc;
}

static int host_identify(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                         struct sw_head_item *items, unsigned n, struct sw_err *err) {
    const struct step step = {.kind = STEP_IDENTIFY, .mapping = mapping, .heads = items, .n_items = n};
    SW_ASSERT(n > 0 && n <= SW_HEAD_MAX);
    for (unsigned i = 0; i < n; i++)
        SW_ASSERT(mapping || items[i].at + items[i].bytes <= host_of(device)->slots[s].frame_cap_bytes);
    return queue_step(device, s, &step, err);
}

static void host_wake(struct sw_device *device) {
    (void)device;
}

static void check_group(const struct device_host *d, const struct sw_group_item *items, unsigned n) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += sw_group_item_bytes(items[i].bytes);
    SW_ASSERT(n > 0 && n <= d->info.group_items && bytes <= d->info.group_bytes);
}

static int host_encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                             struct sw_group_item *items, unsigned n, struct sw_err *err) {
    struct step step = {.kind = STEP_ENCODE_GROUP, .items = items, .n_items = n};
    check_group(host_of(device), items, n);
    return queue_with_plan(device, s, &step, plan, err);
}

static int host_store_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                            struct sw_err *err) {
    struct step step = {.kind = STEP_STORE_GROUP, .items = items, .n_items = n};
    return queue_step(device, s, &step, err);
}

static int host_restore_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                              struct sw_err *err) {
    struct step step = {.kind = STEP_RESTORE_GROUP, .items = items, .n_items = n};
    check_group(host_of(device), items, n);
    return queue_step(device, s, &step, err);
}

static int host_gather_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n, uint64_t at,
                             struct sw_err *err) {
    const struct step step = {.kind = STEP_GATHER_GROUP, .items = items, .n_items = n};
    sw_device_place_group(items, n, at);
    return queue_step(device, s, &step, err);
}

static int host_decode_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                             struct sw_err *err) {
    const struct step step = {.kind = STEP_DECODE_GROUP, .items = items, .n_items = n};
    SW_ASSERT(n > 0 && n <= host_of(device)->info.group_items);
    return queue_step(device, s, &step, err);
}

static int queue_raw(struct sw_device *device, unsigned s, enum step_kind kind, const struct sw_mapping *mapping,
                     const struct sw_raw_item *items, unsigned n, struct sw_err *err) {
    const struct step step = {.kind = kind, .mapping = mapping, .raw_items = items, .n_items = n};
    SW_ASSERT(n > 0 && n <= SW_RAW_MAX);
    return queue_step(device, s, &step, err);
}

static int host_spill_raw(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                          const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    (void)n_by_cpu;
    return queue_raw(device, s, STEP_SPILL_RAW, mapping, items, n, err);
}

static int host_restore_raw(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                            const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    (void)n_by_cpu;
    return queue_raw(device, s, STEP_RESTORE_RAW, mapping, items, n, err);
}

static int host_take_frames(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                            const struct sw_frame_item *items, unsigned n, struct sw_err *err) {
    const struct step step = {.kind = STEP_TAKE_FRAMES, .mapping = mapping, .frames = items, .n_items = n};
    return queue_step(device, s, &step, err);
}

static int host_give_frames(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                            const struct sw_frame_item *items, unsigned n, bool may_fill_holes, struct sw_err *err) {
    const struct step step = {
        .kind = STEP_GIVE_FRAMES, .mapping = mapping, .frames = items, .n_items = n, .may_fill_holes = may_fill_holes};
    return queue_step(device, s, &step, err);
}

static int host_verify_frame(struct sw_device *device, unsigned s, const struct sw_stored *stored, struct sw_err *err) {
    const struct step step = {.kind = STEP_VERIFY_FRAME, .stored = stored};
    return queue_step(device, s, &step, err);
}

/* Reports on the slot's steps, once none is queued. Lock held. */
static int report(struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    int rc = slot->err.code;
    if (rc && err)
        *err = slot->err;
    *ret = slot->result;
    memset(&slot->err, 0, sizeof slot->err);
    memset(&slot->result, 0, sizeof slot->result);
    return rc;
}

static int host_slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct slot *slot = &host_of(device)->slots[s];
    (void)pthread_mutex_lock(&slot->lock);
    int rc = slot->n_steps > 0 ? -SW_EAGAIN : report(slot, ret, err);
    (void)pthread_mutex_unlock(&slot->lock);
    return rc;
}

static int host_slot_wait(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct slot *slot = &host_of(device)->slots[s];
    (void)pthread_mutex_lock(&slot->lock);
    while (slot->n_steps > 0)
        (void)pthread_cond_wait(&slot->idle, &slot->lock);
    int rc = report(slot, ret, err);
    (void)pthread_mutex_unlock(&slot->lock);
    return rc;
}

/* ---- life ---- */

static const struct sw_device_info *host_info(const struct sw_device *device) {
    return &SW_CONTAINER_OF(device, const struct device_host, device)->info;
}

static int host_pin(struct sw_device *device, void *slab, size_t bytes, struct sw_err *err) {
    (void)device;
    (void)slab;
    (void)bytes;
    (void)err;
    return 0;
}

static void host_unpin(struct sw_device *device, void *slab, size_t bytes) {
    (void)device;
    (void)slab;
    (void)bytes;
}

static void slot_fini(struct slot *slot) {
    if (slot->started) {
        (void)pthread_mutex_lock(&slot->lock);
        slot->stop = true;
        (void)pthread_cond_signal(&slot->work);
        (void)pthread_mutex_unlock(&slot->lock);
        (void)pthread_join(slot->thread, NULL);
        (void)pthread_cond_destroy(&slot->work);
        (void)pthread_cond_destroy(&slot->idle);
        (void)pthread_mutex_destroy(&slot->lock);
        sw_memfd_writer_end(&slot->writer);
    }
    sw_free(slot->steps);
    sw_free(slot->raw);
    if (!slot->lends_frame)
        sw_free(slot->frame);
    sw_free(slot->sample);
    sw_free(slot->learning);
}

static void host_unmap(struct sw_device *device, struct sw_mapping *mapping) {
    struct device_host *d = host_of(device);
    for (unsigned s = 0; mapping && s < d->info.n_slots; s++) {
        struct slot *slot = &d->slots[s];
        (void)pthread_mutex_lock(&slot->lock);
        if (slot->written == mapping)
            end_window(slot);
        (void)pthread_mutex_unlock(&slot->lock);
    }
    sw_host_unmap(mapping);
}

static void host_close(struct sw_device *device) {
    struct device_host *d = host_of(device);
    for (unsigned s = 0; s < d->info.n_slots; s++)
        slot_fini(&d->slots[s]);
    if (!d->info.is_unguarded)
        sw_guard_give_back();
    sw_free(d);
}

/* Asks for huge pages: the kernel pins a buffer page by page when it copies from it (guard.c). */
static void want_huge_pages(uint8_t *buffer, uint64_t bytes) {
    const uintptr_t page = (uintptr_t)getpagesize(), skip = (page - (uintptr_t)buffer % page) % page;
    if (bytes > skip + page)
        (void)madvise(buffer + skip, (bytes - skip) / page * page, MADV_HUGEPAGE);
}

/* frame: the slot's frame buffer, info->buffer_bytes long; NULL: the slot allocates its own. */
static int slot_init(struct slot *slot, const struct sw_device_info *info, void *frame, struct sw_err *err) {
    slot->writer.is_guarded = !info->is_unguarded;
    slot->raw_cap_bytes = info->chunk_bytes;
    slot->frame_cap_bytes = info->buffer_bytes;
    slot->lends_frame = frame != NULL;
    slot->cap_steps = FIRST_STEPS;
    slot->steps = sw_alloc_array(slot->cap_steps, sizeof *slot->steps);
    slot->raw = sw_alloc(slot->raw_cap_bytes);
    slot->frame = frame ? frame : sw_alloc(slot->frame_cap_bytes);
    slot->sample = sw_alloc(SW_SAMPLE_MAX_BYTES);
    if (!slot->steps || !slot->raw || !slot->frame || !slot->sample)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for the host device's buffers");
    /* Touched now: page faults would take half of the first spill's time. */
    want_huge_pages(slot->raw, slot->raw_cap_bytes);
    memset(slot->raw, 0, slot->raw_cap_bytes);
    if (!slot->lends_frame) {
        want_huge_pages(slot->frame, slot->frame_cap_bytes);
        memset(slot->frame, 0, slot->frame_cap_bytes);
    }
    (void)pthread_mutex_init(&slot->lock, NULL);
    (void)pthread_cond_init(&slot->work, NULL);
    (void)pthread_cond_init(&slot->idle, NULL);
    slot->started = sw_thread_start(&slot->thread, slot_main, slot) == 0;
    if (!slot->started) {
        (void)pthread_cond_destroy(&slot->work);
        (void)pthread_cond_destroy(&slot->idle);
        (void)pthread_mutex_destroy(&slot->lock);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "cannot start a thread for the host device");
    }
    return 0;
}

static uint64_t slot_scratch_bytes(const struct sw_device_config *config, uint64_t chunk_bytes) {
    return chunk_bytes + (config->frames ? 0 : sw_frame_bound_bytes(chunk_bytes)) + SW_SAMPLE_MAX_BYTES;
}

static bool slots_fit(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots) {
    return slot_scratch_bytes(config, chunk_bytes) <= config->scratch_bytes / n_slots &&
           sw_device_frames_fit(config, chunk_bytes, n_slots);
}

/* Fills in n_slots and chunk_bytes where the configuration leaves them open. */
static int choose_sizes(const struct sw_device_config *config, struct sw_device_info *info, struct sw_err *err) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = config->n_slots;
    uint64_t chunk = config->chunk_bytes;
    SW_ASSERT(!config->frames || (n && chunk));
    if (n == 0) {
        n = cpus < 2 ? 2 : cpus > MAX_SLOTS ? MAX_SLOTS : (unsigned)cpus;
        while (n > 1 && chunk > 0 && !slots_fit(config, chunk, n))
            n--;
    }
    if (chunk == 0) {
        chunk = config->scratch_bytes / n / 2;
        chunk = chunk > MAX_DEFAULT_CHUNK_BYTES ? MAX_DEFAULT_CHUNK_BYTES : chunk - chunk % SW_CHUNK_ALIGN_BYTES;
        while (chunk > 0 && !slots_fit(config, chunk, n))
            chunk -= SW_CHUNK_ALIGN_BYTES;
    }
    if (n > MAX_SLOTS || chunk == 0 || chunk % SW_CHUNK_ALIGN_BYTES || chunk > SW_FRAME_MAX_RAW_BYTES ||
        !slots_fit(config, chunk, n))
        return sw_err_set(
            err, -SW_EINVAL, SW_SCOPE_DEVICE,
            "host device: %u slots (at most %d) of chunks of %llu bytes (a multiple of 32 KiB) do not fit "
            "into %llu bytes",
            n, MAX_SLOTS, (unsigned long long)chunk, (unsigned long long)config->scratch_bytes);
    sw_device_make_room(config, slots_fit, &n, &chunk);
    info->n_slots = n;
    info->chunk_bytes = chunk;
    info->scratch_bytes = n * slot_scratch_bytes(config, chunk);
    const uint64_t frame_bytes = sw_frame_bound_bytes(chunk);
    info->buffer_bytes = config->frames ? sw_device_frame_stride(chunk) : frame_bytes;
    info->group_items = MAX_GROUP_ITEMS;
    info->group_bytes = config->frames                  ? info->buffer_bytes
                        : frame_bytes < MAX_GROUP_BYTES ? frame_bytes
                                                        : MAX_GROUP_BYTES;
    return 0;
}

static const struct sw_device_ops host_ops = {
    .info = host_info,
    .map = sw_host_map,
    .unmap = host_unmap,
    .adopt = sw_host_adopt,
    .pin = host_pin,
    .unpin = host_unpin,
    .make_plan = host_make_plan,
    .plan = host_plan,
    .encode = host_encode,
    .store = host_store,
    .load = host_load,
    .place = host_place,
    .fetch = host_fetch,
    .decode = host_decode,
    .unpack = host_unpack,
    .identify = host_identify,
    .wake = host_wake,
    .encode_group = host_encode_group,
    .store_group = host_store_group,
    .restore_group = host_restore_group,
    .gather_group = host_gather_group,
    .decode_group = host_decode_group,
    .spill_raw = host_spill_raw,
    .restore_raw = host_restore_raw,
    .take_frames = host_take_frames,
    .give_frames = host_give_frames,
    .verify_frame = host_verify_frame,
    .slot_poll = host_slot_poll,
    .slot_wait = host_slot_wait,
    .close = host_close,
};

int sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err) {
    struct device_host *d = sw_alloc(sizeof *d);
    if (!d)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for the host device");
    d->device.ops = &host_ops;
    (void)snprintf(d->info.name, sizeof d->info.name, "host");
    int rc = choose_sizes(config, &d->info, err);
    if (rc) {
        sw_free(d);
        return rc;
    }
    d->info.takes_dictionaries = true;
    d->info.is_unguarded = config->is_guest || !sw_guard_take();
    for (unsigned s = 0; !rc && s < d->info.n_slots; s++)
        rc = slot_init(&d->slots[s], &d->info,
                       config->frames ? (uint8_t *)config->frames + s * d->info.buffer_bytes : NULL, err);
    if (rc) {
        host_close(&d->device);
        return rc;
    }
    *ret = &d->device;
    return 0;
}
