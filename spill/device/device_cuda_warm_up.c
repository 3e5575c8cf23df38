/* device_cuda_warm_up.c - runs a chunk through every step and codec before the device is used. */
#include "base/alloc.h"
#include "spill/device/device_cuda_state.h"

#include <string.h>

#define WARM_UP_BYTES ((uint64_t)32 << 10)
_Static_assert(2 * WARM_UP_BYTES <= SW_SAMPLE_MAX_BYTES, "a plan's region lies behind its sample");

/* Runs the chunk through the steps on groups, as a group of one. */
static int warm_up_group(struct device_cuda *d, const struct sw_plan *plan, struct sw_mapping *sample, uint8_t *h_frame,
                         struct sw_err *err) {
    const struct sw_device_ops *ops = d->device.ops;
    struct sw_extent extent = {.memory = h_frame};
    const struct sw_stored stored = {.extents = &extent, .n_extents = 1};
    struct sw_group_item item = {.mapping = sample, .bytes = WARM_UP_BYTES, .stored = &stored};
    struct sw_slot_result result;
    int rc = ops->encode_group(&d->device, 0, plan, &item, 1, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &result, err);
    extent.bytes = item.frame.frame_bytes;
    if (rc == 0)
        rc = ops->store_group(&d->device, 0, &item, 1, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &result, err);
    if (rc == 0)
        rc = ops->restore_group(&d->device, 0, &item, 1, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &result, err);
    if (rc == 0 && item.is_damaged)
        rc = sw_err_set(err, -SW_EGPU, SW_SCOPE_DEVICE, "GPU %d damages frames", d->ordinal);
    return rc;
}

/* Runs one chunk through every step on slot 0, so that kernels are loaded and tested now, not when the GPU is full. The
 * chunk lies in slot 0's sample, where make_plan has left the same bytes. */
static int warm_up_codec(struct device_cuda *d, const struct sw_plan *plan, uint8_t *h_frame, struct sw_err *err) {
    const struct sw_device_ops *ops = d->device.ops;
    struct sw_mapping sample = {.address = (uintptr_t)d->slots[0].parts.d_sample, .bytes = WARM_UP_BYTES};
    struct sw_slot_result result;
    struct sw_frame_layout layout;
    int rc = ops->encode(&d->device, 0, plan, &sample, 0, WARM_UP_BYTES, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &result, err);
    if (rc == 0)
        rc = ops->store(&d->device, 0, h_frame, 0, result.frame.frame_bytes, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &(struct sw_slot_result){0}, err);
    if (rc == 0)
        rc = sw_frame_parse(&layout, h_frame, result.frame.frame_bytes, result.frame.frame_bytes, err);
    if (rc == 0)
        rc = ops->load(&d->device, 0, h_frame, 0, result.frame.frame_bytes, err);
    if (rc == 0)
        rc = ops->decode(&d->device, 0, &sample, &(struct sw_decode_item){.layout = &layout}, 1, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &result, err);
    return rc < 0 || plan->dictionary ? rc : warm_up_group(d, plan, &sample, h_frame, err);
}

/* Runs the chunk through each codec that may be chosen, as values of every type. Codecs learn from the same bytes.
 * dictionary: room for one; NULL: the device takes none. */
static int warm_up_codecs(struct device_cuda *d, struct sw_frame_dictionary *dictionary, uint8_t *h_frame,
                          struct sw_err *err) {
    uint8_t spaces[SW_SAMPLE_SHORT_PIECE_BYTES];
    struct sw_plan plan;
    int rc = 0;
    memset(spaces, ' ', sizeof spaces);
    for (int codec = 0; rc == 0 && codec < SW_CODEC_NR; codec++)
        for (int type = SW_VALUE_NONE; rc == 0 && type < SW_VALUE_NR; type++)
            if (sw_plan_init_by_codec(&plan, (enum sw_codec_id)codec, (enum sw_value_type)type, spaces, sizeof spaces,
                                      dictionary))
                rc = warm_up_codec(d, &plan, h_frame, err);
    return rc;
}

/* Runs the chunk through the steps on raw chunks, hashed by a kernel. */
static int warm_up_raw(struct device_cuda *d, uint8_t *h_frame, struct sw_err *err) {
    const struct sw_device_ops *ops = d->device.ops;
    struct sw_mapping sample = {.address = (uintptr_t)d->slots[0].parts.d_sample, .bytes = WARM_UP_BYTES};
    const uint64_t frame_bytes = raw_frame_bytes(WARM_UP_BYTES);
    struct sw_extent extent = {.memory = h_frame, .bytes = frame_bytes};
    const struct sw_stored stored = {.extents = &extent, .n_extents = 1, .bytes = frame_bytes};
    const struct sw_raw_item item = {.frame = raw_layout(WARM_UP_BYTES), .stored = &stored};
    struct sw_slot_result result;
    int rc = ops->spill_raw(&d->device, 0, &sample, &item, 1, 0, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &result, err);
    if (rc == 0)
        rc = ops->restore_raw(&d->device, 0, &sample, &item, 1, 0, err);
    return rc < 0 ? rc : ops->slot_wait(&d->device, 0, &result, err);
}

int sw_cuda_warm_up(struct device_cuda *d, struct sw_err *err) {
    const struct sw_device_ops *ops = d->device.ops;
    const struct sw_mapping region = {.address = (uintptr_t)d->slots[0].parts.d_sample + WARM_UP_BYTES,
                                      .bytes = WARM_UP_BYTES};
    struct sw_slot_result result;
    struct sw_plan raw;
    sw_plan_init_raw(&raw);
    uint8_t *h_frame = NULL;
    struct sw_frame_dictionary *dictionary = d->info.takes_dictionaries ? sw_alloc(sizeof *dictionary) : NULL;
    if (d->info.takes_dictionaries && !dictionary)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for the device's self-test");
    int rc = check(cudaHostAlloc((void **)&h_frame, sw_frame_bound_bytes(WARM_UP_BYTES), cudaHostAllocPortable), err,
                   "pinned memory for the device's self-test");
    if (rc == 0)
        rc = check(cudaMemsetAsync(d->slots[0].parts.d_sample, ' ', 2 * WARM_UP_BYTES, d->slots[0].stream), err,
                   "cudaMemsetAsync");
    if (rc == 0)
        rc = ops->make_plan(&d->device, 0, SW_VALUE_NONE, d->info.learns_dictionaries, &region, 0, WARM_UP_BYTES, err);
    if (rc == 0)
        rc = ops->slot_wait(&d->device, 0, &result, err);
    if (rc == 0)
        rc = warm_up_codec(d, &raw, h_frame, err);
    if (rc == 0)
        rc = warm_up_codecs(d, dictionary, h_frame, err);
    if (rc == 0)
        rc = warm_up_raw(d, h_frame, err);
    if (h_frame)
        (void)cudaFreeHost(h_frame);
    sw_free(dictionary);
    return rc;
}
