#include "daemon/session/build_open.h"

#include "base/assert.h"
#include "daemon/session/chunks.h"
#include "daemon/session/coder.h"
#include <inttypes.h>
#include <string.h>

/* ---- also for whole builds --------------------------------------------------------------------------------------- */

int sw_build_check_buffer(const struct sw_wire_buffer *buffer, struct sw_err *err) {
    return sw_check_reserved(buffer->codec | buffer->reason | buffer->stored_bytes, err);
}

int sw_build_take_name(struct sw_session *session, const struct sw_build_record *record, char ret[SW_PROTO_NAME_BYTES],
                       struct sw_err *err) {
    const unsigned bytes = record->build->name_bytes;
    memcpy(ret, record->name, bytes);
    ret[bytes] = 0;
    if (strlen(ret) != bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name must not contain a zero byte");
    return sw_tenant_enable_durable(session->service, session->tenant, session->owner, err);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* Chooses the largest allowed divisor of the wanted length, so that appended chunks stay multiples of it. 0 stays 0. */
static int choose_chunk_bytes(const struct sw_service *service, uint32_t wish, uint64_t *ret, struct sw_err *err) {
    const uint64_t steps = wish / SW_BUILD_CHUNK_STEP_BYTES,
                   most = sw_coder_chunk_bytes(service) / SW_BUILD_CHUNK_STEP_BYTES;
    uint64_t n = steps < most ? steps : most > 0 ? most : 1; /* the engine refuses 0 */
    if (wish % SW_BUILD_CHUNK_STEP_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "chunks of %" PRIu32 " bytes, must be a multiple of %d",
                          wish, SW_BUILD_CHUNK_STEP_BYTES);
    while (n > 1 && steps % n)
        n--;
    *ret = n * SW_BUILD_CHUNK_STEP_BYTES;
    return 0;
}

static int fill_buffers(const struct sw_session *session, const struct sw_build_record *record,
                        struct sw_build_buffer_config *ret, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < record->build->n_buffers; i++) {
        const struct sw_wire_buffer *buffer = &record->buffers[i];
        ret[i] = (struct sw_build_buffer_config){.raw_bytes = buffer->raw_bytes,
                                                 .type = (enum sw_value_type)buffer->value_type};
        rc = sw_build_check_buffer(buffer, err);
        if (rc == 0)
            rc = choose_chunk_bytes(session->service, buffer->chunk_bytes, &ret[i].chunk_bytes, err);
        if (rc < 0 && record->build->n_buffers > 1)
            sw_err_context(err, "buffer %u of %u", i + 1, (unsigned)record->build->n_buffers);
    }
    return rc;
}

static int begin(struct sw_session *session, const struct sw_build_record *record, struct sw_open **ret,
                 struct sw_err *err) {
    struct sw_build_buffer_config buffers[SW_PROTO_MAX_BUFFERS];
    char name[SW_PROTO_NAME_BYTES];
    const struct sw_wire_build *build = record->build;
    const struct sw_build_config config = {.buffers = buffers,
                                           .n_buffers = build->n_buffers,
                                           .name = build->name_bytes ? name : NULL,
                                           .durability = (enum sw_durability)build->durability,
                                           .priority = build->keep_priority,
                                           .prefer = (enum sw_prefer)build->prefer};
    int rc = fill_buffers(session, record, buffers, err);
    if (rc == 0 && build->name_bytes)
        rc = sw_build_take_name(session, record, name, err);
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

static int append(struct sw_task *task, const struct sw_open *open, const struct sw_build_record *record,
                  struct sw_err *err) {
    struct sw_range ranges[SW_PROTO_MAX_ITEMS];
    int rc = sw_chunks_ranges(task, record->chunks, record->build->n_chunks, ranges, err);
    if (rc == 0)
        rc = sw_build_append(open->build, ranges, record->build->n_chunks, sw_task_moved, task, err);
    if (rc == 0)
        sw_task_expect(task);
    return rc;
}

/* ---- commit and abort -------------------------------------------------------------------------------------------- */

static void end_failed(const struct sw_build_end *end, const struct sw_err *cause) {
    sw_build_fail(end->build, cause);
    SW_ASSERT(sw_build_commit(end->build, 0, 0, sw_task_ended, end->arg, NULL) == 0);
}

/* Ends the build in any case. The engine reports an earlier error. */
static void commit(struct sw_task *task, struct sw_open *open, struct sw_build_batch *batch) {
    const struct sw_build_end end = {open->build, task->index, task};
    struct sw_err err;
    if (batch)
        batch->ends[batch->n++] = end;
    else if (sw_build_commit(end.build, task->seq, end.index, sw_task_ended, task, &err) < 0)
        end_failed(&end, &err);
    sw_task_end(task, open);
    sw_task_expect(task);
}

void sw_build_commit_all(const struct sw_build_batch *batch, const struct sw_task *last) {
    struct sw_err err;
    if (batch->n == 0)
        return;
    int rc = sw_task_check_others(last, &err);
    if (rc == 0)
        rc = sw_build_commit_batch(batch->ends, batch->n, last->seq, sw_task_ended, &err);
    for (unsigned i = 0; rc < 0 && i < batch->n; i++)
        end_failed(&batch->ends[i], &err);
}

static int abort_build(struct sw_session *session, struct sw_task *task, uint32_t number, struct sw_err *err) {
    struct sw_open *open;
    const int rc = sw_opens_find(session, number, false, &open, err);
    if (rc < 0)
        return rc;
    if (open->task) {
        sw_task_cancel(open->task);
        return sw_err_set(err, -SW_ECANCELED, SW_SCOPE_REQUEST,
                          "build %" PRIu32 " was canceled: the reply to its last packet has the result", number);
    }
    SW_ASSERT(sw_build_abort(open->build, sw_task_ended, task, err) == 0);
    sw_task_end(task, open);
    sw_task_expect(task);
    return 0;
}

/* ---- a record ---------------------------------------------------------------------------------------------------- */

static int find(const struct sw_session *session, uint32_t number, struct sw_open **ret, struct sw_err *err) {
    const int rc = sw_opens_find(session, number, false, ret, err);
    if (rc == 0 && (*ret)->task)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "build %" PRIu32 " was committed or aborted already",
                          number);
    return rc;
}

int sw_build_apply(struct sw_session *session, struct sw_task *task, const struct sw_build_record *record,
                   struct sw_err *err) {
    const struct sw_wire_build *build = record->build;
    const bool begins = build->flags & SW_BUILD_BEGIN;
    struct sw_open *open;
    struct sw_err cause;
    if (build->flags & SW_BUILD_ABORT)
        return abort_build(session, task, build->build, err);
    int rc = begins ? sw_task_check_others(task, err) : 0;
    if (rc == 0)
        rc = begins ? begin(session, record, &open, err) : find(session, build->build, &open, err);
    if (rc < 0)
        return rc;
    rc = sw_task_check_others(task, &cause);
    if (rc == 0 && build->n_chunks)
        rc = append(task, open, record, &cause);
    if (rc == 0 && record->batch)
        rc = sw_build_check(open->build, &cause);
    if (rc < 0) {
        sw_build_fail(open->build, &cause);
        sw_task_fail(task, &cause);
    }
    if (build->flags & SW_BUILD_COMMIT)
        commit(task, open, record->batch);
    return 0;
}
