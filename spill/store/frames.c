#include "spill/store/frames.h"

#include <string.h>

void sw_frames_free(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_begun; i++)
        sw_stored_release(&frames->stored[i]);
    sw_frames_delete(frames);
}

void sw_frames_leave(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++) {
        struct sw_stored *stored = &frames->stored[i];
        if (stored->tier && sw_tier_can(stored->tier, SW_TIER_DURABLE))
            *stored = (struct sw_stored){0}; /* not released, so its tier keeps it */
    }
    sw_frames_free(frames); /* frames in other tiers end with the process; releasing them keeps the counts right */
}

struct sw_tier *sw_frames_tier(const struct sw_frames *frames, uint64_t ret_bytes[SW_TIERS_MAX]) {
    struct sw_tier *tiers[SW_TIERS_MAX] = {NULL}, *most = NULL;
    memset(ret_bytes, 0, SW_TIERS_MAX * sizeof *ret_bytes);
    for (size_t i = 0; i < frames->n_chunks; i++) {
        const struct sw_stored *stored = &frames->stored[i];
        if (!stored->tier)
            continue;
        tiers[stored->tier->rank] = stored->tier;
        ret_bytes[stored->tier->rank] += stored->bytes;
    }
    for (unsigned i = 0; i < SW_TIERS_MAX; i++)
        if (tiers[i] && (!most || ret_bytes[i] > ret_bytes[most->rank]))
            most = tiers[i];
    return most;
}

struct sw_frames *sw_frames_new_held(uint64_t raw_bytes, uint64_t stored_bytes, enum sw_codec_id codec) {
    struct sw_frames *frames = sw_frames_new(raw_bytes, raw_bytes, true);
    if (!frames)
        return NULL;
    frames->layouts[0] = (struct sw_frame_layout){.codec = codec, .raw_bytes = raw_bytes, .frame_bytes = stored_bytes};
    frames->packed[0] = (struct sw_packed_chunk){.bytes = stored_bytes, .is_packed = true};
    frames->are_clients[0] = true;
    return frames;
}

bool sw_frames_are_held(const struct sw_frames *frames) {
    return frames->packed && frames->n_chunks == 1 && frames->are_clients[0];
}
