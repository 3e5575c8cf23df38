/* device_cuda_raw.c - raw frames: copy engines move their bytes, and one kernel hashes them. Clients' frames: copy
 * engines move them without any kernel.
 *
 * All slots share one copy stream for each direction. So copies do not wait for kernels, which start two milliseconds
 * late on a busy GPU, and copies use the link in the order in which they were queued. (If each slot had its own copy
 * stream, the order would depend on the driver.) On the spill path the kernel hashes bytes while they are copied, and
 * the CPU hashes the last chunks after they have arrived in host memory. On the restore path the kernel hashes bytes
 * after they have arrived on the device, and the CPU hashes the last chunks in host memory meanwhile. */
#include "spill/device/device_cuda_state.h"

/* The hashing threads wake up during the copies: this takes 50 to 250 us in a virtual machine. Copying a chunk takes 20
 * to 500 us, and waits for the chunks of other slots. */
#define WAKE_US 500

_Static_assert(SW_RAW_MAX <= SW_GPU_HASH_MAX, "one launch hashes all chunks of a step");

/* Queues the copies between raw bytes on the device and their place in the frame. */
static cudaError_t queue_copies_of(const struct slot *slot, const struct sw_raw_item *item, uint8_t *d_raw,
                                   bool is_spill) {
    uint64_t skip = item->frame.data_offset, left = item->frame.raw_bytes;
    cudaError_t e = cudaSuccess;
    for (unsigned i = 0; e == cudaSuccess && left > 0; i++) {
        const struct sw_extent *extent = &item->stored->extents[i];
        if (skip >= extent->bytes) {
            skip -= extent->bytes;
            continue;
        }
        uint8_t *h_raw = (uint8_t *)extent->memory + skip;
        const uint64_t bytes = left < extent->bytes - skip ? left : extent->bytes - skip;
        e = is_spill ? cudaMemcpyAsync(h_raw, d_raw, bytes, cudaMemcpyDeviceToHost, slot->copies)
                     : cudaMemcpyAsync(d_raw, h_raw, bytes, cudaMemcpyHostToDevice, slot->copies);
        d_raw += bytes;
        left -= bytes;
        skip = 0;
    }
    return e;
}

static int queue_copies(const struct slot *slot, const struct sw_mapping *mapping, const struct sw_raw_item *items,
                        unsigned n, bool is_spill, struct sw_err *err) {
    cudaError_t e = cudaSuccess;
    for (unsigned i = 0; e == cudaSuccess && i < n; i++)
        e = queue_copies_of(slot, &items[i], sw_cuda_at(mapping, items[i].offset), is_spill);
    return check(e, err, "cudaMemcpyAsync of raw bytes");
}

static int queue_hashes(const struct slot *slot, const struct sw_mapping *mapping, const struct sw_raw_item *items,
                        struct sw_err *err) {
    struct sw_gpu_source ranges[SW_GPU_HASH_MAX];
    for (unsigned i = 0; i < slot->n_items; i++)
        ranges[i] = (struct sw_gpu_source){sw_cuda_at(mapping, items[i].offset), items[i].frame.raw_bytes};
    return sw_cuda_check_lost(sw_gpu_hash_async(ranges, slot->n_items, slot->h->hashes, slot->stream, err), err);
}

/* Makes the kernel wait for the queued copies. */
static int follow_copies(const struct slot *slot, struct sw_err *err) {
    cudaError_t e = cudaEventRecord(slot->queued, slot->copies);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(slot->stream, slot->queued, 0);
    return check(e, err, "cudaStreamWaitEvent of a slot's copies");
}

/* Begins a step; slot->n_items of its chunks are hashed by the kernel. */
static int begin(struct device_cuda *d, unsigned s, enum work work, const struct sw_raw_item *items, unsigned n,
                 unsigned n_by_cpu, struct sw_err *err) {
    struct slot *slot = &d->slots[s];
    int rc = enter(d, err);
    SW_ASSERT(n > 0 && n <= SW_RAW_MAX && n_by_cpu <= n);
    for (unsigned i = 0; i < n; i++)
        SW_ASSERT(items[i].frame.codec == SW_CODEC_RAW && items[i].frame.frame_bytes == items[i].stored->bytes &&
                  items[i].frame.raw_bytes <= d->info.chunk_bytes);
    if (rc == 0)
        rc = sw_sealer_take(slot->sealer, items, n, err);
    if (rc < 0)
        return rc;
    set_work(slot, work);
    slot->n_items = n - n_by_cpu;
    slot->copies = work == WORK_SPILL_RAW ? d->copies_out : d->copies_back;
    return 0;
}

/* Ends the queueing of a step: nothing is reported of one that could not be queued. */
static int end(struct slot *slot, int rc, struct sw_err *err) {
    const cudaError_t e = slot->copies ? cudaEventRecord(slot->copied, slot->copies) : cudaSuccess;
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        /* Queued copies must end first. The next poll takes care of the slot's own stream. */
        if (slot->copies != slot->stream)
            (void)cudaStreamSynchronize(slot->copies);
        slot->copies = NULL;
        rc = rc < 0 ? rc : check(e, err, "cudaEventRecord behind copies");
    }
    if (rc < 0) {
        sw_sealer_wait(slot->sealer);
        slot->work = WORK_NONE;
    }
    return rc;
}

int sw_cuda_spill_raw(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                      const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = begin(d, s, WORK_SPILL_RAW, items, n, n_by_cpu, err);
    if (rc == 0)
        rc = queue_copies(slot, mapping, items, n, true, err);
    if (rc == 0)
        rc = queue_hashes(slot, mapping, items, err);
    if (rc == 0 && n_by_cpu > 0)
        sw_sealer_wake(slot->sealer, n - n_by_cpu, WAKE_US);
    return end(slot, rc, err);
}

int sw_cuda_restore_raw(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                        const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = begin(d, s, WORK_RESTORE_RAW, items, n, n_by_cpu, err);
    const unsigned n_hashed = n - n_by_cpu;
    if (rc == 0)
        rc = queue_copies(slot, mapping, items, n_hashed, false, err);
    if (rc == 0 && n_hashed > 0)
        rc = follow_copies(slot, err);
    if (rc == 0)
        rc = queue_hashes(slot, mapping, items, err);
    if (rc == 0)
        rc = queue_copies(slot, mapping, items + n_hashed, n_by_cpu, false, err);
    if (rc == 0) /* after queueing the copies: threads wake up slowly, and the link need not wait for them */
        rc = sw_sealer_begin(slot->sealer, SW_SEALER_VERIFY, n_hashed, err);
    return end(slot, rc, err);
}

/* Decides the step's result. If restored bytes have wrong hashes, the stored frames are verified before they count as
 * damaged: other code may have written to the destination, or the link may have failed. */
static int judge(struct slot *slot, struct sw_err *err) {
    const uint32_t bad = sw_sealer_bad_tiles(slot->sealer);
    if (bad)
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "%u tiles of a stored frame are damaged", bad);
    if (slot->work == WORK_RECHECK)
        return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST,
                          "the stored bytes are good, but the restored bytes differ: the link failed, or another "
                          "operation wrote to the memory");
    if (slot->work != WORK_RESTORE_RAW || sw_sealer_verify_hashed(slot->sealer, slot->n_items, slot->h->hashes) == 0)
        return 0;
    const int rc = sw_sealer_begin(slot->sealer, SW_SEALER_VERIFY, 0, err);
    slot->work = WORK_RECHECK;
    return rc < 0 ? rc : -SW_EAGAIN;
}

int sw_cuda_finish_raw(struct slot *slot, struct sw_err *err) {
    if (slot->work == WORK_SPILL_RAW) {
        sw_sealer_seal_hashed(slot->sealer, slot->n_items, slot->h->hashes);
        const int rc = sw_sealer_begin(slot->sealer, SW_SEALER_SEAL, slot->n_items, err);
        if (rc < 0)
            return rc;
        slot->work = WORK_SEAL;
    }
    if (!sw_sealer_ended(slot->sealer))
        return -SW_EAGAIN;
    return judge(slot, err);
}

/* ---- frames of clients ---- */

static cudaError_t queue_frames(const struct slot *slot, const struct sw_mapping *mapping,
                                struct sw_device_copies copies, bool is_taken) {
    struct sw_device_copy copy;
    cudaError_t e = cudaSuccess;
    while (e == cudaSuccess && sw_device_next_copy(&copies, &copy)) {
        uint8_t *d = sw_cuda_at(mapping, copy.offset);
        e = is_taken ? cudaMemcpyAsync(copy.memory, d, copy.bytes, cudaMemcpyDeviceToHost, slot->copies)
                     : cudaMemcpyAsync(d, copy.memory, copy.bytes, cudaMemcpyHostToDevice, slot->copies);
    }
    return e;
}

/* Queues the copies between frames and their places. On the streams of all slots, two by turns, so that frames of
 * several slots follow each other without a gap. */
static int move_frames(struct device_cuda *d, unsigned s, const struct sw_mapping *mapping,
                       const struct sw_frame_item *items, unsigned n, bool is_taken, struct sw_err *err) {
    struct slot *slot = &d->slots[s];
    const int rc = enter(d, err);
    if (rc < 0)
        return rc;
    SW_ASSERT(n > 0 && slot->work == WORK_NONE && !slot->copies);
    slot->n_items = 0; /* nothing is on the slot's own stream */
    slot->copies = d->n_frames++ % 2 ? is_taken ? d->frames_out : d->frames_back
                   : is_taken        ? d->copies_out
                                     : d->copies_back;
    const cudaError_t e = queue_frames(slot, mapping, (struct sw_device_copies){.items = items, .n = n}, is_taken);
    return end(slot, check(e, err, "cudaMemcpyAsync of clients' frames"), err);
}

int sw_cuda_take_frames(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                        const struct sw_frame_item *items, unsigned n, struct sw_err *err) {
    return move_frames(cuda_of(device), s, mapping, items, n, true, err);
}

int sw_cuda_give_frames(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                        const struct sw_frame_item *items, unsigned n, bool may_fill_holes, struct sw_err *err) {
    (void)may_fill_holes;
    return move_frames(cuda_of(device), s, mapping, items, n, false, err);
}

static void verify(void *arg) {
    struct slot *slot = arg;
    (void)sw_device_verify(slot->stored, &slot->verified);
}

int sw_cuda_verify_frame(struct sw_device *device, unsigned s, const struct sw_stored *stored, struct sw_err *err) {
    struct slot *slot = &cuda_of(device)->slots[s];
    slot->stored = stored;
    slot->verified = (struct sw_err){0};
    const int rc = sw_sealer_run(slot->sealer, verify, slot, err);
    if (rc == 0)
        set_work(slot, WORK_VERIFY);
    return rc;
}

int sw_cuda_finish_verify(struct slot *slot, struct sw_err *err) {
    if (!sw_sealer_ended(slot->sealer))
        return -SW_EAGAIN;
    if (slot->verified.code && err)
        *err = slot->verified;
    return slot->verified.code;
}
