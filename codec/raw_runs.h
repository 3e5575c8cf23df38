/* raw_runs.h - raw frames in host memory, made and verified where they lie.
 *
 * For bytes that a copy engine brought: it moves the content, this adds or checks what makes a frame of it. The hashes
 * are made here, too, or on the device that the bytes come from or go to (sw_gpu_hash_async). A frame may
 * lie in several runs of memory, in frame order, cut anywhere. thread: any. */
#ifndef SW_CODEC_RAW_RUNS_H
#define SW_CODEC_RAW_RUNS_H

#include "codec/frame.h"

struct sw_run {
    uint8_t *memory;
    uint64_t bytes;
};

/* A part of a frame's work: tiles first … end - 1. Parts may be worked on at the same time. */
struct sw_tile_range {
    uint32_t first, end;
};

static inline struct sw_tile_range sw_all_tiles(const struct sw_frame_layout *layout) {
    return (struct sw_tile_range){.first = 0, .end = layout->n_tiles};
}

/* Makes a frame of the content that lies at layout->data_offset: writes the tiles' records, and with the part that
 * has tile 0 also header and padding. layout: of sw_frame_layout_init() for the raw codec; the runs have
 * layout->frame_bytes. */
void sw_raw_runs_seal(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                      struct sw_tile_range tiles);

/* How many of the tiles are not what was sealed. layout: the frame's, of the raw codec. */
uint32_t sw_raw_runs_verify(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                            struct sw_tile_range tiles);

/* Turns the tiles' content out of the processors' caches, for copy engines: these are slow with what a cache has. Where
 * that cannot be done it does nothing. */
void sw_raw_runs_evict(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                       struct sw_tile_range tiles);

/* Seals, or verifies, a whole frame without a look at its content: hashes[i] is what tile i hashes to, by whoever has
 * seen it. */
void sw_raw_runs_seal_hashed(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                             const uint32_t *hashes);
uint32_t sw_raw_runs_verify_hashed(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                                   const uint32_t *hashes);

#endif
