/* device_cuda_steps.c - queues the steps on one chunk, or on the frames in one slot's buffer. device_cuda_report.c ends
 * them. */
#include "base/alloc.h"
#include "spill/device/device_cuda_state.h"

#include <string.h>

int sw_cuda_make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                      const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = sw_cuda_enter_slot(d, slot, err);
    if (rc < 0)
        return rc;
    is_dense = is_dense && d->info.takes_dictionaries;
    if (is_dense && !slot->learned)
        slot->learned = sw_alloc(sizeof *slot->learned); /* without it the plan has no dictionary */
    const struct sw_gpu_planning_room room = {.h = &slot->h->planning,
                                              .h_samples = slot->h_samples,
                                              .d_sample = slot->parts.d_sample,
                                              .d_params = slot->parts.d_params,
                                              .d_training = slot->parts.d_training,
                                              .d_scratch = slot->parts.d_learning,
                                              .scratch_bytes = sw_gpu_train_scratch_bytes(),
                                              .d_learner = d->info.learns_dictionaries ? slot->parts.d_frame : NULL,
                                              .dictionary = is_dense ? slot->learned : NULL,
                                              .pass = sw_cuda_pass(d, slot)};
    slot->has_params = false; /* training overwrites them */
    rc = sw_gpu_planning_begin(&slot->planning, type, sw_cuda_at(mapping, offset), bytes, &room, slot->stream, err);
    if (rc == 0 && bytes)
        set_work(slot, WORK_PLAN);
    return sw_cuda_check_lost(rc, err);
}

const struct sw_plan *sw_cuda_plan(struct sw_device *device, unsigned s) {
    return &cuda_of(device)->slots[s].planning.planning.plan;
}

struct sw_frame_layout sw_cuda_new_layout(const struct sw_gpu_plan *plan, uint64_t bytes) {
    struct sw_frame_layout ret;
    sw_frame_layout_init(&ret, plan->codec, plan->segment_log2, bytes, plan->n_symbols);
    ret.value_type = plan->value_type;
    sw_frame_layout_add_dictionary(&ret, plan->dictionary_bytes);
    return ret;
}

/* Encodes slot->d_in by a plan whose table, if any, is on the device. */
int sw_cuda_queue_encode(struct device_cuda *d, struct slot *slot, const struct sw_gpu_plan *plan, struct sw_err *err) {
    const struct parts *p = &slot->parts;
    slot->frame = sw_cuda_new_layout(plan, slot->in_bytes);
    return sw_cuda_check_lost(sw_gpu_encode_async(plan, slot->d_in, slot->in_bytes, p->d_frame, d->info.buffer_bytes,
                                                  &slot->h->result, &d->pool, p->d_progress, sw_cuda_pass(d, slot),
                                                  slot->stream, err),
                              err);
}

static int queue_upload(const struct slot *slot, void *d_to, const void *h_from, size_t bytes, struct sw_err *err) {
    return check(cudaMemcpyAsync(d_to, h_from, bytes, cudaMemcpyHostToDevice, slot->stream), err, "cudaMemcpyAsync");
}

/* Copies a plan's dictionary and its index to the device, unless they are there. */
static int queue_dictionary(struct slot *slot, const struct sw_frame_dictionary *dictionary, struct sw_gpu_plan *ret,
                            struct sw_err *err) {
    struct sw_frame_dictionary *h = slot->h_dictionary;
    const struct parts *p = &slot->parts;
    SW_ASSERT(h && dictionary->index_bytes);
    ret->d_dictionary = p->d_dictionary;
    ret->d_index = p->d_index;
    ret->dictionary_bytes = dictionary->bytes;
    ret->index_log2 = dictionary->index_log2;
    if (slot->has_dictionary && h->bytes == dictionary->bytes && memcmp(h->data, dictionary->data, h->bytes) == 0)
        return 0;
    *h = *dictionary;
    int rc = queue_upload(slot, p->d_dictionary, h->data, h->bytes, err);
    if (rc == 0)
        rc = queue_upload(slot, p->d_index, h->index, h->index_bytes, err);
    slot->has_dictionary = rc == 0;
    return rc;
}

int sw_cuda_queue_plan(struct slot *slot, const struct sw_plan *plan, struct sw_gpu_plan *ret, struct sw_err *err) {
    const struct sw_params *params = &plan->params;
    *ret = sw_gpu_plan_from(plan, slot->parts.d_params);
    if (plan->dictionary)
        return queue_dictionary(slot, plan->dictionary, ret, err);
    if (!ret->d_params || (slot->has_params && memcmp(&slot->h->params, params, sizeof *params) == 0))
        return 0;
    slot->h->params = *params;
    const int rc = queue_upload(slot, slot->parts.d_params, &slot->h->params, sizeof *params, err);
    slot->has_params = rc == 0;
    return rc;
}

bool sw_cuda_has_room(const struct sw_gpu_plan *plan, uint64_t bytes) {
    struct sw_frame_layout layout;
    if (!plan->dictionary_bytes)
        return true;
    sw_frame_layout_init(&layout, plan->codec, plan->segment_log2, bytes, 0);
    sw_frame_layout_add_dictionary(&layout, plan->dictionary_bytes);
    return layout.data_offset < raw_frame_bytes(bytes);
}

int sw_cuda_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan, const struct sw_mapping *mapping,
                   uint64_t offset, uint64_t bytes, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    const struct sw_gpu_plan raw = raw_plan();
    struct slot *slot = &d->slots[s];
    struct sw_gpu_plan gpu_plan;
    int rc = sw_cuda_enter_slot(d, slot, err);
    if (rc < 0)
        return rc;
    SW_ASSERT(bytes <= d->info.chunk_bytes);
    set_work(slot, WORK_ENCODE);
    slot->d_in = sw_cuda_at(mapping, offset);
    slot->in_bytes = bytes;
    rc = sw_cuda_queue_plan(slot, plan, &gpu_plan, err);
    if (rc == 0)
        rc = sw_cuda_queue_encode(d, slot, sw_cuda_has_room(&gpu_plan, bytes) ? &gpu_plan : &raw, err);
    if (rc < 0)
        slot->work = WORK_NONE;
    return rc;
}

/* Queues a copy between the slot's frame buffer and pinned or client memory. */
static int copy_frame(struct device_cuda *d, unsigned s, void *to, const void *from, uint64_t frame_offset,
                      uint64_t bytes, enum cudaMemcpyKind kind, struct sw_err *err) {
    const int rc = enter(d, err);
    if (rc < 0)
        return rc;
    SW_ASSERT(frame_offset + bytes <= d->info.buffer_bytes);
    d->slots[s].is_marked = false;
    return check(cudaMemcpyAsync(to, from, bytes, kind, d->slots[s].stream), err, "cudaMemcpyAsync of a frame");
}

int sw_cuda_store(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                  struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    return copy_frame(d, s, h_to, d->slots[s].parts.d_frame + frame_offset, frame_offset, bytes, cudaMemcpyDeviceToHost,
                      err);
}

int sw_cuda_load(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                 struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    return copy_frame(d, s, d->slots[s].parts.d_frame + frame_offset, h_from, frame_offset, bytes,
                      cudaMemcpyHostToDevice, err);
}

int sw_cuda_place(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                  uint64_t frame_offset, uint64_t bytes, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    return copy_frame(d, s, sw_cuda_at(mapping, offset), d->slots[s].parts.d_frame + frame_offset, frame_offset, bytes,
                      cudaMemcpyDeviceToDevice, err);
}

int sw_cuda_fetch(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                  uint64_t frame_offset, uint64_t bytes, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    return copy_frame(d, s, d->slots[s].parts.d_frame + frame_offset, sw_cuda_at(mapping, offset), frame_offset, bytes,
                      cudaMemcpyDeviceToDevice, err);
}

/* Begins a step that decodes `n` frames, each with its own result or all of them with the first. */
static void begin_decode(struct slot *slot, unsigned n) {
    set_work(slot, WORK_DECODE);
    slot->n_items = n;
    for (unsigned i = 0; i < n; i++)
        slot->h->results[i].bad_tiles = 0;
}

/* Ends the queueing. A step that could not be queued has no report. */
static int end_decode(struct slot *slot, int rc, struct sw_err *err) {
    if (rc < 0)
        slot->work = WORK_NONE;
    return sw_cuda_check_lost(rc, err);
}

static int queue_one(struct device_cuda *d, struct slot *slot, const struct sw_frame_layout *layout,
                     const uint8_t *d_frame, void *d_out, struct sw_err *err) {
    SW_ASSERT(layout->raw_bytes <= d->info.chunk_bytes && layout->frame_bytes <= d->info.buffer_bytes);
    return sw_gpu_decode_async(layout, d_frame, 0, layout->n_tiles, d_out, slot->h->results, sw_cuda_pass(d, slot),
                               slot->stream, err);
}

int sw_cuda_queue_decode(struct device_cuda *d, struct slot *slot, unsigned n, struct sw_err *err) {
    struct sw_gpu_item *items = slot->h->items;
    if (n == 1)
        return queue_one(d, slot, &items->layout, items->d_frame, items->d_raw, err);
    return sw_gpu_decode_batch_async(items, n, slot->h->results, slot->parts.d_scratch, d->scratch_bytes,
                                     sw_cuda_pass(d, slot), slot->stream, err);
}

/* Queues the decoding of the frames at d_base, in one launch: a single chunk leaves most of the GPU idle, and on a busy
 * GPU each launch waits for its turn. */
static int queue_decode(struct device_cuda *d, struct slot *slot, uint8_t *d_base, struct sw_mapping *mapping,
                        const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    for (unsigned i = 0; i < n; i++)
        slot->h->items[i] = (struct sw_gpu_item){.layout = *items[i].layout,
                                                 .d_raw = sw_cuda_at(mapping, items[i].offset),
                                                 .d_frame = d_base + items[i].frame_at};
    return sw_cuda_queue_decode(d, slot, n, err);
}

int sw_cuda_decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                   unsigned n, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    const int rc = sw_cuda_enter_slot(d, slot, err);
    if (rc < 0)
        return rc;
    SW_ASSERT(n > 0 && n <= SW_DECODE_MAX &&
              items[n - 1].frame_at + items[n - 1].layout->frame_bytes <= d->info.buffer_bytes);
    begin_decode(slot, n);
    return end_decode(slot, queue_decode(d, slot, slot->parts.d_frame, mapping, items, n, err), err);
}

/* Queues the decoding of frames that the codec cannot read in place: they pass through the slot's buffer, one after the
 * other. */
static int queue_unpack_fetched(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                                const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = sw_cuda_fetch(device, s, mapping, items[i].frame_at, 0, items[i].layout->frame_bytes, err);
        if (rc == 0)
            rc = queue_one(d, slot, items[i].layout, slot->parts.d_frame, sw_cuda_at(mapping, items[i].offset), err);
    }
    return rc;
}

int sw_cuda_unpack(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                   unsigned n, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    uintptr_t addresses = 0;
    int rc = enter(d, err);
    if (rc < 0)
        return rc;
    SW_ASSERT(n > 0 && n <= SW_DECODE_MAX);
    for (unsigned i = 0; i < n; i++)
        addresses |= (uintptr_t)sw_cuda_at(mapping, items[i].frame_at);
    begin_decode(slot, n);
    rc = addresses % SW_FRAME_ALIGN ? queue_unpack_fetched(device, s, mapping, items, n, err)
                                    : queue_decode(d, slot, sw_cuda_at(mapping, 0), mapping, items, n, err);
    return end_decode(slot, rc, err);
}

uint64_t sw_cuda_heads_bytes(uint64_t chunk_bytes) {
    return SW_CUDA_FEW_HEADS * sw_frame_head_bound_bytes(chunk_bytes);
}

static int copy_heads(const struct device_cuda *d, struct slot *slot, const struct sw_mapping *mapping,
                      struct sw_head_item *items, unsigned n, struct sw_err *err) {
    uint8_t *to = slot->h_heads;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; to += items[i++].bytes) {
        SW_ASSERT(to + items[i].bytes <= slot->h_heads + sw_cuda_heads_bytes(d->info.chunk_bytes) &&
                  (mapping || items[i].at + items[i].bytes <= d->info.buffer_bytes));
        const uint8_t *from = mapping ? sw_cuda_at(mapping, items[i].at) : slot->parts.d_frame + items[i].at;
        rc = check(cudaMemcpyAsync(to, from, items[i].bytes, cudaMemcpyDeviceToHost, slot->stream), err,
                   "cudaMemcpyAsync of a frame's beginning");
    }
    slot->heads = rc < 0 ? NULL : items;
    return rc;
}

/* A copy takes the CPU 5 us, half of it for the hash: for 60 GB as long as a tenth of the decoding (H200). */
static int queue_identify(const struct device_cuda *d, struct slot *slot, const struct sw_mapping *mapping,
                          struct sw_head_item *items, unsigned n, struct sw_err *err) {
    for (unsigned i = 0; i < n; i++)
        slot->h->heads[i] = (struct sw_gpu_source){.d_raw = sw_cuda_at(mapping, items[i].at), .bytes = items[i].bytes};
    set_work(slot, WORK_IDENTIFY);
    slot->identified = items;
    const int rc =
        sw_gpu_identify_async(slot->h->heads, n, slot->h->identities, sw_cuda_pass(d, slot), slot->stream, err);
    return end_decode(slot, rc, err);
}

int sw_cuda_identify(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, struct sw_head_item *items,
                     unsigned n, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    const bool are_few = !mapping || n <= SW_CUDA_FEW_HEADS;
    const int rc = are_few ? enter(d, err) : sw_cuda_enter_slot(d, slot, err);
    SW_ASSERT(n > 0 && n <= SW_HEAD_MAX && !slot->heads);
    slot->is_marked = false;
    if (rc < 0)
        return rc;
    slot->n_heads = n;
    return are_few ? copy_heads(d, slot, mapping, items, n, err) : queue_identify(d, slot, mapping, items, n, err);
}

void sw_cuda_wake(struct sw_device *device) {
    struct device_cuda *d = cuda_of(device);
    if (enter(d, NULL) == 0)
        (void)sw_gpu_wake_async(d->waking, NULL);
}
