#include "spill/mover/heap_places.h"

#include "base/alloc.h"

int sw_heap_reserve(struct sw_frame_sink *sink, struct sw_run *run, uint64_t bytes, bool must_rest,
                    struct sw_stored *ret, struct sw_err *err) {
    struct sw_extent *extent = sw_alloc(sizeof *extent + bytes);
    (void)sink, (void)run, (void)must_rest;
    if (!extent)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a packed frame's beginning");
    *extent = (struct sw_extent){.memory = extent + 1, .bytes = bytes};
    *ret = (struct sw_stored){.extents = extent, .n_extents = 1, .bytes = bytes, .use = SW_STORED_RESTS};
    return 0;
}

int sw_heap_commit(struct sw_frame_sink *sink, struct sw_stored *stored, struct sw_err *err) {
    (void)sink, (void)err;
    stored->committed = true;
    return 0;
}

void sw_heap_release(struct sw_frame_sink *sink, struct sw_run *run, struct sw_stored *stored) {
    (void)sink, (void)run;
    sw_free(stored->extents);
    *stored = (struct sw_stored){0};
}

void sw_heap_free_frames(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        sw_heap_release(NULL, NULL, &frames->stored[i]);
    sw_frames_delete(frames);
}
