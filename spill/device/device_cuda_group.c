/* device_cuda_group.c - groups of short chunks, by the kernels for batches: one or two launches for each step.
 *
 * The frames of a group lie one after the other in the slot's frame buffer, each with room for its bound, so an item's
 * place follows from the items before it. A kernel copies the frames from and to pinned memory: one command instead of
 * one for each run of bytes. */
#include "spill/device/device_cuda_state.h"

/* Begins a step on a group. */
static int begin(struct device_cuda *d, unsigned s, enum work work, struct sw_group_item *items, unsigned n,
                 struct sw_err *err) {
    struct slot *slot = &d->slots[s];
    uint64_t bytes = 0;
    const int rc = sw_cuda_enter_slot(d, &d->slots[s], err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < n; i++)
        bytes += sw_group_item_bytes(items[i].bytes);
    SW_ASSERT(n > 0 && n <= d->info.group_items && bytes <= d->info.group_bytes);
    set_work(slot, work);
    slot->items = items;
    slot->n_items = n;
    return 0;
}

/* Ends the queueing of a step. A step that could not be queued has no report. */
static int end(struct slot *slot, int rc) {
    if (rc < 0)
        slot->work = WORK_NONE;
    return rc;
}

static struct sw_gpu_item gpu_item(const struct slot *slot, const struct sw_group_item *item, uint64_t frame_at) {
    return (struct sw_gpu_item){
        .layout = item->frame,
        .d_raw = sw_cuda_at(item->mapping, item->offset),
        .d_frame = slot->parts.d_frame + frame_at,
    };
}

/* Encodes the items that have no frame yet, except those that are too short for the plan's dictionary. A single one is
 * an argument of its kernel: nothing has to be copied to the GPU before it. */
static int queue_encode(struct device_cuda *d, struct slot *slot, const struct sw_gpu_plan *plan, struct sw_err *err) {
    struct exchange *h = slot->h;
    const struct parts *p = &slot->parts;
    const struct sw_gpu_pass pass = sw_cuda_pass(d, slot);
    uint64_t at = 0;
    uint32_t n = 0;
    int rc;
    for (unsigned i = 0; i < slot->n_items; i++) {
        const struct sw_group_item *item = &slot->items[i];
        if (!item->frame.frame_bytes && sw_cuda_has_room(plan, item->bytes)) {
            h->items[n] = gpu_item(slot, item, at);
            h->items[n].layout = sw_cuda_new_layout(plan, item->bytes);
            slot->encoded[n++] = (uint16_t)i;
        }
        at += sw_group_item_bytes(item->bytes);
    }
    slot->n_encoded = n;
    if (n == 1)
        rc = sw_gpu_encode_async(plan, h->items->d_raw, h->items->layout.raw_bytes, h->items->d_frame,
                                 sw_group_item_bytes(h->items->layout.raw_bytes), h->results, &d->pool, p->d_progress,
                                 pass, slot->stream, err);
    else
        rc = sw_gpu_encode_batch_async(plan, h->items, n, h->results, &d->pool, p->d_scratch, d->scratch_bytes, pass,
                                       slot->stream, err);
    return sw_cuda_check_lost(rc, err);
}

int sw_cuda_encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan, struct sw_group_item *items,
                         unsigned n, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    struct sw_gpu_plan gpu_plan;
    int rc = begin(d, s, WORK_ENCODE_GROUP, items, n, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < n; i++)
        items[i].frame.frame_bytes = 0;
    rc = sw_cuda_queue_plan(slot, plan, &gpu_plan, err);
    return end(slot, rc < 0 ? rc : queue_encode(d, slot, &gpu_plan, err));
}

static bool all_have_frames(const struct slot *slot) {
    for (unsigned i = 0; i < slot->n_items; i++)
        if (!slot->items[i].frame.frame_bytes)
            return false;
    return true;
}

/* Encodes the items again, as raw frames, that have none or whose frames are no smaller than raw ones. */
int sw_cuda_finish_encode_group(struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    const struct sw_gpu_plan raw = raw_plan();
    for (uint32_t k = 0; k < slot->n_encoded; k++) {
        struct sw_group_item *item = &slot->items[slot->encoded[k]];
        const struct sw_frame_layout *layout = &slot->h->items[k].layout;
        const struct sw_gpu_result *result = &slot->h->results[k];
        if (layout->codec != SW_CODEC_RAW && result->frame_bytes >= raw_frame_bytes(item->bytes))
            continue;
        if (result->frame_bytes > sw_group_item_bytes(item->bytes))
            return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "encoder made a frame of %llu bytes of %llu",
                              (unsigned long long)result->frame_bytes, (unsigned long long)item->bytes);
        SW_ASSERT(result->codec == (uint32_t)layout->codec);
        item->frame = *layout;
        item->frame.frame_bytes = result->frame_bytes;
    }
    if (all_have_frames(slot))
        return 0;
    const int rc = queue_encode(d, slot, &raw, err);
    return rc < 0 ? rc : -SW_EAGAIN;
}

/* Queues the copies of the items' frames to host memory, or back. Runs beyond the kernel's list are separate commands,
 * and so are all runs if kernels cannot reach host memory. */
static int queue_copies(struct device_cuda *d, struct slot *slot, bool is_store, struct sw_err *err) {
    uint8_t *d_frame = slot->parts.d_frame;
    uint32_t n = 0;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < slot->n_items; i++) {
        const struct sw_group_item *item = &slot->items[i];
        uint64_t at = 0;
        for (unsigned e = 0; rc == 0 && e < item->stored->n_extents; e++) {
            const struct sw_extent *extent = &item->stored->extents[e];
            const struct sw_gpu_run run = {.from = is_store ? d_frame + at : extent->memory,
                                           .to = is_store ? extent->memory : d_frame + at,
                                           .bytes = extent->bytes};
            at += extent->bytes;
            SW_ASSERT(at <= sw_group_item_bytes(item->bytes));
            if (n < d->group_runs)
                slot->h->runs[n++] = run;
            else
                rc = check(cudaMemcpyAsync(run.to, run.from, run.bytes, cudaMemcpyDefault, slot->stream), err,
                           "cudaMemcpyAsync of a frame");
        }
        d_frame += sw_group_item_bytes(item->bytes);
    }
    if (rc < 0)
        return rc;
    return sw_cuda_check_lost(sw_gpu_copy_async(slot->h->runs, n, slot->parts.d_runs,
                                                MAX_GROUP_RUNS * sizeof *slot->parts.d_runs, slot->stream, err),
                              err);
}

/* Queues the computing of many frames' identities by a kernel: the CPU would have to fetch each beginning. */
static int queue_identify(struct slot *slot, struct sw_err *err) {
    const uint8_t *d_frame = slot->parts.d_frame;
    struct exchange *h = slot->h;
    for (unsigned i = 0; i < slot->n_items; i++) {
        const struct sw_group_item *item = &slot->items[i];
        h->heads[i] =
            (struct sw_gpu_source){.d_raw = d_frame, .bytes = item->stored->n_extents ? item->frame.counts_offset : 0};
        d_frame += sw_group_item_bytes(item->bytes);
    }
    return sw_cuda_check_lost(
        sw_gpu_identify_async(h->heads, slot->n_items, h->identities, (struct sw_gpu_pass){0}, slot->stream, err), err);
}

int sw_cuda_store_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                        struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = begin(d, s, WORK_STORE_GROUP, items, n, err);
    if (rc < 0)
        return rc;
    if (n > SW_CUDA_FEW_HEADS)
        rc = queue_identify(slot, err);
    return end(slot, rc < 0 ? rc : queue_copies(d, slot, true, err));
}

void sw_cuda_finish_store_group(struct slot *slot) {
    for (unsigned i = 0; i < slot->n_items; i++) {
        struct sw_group_item *item = &slot->items[i];
        item->identity = slot->n_items > SW_CUDA_FEW_HEADS
                             ? slot->h->identities[i]
                             : sw_device_identify(item->stored, item->frame.counts_offset);
    }
}

/* Queues the decoding of frames in the slot's buffer, each at its item's place. */
static int queue_decode(struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    struct exchange *h = slot->h;
    for (unsigned i = 0; i < slot->n_items; i++) {
        const struct sw_group_item *item = &slot->items[i];
        SW_ASSERT(item->frame.raw_bytes == item->bytes && item->frame.frame_bytes <= sw_group_item_bytes(item->bytes));
        h->items[i] = gpu_item(slot, item, item->frame_at);
        h->results[i].bad_tiles = 0;
    }
    return sw_cuda_queue_decode(d, slot, slot->n_items, err);
}

int sw_cuda_restore_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                          struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    uint64_t at = 0;
    int rc = begin(d, s, WORK_RESTORE_GROUP, items, n, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < n; i++) {
        items[i].frame_at = at;
        at += sw_group_item_bytes(items[i].bytes);
    }
    rc = queue_copies(d, slot, false, err);
    return end(slot, rc < 0 ? rc : queue_decode(d, slot, err));
}

int sw_cuda_gather_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n, uint64_t at,
                         struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    uint8_t *d_frame = slot->parts.d_frame;
    uint32_t n_runs = 0;
    int rc = begin(d, s, WORK_GATHER_GROUP, items, n, err);
    if (rc < 0)
        return rc;
    sw_device_place_group(items, n, at);
    for (unsigned i = 0; i < n; i++) {
        const uint64_t bytes = items[i].frame.frame_bytes;
        if (!items[i].is_left_out) {
            SW_ASSERT(items[i].frame_at + bytes <= d->info.buffer_bytes);
            slot->h->runs[n_runs++] =
                (struct sw_gpu_run){.from = d_frame, .to = slot->parts.d_frame + items[i].frame_at, .bytes = bytes};
        }
        d_frame += sw_group_item_bytes(items[i].bytes);
    }
    (void)sw_cuda_pass(d, slot); /* its time begins */
    rc = sw_cuda_check_lost(sw_gpu_copy_async(slot->h->runs, n_runs, slot->parts.d_runs,
                                              MAX_GROUP_RUNS * sizeof *slot->parts.d_runs, slot->stream, err),
                            err);
    return end(slot, rc);
}

int sw_cuda_decode_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                         struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    const int rc = begin(d, s, WORK_RESTORE_GROUP, items, n, err);
    return rc < 0 ? rc : end(slot, queue_decode(d, slot, err));
}

void sw_cuda_finish_restore_group(struct slot *slot) {
    for (unsigned i = 0; i < slot->n_items; i++)
        slot->items[i].is_damaged = slot->h->results[i].bad_tiles > 0;
}
