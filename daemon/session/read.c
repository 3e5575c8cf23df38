#include "daemon/session/read.h"

#include "daemon/session/chunks.h"
#include "daemon/session/read_open.h"
#include <inttypes.h>

/* ---- the packet -------------------------------------------------------------------------------------------------- */

static int check_lengths(const struct sw_msg_read *m, struct sw_err *err) {
    uint32_t n_chunks = 0;
    for (unsigned i = 0; i < m->n_reads; i++)
        n_chunks += m->reads[i].n_chunks;
    if (n_chunks != m->n_chunks)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "read: %u chunks, its reads have %u",
                          (unsigned)m->n_chunks, n_chunks);
    return 0;
}

static unsigned count(const struct sw_msg_read *m, bool (*is_so)(const struct sw_wire_read *read)) {
    unsigned n = 0;
    for (unsigned i = 0; i < m->n_reads; i++)
        n += is_so(&m->reads[i]);
    return n;
}

static bool begins(const struct sw_wire_read *read) {
    return read->flags & SW_READ_BEGIN;
}

static bool ends(const struct sw_wire_read *read) {
    return read->flags & SW_READ_END;
}

/* Ends, and asks for nothing: so it may be a cancel. */
static bool only_ends(const struct sw_wire_read *read) {
    return read->flags == (SW_READ_END | SW_READ_KEEP) && !read->n_chunks;
}

static bool is_all(const struct sw_msg_read *m) {
    return (m->flags & SW_REQ_ALL) && m->n_reads > 1 && count(m, ends);
}

/* What cannot be taken back cannot be all or nothing with others; and after a restart one region that is in the
 * client's memory speaks for all. */
static int check_all(const struct sw_msg_read *m, struct sw_err *err) {
    const bool all = is_all(m);
    for (unsigned i = 0; all && i < m->n_reads; i++) {
        if (!ends(&m->reads[i]))
            return sw_err_set(
                err, -SW_EINVAL, SW_SCOPE_REQUEST,
                "request %u of %u: the packet does not end it, but others, of which all or none are to be "
                "restored",
                i + 1, (unsigned)m->n_reads);
        if (m->reads[i].flags & SW_READ_IN_PLACE)
            return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                              "an unpack cannot be undone, so several are not done all or none: unpack each by itself");
        if ((m->reads[i].flags ^ m->reads[0].flags) & SW_READ_KEEP)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "some of the regions are to be kept, some not: where all or none are restored, all are "
                              "kept, or none");
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
        rc = sw_check_flags(m->flags, SW_REQ_ALL, err);
    if (rc == 0)
        rc = sw_check_reserved(m->reserved, err);
    if (rc == 0)
        rc = check_all(m, err);
    return rc == 0 ? sw_chunks_check_overlap(m->chunks, m->n_chunks, err) : rc;
}

/* ---- one read ---------------------------------------------------------------------------------------------------- */

static int check_read(const struct sw_wire_read *read, struct sw_err *err) {
    static const uint32_t whole = SW_READ_BEGIN | SW_READ_END;
    const bool in_place = read->flags & SW_READ_IN_PLACE;
    const int rc = sw_check_flags(read->flags, whole | SW_READ_KEEP | SW_READ_IN_PLACE, err);
    if (rc == 0 && !(read->flags & whole) && !read->n_chunks)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "nothing is asked of the read: no flag, no chunk");
    if (rc == 0 && (read->flags & SW_READ_KEEP) && !ends(read))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a read says with its end whether the region is kept");
    if (rc == 0 && !begins(read) && (read->slot || read->gen))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a read names its region with its begin only");
    if (rc == 0 && in_place && (read->flags & whole) != whole)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "an unpack begins and ends in one packet");
    if (rc == 0 && in_place && read->n_chunks != 1)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "an unpack has one chunk, not %u",
                          (unsigned)read->n_chunks);
    return rc;
}

/* Whether it is one operation of the engine: each chunk has room for all of its buffer. */
static bool is_whole(const struct sw_wire_read *read, const struct sw_wire_chunk *chunks) {
    bool is_whole = begins(read) && ends(read);
    for (unsigned i = 0; is_whole && !(read->flags & SW_READ_IN_PLACE) && i < read->n_chunks; i++)
        is_whole = chunks[i].at == 0;
    return is_whole;
}

/* Buffers without a chunk must have no bytes. */
static int check_missing(struct sw_session *session, struct sw_region_id id, const struct sw_wire_chunk *const *chunks,
                         unsigned n, struct sw_err *err) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_PARTS];
    unsigned n_known = 0;
    const int rc = sw_engine_query_buffers(session->owner, id, infos, &n_known, err);
    for (unsigned i = 0; rc == 0 && i < n && i < n_known; i++)
        if (!chunks[i] && infos[i].raw_bytes)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "buffer %u of %u has %" PRIu64 " bytes, and no chunk has room for them", i + 1, n,
                              infos[i].raw_bytes);
    return rc;
}

/* As many ranges as the region has buffers, or as chunks name, if those are more. */
static int fill_ranges(struct sw_session *session, struct sw_piece *piece, const struct sw_wire_read *read,
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
        rc =
            of_buffer[i] ? sw_chunk_range(piece, of_buffer[i], n, &ret[i], err) : sw_chunk_none(piece, n, &ret[i], err);
        if (rc < 0 && n > 1)
            sw_err_context(err, "buffer %u of %u", i + 1, n);
    }
    *ret_n = n;
    return rc;
}

static int begin_whole(struct sw_session *session, struct sw_piece *piece, const struct sw_read_part *part,
                       struct sw_err *err) {
    const struct sw_wire_read *read = part->read;
    struct sw_range ranges[SW_PROTO_MAX_BUFFERS];
    unsigned n = 0;
    ranges[0] = (struct sw_range){0};
    int rc = sw_piece_moot(piece, err);
    if (rc == 0)
        rc = fill_ranges(session, piece, read, part->chunks, ranges, &n, err);
    if (rc == 0)
        rc = sw_piece_enter(piece, true, err);
    if (rc < 0)
        return rc;
    ranges[0].in_place = (read->flags & SW_READ_IN_PLACE) != 0;
    *sw_piece_id(piece) = (struct sw_region_id){read->slot, read->gen};
    rc = sw_engine_restore_buffers(session->owner, *sw_piece_id(piece), ranges, n, part->keeps, sw_piece_ended, piece,
                                   err);
    if (rc == 0)
        sw_piece_expect(piece);
    return rc;
}

static int begin(struct sw_session *session, struct sw_piece *piece, const struct sw_read_part *part,
                 struct sw_err *err) {
    const int rc = check_read(part->read, err);
    if (rc < 0)
        return rc;
    return (is_whole(part->read, part->chunks) ? begin_whole : sw_read_part)(session, piece, part, err);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static int begin_all(struct sw_session *session, const struct sw_msg *request, const struct sw_msg_read *m,
                     struct sw_err *err) {
    const struct sw_ask ask = {.begins = count(m, begins),
                               .ends = count(m, ends),
                               .only_cancels = count(m, only_ends) == m->n_reads,
                               .all = is_all(m),
                               .keep = m->reads[0].flags & SW_READ_KEEP,
                               .n = m->n_reads,
                               .n_buffers = m->n_chunks};
    struct sw_read_part part = {.read = m->reads, .chunks = m->chunks};
    struct sw_operation *operation;
    struct sw_piece *piece;
    const int rc = sw_operation_begin(session, request, &ask, &operation, err);
    if (rc < 0)
        return rc;
    while ((piece = sw_operation_next(operation, part.read->read, 0))) {
        struct sw_err cause;
        part.keeps = ask.all || (part.read->flags & SW_READ_KEEP);
        sw_piece_begun(piece, begin(session, piece, &part, &cause), &cause);
        part.chunks += part.read->n_chunks;
        part.read++;
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
