#include "spill/device/device_host_raw.h"

#include "base/alloc.h"
#include "spill/device/memfd.h"
#include "spill/device/sealer.h"

static struct sw_run *new_runs(const struct sw_stored *frame, struct sw_err *err) {
    struct sw_run *runs = sw_alloc_array(frame->n_extents, sizeof *runs);
    if (runs)
        sw_sealer_runs(runs, frame);
    else
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a frame's runs");
    return runs;
}

/* Copies between the memfd and the content's place in the frame. */
static int copy(int fd, uint64_t offset, const struct sw_frame_layout *layout, const struct sw_run *runs, bool is_spill,
                struct sw_err *err) {
    uint64_t skip = layout->data_offset, left = layout->raw_bytes;
    int rc = 0;
    for (const struct sw_run *run = runs; !rc && left > 0; run++) {
        if (skip >= run->bytes) {
            skip -= run->bytes;
            continue;
        }
        const uint64_t bytes = left < run->bytes - skip ? left : run->bytes - skip;
        rc = is_spill ? sw_memfd_read(fd, run->memory + skip, bytes, offset, err)
                      : sw_memfd_write(fd, run->memory + skip, bytes, offset, err);
        offset += bytes;
        left -= bytes;
        skip = 0;
    }
    return rc;
}

int sw_host_raw_spill(int fd, uint64_t offset, const struct sw_frame_layout *layout, const struct sw_stored *to,
                      struct sw_err *err) {
    struct sw_run *runs = new_runs(to, err);
    if (!runs)
        return -SW_ENOMEM;
    const int rc = copy(fd, offset, layout, runs, true, err);
    if (!rc)
        sw_raw_runs_seal(layout, runs, to->n_extents, sw_all_tiles(layout));
    sw_free(runs);
    return rc;
}

int sw_host_raw_restore(int fd, uint64_t offset, const struct sw_frame_layout *layout, const struct sw_stored *from,
                        struct sw_err *err) {
    struct sw_run *runs = new_runs(from, err);
    if (!runs)
        return -SW_ENOMEM;
    const uint32_t n_bad = sw_raw_runs_verify(layout, runs, from->n_extents, sw_all_tiles(layout));
    const int rc =
        n_bad ? sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "%u tiles of a stored frame are damaged", n_bad)
              : copy(fd, offset, layout, runs, false, err);
    sw_free(runs);
    return rc;
}
