/* heap_places.h - places for the beginnings of packed frames in this process's heap, for a sink in another process: no
 * frame of a packed region goes there. For struct sw_frame_sink_ops. thread: any. */
#ifndef SW_SPILL_MOVER_HEAP_PLACES_H
#define SW_SPILL_MOVER_HEAP_PLACES_H

#include "spill/mover/frame_sink.h"

/* errors: -SW_ENOMEM. */
int sw_heap_reserve(struct sw_frame_sink *sink, struct sw_run *run, uint64_t bytes, bool must_rest,
                    struct sw_stored *ret, struct sw_err *err);
int sw_heap_commit(struct sw_frame_sink *sink, struct sw_stored *stored, struct sw_err *err);
/* sink, run: unused. */
void sw_heap_release(struct sw_frame_sink *sink, struct sw_run *run, struct sw_stored *stored);
/* Frees frames, with what lies in such places. NULL is a no-op. */
void sw_heap_free_frames(struct sw_frames *frames);

#endif
