#include "daemon/session/build.h"

#include "daemon/session/build_open.h"
#include "daemon/session/chunks.h"
#include <inttypes.h>
#include <string.h>

_Static_assert((int)SW_PROTO_MAX_BUFFERS == (int)SW_FRAMES_MAX_BUFFERS,
               "a packet has room for the buffers of a region");
_Static_assert(SW_PROTO_NAME_BYTES == SW_REGION_NAME_BYTES, "names have the same length on the wire and in the engine");

static void go_on(struct sw_build_record *record) {
    record->buffers += record->build->n_buffers;
    record->chunks += record->build->n_chunks;
    record->name += record->build->name_bytes;
    record->build++;
}

/* ---- the packet -------------------------------------------------------------------------------------------------- */

static int check_lengths(const struct sw_msg_build *m, struct sw_err *err) {
    uint32_t n_buffers = 0, n_chunks = 0, name_bytes = 0;
    for (unsigned i = 0; i < m->n_builds; i++) {
        n_buffers += m->builds[i].n_buffers;
        n_chunks += m->builds[i].n_chunks;
        name_bytes += m->builds[i].name_bytes;
    }
    if (n_buffers != m->n_buffers || n_chunks != m->n_chunks || name_bytes != m->name_bytes)
        return sw_err_set(
            err, -SW_EPROTO, SW_SCOPE_SESSION,
            "build: the packet has %u buffers, %u chunks and %u bytes of names, but its builds name %u, %u and %u",
            (unsigned)m->n_buffers, (unsigned)m->n_chunks, (unsigned)m->name_bytes, n_buffers, n_chunks, name_bytes);
    return 0;
}

/* The flags of a packet's builds. any: at least one build has the flag. all: every build has it. */
struct flags {
    uint32_t any, all;
};

static struct flags flags_of(const struct sw_msg_build *m) {
    struct flags flags = {.all = UINT32_MAX};
    for (unsigned i = 0; i < m->n_builds; i++) {
        flags.any |= m->builds[i].flags;
        flags.all &= m->builds[i].flags;
    }
    return flags;
}

static bool is_all(const struct sw_msg_build *m, const struct flags *flags) {
    return (m->flags & SW_REQ_ALL) && m->n_builds > 1 && (flags->any & SW_BUILD_COMMIT);
}

/* With SW_REQ_ALL, refuses packs, because they cannot be undone, and packets that commit only some of their builds,
 * because after a restart SETTLE could not tell which ones. */
static int check_all(const struct sw_msg_build *m, const struct flags *flags, struct sw_err *err) {
    if (!is_all(m, flags))
        return 0;
    for (unsigned i = 0; !(flags->all & SW_BUILD_COMMIT) && i < m->n_builds; i++)
        if (!(m->builds[i].flags & SW_BUILD_COMMIT))
            return sw_err_set(
                err, -SW_EINVAL, SW_SCOPE_REQUEST,
                "request %u of %u: with the flag for all or nothing, a packet commits all of its builds or none", i + 1,
                (unsigned)m->n_builds);
    if (flags->any & SW_BUILD_IN_PLACE)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "a pack cannot be undone, so several packs cannot be all or nothing: pack each by itself");
    return 0;
}

static int check_packet(const struct sw_msg_build *m, const struct flags *flags, struct sw_err *err) {
    int rc = check_lengths(m, err);
    if (rc == 0)
        rc = sw_check_count(m->n_builds, 1, "builds", err);
    if (rc == 0)
        rc = sw_check_count(m->n_buffers, 0, "buffers", err);
    if (rc == 0)
        rc = sw_check_count(m->n_chunks, 0, "chunks", err);
    if (rc == 0)
        rc = sw_check_flags(m->flags, SW_REQ_ALL, err);
    if (rc == 0)
        rc = sw_check_reserved(m->reserved, err);
    return rc == 0 ? check_all(m, flags, err) : rc;
}

/* ---- one build --------------------------------------------------------------------------------------------------- */

static int check_flags(const struct sw_wire_build *build, struct sw_err *err) {
    const uint32_t flags = build->flags, whole = SW_BUILD_BEGIN | SW_BUILD_COMMIT;
    const uint32_t reserved = build->reserved[0] | build->reserved[1];
    int rc = sw_check_flags(flags, whole | SW_BUILD_ABORT | SW_BUILD_IN_PLACE | SW_BUILD_PACKED, err);
    if (rc == 0)
        rc = sw_check_reserved(reserved, err);
    if (rc == 0 && (flags & SW_BUILD_ABORT) && (flags != SW_BUILD_ABORT || build->n_chunks))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "an abort has no other flag and no chunks");
    if (rc == 0 && !flags && !build->n_chunks)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the build has neither a flag nor a chunk");
    if (rc == 0 && (flags & SW_BUILD_IN_PLACE) && (flags & whole) != whole)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a pack begins and commits in one packet");
    if (rc == 0 && (flags & SW_BUILD_PACKED) && !(flags & SW_BUILD_IN_PLACE))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "what is packed is packed in place");
    return rc;
}

/* Checks the fields that belong to BEGIN. */
static int check_begin(const struct sw_wire_build *build, struct sw_err *err) {
    const bool begins = build->flags & SW_BUILD_BEGIN;
    if (!begins &&
        (build->n_buffers || build->name_bytes || build->keep_priority || build->durability || build->prefer))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "buffers, name, priority, durability and preference of a build belong to its begin");
    if (!begins)
        return 0;
    if (build->n_buffers < 1 || build->n_buffers > SW_PROTO_MAX_BUFFERS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u buffers, must be 1 to %d", (unsigned)build->n_buffers,
                          SW_PROTO_MAX_BUFFERS);
    if (build->name_bytes >= SW_PROTO_NAME_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name of %u bytes, must be 1 to %u",
                          (unsigned)build->name_bytes, SW_PROTO_NAME_BYTES - 1u);
    if (build->prefer >= SW_PREFER_NR)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "preference %u is unknown", (unsigned)build->prefer);
    const unsigned n_chunks = build->flags & SW_BUILD_PACKED ? 0 : 1;
    if ((build->flags & SW_BUILD_IN_PLACE) && (build->n_buffers != 1 || build->n_chunks != n_chunks))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a pack has one buffer and %u chunks, not %u and %u",
                          n_chunks, (unsigned)build->n_buffers, (unsigned)build->n_chunks);
    return 0;
}

/* Returns whether the build is one operation of the engine, which then chooses the chunk length. Builds of a batch are
 * not, because they wait for each other. */
static bool is_whole(const struct sw_build_record *record) {
    const uint32_t whole = SW_BUILD_BEGIN | SW_BUILD_COMMIT;
    bool is_whole = (record->build->flags & whole) == whole && !record->batch;
    for (unsigned i = 0; is_whole && i < record->build->n_buffers; i++)
        is_whole = record->buffers[i].chunk_bytes == 0;
    return is_whole;
}

/* Checks that the buffer's only chunk holds all of it. */
static int check_coverage(const struct sw_wire_buffer *buffer, const struct sw_wire_chunk *chunk, struct sw_err *err) {
    const uint64_t raw_bytes = chunk ? chunk->raw_bytes : 0;
    if (raw_bytes == buffer->raw_bytes)
        return 0;
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                      "the buffer has %" PRIu64 " bytes, but its chunks have %" PRIu64, buffer->raw_bytes, raw_bytes);
}

static int fill_range(struct sw_task *task, const struct sw_wire_buffer *buffer, const struct sw_wire_chunk *chunk,
                      unsigned n, struct sw_range *ret, struct sw_err *err) {
    int rc = sw_build_check_buffer(buffer, err);
    if (rc == 0)
        rc = check_coverage(buffer, chunk, err);
    if (rc == 0)
        rc = sw_task_range(task, chunk, n, ret, err);
    ret->type = (enum sw_value_type)buffer->value_type;
    return rc;
}

static int fill_ranges(struct sw_task *task, const struct sw_build_record *record, struct sw_range *ret,
                       struct sw_err *err) {
    const struct sw_wire_chunk *of_buffer[SW_PROTO_MAX_BUFFERS];
    const unsigned n = record->build->n_buffers;
    int rc = sw_chunks_sort(record->chunks, record->build->n_chunks, n, of_buffer, err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = fill_range(task, &record->buffers[i], of_buffer[i], n, &ret[i], err);
        if (rc < 0 && n > 1)
            sw_err_context(err, "buffer %u of %u", i + 1, n);
    }
    return rc;
}

static int begin_whole(struct sw_session *session, struct sw_task *task, const struct sw_build_record *record,
                       struct sw_err *err) {
    struct sw_range ranges[SW_PROTO_MAX_BUFFERS];
    char name[SW_PROTO_NAME_BYTES];
    const struct sw_transfer transfer = {.ranges = ranges,
                                         .n = record->build->n_buffers,
                                         .in_place = record->build->flags & SW_BUILD_IN_PLACE,
                                         .request = task->seq,
                                         .batch_index = task->index,
                                         .name = record->build->name_bytes ? name : NULL,
                                         .durability = (enum sw_durability)record->build->durability,
                                         .prefer = (enum sw_prefer)record->build->prefer};
    int rc = sw_task_check_others(task, err);
    if (rc == 0)
        rc = fill_ranges(task, record, ranges, err);
    if (rc == 0 && transfer.name)
        rc = sw_build_take_name(session, record, name, err);
    if (rc == 0)
        rc = sw_task_enter(task, false, err);
    if (rc < 0)
        return rc;
    rc = sw_engine_spill(session->owner, &transfer, sw_task_ended, task, &task->result->id, err);
    if (rc == 0)
        sw_task_expect(task);
    return rc;
}

/* The client has packed the buffer. Nothing of it moves. Packs are never all or nothing (check_all()). */
static int note_packed(struct sw_session *session, struct sw_task *task, const struct sw_build_record *record,
                       struct sw_err *err) {
    const struct sw_wire_buffer *buffer = record->buffers;
    const struct sw_packed packed = {.raw_bytes = buffer->raw_bytes,
                                     .stored_bytes = buffer->stored_bytes,
                                     .type = (enum sw_value_type)buffer->value_type,
                                     .codec = (enum sw_codec_id)buffer->codec,
                                     .request = task->seq,
                                     .batch_index = task->index};
    struct sw_outcome outcome;
    int rc = sw_check_reserved(buffer->reason, err);
    if (rc == 0 && (record->build->name_bytes || record->build->durability))
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a packed region cannot be durable");
    if (rc == 0)
        rc = sw_engine_note_packed(session->owner, &packed, &outcome, err);
    if (rc == 0)
        sw_task_done(task, &outcome);
    return rc;
}

static int begin(struct sw_session *session, struct sw_task *task, const struct sw_build_record *record,
                 struct sw_err *err) {
    int rc = check_flags(record->build, err);
    if (rc == 0)
        rc = check_begin(record->build, err);
    if (rc < 0)
        return rc;
    if (is_whole(record))
        return (record->build->flags & SW_BUILD_PACKED ? note_packed : begin_whole)(session, task, record, err);
    if (record->build->flags & SW_BUILD_IN_PLACE)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "a pack takes the service's chunk length: chunk_bytes must be 0");
    return sw_build_apply(session, task, record, err);
}

/* Returns whether the engine has to commit the builds as a batch. With SW_REQ_ALL that is so for durable regions and
 * open builds. Other regions are dropped after a failure, because no other session can have seen them. */
static bool is_batch(const struct sw_msg_build *m, const struct flags *flags) {
    bool is_plain = (flags->all & SW_BUILD_BEGIN) && !m->name_bytes;
    for (unsigned i = 0; is_plain && i < m->n_buffers; i++)
        is_plain = m->buffers[i].chunk_bytes == 0;
    return is_all(m, flags) && !is_plain;
}

/* ---- all builds -------------------------------------------------------------------------------------------------- */

static int begin_all(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_build *m,
                     const struct flags *flags, struct sw_err *err) {
    const struct sw_operation_spec spec = {.is_build = true,
                                           .begins = flags->any & SW_BUILD_BEGIN,
                                           .ends = flags->any & SW_BUILD_COMMIT,
                                           .only_cancels = flags->all & SW_BUILD_ABORT,
                                           .all = is_all(m, flags),
                                           .needs_kernels =
                                               sw_chunks_count_frames(m->chunks, m->n_chunks) < m->n_chunks,
                                           .n = m->n_builds,
                                           .n_buffers = m->n_buffers > m->n_chunks ? m->n_buffers : m->n_chunks};
    struct sw_operation *operation;
    struct sw_build_batch batch;
    struct sw_build_record record = {m->builds, m->buffers, m->chunks, m->names, is_batch(m, flags) ? &batch : NULL};
    struct sw_task *task, *last = NULL;
    const int rc = sw_operation_begin(session, request, &spec, &operation, err);
    if (rc < 0)
        return rc;
    batch.n = 0;
    while ((task = sw_operation_next(operation, record.build->build, record.build->keep_priority))) {
        struct sw_err cause;
        sw_task_started(task, begin(session, task, &record, &cause), &cause);
        go_on(&record);
        last = task;
    }
    if (record.batch)
        sw_build_commit_all(&batch, last);
    return sw_operation_go(operation, err);
}

int sw_build_packet(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_build *build,
                    struct sw_err *err) {
    const struct flags flags = flags_of(build);
    int rc = check_packet(build, &flags, err);
    if (rc == 0)
        rc = begin_all(session, request, build, &flags, err);
    sw_memtable_use_up(&session->mems, build->chunks, build->n_chunks);
    return rc;
}

int sw_on_build(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    (void)ret_reply;
    return sw_build_packet(session, request->msg, &request->msg->u.build, err);
}
