#include "daemon/session/batch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/session/operation.h"
#include "ipc/span.h"
#include <inttypes.h>
#include <string.h>

/* Of a spill, pieces that the worker gets at once: it begins with them while the next ones are being looked at. */
enum { POSTED_PIECES = 64 };

struct piece {
    struct batch *batch;
    struct sw_region_id id;
    enum { PIECE_RUNS, PIECE_FAILED, PIECE_DONE } state;
};

struct batch {
    struct sw_deferred_reply *deferred;
    struct sw_session *session;
    bool is_spill, keep;
    uint64_t begun_us;
    struct sw_result all; /* pieces so far; texts of all, or "mixed"; NULL: none has ended well */
    struct sw_err err;    /* the first failure */
    unsigned n, n_begun, n_ended;
    struct piece pieces[];
};

/* ---- pieces end -------------------------------------------------------------------------------------------------- */

static void fail(struct batch *batch, const struct piece *piece, const struct sw_err *cause) {
    if (batch->err.code)
        return;
    batch->err = *cause;
    sw_err_context(&batch->err, "piece %u of %u", (unsigned)(piece - batch->pieces) + 1, batch->n);
    for (unsigned i = 0; i < batch->n_begun; i++)
        if (batch->pieces[i].state == PIECE_RUNS)
            sw_engine_cancel(batch->session->owner, batch->pieces[i].id);
}

/* Names are few and static: the same one is mostly the same pointer. */
static void combine(const char **all, const char *piece) {
    if (!*all)
        *all = piece;
    else if (*all != piece && strcmp(*all, piece) != 0)
        *all = "mixed";
}

static void add(struct batch *batch, const struct sw_outcome *outcome) {
    batch->all.raw_bytes += outcome->raw_bytes;
    batch->all.stored_bytes += outcome->stored_bytes;
    combine(&batch->all.codec, sw_codec_name(outcome->codec));
    combine(&batch->all.tier, outcome->tier);
    combine(&batch->all.reason, outcome->reason);
}

/* Stored copies that nobody is to know of: those of a spill that failed, and of a restore that is complete. One that
 * is gone went with the session, or its client guessed its id. */
static void drop_stored(const struct batch *batch) {
    for (unsigned i = 0; i < batch->n_begun; i++)
        if (batch->pieces[i].state == PIECE_DONE)
            (void)(batch->is_spill ? sw_engine_drop : sw_engine_consume)(batch->session->owner, batch->pieces[i].id,
                                                                         NULL);
}

static void fill_reply(const struct batch *batch, struct sw_msg *ret) {
    struct sw_region_id ids[SW_PROTO_MAX_BATCH];
    for (unsigned i = 0; i < batch->n; i++)
        ids[i] = batch->pieces[i].id;
    sw_result_fill_batch(ret, &batch->all, ids, batch->n);
}

static void log_done(const struct batch *batch) {
    sw_log(SW_LOG_OPERATION, batch->is_spill ? "spill_batch.done" : "restore_batch.done",
           "session=%" PRIu32 " n=%u bytes=%" PRIu64 " stored=%" PRIu64 " us=%" PRIu64
           " codec=%s tier=%s reason=\"%s\"",
           batch->session->id, batch->n, batch->all.raw_bytes, batch->all.stored_bytes, batch->all.service_us,
           batch->all.codec, batch->all.tier, batch->all.reason);
}

static void finish(struct batch *batch) {
    const struct sw_service *service = batch->session->service;
    const bool failed = batch->err.code != 0;
    struct sw_msg msg;
    batch->all.service_us = sw_clock_us() - batch->begun_us;
    if (!failed) {
        if (sw_tenant_may_log(batch->session->tenant, SW_LINES_OTHER))
            log_done(batch);
        fill_reply(batch, &msg);
        for (unsigned i = 0; !batch->is_spill && !batch->keep && i < batch->n; i++)
            sw_engine_announce_consumed(batch->session->owner, batch->pieces[i].id);
        sw_session_reply_early(batch->deferred, &msg); /* the drops take a tenth of a restore's time */
    }
    if (batch->is_spill ? failed : !failed && !batch->keep)
        drop_stored(batch);
    sw_session_finish_reply(batch->deferred, NULL, &batch->err);
    sw_free(batch);
    if (failed)
        sw_service_check_devices(service);
}

static void on_piece(const struct sw_outcome *outcome, void *arg) {
    struct piece *piece = arg;
    struct batch *batch = piece->batch;
    piece->state = outcome->err.code ? PIECE_FAILED : PIECE_DONE;
    if (outcome->err.code)
        fail(batch, piece, &outcome->err);
    else
        add(batch, outcome);
    if (++batch->n_ended == batch->n_begun)
        finish(batch);
}

/* ---- batches begin ----------------------------------------------------------------------------------------------- */

static int check_count(uint32_t count, struct sw_err *err) {
    if (count < 1 || count > SW_PROTO_MAX_BATCH)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "batch of %" PRIu32 " pieces, must be 1 to %u", count,
                          (unsigned)SW_PROTO_MAX_BATCH);
    return 0;
}

/* word, value: of the order, by operation->flags. *ret_range: memory and order are filled in. NULL: *err says why. */
static struct batch *batch_begin(struct sw_session *session, const struct sw_msg *request,
                                 const struct sw_operation *operation, uint32_t word, uint64_t value,
                                 struct sw_range *ret_range, struct sw_err *err) {
    struct sw_deferred_reply *deferred = NULL;
    struct batch *batch = NULL;
    const size_t bytes = sizeof *batch + operation->n_pieces * sizeof batch->pieces[0];
    if (sw_operation_begin(session, request, operation, &deferred, &ret_range->mem, err) < 0)
        return NULL;
    if (deferred->once)
        (void)sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "memory %" PRIu32 " was handed over for one operation only",
                         operation->mem);
    else if (sw_orders_find(&session->orders, operation->flags & SW_REQ9_ORDER, word, value, &ret_range->order, err) ==
                 0 &&
             sw_session_keep(deferred, bytes, "a batch", err) == 0 && !(batch = sw_alloc(bytes)))
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a batch of %u pieces", operation->n_pieces);
    if (!batch) {
        (void)sw_operation_refused(deferred, err->code);
        return NULL;
    }
    batch->deferred = deferred;
    batch->session = session;
    batch->begun_us = sw_clock_us();
    batch->is_spill = request->header.type == SW_MSG_SPILL_BATCH;
    batch->keep = operation->flags & SW_REQ9_KEEP;
    batch->n = operation->n_pieces;
    return batch;
}

/* A piece was accepted by the engine, or refused with rc: then so is the batch, and what it has begun is canceled. */
static bool piece_begun(struct batch *batch, struct piece *piece, int rc, const struct sw_err *err) {
    struct sw_engine *engine = batch->session->service->engine;
    if (rc < 0) {
        fail(batch, piece, err);
        return false;
    }
    batch->n_begun++;
    /* Destinations stay untouched if any piece of a restore is refused. */
    if (batch->is_spill && batch->n_begun % POSTED_PIECES == 0) {
        sw_engine_release(engine);
        sw_engine_hold(engine);
    }
    return true;
}

/* All pieces have begun, or one was refused: then the error comes with the end of those that have. */
static int batch_begun(struct batch *batch, struct sw_err *err) {
    if (batch->n_begun)
        return SW_REPLY_LATER;
    *err = batch->err;
    struct sw_deferred_reply *deferred = batch->deferred;
    sw_free(batch);
    return sw_operation_refused(deferred, err->code);
}

static int spill_piece(struct piece *piece, const struct sw_range *range, struct sw_err *err) {
    return sw_engine_spill(piece->batch->session->owner, range, on_piece, piece, &piece->id, err);
}

/* The stored copy is kept until all are back. */
static int restore_piece(struct piece *piece, const struct sw_range *range, struct sw_err *err) {
    return sw_engine_restore(piece->batch->session->owner, piece->id, range, true, on_piece, piece, err);
}

/* Starts the pieces, one behind the other, until one is refused. range: memory and order, for all. restore: NULL for a
 * spill. */
static int begin_pieces(struct batch *batch, struct sw_range range, const struct sw_msg_restore_batch *restore,
                        const uint64_t *offset, const uint64_t *bytes, struct sw_err *err) {
    bool goes_on = true;
    sw_engine_hold(batch->session->service->engine);
    for (unsigned i = 0; goes_on && i < batch->n; i++) {
        struct piece *piece = &batch->pieces[i];
        piece->batch = batch;
        if (restore)
            piece->id = (struct sw_region_id){restore->slot[i], restore->gen[i]};
        range.offset = offset[i];
        range.bytes = bytes[i];
        range.piece = i;
        const int rc = restore ? restore_piece(piece, &range, err) : spill_piece(piece, &range, err);
        goes_on = piece_begun(batch, piece, rc, err);
    }
    sw_engine_release(batch->session->service->engine);
    return batch_begun(batch, err);
}

int sw_on_spill_batch(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_spill_batch *spill = &request->msg->u.spill_batch;
    const struct sw_operation operation = {
        .mem = spill->mem, .flags = spill->flags, .known_flags = SW_REQ9_ORDER, .n_pieces = spill->count};
    struct sw_range range = {.request = request->msg->header.seq};
    (void)ret_reply;
    struct batch *batch =
        check_count(spill->count, err) == 0
            ? batch_begin(session, request->msg, &operation, spill->order_word, spill->order_value, &range, err)
            : NULL;
    return !batch ? err->code : begin_pieces(batch, range, NULL, spill->offset, spill->bytes, err);
}

static int check_overlap(const struct sw_msg_restore_batch *restore, struct sw_err *err) {
    struct sw_span spans[SW_PROTO_MAX_BATCH];
    for (uint32_t i = 0; i < restore->count; i++)
        spans[i] = (struct sw_span){restore->offset[i], restore->bytes[i]};
    if (sw_spans_overlap(spans, restore->count))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "destinations of a batch overlap");
    return 0;
}

int sw_on_restore_batch(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_restore_batch *restore = &request->msg->u.restore_batch;
    const struct sw_operation operation = {.mem = restore->mem,
                                           .flags = restore->flags,
                                           .known_flags = SW_REQ9_ORDER | SW_REQ9_KEEP,
                                           .n_pieces = restore->count};
    struct sw_range range = {0};
    (void)ret_reply;
    struct batch *batch =
        check_count(restore->count, err) == 0 && check_overlap(restore, err) == 0
            ? batch_begin(session, request->msg, &operation, restore->order_word, restore->order_value, &range, err)
            : NULL;
    return !batch ? err->code : begin_pieces(batch, range, restore, restore->offset, restore->bytes, err);
}

int sw_on_drop_batch(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_drop_batch *drop = &request->msg->u.drop_batch;
    struct sw_err first = {0};
    int rc = check_count(drop->count, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < drop->count; i++) {
        struct sw_err *cause = first.code ? NULL : &first;
        const struct sw_region_id id = {drop->slot[i], drop->gen[i]};
        rc = drop->consume ? sw_engine_consume(session->owner, id, cause) : sw_engine_drop(session->owner, id, cause);
        if (rc < 0 && cause)
            sw_err_context(&first, "piece %" PRIu32 " of %" PRIu32, i + 1, drop->count);
    }
    sw_msg_init(ret_reply, SW_MSG_OK);
    *err = first;
    return first.code;
}
