/* build_open.h - open builds: builds of several packets, or with a chunk length that the client chose.
 *
 * An error of one record fails the whole build. Records that the client has already sent then fail with the same error.
 * The reply to a commit or an abort ends the build, also if the reply is an error. thread: loop. */
#ifndef SW_DAEMON_BUILD_OPEN_H
#define SW_DAEMON_BUILD_OPEN_H

#include "daemon/session/operation.h"

/* The builds that a packet commits together, all or none. */
struct sw_build_batch {
    struct sw_build_end ends[SW_PROTO_MAX_ITEMS];
    unsigned n;
};

/* One build's record in a packet, with its share of the packet's arrays. */
struct sw_build_record {
    const struct sw_wire_build *build;
    const struct sw_wire_buffer *buffers;
    const struct sw_wire_chunk *chunks;
    const char *name;             /* without a terminating zero */
    struct sw_build_batch *batch; /* collects the builds to commit together; NULL: each is committed alone */
};

/* Begins, appends to, commits or aborts a build, as its record says. The caller has checked the packet's flags and
 * counts.
 *
 * - errors: -SW_EINVAL, -SW_ENOENT (no build of this number), -SW_ECANCELED (the build is canceled; the reply to the
 *   packet that commits it has the result), those of sw_opens_begin(), sw_build_begin() and
 *   sw_build_append(). */
int sw_build_apply(struct sw_session *session, struct sw_task *task, const struct sw_build_record *record,
                   struct sw_err *err);

/* Commits the collected builds, or ends them if a task has failed. Call it after the last record. last: the last task.
 */
void sw_build_commit_all(const struct sw_build_batch *batch, const struct sw_task *last);

/* Copies the name of a durable region, and enables durable regions for the session. Also for whole builds. errors:
 * -SW_EINVAL, those of sw_tenant_enable_durable(). */
int sw_build_take_name(struct sw_session *session, const struct sw_build_record *record, char ret[SW_PROTO_NAME_BYTES],
                       struct sw_err *err);
/* Checks a buffer's record. Also for whole builds. errors: -SW_EINVAL (a field that only the service fills in is set).
 */
int sw_build_check_buffer(const struct sw_wire_buffer *buffer, struct sw_err *err);

#endif
