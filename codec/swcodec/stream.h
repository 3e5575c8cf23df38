/* stream.h - reads, works on and writes chunks of a stream: one reader, several workers, one writer.
 *
 * Chunks are written in the order in which they were read, whoever finishes first. Memory is bounded: there are
 * threads + 2 chunks, and their buffers are reused. The first error in stream order ends the run; what came before it
 * has been written. The writer is the calling thread. Part of the command swcodec, not of the library. */
#ifndef SW_CODEC_SWCODEC_STREAM_H
#define SW_CODEC_SWCODEC_STREAM_H

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

struct sw_buffer {
    uint8_t *data;
    size_t bytes, cap_bytes;
};

struct sw_chunk {
    struct sw_buffer in, out;
    unsigned codec; /* set by work(): enum sw_codec_id of the frame */
    uint64_t work_us;
    int status; /* 1: a chunk; 0: the end; else the error in err */
    struct sw_err err;
};

/* Makes room for `bytes` and sets the length to it; the content is lost. errors: -SW_ENOMEM. */
int sw_buffer_resize(struct sw_buffer *buffer, size_t bytes, struct sw_err *err);

struct sw_stream_ops {
    /* Fills chunk->in. Returns 1, 0 at the end of the stream, or an error. When stop_fd becomes readable, the result no
     * longer matters: return. thread: the reader's. */
    int (*read)(void *arg, struct sw_chunk *chunk, int stop_fd, struct sw_err *err);
    /* Makes chunk->out of chunk->in. Returns 0 or an error. thread: any worker's, several at once. */
    int (*work)(void *arg, struct sw_chunk *chunk, struct sw_err *err);
    /* Takes chunk->out. Returns 0 or an error. thread: the caller's. */
    int (*write)(void *arg, struct sw_chunk *chunk, struct sw_err *err);
};

/* errors: what the functions return, -SW_ENOMEM, -SW_EIO (no threads). */
int sw_stream_run(const struct sw_stream_ops *ops, void *arg, unsigned threads, struct sw_err *err);

#endif
