/* read_open.h - open reads: reads of several packets, or of chunks that begin inside a buffer.
 *
 * A record that is refused leaves the read unchanged. A chunk that fails later fails the read, and the chunks that are
 * under way with it. thread: loop. */
#ifndef SW_DAEMON_READ_OPEN_H
#define SW_DAEMON_READ_OPEN_H

#include "daemon/session/operation.h"

/* One read's record in a packet, with its share of the packet's chunks. */
struct sw_read_record {
    const struct sw_wire_read *read;
    const struct sw_wire_chunk *chunks;
    bool verifies; /* its chunks are disputed frames, which are to be verified first */
    /* SW_REQ_GATHER: where its frame goes, and then the next one's; NULL: where the chunk says. */
    uint64_t *gathers_at;
    bool keeps; /* the stored copy stays at the read's end; with SW_REQ_ALL at least until all are back */
};

/* Begins a read, reads its chunks, and ends it, as its record says. The caller has checked the record's flags.
 *
 * - A second end cancels a read that another packet ends.
 * - errors: -SW_EINVAL (also: chunks are missing, so the read does not end), -SW_ENOENT (no read of this number),
 *   -SW_ECANCELED (the read is canceled; the reply to the packet that ends it has the result),
 *   those of sw_opens_begin(), sw_read_begin(), sw_task_report_buffers() and sw_read_chunks(). */
int sw_read_apply(struct sw_session *session, struct sw_task *task, const struct sw_read_record *record,
                  struct sw_err *err);

#endif
