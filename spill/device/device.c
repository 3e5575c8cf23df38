#include "spill/device/device.h"

#include "base/alloc.h"
#include "base/closer.h"
#include "codec/codec.h"
#include "codec/identity.h"
#include "spill/device/stored.h"

#include <string.h>

/* Alignment of a group's frames: as of memory from cudaMalloc. Kernels need only 16 bytes (codec/gpu.h). */
#define GROUP_ALIGN_BYTES ((uint64_t)256)
#define STRIDE_BYTES ((uint64_t)2 << 20) /* of frame buffers in config->frames: whole pages of a GPU */

const char *sw_mem_kind_name(enum sw_mem_kind kind) {
    static const char *const names[SW_MEM_KIND_NR] = {"memfd", "cuda_ipc", "cuda_vmm", "cuda_pool"};
    return (unsigned)kind < SW_MEM_KIND_NR ? names[kind] : "unknown";
}

void sw_mem_desc_fini(struct sw_mem_desc *desc) {
    for (uint32_t i = 0; desc->fds && i < desc->n_parts; i++)
        sw_closer_close(desc->fds[i], desc->uid);
    sw_free(desc->fds);
    sw_free(desc->part_bytes);
    memset(desc, 0, sizeof *desc);
}

/* Makes one run of a frame's extents. */
static uint8_t *gather(const struct sw_stored *stored) {
    uint8_t *frame = sw_alloc(stored->bytes), *to = frame;
    for (unsigned i = 0; frame && i < stored->n_extents; i++) {
        memcpy(to, stored->extents[i].memory, stored->extents[i].bytes);
        to += stored->extents[i].bytes;
    }
    return frame;
}

/* All extents but the last are whole blocks of their tier. */
uint64_t sw_device_identify(const struct sw_stored *stored, uint64_t head_bytes) {
    struct sw_identity identity;
    sw_identity_init(&identity);
    for (unsigned e = 0; e < stored->n_extents && head_bytes > 0; e++) {
        const struct sw_extent *extent = &stored->extents[e];
        const uint64_t bytes = extent->bytes < head_bytes ? extent->bytes : head_bytes;
        sw_identity_add(&identity, extent->memory, (size_t)bytes);
        head_bytes -= bytes;
    }
    return sw_identity_value(&identity);
}

int sw_device_verify(const struct sw_stored *stored, struct sw_err *err) {
    if (stored->n_extents == 1)
        return sw_codec_verify(stored->extents[0].memory, stored->bytes, err);
    uint8_t *frame = gather(stored);
    if (!frame)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a copy of a frame");
    const int rc = sw_codec_verify(frame, stored->bytes, err);
    sw_free(frame);
    return rc;
}

static bool next_run(const struct sw_device_copies *copies, struct sw_device_copy *ret) {
    if (copies->item == copies->n)
        return false;
    const struct sw_frame_item *item = &copies->items[copies->item];
    const struct sw_extent *extent = &item->stored->extents[copies->extent];
    *ret = (struct sw_device_copy){item->offset + copies->at, extent->bytes, extent->memory};
    return true;
}

static void go_on(struct sw_device_copies *copies, const struct sw_device_copy *run) {
    copies->at += run->bytes;
    if (++copies->extent < copies->items[copies->item].stored->n_extents)
        return;
    copies->item++;
    copies->extent = 0;
    copies->at = 0;
}

bool sw_device_next_copy(struct sw_device_copies *copies, struct sw_device_copy *ret) {
    struct sw_device_copy next;
    if (!next_run(copies, ret))
        return false;
    go_on(copies, ret);
    while (next_run(copies, &next)) {
        const uint64_t step = sw_frame_step_bytes(ret->bytes);
        if (next.offset != ret->offset + step || next.memory != ret->memory + step)
            break;
        ret->bytes = step + next.bytes;
        go_on(copies, &next);
    }
    return true;
}

void sw_device_place_group(struct sw_group_item *items, unsigned n, uint64_t at) {
    at = sw_frame_step_bytes(at);
    for (unsigned i = 0; i < n; i++) {
        if (items[i].is_left_out)
            continue;
        items[i].frame_at = at;
        at += sw_frame_step_bytes(items[i].frame.frame_bytes);
    }
}

uint64_t sw_device_frame_stride(uint64_t chunk_bytes) {
    return (sw_frame_bound_bytes(chunk_bytes) + STRIDE_BYTES - 1) / STRIDE_BYTES * STRIDE_BYTES;
}

bool sw_device_frames_fit(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots) {
    return !config->frames || sw_device_frame_stride(chunk_bytes) <= config->frames_bytes / n_slots;
}

void sw_device_make_room(const struct sw_device_config *config,
                         bool (*fit)(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots),
                         unsigned *n_slots, uint64_t *chunk_bytes) {
    const uint64_t align = SW_CHUNK_ALIGN_BYTES, longer = (config->stored_chunk_bytes + align - 1) / align * align;
    unsigned n = *n_slots;
    if (config->frames || longer <= *chunk_bytes || longer > SW_FRAME_MAX_RAW_BYTES)
        return;
    while (n > 1 && !fit(config, longer, n))
        n--;
    if (!fit(config, longer, n))
        return;
    *n_slots = n;
    *chunk_bytes = longer;
}

uint64_t sw_group_item_bytes(uint64_t raw_bytes) {
    return (sw_frame_bound_bytes(raw_bytes) + GROUP_ALIGN_BYTES - 1) / GROUP_ALIGN_BYTES * GROUP_ALIGN_BYTES;
}
