#include "tests/mover/memory_sink.h"

#include "base/alloc.h"
#include "base/assert.h"

#include <string.h>

static struct sw_memory_sink *of(const struct sw_frame_sink *sink) {
    return SW_CONTAINER_OF(sink, struct sw_memory_sink, sink);
}

/* One extent. Far frames are kept by `offset`, not by `memory`, so nothing can reach them there. */
static int place_new(struct sw_memory_sink *s, uint64_t bytes, enum sw_stored_use use, struct sw_stored *ret,
                     struct sw_err *err) {
    if (s->used_bytes + bytes > s->capacity_bytes)
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "the sink is full");
    struct sw_extent *extent = sw_alloc(sizeof *extent);
    void *memory = sw_alloc(bytes);
    if (!extent || !memory) {
        sw_free(extent);
        sw_free(memory);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a frame");
    }
    *extent = (struct sw_extent){.memory = memory, .bytes = bytes};
    *ret = (struct sw_stored){.extents = extent, .n_extents = 1, .bytes = bytes, .use = (uint8_t)use};
    s->used_bytes += bytes;
    return 0;
}

static void release(struct sw_frame_sink *sink, struct sw_run *run, struct sw_stored *stored) {
    (void)run;
    if (stored->n_extents == 0)
        return;
    struct sw_extent *extent = stored->extents;
    sw_free(extent->memory ? extent->memory : (void *)(uintptr_t)extent->offset);
    sw_free(extent);
    of(sink)->used_bytes -= stored->bytes;
    *stored = (struct sw_stored){0};
}

static bool rests(struct sw_frame_sink *sink, const struct sw_run *run, uint64_t bytes) {
    (void)run;
    return bytes <= of(sink)->near_bytes;
}

static void room(struct sw_frame_sink *sink, const struct sw_run *run, struct sw_room *ret) {
    (void)run;
    ret->memory_bytes = of(sink)->capacity_bytes - of(sink)->used_bytes;
    ret->allowed_bytes = UINT64_MAX;
}

static int reserve(struct sw_frame_sink *sink, struct sw_run *run, uint64_t bytes, bool must_rest,
                   struct sw_stored *ret, struct sw_err *err) {
    const bool stays = must_rest || rests(sink, run, bytes);
    (void)run;
    return place_new(of(sink), bytes, stays ? SW_STORED_RESTS : SW_STORED_GOES_ON, ret, err);
}

static int commit(struct sw_frame_sink *sink, struct sw_stored *stored, struct sw_err *err) {
    (void)sink, (void)err;
    stored->committed = true;
    return 0;
}

static struct sw_pending_frame *add_pending(struct sw_memory_sink *s, struct sw_run *run, size_t chunk) {
    SW_ASSERT(s->n_pending < SW_MEMORY_SINK_PENDING);
    struct sw_pending_frame *pending = &s->pending[s->n_pending++];
    *pending = (struct sw_pending_frame){.run = run, .chunk = chunk};
    run->n_in_sink++;
    return pending;
}

static void remove_pending(struct sw_memory_sink *s, struct sw_pending_frame *pending) {
    pending->run->n_in_sink--;
    *pending = s->pending[--s->n_pending];
}

static struct sw_pending_frame *find(struct sw_memory_sink *s, const struct sw_run *run, size_t chunk) {
    for (unsigned i = 0; i < s->n_pending; i++)
        if (s->pending[i].run == run && s->pending[i].chunk == chunk)
            return &s->pending[i];
    return NULL;
}

static void put(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *stored) {
    struct sw_pending_frame *pending = add_pending(of(sink), run, chunk);
    pending->goes_out = true;
    pending->stored = *stored;
    *stored = (struct sw_stored){0};
    of(sink)->n_put++;
}

static bool is_far(const struct sw_run *run, size_t chunk) {
    return !sw_stored_is_in_memory(&run->frames->stored[chunk]);
}

static bool get(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_memory_sink *s = of(sink);
    bool begun = false;
    for (size_t i = run->n_dealt; i < run->frames->n_chunks && s->n_pending < SW_MEMORY_SINK_PENDING / 2; i++) {
        const struct sw_stored *far = &run->frames->stored[i];
        struct sw_stored brought;
        if (!is_far(run, i) || find(s, run, i) || place_new(s, far->bytes, SW_STORED_COMES_BACK, &brought, NULL))
            continue;
        memcpy(brought.extents->memory, (const void *)(uintptr_t)far->extents->offset, far->bytes);
        add_pending(s, run, i)->stored = brought;
        s->n_got++;
        begun = true;
    }
    return begun;
}

static bool has(struct sw_frame_sink *sink, const struct sw_run *run, size_t chunk) {
    const struct sw_pending_frame *pending = find(of(sink), run, chunk);
    return !is_far(run, chunk) || (pending && pending->is_there);
}

static bool take(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *ret) {
    struct sw_pending_frame *pending = find(of(sink), run, chunk);
    if (!pending)
        return false;
    *ret = pending->stored;
    remove_pending(of(sink), pending);
    return true;
}

static void abandon(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_memory_sink *s = of(sink);
    for (unsigned i = s->n_pending; i-- > 0;)
        if (s->pending[i].run == run && s->pending[i].is_there) {
            release(sink, run, &s->pending[i].stored);
            remove_pending(s, &s->pending[i]);
        }
}

/* The frame is far away from now on. */
static void arrive_out(struct sw_memory_sink *s, struct sw_pending_frame *pending) {
    struct sw_run *run = pending->run;
    struct sw_stored *stored = &run->frames->stored[pending->chunk];
    *stored = pending->stored;
    stored->use = SW_STORED_RESTS;
    stored->committed = true;
    stored->extents->offset = (uintptr_t)stored->extents->memory;
    stored->extents->memory = NULL;
    remove_pending(s, pending);
    sw_mover_stored(s->sink.mover, run);
}

static bool has_news(const struct sw_frame_sink *sink) {
    for (unsigned i = 0; i < of(sink)->n_pending; i++)
        if (!of(sink)->pending[i].is_there)
            return true;
    return false;
}

static bool collect(struct sw_frame_sink *sink) {
    struct sw_memory_sink *s = of(sink);
    bool any = false;
    for (unsigned i = s->n_pending; i-- > 0;) {
        struct sw_pending_frame *pending = &s->pending[i];
        if (pending->is_there)
            continue;
        any = true;
        if (pending->goes_out) {
            arrive_out(s, pending);
        } else {
            pending->is_there = true;
            sw_mover_wake(sink->mover, pending->run);
        }
    }
    return any;
}

static const struct sw_frame_sink_ops ops = {.rests = rests,
                                             .room = room,
                                             .reserve = reserve,
                                             .commit = commit,
                                             .put = put,
                                             .get = get,
                                             .has = has,
                                             .take = take,
                                             .release = release,
                                             .abandon = abandon,
                                             .has_news = has_news,
                                             .collect = collect};

void sw_memory_sink_init(struct sw_memory_sink *sink, uint64_t capacity_bytes, uint64_t near_bytes) {
    *sink = (struct sw_memory_sink){
        .sink = {.ops = &ops, .chunk_bytes = UINT64_MAX}, .capacity_bytes = capacity_bytes, .near_bytes = near_bytes};
}

void sw_memory_sink_free(struct sw_memory_sink *sink, struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        release(&sink->sink, NULL, &frames->stored[i]);
    sw_frames_delete(frames);
}
