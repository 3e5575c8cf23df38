#include "daemon/session/build_open.h"

#include "base/assert.h"
#include "daemon/session/chunks.h"
#include <inttypes.h>
#include <string.h>

/* ---- what whole builds need, too --------------------------------------------------------------------------------- */

int sw_build_check_buffer(const struct sw_wire_buffer *buffer, struct sw_err *err) {
    return sw_check_reserved(buffer->codec | buffer->reason | buffer->stored_bytes, err);
}

int sw_build_take_name(struct sw_session *session, const struct sw_build_part *part, char ret[SW_PROTO_NAME_BYTES],
                       struct sw_err *err) {
    const unsigned bytes = part->build->name_bytes;
    memcpy(ret, part->name, bytes);
    ret[bytes] = 0;
    if (strlen(ret) != bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name must have no zero in it");
    return sw_tenant_inherit(session->service, session->tenant, session->owner, err);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* The longest chunk that the engine and all devices take: which of them has the memory is not known yet. */
static uint64_t most_chunk_bytes(const struct sw_service *service) {
    uint64_t most = sw_engine_chunk_bytes(service->engine);
    for (unsigned i = 0; i < service->n_devices; i++) {
        const uint64_t bytes = service->devices[i]->ops->info(service->devices[i])->chunk_bytes;
        most = bytes < most ? bytes : most;
    }
    return most;
}

/* The largest divisor of what the client wishes: so what it appends is whole chunks still. 0 stays 0. */
static int choose_chunk_bytes(const struct sw_service *service, uint32_t wish, uint64_t *ret, struct sw_err *err) {
    const uint64_t steps = wish / SW_BUILD_CHUNK_STEP_BYTES,
                   most = most_chunk_bytes(service) / SW_BUILD_CHUNK_STEP_BYTES;
    uint64_t n = steps < most ? steps : most > 0 ? most : 1; /* which the engine refuses by name */
    if (wish % SW_BUILD_CHUNK_STEP_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "chunks of %" PRIu32 " bytes, must be a multiple of %d",
                          wish, SW_BUILD_CHUNK_STEP_BYTES);
    while (n > 1 && steps % n)
        n--;
    *ret = n * SW_BUILD_CHUNK_STEP_BYTES;
    return 0;
}

static int fill_buffers(const struct sw_session *session, const struct sw_build_part *part,
                        struct sw_build_buffer_config *ret, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < part->build->n_buffers; i++) {
        const struct sw_wire_buffer *buffer = &part->buffers[i];
        ret[i] = (struct sw_build_buffer_config){.raw_bytes = buffer->raw_bytes,
                                                 .type = (enum sw_value_type)buffer->value_type};
        rc = sw_build_check_buffer(buffer, err);
        if (rc == 0)
            rc = choose_chunk_bytes(session->service, buffer->chunk_bytes, &ret[i].chunk_bytes, err);
        if (rc < 0 && part->build->n_buffers > 1)
            sw_err_context(err, "buffer %u of %u", i + 1, (unsigned)part->build->n_buffers);
    }
    return rc;
}

static int begin(struct sw_session *session, const struct sw_build_part *part, struct sw_open **ret,
                 struct sw_err *err) {
    struct sw_build_buffer_config buffers[SW_PROTO_MAX_BUFFERS];
    char name[SW_PROTO_NAME_BYTES];
    const struct sw_wire_build *build = part->build;
    const struct sw_build_config config = {.buffers = buffers,
                                           .n_buffers = build->n_buffers,
                                           .name = build->name_bytes ? name : NULL,
                                           .priority = build->keep_priority};
    int rc = fill_buffers(session, part, buffers, err);
    if (rc == 0 && build->name_bytes)
        rc = sw_build_take_name(session, part, name, err);
    if (rc == 0)
        rc = sw_opens_begin(session, build->build, false, ret, err);
    if (rc < 0)
        return rc;
    rc = sw_build_begin(session->owner, &config, &(*ret)->build, err);
    if (rc < 0)
        sw_open_end(session, *ret);
    return rc;
}

/* ---- append ------------------------------------------------------------------------------------------------------ */

static int append(struct sw_piece *piece, const struct sw_open *open, const struct sw_build_part *part,
                  struct sw_err *err) {
    struct sw_range ranges[SW_PROTO_MAX_ITEMS];
    int rc = sw_chunks_ranges(piece, part->chunks, part->build->n_chunks, ranges, err);
    if (rc == 0)
        rc = sw_build_append(open->build, ranges, part->build->n_chunks, sw_piece_moved, piece, err);
    if (rc == 0)
        sw_piece_expect(piece);
    return rc;
}

/* ---- commit and abort -------------------------------------------------------------------------------------------- */

static void end_failed(const struct sw_build_end *end, const struct sw_err *cause) {
    sw_build_fail(end->build, cause);
    SW_ASSERT(sw_build_commit(end->build, 0, 0, sw_piece_ended, end->arg, NULL) == 0);
}

/* Whatever is wrong, the build ends: what failed before is then told by the engine. */
static void commit(struct sw_piece *piece, struct sw_open *open, struct sw_build_batch *batch) {
    const struct sw_build_end end = {open->build, sw_piece_index(piece), piece};
    struct sw_err err;
    if (batch)
        batch->ends[batch->n++] = end;
    else if (sw_build_commit(end.build, sw_piece_seq(piece), end.index, sw_piece_ended, piece, &err) < 0)
        end_failed(&end, &err);
    sw_piece_end(piece, open);
    sw_piece_expect(piece);
}

void sw_build_commit_all(const struct sw_build_batch *batch, const struct sw_piece *last) {
    struct sw_err err;
    if (batch->n == 0)
        return;
    int rc = sw_piece_moot(last, &err);
    if (rc == 0)
        rc = sw_build_commit_batch(batch->ends, batch->n, sw_piece_seq(last), sw_piece_ended, &err);
    for (unsigned i = 0; rc < 0 && i < batch->n; i++)
        end_failed(&batch->ends[i], &err);
}

static int abort_build(struct sw_session *session, struct sw_piece *piece, uint32_t number, struct sw_err *err) {
    struct sw_open *open;
    const int rc = sw_opens_find(session, number, false, &open, err);
    if (rc < 0)
        return rc;
    if (open->piece) {
        sw_piece_cancel(open->piece);
        return sw_err_set(err, -SW_ECANCELED, SW_SCOPE_REQUEST,
                          "build %" PRIu32 " was canceled: the reply to its last packet says what has become of it",
                          number);
    }
    SW_ASSERT(sw_build_abort(open->build, sw_piece_ended, piece, err) == 0);
    sw_piece_end(piece, open);
    sw_piece_expect(piece);
    return 0;
}

/* ---- a part ------------------------------------------------------------------------------------------------------ */

static int find(const struct sw_session *session, uint32_t number, struct sw_open **ret, struct sw_err *err) {
    const int rc = sw_opens_find(session, number, false, ret, err);
    if (rc == 0 && (*ret)->piece)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "build %" PRIu32 " was committed or aborted already",
                          number);
    return rc;
}

int sw_build_part(struct sw_session *session, struct sw_piece *piece, const struct sw_build_part *part,
                  struct sw_err *err) {
    const struct sw_wire_build *build = part->build;
    const bool begins = build->flags & SW_BUILD_BEGIN;
    struct sw_open *open;
    struct sw_err cause;
    if (build->flags & SW_BUILD_ABORT)
        return abort_build(session, piece, build->build, err);
    int rc = begins ? sw_piece_moot(piece, err) : 0;
    if (rc == 0)
        rc = begins ? begin(session, part, &open, err) : find(session, build->build, &open, err);
    if (rc < 0)
        return rc;
    rc = sw_piece_moot(piece, &cause);
    if (rc == 0 && build->n_chunks)
        rc = append(piece, open, part, &cause);
    if (rc == 0 && part->batch)
        rc = sw_build_check(open->build, &cause);
    if (rc < 0) {
        sw_build_fail(open->build, &cause);
        sw_piece_fail(piece, &cause);
    }
    if (build->flags & SW_BUILD_COMMIT)
        commit(piece, open, part->batch);
    return 0;
}
