#include "daemon/session/read.h"

#include "base/clock.h"
#include "daemon/session/chunks.h"
#include "daemon/session/read_open.h"
#include <inttypes.h>

/* ---- the packet -------------------------------------------------------------------------------------------------- */

static int check_lengths(const struct sw_msg_read *m, struct sw_err *err) {
    uint32_t n_chunks = 0;
    for (unsigned i = 0; i < m->n_reads; i++)
        n_chunks += m->reads[i].n_chunks;
    if (n_chunks != m->n_chunks)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "read: the packet has %u chunks, but its reads name %u",
                          (unsigned)m->n_chunks, n_chunks);
    return 0;
}

/* Counts the reads that have the flag. */
static unsigned count(const struct sw_msg_read *m, uint32_t flag) {
    unsigned n = 0;
    for (unsigned i = 0; i < m->n_reads; i++)
        n += (m->reads[i].flags & flag) != 0;
    return n;
}

/* Returns whether all reads only end, without chunks: they may be cancels. */
static bool only_ends(const struct sw_msg_read *m) {
    bool only_ends = m->n_chunks == 0;
    for (unsigned i = 0; only_ends && i < m->n_reads; i++)
        only_ends = m->reads[i].flags == (SW_READ_END | SW_READ_KEEP);
    return only_ends;
}

static bool is_all(const struct sw_msg_read *m) {
    return (m->flags & SW_REQ_ALL) && m->n_reads > 1 && count(m, SW_READ_END);
}

/* With SW_REQ_ALL, refuses unpacks, because they cannot be undone, and packets that end or keep only some of their
 * reads, because after a restart one region that is IN speaks for all. */
static int check_all(const struct sw_msg_read *m, struct sw_err *err) {
    const bool all = is_all(m);
    for (unsigned i = 0; all && i < m->n_reads; i++) {
        if (!(m->reads[i].flags & SW_READ_END))
            return sw_err_set(
                err, -SW_EINVAL, SW_SCOPE_REQUEST,
                "request %u of %u: with the flag for all or nothing, a packet ends all of its reads or none", i + 1,
                (unsigned)m->n_reads);
        if (m->reads[i].flags & SW_READ_IN_PLACE)
            return sw_err_set(
                err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                "an unpack cannot be undone, so several unpacks cannot be all or nothing: unpack each by itself");
        if ((m->reads[i].flags ^ m->reads[0].flags) & SW_READ_KEEP)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "with the flag for all or nothing, keep all of the regions or none");
    }
    return 0;
}

_Static_assert(SW_PROTO_FRAME_STEP == SW_FRAME_STEP_BYTES, "frames are gathered as a device copies them");

/* Where frames that are gathered lie does not depend on what they hold: each begins in its own room, or before it. */
static int check_gather(const struct sw_msg_read *m, struct sw_err *err) {
    const uint32_t whole = SW_READ_BEGIN | SW_READ_END;
    if (!(m->flags & SW_REQ_GATHER))
        return 0;
    for (unsigned i = 0; i < m->n_reads; i++)
        if ((m->reads[i].flags & whole) != whole || m->reads[i].n_chunks != 1)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "request %u of %u: a read that is gathered begins and ends, and has one chunk", i + 1,
                              (unsigned)m->n_reads);
    for (unsigned i = 0; i < m->n_chunks; i++) {
        const struct sw_wire_chunk *chunk = &m->chunks[i], *before = i ? chunk - 1 : NULL;
        if (!chunk->frame_bytes || chunk->frame_bytes % SW_PROTO_FRAME_STEP ||
            (before && (chunk->mem != before->mem || chunk->offset != before->offset + before->frame_bytes)))
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "request %u of %u: rooms of frames that are gathered are no single run of bytes", i + 1,
                              (unsigned)m->n_reads);
    }
    return 0;
}

static int check_packet(const struct sw_msg_read *m, struct sw_err *err) {
    int rc = check_lengths(m, err);
    if (rc == 0)
        rc = sw_check_count(m->n_reads, 1, "reads", err);
    if (rc == 0)
        rc = sw_check_count(m->n_chunks, 0, "chunks", err);
    if (rc == 0)
        rc = sw_check_flags(m->flags, SW_REQ_ALL | SW_REQ_GATHER, err);
    if (rc == 0)
        rc = sw_check_reserved(m->reserved, err);
    if (rc == 0)
        rc = check_gather(m, err);
    if (rc == 0)
        rc = check_all(m, err);
    return rc == 0 ? sw_chunks_check_overlap(m->chunks, m->n_chunks, err) : rc;
}

/* ---- one read ---------------------------------------------------------------------------------------------------- */

static int check_disputed(const struct sw_wire_read *read, const struct sw_wire_chunk *chunks, struct sw_err *err) {
    if (!(read->flags & SW_READ_DISPUTED))
        return 0;
    if (read->n_chunks > SW_READ_MAX_DISPUTED || sw_chunks_count_frames(chunks, read->n_chunks) < read->n_chunks)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "what is disputed must be frames, at most %d, but the read has %u chunks",
                          SW_READ_MAX_DISPUTED, (unsigned)read->n_chunks);
    return 0;
}

static int check_read(const struct sw_wire_read *read, struct sw_err *err) {
    static const uint32_t whole = SW_READ_BEGIN | SW_READ_END;
    const bool in_place = read->flags & SW_READ_IN_PLACE;
    const int rc = sw_check_flags(read->flags, whole | SW_READ_KEEP | SW_READ_IN_PLACE | SW_READ_DISPUTED, err);
    if (rc == 0 && !(read->flags & whole) && !read->n_chunks)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the read has neither a flag nor a chunk");
    if (rc == 0 && (read->flags & SW_READ_KEEP) && !(read->flags & SW_READ_END))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the flag to keep the region belongs to the read's end");
    if (rc == 0 && !(read->flags & SW_READ_BEGIN) && (read->slot || read->gen))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "the region of a read belongs to its begin");
    if (rc == 0 && in_place && (read->flags & whole) != whole)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "an unpack begins and ends in one packet");
    return rc;
}

/* Returns whether the read is one operation of the engine: each chunk takes all of its buffer, as raw bytes.
 */
static bool is_whole(const struct sw_wire_read *read, const struct sw_wire_chunk *chunks) {
    const uint32_t whole = SW_READ_BEGIN | SW_READ_END;
    bool is_whole = (read->flags & whole) == whole;
    for (unsigned i = 0; is_whole && !(read->flags & SW_READ_IN_PLACE) && i < read->n_chunks; i++)
        is_whole = chunks[i].at == 0 && !chunks[i].frame_bytes;
    return is_whole;
}

/* Checks that buffers without a chunk are empty. */
static int check_missing(struct sw_session *session, struct sw_region_id id, const struct sw_wire_chunk *const *chunks,
                         unsigned n, struct sw_err *err) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    unsigned n_known = 0;
    const int rc = sw_engine_query_buffers(session->owner, id, infos, &n_known, err);
    for (unsigned i = 0; rc == 0 && i < n && i < n_known; i++)
        if (!chunks[i] && infos[i].raw_bytes)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %u of %u has %" PRIu64 " bytes, but no chunk",
                              i + 1, n, infos[i].raw_bytes);
    return rc;
}

/* Makes a range for each buffer of the region, or for each chunk, if there are more of them. */
static int fill_ranges(struct sw_session *session, struct sw_task *task, const struct sw_wire_read *read,
                       const struct sw_wire_chunk *chunks, struct sw_range *ret, unsigned *ret_n, struct sw_err *err) {
    const struct sw_wire_chunk *of_buffer[SW_PROTO_MAX_BUFFERS];
    const struct sw_region_id id = {read->slot, read->gen};
    struct sw_region_info info = {0};
    int rc = sw_engine_query(session->owner, id, &info, err);
    const unsigned n = read->n_chunks > info.n_buffers ? read->n_chunks : info.n_buffers;
    if (rc == 0 && n > SW_PROTO_MAX_BUFFERS)
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u chunks, must be at most %d", n, SW_PROTO_MAX_BUFFERS);
    if (rc == 0)
        rc = sw_chunks_sort(chunks, read->n_chunks, n, of_buffer, err);
    if (rc == 0 && read->n_chunks < n)
        rc = check_missing(session, id, of_buffer, n, err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = sw_task_range(task, of_buffer[i], n, &ret[i], err);
        if (rc < 0 && n > 1)
            sw_err_context(err, "buffer %u of %u", i + 1, n);
    }
    *ret_n = n;
    return rc;
}

static int begin_whole(struct sw_session *session, struct sw_task *task, const struct sw_read_record *record,
                       struct sw_err *err) {
    const struct sw_wire_read *read = record->read;
    struct sw_range ranges[SW_PROTO_MAX_BUFFERS];
    struct sw_transfer transfer = {
        .ranges = ranges, .in_place = (read->flags & SW_READ_IN_PLACE) != 0, .keep = record->keeps};
    int rc = sw_task_check_others(task, err);
    if (rc == 0)
        rc = fill_ranges(session, task, read, record->chunks, ranges, &transfer.n, err);
    if (rc == 0)
        rc = sw_task_enter(task, true, err);
    if (rc < 0)
        return rc;
    task->result->id = (struct sw_region_id){read->slot, read->gen};
    rc = sw_engine_restore(session->owner, task->result->id, &transfer, sw_task_ended, task, err);
    if (rc == 0)
        sw_task_expect(task);
    return rc;
}

static int begin(struct sw_session *session, struct sw_task *task, const struct sw_read_record *record,
                 struct sw_err *err) {
    int rc = check_read(record->read, err);
    if (rc == 0)
        rc = check_disputed(record->read, record->chunks, err);
    if (rc < 0)
        return rc;
    return (is_whole(record->read, record->chunks) ? begin_whole : sw_read_apply)(session, task, record, err);
}

/* Verifying takes a CPU a hundred times as long as sending. So a tenant may have it once a second; otherwise the frames
 * are only sent again, and a client that cannot decode them asks for the bytes. */
static bool may_verify(struct sw_tenant *tenant) {
    const uint64_t now_us = sw_clock_us();
    if (tenant->disputed_us && now_us < tenant->disputed_us + 1000000)
        return false;
    tenant->disputed_us = now_us;
    return true;
}

/* ---- all reads --------------------------------------------------------------------------------------------------- */

static int begin_all(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_read *m,
                     struct sw_err *err) {
    const struct sw_operation_spec spec = {.begins = count(m, SW_READ_BEGIN),
                                           .ends = count(m, SW_READ_END),
                                           .only_cancels = only_ends(m),
                                           .all = is_all(m),
                                           .keep = m->reads[0].flags & SW_READ_KEEP,
                                           .needs_kernels =
                                               sw_chunks_count_frames(m->chunks, m->n_chunks) < m->n_chunks,
                                           .n = m->n_reads,
                                           .n_buffers = m->n_chunks};
    uint64_t gathers_at = m->n_chunks ? m->chunks[0].offset : 0;
    struct sw_read_record record = {
        .read = m->reads, .chunks = m->chunks, .gathers_at = m->flags & SW_REQ_GATHER ? &gathers_at : NULL};
    struct sw_operation *operation;
    struct sw_task *task;
    const int rc = sw_operation_begin(session, request, &spec, &operation, err);
    if (rc < 0)
        return rc;
    while ((task = sw_operation_next(operation, record.read->read, 0))) {
        struct sw_err cause;
        record.keeps = spec.all || (record.read->flags & SW_READ_KEEP);
        record.verifies = (record.read->flags & SW_READ_DISPUTED) && may_verify(session->tenant);
        task->result->n_frames = sw_chunks_count_frames(record.chunks, record.read->n_chunks);
        sw_task_started(task, begin(session, task, &record, &cause), &cause);
        record.chunks += record.read->n_chunks;
        record.read++;
    }
    return sw_operation_go(operation, err);
}

int sw_read_packet(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_read *read,
                   struct sw_err *err) {
    int rc = check_packet(read, err);
    if (rc == 0)
        rc = begin_all(session, request, read, err);
    sw_memtable_use_up(&session->mems, read->chunks, read->n_chunks);
    return rc;
}

int sw_on_read(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    (void)ret_reply;
    return sw_read_packet(session, request->msg, &request->msg->u.read, err);
}
