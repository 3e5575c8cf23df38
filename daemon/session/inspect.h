/* inspect.h - INSPECT: describes a region, its buffers, or the frames of a packed region. thread: loop. */
#ifndef SW_DAEMON_INSPECT_H
#define SW_DAEMON_INSPECT_H

#include "daemon/session/session.h"
#include "ipc/dispatch.h"
#include "ipc/spillway.h"

sw_command_fn sw_on_inspect;

/* Buffers and frames are filled in only on request. */
struct sw_details {
    struct sw_region_info region;
    unsigned n_buffers;
    struct sw_buffer_info buffers[SW_FRAMES_MAX_BUFFERS];
    size_t n_frames, n_all_frames;
    struct spillway_packed_chunk frames[SW_PROTO_MAX_FRAMES];
};

/* Describes a region. first: the first frame to describe. errors: those of sw_engine_query(),
 * sw_engine_query_buffers() and sw_engine_query_packed(). */
int sw_inspect(struct sw_session *session, struct sw_region_id id, enum sw_inspect what, size_t first,
               struct sw_details *ret, struct sw_err *err);

#endif
