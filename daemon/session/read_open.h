/* read_open.h - reads of several packets, or of chunks that begin inside a buffer: what a packet asks of one.
 *
 * What is asked for wrongly leaves the read as it is; a chunk that fails later makes it fail, and chunks on their way
 * fail as well, with the first error. thread: loop. */
#ifndef SW_DAEMON_READ_OPEN_H
#define SW_DAEMON_READ_OPEN_H

#include "daemon/session/operation.h"

/* A read's part of a packet, and what belongs to it of the packet's chunks. */
struct sw_read_part {
    const struct sw_wire_read *read;
    const struct sw_wire_chunk *chunks;
    bool keeps; /* the stored copy stays, if the read ends: until all are back, where all or none are restored */
};

/* Begins, asks for chunks, ends, as the part says; its flags are checked. The end of a read that a packet ends already
 * cancels it. errors: -SW_EINVAL (also: it does not end, as chunks are missing), -SW_ENOENT (no read of this number),
 * -SW_ECANCELED (it is canceled; the packet that ends it tells what has become of it), -SW_ENOTSUP (frames), those of
 * sw_opens_begin(), sw_read_begin(), sw_piece_tell() and sw_read_chunks(). */
int sw_read_part(struct sw_session *session, struct sw_piece *piece, const struct sw_read_part *part,
                 struct sw_err *err);

#endif
