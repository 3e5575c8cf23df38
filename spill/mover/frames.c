#include "spill/mover/frames.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/device/device.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

_Static_assert(alignof(struct sw_frame_layout) <= alignof(struct sw_stored) &&
                   alignof(uint64_t) <= alignof(struct sw_frame_layout),
               "one array may follow the other");

static uint64_t chunks_of(uint64_t raw_bytes, uint64_t chunk_bytes) {
    SW_ASSERT(chunk_bytes > 0);
    return raw_bytes / chunk_bytes + (raw_bytes % chunk_bytes != 0);
}

static struct sw_frames *frames_alloc(uint64_t raw_bytes, uint64_t chunk_bytes, uint64_t n) {
    struct sw_frames *frames;
    const size_t directory_bytes =
        sizeof frames->stored[0] + sizeof *frames->layouts + sizeof *frames->identities + sizeof *frames->are_clients;
    if (n > (SIZE_MAX - sizeof *frames) / directory_bytes)
        return NULL;
    frames = sw_alloc(sizeof *frames + n * directory_bytes);
    if (!frames)
        return NULL;
    frames->layouts = (struct sw_frame_layout *)&frames->stored[n];
    frames->identities = (uint64_t *)&frames->layouts[n];
    frames->are_clients = (bool *)&frames->identities[n];
    frames->raw_bytes = raw_bytes;
    frames->chunk_bytes = chunk_bytes;
    frames->n_chunks = frames->n_begun = n;
    return frames;
}

/* For each chunk, besides its own two records: its part of the catalogue's record, one extent more than the least that
 * a frame has, and the free extent that its place may leave behind. */
enum { CHUNK_OVERHEAD_BYTES = 160 };

static uint64_t kept_bytes(uint64_t n_chunks, bool packed) {
    const uint64_t each = sizeof(struct sw_stored) + sizeof(struct sw_frame_layout) + CHUNK_OVERHEAD_BYTES +
                          (packed ? sizeof(struct sw_packed_chunk) : 0);
    uint64_t bytes;
    return __builtin_mul_overflow(n_chunks, each, &bytes) || bytes > INT64_MAX ? INT64_MAX
                                                                               : sizeof(struct sw_frames) + bytes;
}

uint64_t sw_frames_kept_bytes(uint64_t raw_bytes, uint64_t chunk_bytes, bool packed) {
    return kept_bytes(chunks_of(raw_bytes, chunk_bytes), packed);
}

uint64_t sw_frames_kept(const struct sw_frames *frames) {
    return kept_bytes(frames->n_chunks, frames->packed != NULL);
}

struct sw_frames *sw_frames_new(uint64_t raw_bytes, uint64_t chunk_bytes, bool packed) {
    const uint64_t n = chunks_of(raw_bytes, chunk_bytes);
    struct sw_frames *frames = frames_alloc(raw_bytes, chunk_bytes, n);
    if (frames && packed && !(frames->packed = sw_alloc_array(n ? n : 1, sizeof *frames->packed))) {
        sw_free(frames);
        return NULL;
    }
    return frames;
}

struct sw_frames *sw_frames_new_buffers(const struct sw_frames_buffer *buffers, unsigned n_buffers) {
    uint64_t raw_bytes = 0, chunk_bytes = 0, n = 0;
    for (unsigned i = 0; i < n_buffers; i++) {
        raw_bytes += buffers[i].raw_bytes;
        chunk_bytes = buffers[i].chunk_bytes > chunk_bytes ? buffers[i].chunk_bytes : chunk_bytes;
        n += chunks_of(buffers[i].raw_bytes, buffers[i].chunk_bytes);
    }
    struct sw_frames *frames = frames_alloc(raw_bytes, chunk_bytes, n);
    if (!frames)
        return NULL;
    frames->n_buffers = n_buffers;
    frames->buffers = sw_alloc_array(n_buffers, sizeof *frames->buffers);
    if (!frames->buffers) {
        sw_free(frames);
        return NULL;
    }
    size_t first = 0;
    for (unsigned i = 0; i < n_buffers; first += frames->buffers[i++].n_chunks)
        frames->buffers[i] =
            (struct sw_frames_buffer){.raw_bytes = buffers[i].raw_bytes,
                                      .chunk_bytes = buffers[i].chunk_bytes,
                                      .first = first,
                                      .reason = buffers[i].reason,
                                      .n_chunks = chunks_of(buffers[i].raw_bytes, buffers[i].chunk_bytes)};
    return frames;
}

/* Copies the records of n chunks. */
static void copy_chunks(struct sw_frames *to, size_t at, const struct sw_frames *from, size_t first, size_t n) {
    memcpy(&to->stored[at], &from->stored[first], n * sizeof to->stored[0]);
    memcpy(&to->layouts[at], &from->layouts[first], n * sizeof to->layouts[0]);
    memcpy(&to->identities[at], &from->identities[first], n * sizeof to->identities[0]);
    memcpy(&to->are_clients[at], &from->are_clients[first], n * sizeof to->are_clients[0]);
}

struct sw_frames *sw_frames_join(struct sw_frames *const *of, unsigned n_buffers) {
    struct sw_frames_buffer table[SW_FRAMES_MAX_BUFFERS] = {0};
    for (unsigned i = 0; i < n_buffers; i++)
        table[i] = (struct sw_frames_buffer){.raw_bytes = of[i]->raw_bytes, .chunk_bytes = of[i]->chunk_bytes};
    struct sw_frames *all = sw_frames_new_buffers(table, n_buffers);
    for (unsigned i = 0; all && i < n_buffers; i++) {
        copy_chunks(all, all->buffers[i].first, of[i], 0, of[i]->n_chunks);
        sw_free(of[i]);
    }
    return all;
}

void sw_frames_put(struct sw_frames *buffer, struct sw_frames *part) {
    const size_t end = part->first + part->n_chunks;
    SW_ASSERT(end <= buffer->n_chunks && part->chunk_bytes == buffer->chunk_bytes && !part->packed);
    copy_chunks(buffer, part->first, part, 0, part->n_chunks);
    buffer->n_begun = end > buffer->n_begun ? end : buffer->n_begun;
    sw_frames_delete(part);
}

const struct sw_frame_layout *sw_frames_layout_at(const struct sw_frames *frames, unsigned buffer, uint64_t at) {
    const struct sw_frames_buffer one = sw_frames_buffer(frames, buffer);
    return &frames->layouts[one.first + at / one.chunk_bytes];
}

unsigned sw_frames_n_buffers(const struct sw_frames *frames) {
    return frames->n_buffers ? frames->n_buffers : 1;
}

struct sw_frames_buffer sw_frames_buffer(const struct sw_frames *frames, unsigned buffer) {
    return frames->n_buffers ? frames->buffers[buffer]
                             : (struct sw_frames_buffer){.raw_bytes = frames->raw_bytes,
                                                         .chunk_bytes = frames->chunk_bytes,
                                                         .n_chunks = frames->n_chunks};
}

struct sw_frames *sw_frames_view(const struct sw_frames *frames, unsigned i, size_t first, size_t n_chunks) {
    const struct sw_frames_buffer buffer = sw_frames_buffer(frames, i);
    SW_ASSERT(first + n_chunks <= buffer.n_chunks);
    const uint64_t bytes = first + n_chunks == buffer.n_chunks ? buffer.raw_bytes - first * buffer.chunk_bytes
                                                               : n_chunks * buffer.chunk_bytes;
    struct sw_frames *view = frames_alloc(bytes, buffer.chunk_bytes, n_chunks);
    if (!view)
        return NULL;
    view->buffer = i;
    view->first = first;
    return view;
}

void sw_frames_view_update(struct sw_frames *view, const struct sw_frames *frames) {
    copy_chunks(view, 0, frames, sw_frames_buffer(frames, view->buffer).first + view->first, view->n_chunks);
}

/* Returns the buffer that owns a chunk, of several buffers. */
static const struct sw_frames_buffer *buffer_of(const struct sw_frames *frames, size_t i) {
    const struct sw_frames_buffer *buffer = frames->buffers;
    while (i >= buffer->first + buffer->n_chunks)
        buffer++;
    return buffer;
}

uint64_t sw_frames_key(const struct sw_frames *frames, size_t i) {
    if (!frames->n_buffers)
        return (uint64_t)frames->buffer << 32 | (frames->first + i);
    const struct sw_frames_buffer *buffer = buffer_of(frames, i);
    return (uint64_t)(buffer - frames->buffers) << 32 | (i - buffer->first);
}

bool sw_frames_find(const struct sw_frames *frames, uint64_t key, size_t *ret) {
    const uint64_t buffer = key >> 32, i = key & UINT32_MAX;
    if (!frames->n_buffers) {
        *ret = i;
        return buffer == 0 && i < frames->n_chunks;
    }
    if (buffer >= frames->n_buffers || i >= frames->buffers[buffer].n_chunks)
        return false;
    *ret = frames->buffers[buffer].first + i;
    return true;
}

uint64_t sw_frames_identify(const struct sw_frames *frames, size_t i, const struct sw_stored *in_memory) {
    return sw_device_identify(in_memory, frames->layouts[i].counts_offset);
}

int sw_frames_check(const struct sw_frames *frames, size_t i, uint64_t identity, struct sw_err *err) {
    if (!frames->identities[i] || frames->identities[i] == identity)
        return 0;
    return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "another frame lies in the place of chunk %zu", i);
}

int sw_frames_check_memory(const struct sw_frames *frames, size_t i, const struct sw_stored *in_memory,
                           struct sw_err *err) {
    return frames->identities[i] ? sw_frames_check(frames, i, sw_frames_identify(frames, i, in_memory), err) : 0;
}

void sw_frames_delete(struct sw_frames *frames) {
    if (frames) {
        sw_free(frames->packed);
        sw_free(frames->buffers);
    }
    sw_free(frames);
}

uint64_t sw_frames_chunk_bytes(const struct sw_frames *frames, size_t i) {
    if (frames->n_buffers) {
        const struct sw_frames_buffer *buffer = buffer_of(frames, i);
        const uint64_t rest = buffer->raw_bytes - (i - buffer->first) * buffer->chunk_bytes;
        return rest < buffer->chunk_bytes ? rest : buffer->chunk_bytes;
    }
    uint64_t left = frames->raw_bytes - i * frames->chunk_bytes;
    return left < frames->chunk_bytes ? left : frames->chunk_bytes;
}

enum sw_codec_id sw_frames_most_used(const uint64_t bytes[SW_CODEC_NR]) {
    enum sw_codec_id most = SW_CODEC_RAW;
    for (int codec = 0; codec < SW_CODEC_NR; codec++)
        if (bytes[codec] > bytes[most])
            most = (enum sw_codec_id)codec;
    return most;
}

uint64_t sw_frames_packed_bytes(const struct sw_frames *frames) {
    const struct sw_packed_chunk *last = frames->n_chunks ? &frames->packed[frames->n_chunks - 1] : NULL;
    return last ? last->offset + last->bytes : 0;
}

_Static_assert((int)SPILLWAY_CODEC_RAW == (int)SW_CODEC_RAW && (int)SPILLWAY_CODEC_FOR == (int)SW_CODEC_FOR &&
                   (int)SPILLWAY_CODEC_DFOR == (int)SW_CODEC_DFOR && (int)SPILLWAY_CODEC_RFOR == (int)SW_CODEC_RFOR &&
                   (int)SPILLWAY_CODEC_ALP == (int)SW_CODEC_ALP && (int)SPILLWAY_CODEC_ALPRD == (int)SW_CODEC_ALPRD &&
                   (int)SPILLWAY_CODEC_DICT == (int)SW_CODEC_DICT && (int)SPILLWAY_CODEC_SFOR == (int)SW_CODEC_SFOR &&
                   (int)SPILLWAY_CODEC_PFOR == (int)SW_CODEC_PFOR && (int)SPILLWAY_CODEC_PDFOR == (int)SW_CODEC_PDFOR &&
                   (int)SPILLWAY_CODEC_RADIX == (int)SW_CODEC_RADIX &&
                   (int)SPILLWAY_CODEC_DRADIX == (int)SW_CODEC_DRADIX && SW_CODEC_NR <= (int)SPILLWAY_CODEC_ELSEWHERE,
               "one list of codecs");

struct spillway_packed_chunk sw_frames_packed_chunk(const struct sw_frames *frames, size_t i) {
    const struct sw_frame_layout *layout = &frames->layouts[i];
    const struct sw_packed_chunk *packed = &frames->packed[i];
    const uint64_t raw_bytes = sw_frames_chunk_bytes(frames, i);
    if (!packed->is_packed)
        return (struct spillway_packed_chunk){
            .offset = i * frames->chunk_bytes, .bytes = raw_bytes, .raw_bytes = raw_bytes, .codec = SPILLWAY_CODEC_RAW};
    struct spillway_packed_chunk chunk = {.offset = packed->offset,
                                          .bytes = packed->bytes,
                                          .raw_bytes = raw_bytes,
                                          .codec = (uint32_t)layout->codec,
                                          .type = (uint16_t)layout->value_type,
                                          .n_symbols = (uint16_t)layout->n_symbols}; /* 255 at most */
    if (frames->stored[i].bytes && layout->codec != SW_CODEC_RAW)
        chunk.codec = SPILLWAY_CODEC_ELSEWHERE;
    return chunk; /* a raw frame is longer than its chunk: only its content is here */
}
