/* memory_sink.h - a frame sink that keeps frames in memory from malloc(), and nowhere else.
 *
 * Beyond `capacity_bytes` there is no room. A frame that is longer than `near_bytes` does not rest where it was copied
 * to, but goes on to a second place, which takes until the next collect(): as frames on their way to a disk, or to
 * another process, do. Its restores have to get() it from there first. */
#ifndef SW_TESTS_MOVER_MEMORY_SINK_H
#define SW_TESTS_MOVER_MEMORY_SINK_H

#include "spill/mover/frame_sink.h"

enum { SW_MEMORY_SINK_PENDING = 64 };

struct sw_memory_sink {
    struct sw_frame_sink sink;
    uint64_t capacity_bytes, near_bytes, used_bytes;
    /* put(), or got(), and not collected yet; or brought, and not taken yet. */
    struct sw_pending_frame {
        struct sw_run *run;
        size_t chunk;
        struct sw_stored stored;
        bool goes_out, is_there;
    } pending[SW_MEMORY_SINK_PENDING];
    unsigned n_pending, n_put, n_got;
};

void sw_memory_sink_init(struct sw_memory_sink *sink, uint64_t capacity_bytes, uint64_t near_bytes);
/* Releases the frames and their array. */
void sw_memory_sink_free(struct sw_memory_sink *sink, struct sw_frames *frames);

#endif
