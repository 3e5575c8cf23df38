/* read.h - restores a region chunk by chunk, possibly into several memories.
 *
 * From its begin to its end a read has its region for itself: the region is RESTORING, and -SW_EBUSY to others. Chunks
 * may be asked for in any order, and more than once. Their bytes are verified before their callback reports success.
 * At the end the region's stored copy is dropped or kept.
 *
 * Invariant: the stored copy is dropped only if every chunk was restored. A read that fails leaves the region OUT, or
 * LOST if its stored bytes were proved bad.
 *
 * All functions: thread loop. As in engine.h, an accepted operation calls back once, never from inside the call. */
#ifndef SW_SPILL_READ_H
#define SW_SPILL_READ_H

#include "spill/engine.h"

struct sw_read;

/* OPEN: takes calls for chunks. ENDING: its end was asked for, and it waits for its chunks. FAILED: the region is as
 * before the read once no chunk is in flight; the read waits for its end. */
enum sw_read_state { SW_READ_OPEN, SW_READ_ENDING, SW_READ_FAILED };

enum { SW_READ_MAX_RANGES = 256 }; /* of one call */

/* Begins a read. ret_buffers: the region's buffers. *ret is valid until the callback of sw_read_end(), or until its
 * owner is closed. errors: those of sw_engine_restore() about the region, also -SW_EINVAL (it is packed), -SW_ENOMEM,
 * -SW_ETENANTMEMORY. */
int sw_read_begin(struct sw_owner *owner, struct sw_region_id id, struct sw_read **ret,
                  struct sw_buffer_info ret_buffers[SW_FRAMES_MAX_BUFFERS], unsigned *ret_n, struct sw_err *err);

/* Restores chunks into n ranges (1 to SW_READ_MAX_RANGES). Each range gets the chunks of range->buffer from range->at
 * on, where a chunk begins: as many whole chunks as range->bytes has room for. If frame_bytes is set, the range gets
 * the frame of the chunk at range->at; sw_read_layout() describes it. Only mem, offset, bytes, frame_bytes,
 * is_disputed, order, buffer and at of a range count. Ranges of one call must not overlap; several need memories that
 * stay open. The outcome's lengths are those of this call. A chunk that fails later makes the read fail. errors:
 * -SW_EINVAL, -SW_ERANGE, -SW_ETOOSMALL (no room for a chunk, or for the frame), -SW_EBUSY, -SW_ENOMEM,
 * -SW_ETENANTMEMORY, -SW_ESHUTDOWN: the read is as before. After a failure of the read: its error. Later in outcome: as
 * a restore's. */
int sw_read_chunks(struct sw_read *read, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done, void *arg,
                   struct sw_err *err);
/* Describes the frame that a range with frame_bytes gets. sw_read_chunks() has just accepted the range. */
const struct sw_frame_layout *sw_read_layout(const struct sw_read *read, const struct sw_range *range);

/* Ends the read once no chunk is in flight. With `keep`, or if the region is durable, it is OUT then; otherwise it ends
 * as after sw_engine_restore(). done gets the lengths of all restored chunks, or the read's error. A failed read is
 * accepted, too. errors: -SW_EINVAL (a chunk of a region that is not kept was not asked for, or the read was ended):
 * the read is as before. */
int sw_read_end(struct sw_read *read, bool keep, sw_outcome_cb *done, void *arg, struct sw_err *err);

/* Ends n reads of one owner (1 to SW_SERIES_MAX_BATCH), all or none: no stored copy is dropped before all chunks of all
 * reads were restored. If one fails, all fail with its error. done is called for each with its own outcome. errors: as
 * sw_read_end(), also -SW_EINVAL (a read is given twice), -SW_ENOMEM, -SW_ETENANTMEMORY. After an error all reads are
 * unchanged. */
struct sw_read_end {
    struct sw_read *read;
    bool keep;
    void *arg;
};
int sw_read_end_batch(const struct sw_read_end *ends, unsigned n, sw_outcome_cb *done, struct sw_err *err);

/* Makes a read fail, and cancels its chunks. If its end was asked for, the end's callback gets this error, unless it is
 * due already. Does nothing to a failed read. */
void sw_read_fail(struct sw_read *read, const struct sw_err *cause);

/* Returns whether every chunk was asked for. False for a failed read. */
bool sw_read_has_all(const struct sw_read *read);

enum sw_read_state sw_read_state(const struct sw_read *read);
/* Returns the time when the last chunk ended; 0: chunks are in flight. */
uint64_t sw_read_idle_since_us(const struct sw_read *read);

#endif
