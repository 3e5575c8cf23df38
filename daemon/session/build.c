#include "daemon/session/build.h"

#include "daemon/session/build_open.h"
#include "daemon/session/chunks.h"
#include <inttypes.h>
#include <string.h>

_Static_assert((int)SW_PROTO_MAX_BUFFERS == (int)SW_FRAMES_MAX_PARTS, "as many as a region may have");
_Static_assert(SW_PROTO_NAME_BYTES == SW_REGION_NAME_BYTES, "names are as long on the wire");

static void go_on(struct sw_build_part *part) {
    part->buffers += part->build->n_buffers;
    part->chunks += part->build->n_chunks;
    part->name += part->build->name_bytes;
    part->build++;
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
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION,
                          "build: %u buffers, %u chunks and %u bytes of names, its builds have %u, %u and %u",
                          (unsigned)m->n_buffers, (unsigned)m->n_chunks, (unsigned)m->name_bytes, n_buffers, n_chunks,
                          name_bytes);
    return 0;
}

static unsigned count(const struct sw_msg_build *m, bool (*is_so)(const struct sw_wire_build *build)) {
    unsigned n = 0;
    for (unsigned i = 0; i < m->n_builds; i++)
        n += is_so(&m->builds[i]);
    return n;
}

static bool begins(const struct sw_wire_build *build) {
    return build->flags & SW_BUILD_BEGIN;
}

static bool commits(const struct sw_wire_build *build) {
    return build->flags & SW_BUILD_COMMIT;
}

static bool aborts(const struct sw_wire_build *build) {
    return build->flags & SW_BUILD_ABORT;
}

static bool is_durable(const struct sw_wire_build *build) {
    return build->name_bytes > 0;
}

static bool is_in_place(const struct sw_wire_build *build) {
    return build->flags & SW_BUILD_IN_PLACE;
}

static bool is_all(const struct sw_msg_build *m) {
    return (m->flags & SW_REQ_ALL) && m->n_builds > 1 && count(m, commits);
}

/* What cannot be taken back cannot be all or nothing with others; and after a restart it is not known which builds of a
 * packet were to be committed by it. */
static int check_all(const struct sw_msg_build *m, struct sw_err *err) {
    if (!is_all(m))
        return 0;
    for (unsigned i = 0; i < m->n_builds; i++)
        if (!commits(&m->builds[i]))
            return sw_err_set(
                err, -SW_EINVAL, SW_SCOPE_REQUEST,
                "request %u of %u: the packet does not commit it, but others, of which all or none are to "
                "be stored",
                i + 1, (unsigned)m->n_builds);
    if (count(m, is_in_place))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "a pack cannot be undone, so several are not done all or none: pack each by itself");
    return 0;
}

static int check_packet(const struct sw_msg_build *m, struct sw_err *err) {
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
    return rc == 0 ? check_all(m, err) : rc;
}

/* ---- one build --------------------------------------------------------------------------------------------------- */

static int check_flags(const struct sw_wire_build *build, struct sw_err *err) {
    const uint32_t flags = build->flags, whole = SW_BUILD_BEGIN | SW_BUILD_COMMIT;
    uint32_t reserved;
    memcpy(&reserved, build->reserved, sizeof reserved);
    int rc = sw_check_flags(flags, whole | SW_BUILD_ABORT | SW_BUILD_IN_PLACE, err);
    if (rc == 0)
        rc = sw_check_reserved(reserved, err);
    if (rc == 0 && aborts(build) && (flags != SW_BUILD_ABORT || build->n_chunks))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "a build that is aborted neither begins nor commits, and has no chunks");
    if (rc == 0 && !flags && !build->n_chunks)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "nothing is asked of the build: no flag, no chunk");
    if (rc == 0 && is_in_place(build) && (flags & whole) != whole)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a pack begins and commits in one packet");
    return rc;
}

/* What goes with BEGIN, and only with it. */
static int check_begin(const struct sw_wire_build *build, struct sw_err *err) {
    if (!begins(build) && (build->n_buffers || build->name_bytes || build->keep_priority))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "a build has buffers, a name and a priority with its begin only");
    if (!begins(build))
        return 0;
    if (build->n_buffers < 1 || build->n_buffers > SW_PROTO_MAX_BUFFERS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u buffers, must be 1 to %d", (unsigned)build->n_buffers,
                          SW_PROTO_MAX_BUFFERS);
    if (build->name_bytes >= SW_PROTO_NAME_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name of %u bytes, must be 1 to %u",
                          (unsigned)build->name_bytes, SW_PROTO_NAME_BYTES - 1u);
    if (is_in_place(build) && (build->n_buffers != 1 || build->n_chunks != 1))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a pack has one buffer and one chunk, not %u and %u",
                          (unsigned)build->n_buffers, (unsigned)build->n_chunks);
    return 0;
}

/* Whether it is one operation of the engine, which then chooses how long the chunks are. Builds of a batch are none, as
 * they wait for each other. */
static bool is_whole(const struct sw_build_part *part) {
    bool is_whole = begins(part->build) && commits(part->build) && !part->batch;
    for (unsigned i = 0; is_whole && i < part->build->n_buffers; i++)
        is_whole = part->buffers[i].chunk_bytes == 0;
    return is_whole;
}

/* The only chunk holds all of the buffer. */
static int check_coverage(const struct sw_wire_buffer *buffer, const struct sw_wire_chunk *chunk, struct sw_err *err) {
    const uint64_t raw_bytes = chunk ? chunk->raw_bytes : 0;
    if (raw_bytes == buffer->raw_bytes)
        return 0;
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a buffer of %" PRIu64 " bytes, its chunks have %" PRIu64,
                      buffer->raw_bytes, raw_bytes);
}

static int fill_range(struct sw_piece *piece, const struct sw_wire_buffer *buffer, const struct sw_wire_chunk *chunk,
                      unsigned n, struct sw_range *ret, struct sw_err *err) {
    int rc = sw_build_check_buffer(buffer, err);
    if (rc == 0)
        rc = check_coverage(buffer, chunk, err);
    if (rc == 0)
        rc = chunk ? sw_chunk_range(piece, chunk, n, ret, err) : sw_chunk_none(piece, n, ret, err);
    ret->type = (enum sw_value_type)buffer->value_type;
    return rc;
}

static int fill_ranges(struct sw_piece *piece, const struct sw_build_part *part, struct sw_range *ret,
                       struct sw_err *err) {
    const struct sw_wire_chunk *of_buffer[SW_PROTO_MAX_BUFFERS];
    const unsigned n = part->build->n_buffers;
    int rc = sw_chunks_sort(part->chunks, part->build->n_chunks, n, of_buffer, err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = fill_range(piece, &part->buffers[i], of_buffer[i], n, &ret[i], err);
        if (rc < 0 && n > 1)
            sw_err_context(err, "buffer %u of %u", i + 1, n);
    }
    return rc;
}

static int begin_whole(struct sw_session *session, struct sw_piece *piece, const struct sw_build_part *part,
                       struct sw_err *err) {
    struct sw_range ranges[SW_PROTO_MAX_BUFFERS];
    char name[SW_PROTO_NAME_BYTES];
    ranges[0] = (struct sw_range){0};
    int rc = sw_piece_moot(piece, err);
    if (rc == 0)
        rc = fill_ranges(piece, part, ranges, err);
    if (rc == 0 && is_durable(part->build))
        rc = sw_build_take_name(session, part, name, err);
    if (rc == 0)
        rc = sw_piece_enter(piece, false, err);
    if (rc < 0)
        return rc;
    ranges[0].request = sw_piece_seq(piece);
    ranges[0].piece = sw_piece_index(piece);
    ranges[0].in_place = is_in_place(part->build);
    ranges[0].name = is_durable(part->build) ? name : NULL;
    rc = sw_engine_spill_buffers(session->owner, ranges, part->build->n_buffers, sw_piece_ended, piece,
                                 sw_piece_id(piece), err);
    if (rc == 0)
        sw_piece_expect(piece);
    return rc;
}

static int begin(struct sw_session *session, struct sw_piece *piece, const struct sw_build_part *part,
                 struct sw_err *err) {
    int rc = check_flags(part->build, err);
    if (rc == 0)
        rc = check_begin(part->build, err);
    if (rc < 0)
        return rc;
    if (is_whole(part))
        return begin_whole(session, piece, part, err);
    if (is_in_place(part->build))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "a pack has chunks of the service's length: chunk_bytes 0");
    return sw_build_part(session, piece, part, err);
}

/* Where all or none are stored, regions that nobody else finds meanwhile can be dropped again; durable ones, and those
 * of open builds, are committed together. */
static bool is_batch(const struct sw_msg_build *m) {
    bool is_plain = count(m, begins) == m->n_builds && !count(m, is_durable);
    for (unsigned i = 0; is_plain && i < m->n_buffers; i++)
        is_plain = m->buffers[i].chunk_bytes == 0;
    return is_all(m) && !is_plain;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static int begin_all(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_build *m,
                     struct sw_err *err) {
    const struct sw_ask ask = {.is_build = true,
                               .begins = count(m, begins),
                               .ends = count(m, commits),
                               .only_cancels = count(m, aborts) == m->n_builds,
                               .all = is_all(m),
                               .n = m->n_builds,
                               .n_buffers = m->n_buffers > m->n_chunks ? m->n_buffers : m->n_chunks};
    struct sw_operation *operation;
    struct sw_build_batch batch;
    struct sw_build_part part = {m->builds, m->buffers, m->chunks, m->names, is_batch(m) ? &batch : NULL};
    struct sw_piece *piece, *last = NULL;
    const int rc = sw_operation_begin(session, request, &ask, &operation, err);
    if (rc < 0)
        return rc;
    batch.n = 0;
    while ((piece = sw_operation_next(operation, part.build->build, part.build->keep_priority))) {
        struct sw_err cause;
        sw_piece_begun(piece, begin(session, piece, &part, &cause), &cause);
        go_on(&part);
        last = piece;
    }
    if (part.batch)
        sw_build_commit_all(&batch, last);
    return sw_operation_go(operation, err);
}

int sw_build_packet(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_build *build,
                    struct sw_err *err) {
    int rc = check_packet(build, err);
    if (rc == 0)
        rc = begin_all(session, request, build, err);
    sw_memtable_use_up(&session->mems, build->chunks, build->n_chunks);
    return rc;
}

int sw_on_build(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    (void)ret_reply;
    return sw_build_packet(session, request->msg, &request->msg->u.build, err);
}
