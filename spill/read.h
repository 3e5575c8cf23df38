/* read.h - regions that come back chunk by chunk, possibly into several memories.
 *
 * A read has a region from its begin to its end: the region is RESTORING, and -SW_EBUSY to all others. Chunks may come
 * in any order, and more than once. Their bytes are verified before their callback reports success. With the end the
 * region's stored copy goes, or is kept.
 *
 * Invariant: the stored copy goes only if every chunk has come. A read that fails leaves the region OUT, or LOST if its
 * stored bytes were proved bad.
 *
 * All functions: thread loop. As in engine.h, what was accepted calls back once, never from inside the call. */
#ifndef SW_SPILL_READ_H
#define SW_SPILL_READ_H

#include "spill/engine.h"

struct sw_read;

/* OPEN: chunks come as they are asked for. ENDING: its end was asked for, and it waits for its chunks. FAILED: the
 * region is as before the read once no chunk is under way; the read waits for its end. */
enum sw_read_state { SW_READ_OPEN, SW_READ_ENDING, SW_READ_FAILED };

enum { SW_READ_MAX_RANGES = 256 }; /* of one call */

/* ret_buffers: what the region's buffers are. *ret is valid until the callback of sw_read_end(), or until its owner is
 * closed. errors: those of sw_engine_restore() about the region, also -SW_EINVAL (it is packed), -SW_ENOMEM,
 * -SW_ETENANTMEMORY. */
int sw_read_begin(struct sw_owner *owner, struct sw_region_id id, struct sw_read **ret,
                  struct sw_buffer_info ret_buffers[SW_FRAMES_MAX_BUFFERS], unsigned *ret_n, struct sw_err *err);

/* Brings chunks to n ranges (1 to SW_READ_MAX_RANGES): to each those of range->buffer from range->at on, where a chunk
 * begins, and as many whole ones as have room in range->bytes. Of a range only mem, offset, bytes, frame_bytes, order,
 * buffer and at count. With frame_bytes it gets one frame, that of the chunk at range->at: sw_read_layout() describes
 * it. Ranges of one call must not overlap; several need memories that stay open. The outcome's lengths are those of
 * this call. A chunk that fails later makes the read fail.
 * errors: -SW_EINVAL, -SW_ERANGE, -SW_ETOOSMALL (no chunk has room, or its frame has none), -SW_ELIMIT, -SW_EBUSY,
 * -SW_ENOMEM, -SW_ETENANTMEMORY, -SW_ESHUTDOWN: the read is as before; of a read that has failed, its error. Later in
 * outcome: as a restore's. */
int sw_read_chunks(struct sw_read *read, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done, void *arg,
                   struct sw_err *err);

/* The frame that a range with frame_bytes gets; sw_read_chunks() has just accepted it. */
const struct sw_frame_layout *sw_read_layout(const struct sw_read *read, const struct sw_range *range);

/* Ends the read once no chunk is under way. keep, or a durable region: it is OUT; else all of its chunks have come, and
 * it goes as with sw_engine_restore(). done gets the lengths of all chunks that have come, or the read's error. A read
 * that has failed is accepted, too. errors: -SW_EINVAL (not all chunks have come or are under way, or the read was
 * ended): the read is as before. */
int sw_read_end(struct sw_read *read, bool keep, sw_outcome_cb *done, void *arg, struct sw_err *err);

/* Ends n reads of one owner (1 to SW_SERIES_MAX_BATCH), all or none: no stored copy goes before the chunks of all have
 * come, and if one fails, all fail with its error. done is called for each with its own outcome. errors: those of
 * sw_read_end(), also -SW_EINVAL (a read is there twice), -SW_ENOMEM, -SW_ETENANTMEMORY: all are as before. */
struct sw_read_end {
    struct sw_read *read;
    bool keep;
    void *arg;
};
int sw_read_end_batch(const struct sw_read_end *ends, unsigned n, sw_outcome_cb *done, struct sw_err *err);

/* Makes a read fail, because it has expired, or is not wanted any more. Its chunks are canceled. Of a read whose end
 * was asked for, the end's callback gets this error, unless it is due already. Of one that has failed: no-op. */
void sw_read_fail(struct sw_read *read, const struct sw_err *cause);

/* Whether every chunk has come, or was asked for. Of a read that has failed: false. */
bool sw_read_has_all(const struct sw_read *read);

enum sw_read_state sw_read_state(const struct sw_read *read);
/* Since when no chunk is under way; 0: some are. */
uint64_t sw_read_idle_since_us(const struct sw_read *read);

#endif
