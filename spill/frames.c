#include "spill/frames.h"

#include "base/alloc.h"

#include <stdalign.h>
#include <stdint.h>

_Static_assert(alignof(struct sw_frame_layout) <= alignof(struct sw_stored), "one array may follow the other");

struct sw_frames *sw_frames_new(uint64_t raw_bytes, uint64_t chunk_bytes, bool packed) {
    uint64_t n = raw_bytes / chunk_bytes + (raw_bytes % chunk_bytes != 0);
    struct sw_frames *frames;
    if (n > (SIZE_MAX - sizeof *frames) / (sizeof frames->stored[0] + sizeof *frames->layouts))
        return NULL;
    frames = sw_alloc(sizeof *frames + n * (sizeof frames->stored[0] + sizeof *frames->layouts));
    if (!frames)
        return NULL;
    frames->layouts = (struct sw_frame_layout *)&frames->stored[n];
    if (packed) {
        frames->packed = sw_alloc_array(n ? n : 1, sizeof *frames->packed);
        if (!frames->packed) {
            sw_free(frames);
            return NULL;
        }
    }
    frames->raw_bytes = raw_bytes;
    frames->chunk_bytes = chunk_bytes;
    frames->n_chunks = n;
    return frames;
}

void sw_frames_free(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        sw_stored_release(&frames->stored[i]);
    if (frames)
        sw_free(frames->packed);
    sw_free(frames);
}

void sw_frames_leave(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++) {
        struct sw_stored *stored = &frames->stored[i];
        if (stored->tier && stored->tier->ops->submit)
            *stored = (struct sw_stored){0}; /* its tier keeps what is not released */
    }
    sw_frames_free(frames); /* in memory: only the books */
}

uint64_t sw_frames_chunk_bytes(const struct sw_frames *frames, size_t i) {
    uint64_t left = frames->raw_bytes - i * frames->chunk_bytes;
    return left < frames->chunk_bytes ? left : frames->chunk_bytes;
}

struct sw_tier *sw_frames_tier(const struct sw_frames *frames) {
    struct sw_tier *tiers[2] = {NULL, NULL}; /* there are two kinds */
    uint64_t bytes[2] = {0, 0};
    for (size_t i = 0; i < frames->n_chunks; i++) {
        const struct sw_stored *stored = &frames->stored[i];
        const int t = stored->tier && stored->tier->ops->submit ? 1 : 0;
        tiers[t] = stored->tier ? stored->tier : tiers[t];
        bytes[t] += stored->bytes;
    }
    return bytes[1] > bytes[0] ? tiers[1] : tiers[0];
}

uint64_t sw_frames_packed_bytes(const struct sw_frames *frames) {
    const struct sw_packed_chunk *last = frames->n_chunks ? &frames->packed[frames->n_chunks - 1] : NULL;
    return last ? last->offset + last->bytes : 0;
}
