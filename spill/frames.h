/* frames.h - the stored form of a region: one sw_stored per chunk, all chunks but the last of one length.
 *
 * Made by a spill's job, then owned by the region. Either the worker (while a job is in flight) or the loop uses it,
 * never both at once; restoring only reads. */
#ifndef SW_SPILL_FRAMES_H
#define SW_SPILL_FRAMES_H

#include "spill/tier/tier.h"
#include <stddef.h>
#include <stdint.h>

struct sw_frames {
    uint64_t raw_bytes, chunk_bytes;
    size_t n_chunks;
    struct sw_stored stored[]; /* [n_chunks]; an empty one is not stored yet */
};

/* NULL: out of memory. chunk_bytes > 0. */
struct sw_frames *sw_frames_new(uint64_t raw_bytes, uint64_t chunk_bytes);
/* Releases every frame and the array. NULL is a no-op. */
void sw_frames_free(struct sw_frames *frames, struct sw_tier *tier);
/* Raw bytes of chunk i. */
uint64_t sw_frames_chunk_bytes(const struct sw_frames *frames, size_t i);

#endif
