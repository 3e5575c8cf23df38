/* stream.h - processes the chunks of a stream by several threads: one reader, several workers, one writer.
 *
 * Chunks are written in the order in which they were read. Memory is bounded: there are threads + 2 chunks, and their
 * buffers are reused. The first error in stream order ends the run; all chunks before it have been written. The calling
 * thread is the writer. Part of the command swcodec, not of the library. */
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
    unsigned codec; /* enum sw_codec_id of the frame; work() sets it */
    uint64_t work_us;
    int status; /* 1: a chunk; 0: the end of the stream; negative: an error, see err */
    struct sw_err err;
};

/* Sets a buffer's length, and makes room for it. The content is lost. errors: -SW_ENOMEM. */
int sw_buffer_resize(struct sw_buffer *buffer, size_t bytes, struct sw_err *err);

struct sw_stream_ops {
    /* Fills chunk->in. Returns 1; 0: the stream has ended; or an error. When stop_fd becomes readable it must return;
     * its result is then ignored. thread: the reader. */
    int (*read)(void *arg, struct sw_chunk *chunk, int stop_fd, struct sw_err *err);
    /* Makes chunk->out from chunk->in. Returns 0 or an error. thread: any worker, several at once. */
    int (*work)(void *arg, struct sw_chunk *chunk, struct sw_err *err);
    /* Writes chunk->out. Returns 0 or an error. thread: the caller. */
    int (*write)(void *arg, struct sw_chunk *chunk, struct sw_err *err);
};

/* Processes a whole stream. errors: the errors of the functions; -SW_ENOMEM; -SW_EIO (no thread could be started). */
int sw_stream_run(const struct sw_stream_ops *ops, void *arg, unsigned threads, struct sw_err *err);

#endif
