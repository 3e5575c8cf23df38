/* build_open.h - builds of several packets, or of chunks whose length the client wishes: what a packet asks of one.
 *
 * What goes wrong with a part fails the build, so that the parts that are on their way fail as well, with the first
 * error. Whatever a commit or an abort is answered, the build has ended with the answer. thread: loop. */
#ifndef SW_DAEMON_BUILD_OPEN_H
#define SW_DAEMON_BUILD_OPEN_H

#include "daemon/session/operation.h"

/* Builds that a packet commits together, all or none. */
struct sw_build_batch {
    struct sw_build_end ends[SW_PROTO_MAX_ITEMS];
    unsigned n;
};

/* A build's part of a packet, and what belongs to it of the packet's arrays. */
struct sw_build_part {
    const struct sw_wire_build *build;
    const struct sw_wire_buffer *buffers;
    const struct sw_wire_chunk *chunks;
    const char *name;             /* not a string */
    struct sw_build_batch *batch; /* to which it is added instead of being committed; NULL: it is committed alone */
};

/* Begins, appends, commits or aborts, as the part says; the packet's flags and counts are checked. errors: -SW_EINVAL,
 * -SW_ENOENT (no build of this number), -SW_ECANCELED (the build is canceled; the packet that commits it tells what has
 * become of it), -SW_ENOTSUP (frames), those of sw_opens_begin(), sw_build_begin() and sw_build_append(). */
int sw_build_part(struct sw_session *session, struct sw_piece *piece, const struct sw_build_part *part,
                  struct sw_err *err);

/* All parts have had their turn: commits what they have added, or, if one has failed, ends it. last: the last piece. */
void sw_build_commit_all(const struct sw_build_batch *batch, const struct sw_piece *last);

/* For whole builds, too. A durable region may outlive the session: somebody must have it then. ret: its name. errors:
 * -SW_EINVAL, those of sw_tenant_inherit(). */
int sw_build_take_name(struct sw_session *session, const struct sw_build_part *part, char ret[SW_PROTO_NAME_BYTES],
                       struct sw_err *err);
/* The same. errors: -SW_EINVAL (a field is not the client's to fill in). */
int sw_build_check_buffer(const struct sw_wire_buffer *buffer, struct sw_err *err);

#endif
