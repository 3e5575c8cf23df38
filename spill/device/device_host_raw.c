#include "spill/device/device_host_raw.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/device/sealer.h"

static struct sw_run *new_runs(const struct sw_stored *frame, struct sw_err *err) {
    struct sw_run *runs = sw_alloc_array(frame->n_extents, sizeof *runs);
    if (runs)
        sw_sealer_runs(runs, frame);
    else
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a frame's runs");
    return runs;
}

/* A client's memory. writer NULL: it is read. */
struct memory {
    struct sw_memfd_writer *writer;
    const struct sw_mapping *mapping;
};

/* Copies between the client's memory and the content's place in the frame. */
static int copy(const struct memory *memory, uint64_t offset, const struct sw_frame_layout *layout,
                const struct sw_run *runs, struct sw_err *err) {
    uint64_t skip = layout->data_offset, left = layout->raw_bytes;
    int rc = 0;
    for (const struct sw_run *run = runs; !rc && left > 0; run++) {
        if (skip >= run->bytes) {
            skip -= run->bytes;
            continue;
        }
        const uint64_t bytes = left < run->bytes - skip ? left : run->bytes - skip;
        rc = memory->writer ? sw_host_write(memory->writer, memory->mapping, run->memory + skip, bytes, offset, err)
                            : sw_host_read(memory->mapping, run->memory + skip, bytes, offset, err);
        offset += bytes;
        left -= bytes;
        skip = 0;
    }
    return rc;
}

static int spill_one(const struct memory *memory, const struct sw_raw_item *item, const struct sw_run *runs,
                     struct sw_err *err) {
    SW_ASSERT(item->frame.frame_bytes == item->stored->bytes);
    const int rc = copy(memory, item->offset, &item->frame, runs, err);
    if (!rc)
        sw_raw_runs_seal(&item->frame, runs, item->stored->n_extents, sw_all_tiles(&item->frame));
    return rc;
}

static int restore_one(const struct memory *memory, const struct sw_raw_item *item, const struct sw_run *runs,
                       struct sw_err *err) {
    SW_ASSERT(item->frame.codec == SW_CODEC_RAW && item->frame.frame_bytes == item->stored->bytes);
    const uint32_t n_bad = sw_raw_runs_verify(&item->frame, runs, item->stored->n_extents, sw_all_tiles(&item->frame));
    memory->writer->may_fill_holes = item->may_fill_holes;
    return n_bad ? sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "%u tiles of a stored frame are damaged", n_bad)
                 : copy(memory, item->offset, &item->frame, runs, err);
}

static int for_each(const struct memory *memory, const struct sw_raw_item *items, unsigned n,
                    int (*one)(const struct memory *memory, const struct sw_raw_item *item, const struct sw_run *runs,
                               struct sw_err *err),
                    struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++) {
        struct sw_run *runs = new_runs(items[i].stored, err);
        rc = runs ? one(memory, &items[i], runs, err) : -SW_ENOMEM;
        sw_free(runs);
    }
    return rc;
}

int sw_host_raw_spill(const struct sw_mapping *mapping, const struct sw_raw_item *items, unsigned n,
                      struct sw_err *err) {
    return for_each(&(struct memory){.mapping = mapping}, items, n, spill_one, err);
}

int sw_host_raw_restore(struct sw_memfd_writer *writer, const struct sw_mapping *mapping,
                        const struct sw_raw_item *items, unsigned n, struct sw_err *err) {
    return for_each(&(struct memory){.writer = writer, .mapping = mapping}, items, n, restore_one, err);
}
