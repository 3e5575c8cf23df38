#include "daemon/session/read_open.h"

#include "base/assert.h"
#include "daemon/session/chunks.h"
#include <inttypes.h>

static bool begins(const struct sw_read_record *record) {
    return record->read->flags & SW_READ_BEGIN;
}

static bool ends(const struct sw_read_record *record) {
    return record->read->flags & SW_READ_END;
}

/* ---- begin and chunks -------------------------------------------------------------------------------------------- */

static int begin(struct sw_session *session, struct sw_task *task, const struct sw_read_record *record,
                 struct sw_open **ret, struct sw_buffer_info *ret_buffers, unsigned *ret_n, struct sw_err *err) {
    const struct sw_region_id id = {record->read->slot, record->read->gen};
    int rc = sw_opens_begin(session, record->read->read, true, ret, err);
    if (rc < 0)
        return rc;
    rc = sw_read_begin(session->owner, id, &(*ret)->read, ret_buffers, ret_n, err);
    if (rc < 0)
        sw_open_end(session, *ret);
    else
        task->result->id = id;
    return rc;
}

static struct sw_wire_frame wire_frame(const struct sw_range *range, const struct sw_frame_layout *layout) {
    return (struct sw_wire_frame){.offset = range->offset,
                                  .bytes = layout->frame_bytes,
                                  .raw_bytes = layout->raw_bytes,
                                  .n_symbols = layout->n_symbols,
                                  .buffer = (uint16_t)range->buffer,
                                  .codec = (uint8_t)layout->codec,
                                  .value_type = (uint8_t)layout->value_type,
                                  .segment_log2 = (uint8_t)layout->segment_log2,
                                  .dictionary16 = (uint16_t)(layout->dictionary_bytes / SW_FRAME_ALIGN)};
}

static int read_chunks(struct sw_task *task, const struct sw_open *open, const struct sw_read_record *record,
                       struct sw_err *err) {
    struct sw_range ranges[SW_PROTO_MAX_ITEMS];
    struct sw_wire_frame *frames = NULL;
    const unsigned n = record->read->n_chunks;
    int rc = sw_chunks_ranges(task, record->chunks, n, ranges, err);
    if (rc == 0 && sw_chunks_count_frames(record->chunks, n))
        rc = sw_task_report_frames(task, &frames, err);
    for (unsigned i = 0; rc == 0 && i < n; i++)
        ranges[i].is_disputed = record->verifies;
    if (rc == 0 && record->gathers_at)
        ranges[0].offset = *record->gathers_at;
    if (rc == 0)
        rc = sw_read_chunks(open->read, ranges, n, sw_task_moved, task, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < n; i++)
        if (ranges[i].frame_bytes)
            *frames++ = wire_frame(&ranges[i], sw_read_layout(open->read, &ranges[i]));
    if (record->gathers_at)
        *record->gathers_at += sw_frame_step_bytes(sw_read_layout(open->read, &ranges[0])->frame_bytes);
    sw_task_expect(task);
    return 0;
}

/* ---- end --------------------------------------------------------------------------------------------------------- */

static int check_has_all(const struct sw_open *open, const struct sw_read_record *record, struct sw_err *err) {
    if ((record->read->flags & SW_READ_KEEP) || sw_read_state(open->read) == SW_READ_FAILED ||
        sw_read_has_all(open->read))
        return 0;
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                      "some of the region's chunks have not been read: read them, or keep the region");
}

/* cause: the error that it ends with; NULL: none. */
static void end(struct sw_task *task, struct sw_open *open, bool keeps, const struct sw_err *cause) {
    if (cause)
        sw_read_fail(open->read, cause);
    SW_ASSERT(sw_read_end(open->read, keeps || cause, sw_task_ended, task, NULL) == 0);
    sw_task_end(task, open);
    sw_task_expect(task);
}

static void go_on(struct sw_task *task, struct sw_open *open, const struct sw_read_record *record) {
    struct sw_err cause;
    const bool others_failed = sw_task_check_others(task, &cause) < 0;
    int rc = others_failed ? cause.code : 0;
    if (rc == 0 && record->read->n_chunks)
        rc = read_chunks(task, open, record, &cause);
    if (rc == 0 && ends(record))
        rc = check_has_all(open, record, &cause);
    const bool stays = rc < 0 && !others_failed && !begins(record) && !(record->read->flags & SW_READ_KEEP);
    if (rc < 0)
        sw_task_fail(task, &cause);
    if (ends(record) && !stays)
        end(task, open, record->keeps, rc < 0 ? &cause : NULL);
}

/* ---- a record ---------------------------------------------------------------------------------------------------- */

/* A frame that is gathered is all of its region. */
static int check_gathered(const struct sw_read_record *record, const struct sw_buffer_info *buffers, unsigned n,
                          struct sw_err *err) {
    if (!record->gathers_at || (n == 1 && buffers->raw_bytes && buffers->raw_bytes <= buffers->chunk_bytes))
        return 0;
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "the region is not of one frame, so it cannot be gathered");
}

static int begin_and_tell(struct sw_session *session, struct sw_task *task, const struct sw_read_record *record,
                          struct sw_err *err) {
    struct sw_buffer_info buffers[SW_FRAMES_MAX_BUFFERS];
    struct sw_open *open;
    struct sw_err cause;
    unsigned n = 0;
    int rc = sw_task_check_others(task, err);
    if (rc == 0)
        rc = begin(session, task, record, &open, buffers, &n, err);
    if (rc < 0)
        return rc;
    rc = check_gathered(record, buffers, n, &cause);
    if (rc == 0 && !ends(record))
        rc = sw_task_report_buffers(task, buffers, n, &cause);
    if (rc < 0)
        end(task, open, true, &cause);
    else
        go_on(task, open, record);
    return 0;
}

/* Finds the read, or cancels one that another packet ends. */
static int find(const struct sw_session *session, const struct sw_read_record *record, struct sw_open **ret,
                struct sw_err *err) {
    const int rc = sw_opens_find(session, record->read->read, true, ret, err);
    if (rc < 0 || !(*ret)->task)
        return rc;
    if (record->read->flags != (SW_READ_END | SW_READ_KEEP) || record->read->n_chunks)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "read %" PRIu32 " was ended already", record->read->read);
    sw_task_cancel((*ret)->task);
    return sw_err_set(err, -SW_ECANCELED, SW_SCOPE_REQUEST,
                      "read %" PRIu32 " was canceled: the reply to its last packet has the result", record->read->read);
}

int sw_read_apply(struct sw_session *session, struct sw_task *task, const struct sw_read_record *record,
                  struct sw_err *err) {
    struct sw_open *open;
    if (begins(record))
        return begin_and_tell(session, task, record, err);
    const int rc = find(session, record, &open, err);
    if (rc == 0)
        go_on(task, open, record);
    return rc;
}
