#include "daemon/session/build.h"

#include "daemon/session/chunks.h"
#include "daemon/session/operation.h"
#include <inttypes.h>
#include <string.h>

_Static_assert((int)SW_PROTO_MAX_BUFFERS == (int)SW_FRAMES_MAX_PARTS, "as many as a region may have");
_Static_assert(SW_PROTO_NAME_BYTES == SW_REGION_NAME_BYTES, "names are as long on the wire");

/* A build and what belongs to it of the packet's arrays. */
struct one {
    const struct sw_wire_build *build;
    const struct sw_wire_buffer *buffers;
    const struct sw_wire_chunk *chunks;
    const char *name; /* not a string */
};

static void go_on(struct one *one) {
    one->buffers += one->build->n_buffers;
    one->chunks += one->build->n_chunks;
    one->name += one->build->name_bytes;
    one->build++;
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

static bool has(const struct sw_msg_build *m, bool (*is_so)(const struct sw_wire_build *build)) {
    for (unsigned i = 0; i < m->n_builds; i++)
        if (is_so(&m->builds[i]))
            return true;
    return false;
}

static bool is_durable(const struct sw_wire_build *build) {
    return build->name_bytes > 0;
}

static bool is_in_place(const struct sw_wire_build *build) {
    return build->flags & SW_BUILD_IN_PLACE;
}

/* What cannot be taken back cannot be all or nothing with others. */
static int check_all(const struct sw_msg_build *m, struct sw_err *err) {
    if (!(m->flags & SW_REQ_ALL) || m->n_builds == 1)
        return 0;
    if (has(m, is_durable))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "durable regions are not stored all or nothing yet: build one in a packet, or without "
                          "SW_REQ_ALL");
    if (has(m, is_in_place))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "packs cannot be all or nothing: pack one in a packet, or without SW_REQ_ALL");
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
    static const uint32_t whole = SW_BUILD_BEGIN | SW_BUILD_COMMIT;
    const uint32_t flags = build->flags;
    uint32_t reserved;
    memcpy(&reserved, build->reserved, sizeof reserved);
    int rc = sw_check_flags(flags, whole | SW_BUILD_ABORT | SW_BUILD_IN_PLACE, err);
    if (rc == 0)
        rc = sw_check_reserved(reserved, err);
    if (rc == 0 && (flags & SW_BUILD_ABORT) && flags != SW_BUILD_ABORT)
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a build that is aborted neither begins nor commits");
    if (rc == 0 && (flags & whole) != whole)
        rc = sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                        "builds of several packets are not supported yet: begin and commit in one");
    return rc;
}

static int check_build(const struct sw_wire_build *build, struct sw_err *err) {
    const int rc = check_flags(build, err);
    if (rc < 0)
        return rc;
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

static int check_buffer(const struct sw_wire_buffer *buffer, struct sw_err *err) {
    const int rc = sw_check_reserved(buffer->codec | buffer->reason | buffer->stored_bytes, err);
    if (rc == 0 && buffer->chunk_bytes)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "chunks of a client's length are not supported yet: chunk_bytes must be 0");
    return rc;
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
    int rc = check_buffer(buffer, err);
    if (rc == 0)
        rc = check_coverage(buffer, chunk, err);
    if (rc == 0)
        rc = chunk ? sw_chunk_range(piece, chunk, n, ret, err) : sw_chunk_none(piece, n, ret, err);
    ret->type = (enum sw_value_type)buffer->value_type;
    return rc;
}

static int fill_ranges(struct sw_piece *piece, const struct one *one, struct sw_range *ret, struct sw_err *err) {
    const struct sw_wire_chunk *of_buffer[SW_PROTO_MAX_BUFFERS];
    const unsigned n = one->build->n_buffers;
    int rc = sw_chunks_sort(one->chunks, one->build->n_chunks, n, of_buffer, err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = fill_range(piece, &one->buffers[i], of_buffer[i], n, &ret[i], err);
        if (rc < 0 && n > 1)
            sw_err_context(err, "buffer %u of %u", i + 1, n);
    }
    return rc;
}

/* A durable region may outlive the session: somebody must have it then. */
static int take_name(struct sw_session *session, const struct one *one, char ret[SW_PROTO_NAME_BYTES],
                     struct sw_err *err) {
    const unsigned bytes = one->build->name_bytes;
    memcpy(ret, one->name, bytes);
    ret[bytes] = 0;
    if (strlen(ret) != bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name must have no zero in it");
    return sw_tenant_inherit(session->service, session->tenant, session->owner, err);
}

static int begin(struct sw_session *session, struct sw_piece *piece, const struct one *one,
                 const struct sw_range *first, struct sw_err *err) {
    struct sw_range ranges[SW_PROTO_MAX_BUFFERS] = {*first};
    char name[SW_PROTO_NAME_BYTES];
    int rc = check_build(one->build, err);
    if (rc == 0)
        rc = fill_ranges(piece, one, ranges, err);
    if (rc == 0 && is_durable(one->build))
        rc = take_name(session, one, name, err);
    if (rc < 0)
        return rc;
    ranges[0].request = first->request;
    ranges[0].piece = first->piece;
    ranges[0].in_place = is_in_place(one->build);
    ranges[0].name = is_durable(one->build) ? name : NULL;
    return sw_engine_spill_buffers(session->owner, ranges, one->build->n_buffers, sw_piece_ended, piece,
                                   sw_piece_id(piece), err);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static int begin_all(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_build *m,
                     struct sw_err *err) {
    const struct sw_ask ask = {.is_build = true,
                               .all = (m->flags & SW_REQ_ALL) && m->n_builds > 1,
                               .n = m->n_builds,
                               .n_buffers = m->n_buffers};
    struct sw_operation *operation;
    struct one one = {m->builds, m->buffers, m->chunks, m->names};
    struct sw_range first = {.request = request->header.seq};
    struct sw_piece *piece;
    const int rc = sw_operation_begin(session, request, &ask, &operation, err);
    if (rc < 0)
        return rc;
    while ((piece = sw_operation_next(operation, one.build->build, one.build->keep_priority))) {
        struct sw_err cause;
        sw_piece_begun(piece, begin(session, piece, &one, &first, &cause), &cause);
        first.piece++;
        go_on(&one);
    }
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
