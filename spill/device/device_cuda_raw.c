/* device_cuda_raw.c - raw frames without kernels: copy engines move the bytes, a thread of the slot makes the
 * checksums.
 *
 * What is spilled is hashed when it has arrived, what is restored while it is on its way. */
#include "spill/device/device_cuda_state.h"

/* Queues the copies between raw bytes on the device and their place in the frame. */
static int queue_copies(const struct slot *slot, const struct sw_frame_layout *layout, const struct sw_stored *stored,
                        uint8_t *d_raw, bool is_spill, struct sw_err *err) {
    uint64_t skip = layout->data_offset, left = layout->raw_bytes;
    cudaError_t e = cudaSuccess;
    for (unsigned i = 0; e == cudaSuccess && left > 0; i++) {
        const struct sw_extent *extent = &stored->extents[i];
        if (skip >= extent->bytes) {
            skip -= extent->bytes;
            continue;
        }
        uint8_t *h_raw = (uint8_t *)extent->memory + skip;
        const uint64_t bytes = left < extent->bytes - skip ? left : extent->bytes - skip;
        e = is_spill ? cudaMemcpyAsync(h_raw, d_raw, bytes, cudaMemcpyDeviceToHost, slot->stream)
                     : cudaMemcpyAsync(d_raw, h_raw, bytes, cudaMemcpyHostToDevice, slot->stream);
        d_raw += bytes;
        left -= bytes;
        skip = 0;
    }
    return check(e, err, "cudaMemcpyAsync of raw bytes");
}

int sw_cuda_spill_raw(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                      uint64_t bytes, const struct sw_stored *to, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = enter(d, err);
    if (rc < 0)
        return rc;
    sw_frame_layout_init(&slot->frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, bytes, 0);
    SW_ASSERT(slot->frame.frame_bytes == to->bytes);
    set_work(slot, WORK_SPILL_RAW);
    slot->stored = to;
    rc = queue_copies(slot, &slot->frame, to, sw_cuda_at(mapping, offset), true, err);
    if (rc < 0)
        slot->work = WORK_NONE;
    return rc;
}

int sw_cuda_restore_raw(struct sw_device *device, unsigned s, const struct sw_frame_layout *layout,
                        const struct sw_stored *from, struct sw_mapping *mapping, uint64_t offset, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = enter(d, err);
    if (rc == 0)
        rc = sw_sealer_begin(slot->sealer, SW_SEALER_VERIFY, layout, from, err);
    if (rc < 0)
        return rc;
    set_work(slot, WORK_RESTORE_RAW);
    rc = queue_copies(slot, layout, from, sw_cuda_at(mapping, offset), false, err);
    if (rc < 0) {
        sw_sealer_wait(slot->sealer);
        slot->work = WORK_NONE;
    }
    return rc;
}

/* The copies have ended; -SW_EAGAIN: the sealer has not. */
int sw_cuda_finish_raw(struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    if (slot->work == WORK_SPILL_RAW) {
        const int rc = sw_sealer_begin(slot->sealer, SW_SEALER_SEAL, &slot->frame, slot->stored, err);
        if (rc < 0)
            return rc;
        slot->work = WORK_SEAL;
    }
    if (!sw_sealer_ended(slot->sealer))
        return -SW_EAGAIN;
    const uint32_t bad = sw_sealer_bad_tiles(slot->sealer);
    if (bad)
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "%u tiles of a stored frame are damaged", bad);
    if (slot->work == WORK_SEAL)
        ret->frame = slot->frame;
    return 0;
}
