/* chunks.h - checks that BUILD and READ share, and converts chunks to ranges for the engine. thread: loop. */
#ifndef SW_DAEMON_CHUNKS_H
#define SW_DAEMON_CHUNKS_H

#include "daemon/session/operation.h"

/* Check a count, from least to SW_PROTO_MAX_ITEMS, flags against the known ones, and a reserved field against 0. what:
 * the counted things, for the error. errors: -SW_EINVAL. */
int sw_check_count(unsigned n, unsigned least, const char *what, struct sw_err *err);
int sw_check_flags(uint32_t flags, uint32_t known, struct sw_err *err);
int sw_check_reserved(uint64_t reserved, struct sw_err *err);

/* Checks a chunk of a region of n buffers. errors: -SW_EINVAL (no such buffer, a reserved field). */
int sw_chunk_check(const struct sw_wire_chunk *chunk, unsigned n, struct sw_err *err);

/* Finds the chunk of each of n buffers (at most SW_PROTO_MAX_BUFFERS); NULL: the buffer has none. errors: those of
 * sw_chunk_check(), -SW_EINVAL (a chunk does not begin at 0, or is a frame, or a buffer has several). */
int sw_chunks_sort(const struct sw_wire_chunk *chunks, unsigned n_chunks, unsigned n, const struct sw_wire_chunk **ret,
                   struct sw_err *err);

/* Converts all n chunks of an open build's or read's record. errors: those of sw_chunk_check() and sw_task_range();
 * the text names the chunk. */
int sw_chunks_ranges(struct sw_task *task, const struct sw_wire_chunk *chunks, unsigned n, struct sw_range *ret,
                     struct sw_err *err);

/* Returns how many of the n chunks are frames. */
unsigned sw_chunks_count_frames(const struct sw_wire_chunk *chunks, unsigned n);

/* Checks that no two chunks share bytes of a memory. errors: -SW_EINVAL. */
int sw_chunks_check_overlap(const struct sw_wire_chunk *chunks, unsigned n, struct sw_err *err);

#endif
