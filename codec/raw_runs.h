/* raw_runs.h - makes and verifies raw frames in place, in host memory.
 *
 * A copy engine moves the content; these functions add or check the rest of the frame. The content's hashes are
 * computed here, or on the device that the bytes come from or go to (sw_gpu_hash_async()). A frame may lie in several
 * runs of memory, in frame order, cut anywhere. thread: any. */
#ifndef SW_CODEC_RAW_RUNS_H
#define SW_CODEC_RAW_RUNS_H

#include "codec/frame.h"

struct sw_run {
    uint8_t *memory;
    uint64_t bytes;
};

/* Tiles first … end - 1 of a frame. Several threads may process different ranges of a frame at the same time. */
struct sw_tile_range {
    uint32_t first, end;
};

static inline struct sw_tile_range sw_all_tiles(const struct sw_frame_layout *layout) {
    return (struct sw_tile_range){.first = 0, .end = layout->n_tiles};
}

/* Makes a frame of the content at layout->data_offset: writes the tiles' records, and for the range with tile 0 also
 * header and padding. layout: from sw_frame_layout_init() for the raw codec; the runs have layout->frame_bytes. */
void sw_raw_runs_seal(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                      struct sw_tile_range tiles);

/* Returns how many of the tiles differ from the sealed ones. layout: a raw frame's. */
uint32_t sw_raw_runs_verify(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                            struct sw_tile_range tiles);

/* Flushes the tiles' content from the processor's caches, because copy engines are slow on cached memory. If the
 * processor cannot do that: a no-op. */
void sw_raw_runs_evict(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                       struct sw_tile_range tiles);

/* Does sw_raw_runs_seal() for a whole frame, without reading its content. hashes[i]: the hash of tile i. */
void sw_raw_runs_seal_hashed(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                             const uint32_t *hashes);
/* Does sw_raw_runs_verify() for a whole frame, without reading its content. */
uint32_t sw_raw_runs_verify_hashed(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                                   const uint32_t *hashes);

#endif
