/* chunks.h - what is checked of BUILD and READ alike, and chunks as ranges for the engine. thread: loop. */
#ifndef SW_DAEMON_CHUNKS_H
#define SW_DAEMON_CHUNKS_H

#include "daemon/session/operation.h"

/* errors: -SW_EINVAL (not least to SW_PROTO_MAX_ITEMS; a flag that is not known; a reserved field that is not 0). */
int sw_check_count(unsigned n, unsigned least, const char *what, struct sw_err *err);
int sw_check_flags(uint32_t flags, uint32_t known, struct sw_err *err);
int sw_check_reserved(uint64_t reserved, struct sw_err *err);

/* errors: -SW_EINVAL (not one of n buffers, a reserved field), -SW_ENOTSUP (frames). */
int sw_chunk_check(const struct sw_wire_chunk *chunk, unsigned n, struct sw_err *err);

/* Finds the chunk of each of n buffers (at most SW_PROTO_MAX_BUFFERS), or NULL. errors: those of sw_chunk_check();
 * -SW_EINVAL (chunks out of order, several chunks of a buffer, a part of one). */
int sw_chunks_sort(const struct sw_wire_chunk *chunks, unsigned n_chunks, unsigned n, const struct sw_wire_chunk **ret,
                   struct sw_err *err);

/* The chunk's memory, place and order; or those of a buffer without bytes that has no chunk. n: buffers that its region
 * has. errors: those of
 * sw_piece_memory(), sw_piece_order() and sw_piece_empty_memory(). */
int sw_chunk_range(struct sw_piece *piece, const struct sw_wire_chunk *chunk, unsigned n, struct sw_range *ret,
                   struct sw_err *err);
int sw_chunk_none(struct sw_piece *piece, unsigned n, struct sw_range *ret, struct sw_err *err);

/* All n chunks of a part of an open build or read, as ranges. errors: those of sw_chunk_check() and sw_chunk_range(),
 * naming the chunk. */
int sw_chunks_ranges(struct sw_piece *piece, const struct sw_wire_chunk *chunks, unsigned n, struct sw_range *ret,
                     struct sw_err *err);

/* errors: -SW_EINVAL: two chunks share bytes of a memory. */
int sw_chunks_check_overlap(const struct sw_wire_chunk *chunks, unsigned n, struct sw_err *err);

#endif
