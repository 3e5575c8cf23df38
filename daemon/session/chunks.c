#include "daemon/session/chunks.h"

#include "ipc/span.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int sw_check_count(unsigned n, unsigned least, const char *what, struct sw_err *err) {
    if (n < least || n > SW_PROTO_MAX_ITEMS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the packet has %u %s, must be %u to %d", n, what, least,
                          SW_PROTO_MAX_ITEMS);
    return 0;
}

int sw_check_flags(uint32_t flags, uint32_t known, struct sw_err *err) {
    if (flags & ~known)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "flags 0x%" PRIx32 " are unknown", flags & ~known);
    return 0;
}

int sw_check_reserved(uint64_t reserved, struct sw_err *err) {
    if (reserved)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a reserved field is not 0");
    return 0;
}

int sw_chunk_check(const struct sw_wire_chunk *chunk, unsigned n, struct sw_err *err) {
    const int rc = sw_check_reserved(chunk->reserved, err);
    if (rc < 0)
        return rc;
    if (chunk->buffer >= n)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a chunk names buffer %u, but the region has %u",
                          (unsigned)chunk->buffer, n);
    return 0;
}

int sw_chunks_sort(const struct sw_wire_chunk *chunks, unsigned n_chunks, unsigned n, const struct sw_wire_chunk **ret,
                   struct sw_err *err) {
    memset(ret, 0, n * sizeof *ret);
    for (unsigned i = 0; i < n_chunks; i++) {
        const struct sw_wire_chunk *chunk = &chunks[i];
        const int rc = sw_chunk_check(chunk, n, err);
        if (rc < 0)
            return rc;
        if (chunk->frame_bytes)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %u has a frame: set its chunk_bytes",
                              (unsigned)chunk->buffer);
        const struct sw_wire_chunk *before = ret[chunk->buffer];
        const uint64_t at = before ? before->raw_bytes : 0;
        if (chunk->at != at)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "a chunk begins at %" PRIu64 " of buffer %u, but must begin at %" PRIu64, chunk->at,
                              (unsigned)chunk->buffer, at);
        if (before)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %u has several chunks: set its chunk_bytes",
                              (unsigned)chunk->buffer);
        ret[chunk->buffer] = chunk;
    }
    return 0;
}

int sw_chunks_ranges(struct sw_task *task, const struct sw_wire_chunk *chunks, unsigned n, struct sw_range *ret,
                     struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = sw_chunk_check(&chunks[i], SW_PROTO_MAX_BUFFERS, err);
        if (rc == 0)
            rc = sw_task_range(task, &chunks[i], n, &ret[i], err);
        if (rc < 0 && n > 1)
            sw_err_context(err, "chunk %u of %u", i + 1, n);
    }
    return rc;
}

unsigned sw_chunks_count_frames(const struct sw_wire_chunk *chunks, unsigned n) {
    unsigned n_frames = 0;
    for (unsigned i = 0; i < n; i++)
        n_frames += chunks[i].frame_bytes > 0;
    return n_frames;
}

/* ---- overlaps ---------------------------------------------------------------------------------------------------- */

/* A chunk's bytes in its memory. */
struct place {
    uint32_t mem;
    struct sw_span span;
};

static int by_memory(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return (x->mem > y->mem) - (x->mem < y->mem);
}

/* Two memories of the client may overlap: that is not visible here. */
int sw_chunks_check_overlap(const struct sw_wire_chunk *chunks, unsigned n, struct sw_err *err) {
    struct place places[SW_PROTO_MAX_ITEMS];
    struct sw_span spans[SW_PROTO_MAX_ITEMS];
    bool is_sorted = true;
    for (unsigned i = 0; i < n; i++) {
        const uint64_t bytes = chunks[i].frame_bytes ? chunks[i].frame_bytes : chunks[i].raw_bytes;
        places[i] = (struct place){chunks[i].mem, {chunks[i].offset, bytes}};
        is_sorted &= i == 0 || places[i - 1].mem <= places[i].mem;
    }
    if (!is_sorted)
        qsort(places, n, sizeof places[0], by_memory);
    for (unsigned first = 0, end; first < n; first = end) {
        for (end = first; end < n && places[end].mem == places[first].mem; end++)
            spans[end - first] = places[end].span;
        if (sw_spans_overlap(spans, end - first))
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "destinations in memory %" PRIu32 " overlap",
                              places[first].mem);
    }
    return 0;
}
